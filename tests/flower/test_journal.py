"""An agent's journal loses nothing that was complete, and forgives only a torn last line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from flwr.app.user_config import UserConfig
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.clients.tuning_client import partition_of
from flwr_fbo.runs.files import journal as journals
from flwr_fbo.runs.files.checks import LAYOUT, Chain
from flwr_fbo.runs.files.journal import Journal, cached_journal, exclusive, journal_path
from flwr_fbo.runs.files.journal_check import (
    JournalBusyError,
    JournalError,
    JournalOwner,
    head_path,
)
from flwr_fbo.strategies.baselines import LocalTS

from .test_strategies import SMALL, Make


def test_what_is_appended_is_read_back_by_kind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "a.jsonl")
    journal.append("evaluation", {"score": 1.5, "seconds": 0.0})
    journal.append("charge", {"epsilon": 1.0})
    journal.append("evaluation", {"score": None, "seconds": 9.0})
    for again in (journal, Journal(journal.path)):
        assert [r["score"] for r in again.read("evaluation")] == [1.5, None]
        assert again.read("charge") == [{"epsilon": 1.0}]
        assert again.read("nothing") == []


QUICK: dict[str, Any] = {"seconds": 0.0}  # work that is not worth a flush


def numbers(journal: Journal) -> list[int]:
    return [r["number"] for r in journal.read("evaluation")]


@given(cut=st.integers(0, 200))
def test_a_torn_last_line_is_dropped_and_mended(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A crash in the middle of a write: the line is torn, and its head was not written."""
    path = tmp_path_factory.mktemp("journal") / "a.jsonl"
    journal = Journal(path)
    for i in range(3):
        journal.append("evaluation", {"number": i})
    stored, head = path.read_bytes(), head_path(path).read_bytes()
    journal.append("evaluation", {"number": 3})
    path.write_bytes(path.read_bytes()[: len(stored) + cut])
    head_path(path).write_bytes(head)
    complete = path.read_bytes().count(b"\n") - 1
    again = Journal(path)
    assert again.lost == 0
    assert numbers(again) == list(range(complete))
    again.append("evaluation", {"number": 99})
    assert numbers(Journal(path)) == [*range(complete), 99]


@given(cut=st.integers(0, 400))
def test_lines_that_were_never_flushed_may_be_lost_and_are_counted(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """A power cut: the file lost its end, the head did not."""
    path = tmp_path_factory.mktemp("journal") / "a.jsonl"
    journal = Journal(path)
    for i in range(4):
        journal.append("evaluation", {"number": i, **QUICK})
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])
    complete = max(path.read_bytes().count(b"\n") - 1, 0)
    again = Journal(path)
    assert numbers(again) == list(range(complete))
    assert again.lost == 4 - complete
    again.append("evaluation", {"number": 99, **QUICK})
    last = Journal(path)
    assert numbers(last) == [*range(complete), 99]
    assert last.lost == 0  # said once, and now the journal is as long as its head says


@given(cut=st.integers(0, 400))
def test_lines_that_were_flushed_cannot_be_lost(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "a.jsonl"
    journal = Journal(path)
    for i in range(4):
        journal.append("evaluation", {"number": i})
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    if cut >= len(whole):
        assert len(numbers(Journal(path))) == 4
        return
    for _ in range(2):  # an attempt that is refused must not make the next one pass
        with pytest.raises(JournalError, match=r"a\.jsonl holds .* records are missing"):
            Journal(path)


@pytest.mark.parametrize("line", [b"not json", b"[]", b"{}", b'{"score": 1}', b"3", b""])
def test_damage_before_the_end_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(JournalError, match="line 3 does not fit its checksum"):
        Journal(path)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Each bit of a journal: refused, or (a torn last line) counted as lost."""
    path = tmp_path / "a.jsonl"
    journal = Journal(path, JournalOwner("run", 1))
    for i in range(2):
        journal.append("evaluation", {"number": i, **QUICK})
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            found = Journal(path, JournalOwner("run", 1), reading=True)
        except JournalError:
            continue
        assert found.lost, (place, bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:2], lines[1], *lines[2:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: lines[1:],
    ],
    ids=["doubled", "missing", "swapped", "no header"],
)
def test_lines_out_of_place_are_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 2, 3)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(JournalError, match="does not fit its checksum"):
        Journal(path)


def test_a_journal_of_another_agent_or_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path, JournalOwner("monday", 1)).append("evaluation", {"number": 1})
    assert numbers(Journal(path, JournalOwner("monday", 1))) == [1]
    for owner in (JournalOwner("tuesday", 1), JournalOwner("monday", 2)):
        with pytest.raises(JournalError, match="but holds those of agent 1 in run monday"):
            Journal(path, owner)
        with pytest.raises(JournalError, match="another `run-name`"):
            cached_journal(path, owner)


def test_a_journal_of_an_older_version_is_refused_by_version(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"kind":"evaluation","score":1}\n')
    with pytest.raises(JournalError, match="is of another version of flwr-fbo"):
        Journal(path)


def test_a_damaged_head_costs_nothing_but_its_knowledge(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path).append("evaluation", {"number": 1})
    for head in (b"", b"garbage", b"\x00" * 100):
        head_path(path).write_bytes(head)
        assert numbers(Journal(path)) == [1]
    head_path(path).unlink()
    again = Journal(path)
    again.append("evaluation", {"number": 2})
    assert head_path(path).exists()
    assert numbers(Journal(path)) == [1, 2]


def test_a_forked_process_appends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    journal = Journal(path)
    journal.append("evaluation", {"number": 1})
    child = os.fork()
    if child == 0:
        try:
            journal.append("evaluation", {"number": 2})
        except JournalError as error:
            os._exit(0 if "was forked from process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert numbers(Journal(path)) == [1]


def test_numbers_json_does_not_know_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append("evaluation", {"score": float("nan")})
    assert not journal.path.exists()


def test_reading_leaves_a_line_that_is_being_written_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, end='{"kind":"eval')
    assert Journal(path, reading=True).read("evaluation") == [{"score": 1}]
    assert path.read_bytes().endswith(b'{"kind":"eval')
    assert Journal(tmp_path / "none.jsonl", reading=True).read("evaluation") == []
    assert not (tmp_path / "none.jsonl").exists()
    with pytest.raises(JournalError, match="for reading only"):
        Journal(path, reading=True).append("evaluation", {})


def scores(journal: Journal) -> list[Any]:
    return [r["score"] for r in journal.read("evaluation")]


def write(path: Path, *numbers: float, end: str = "") -> None:
    """A journal with these scores, as another process would leave it, without a head."""
    chain = Chain()
    texts = [f'{{"kind":"evaluation","score":{n:g}}}' for n in numbers]
    header = f'{{"kind":"journal","layout":{LAYOUT}}}'
    lines = [chain.add(text.encode()) for text in [header, *texts]]
    path.write_bytes(b"".join(lines) + end.encode())
    head_path(path).unlink(missing_ok=True)


def test_a_kept_journal_parses_no_line_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parsed = tmp_path / "a.jsonl", list[bytes]()
    loads = journals.json.loads

    def noted(text: bytes) -> Any:
        if b'"evaluation"' in text:
            parsed.append(text)
        return loads(text)

    monkeypatch.setattr(journals.json, "loads", noted)
    write(path, 1, 2, 3)
    assert scores(cached_journal(path)) == [1, 2, 3]
    assert len(parsed) == 3
    cached_journal(path).append("evaluation", {"score": 4.0})
    assert scores(cached_journal(path)) == [1, 2, 3, 4]
    assert len(parsed) == 4


OTHER = "import sys; from flwr_fbo.runs.files.journal import *; "


def test_what_another_process_appends_is_read(tmp_path: Path) -> None:
    """An agent's messages go to worker A, then B, then A again."""
    path = tmp_path / "a.jsonl"
    cached_journal(path).append("evaluation", {"score": 1.0})
    code = "cached_journal(Path(sys.argv[1])).append('evaluation', {'score': 2.0})"
    subprocess.run([sys.executable, "-c", OTHER + code, str(path)], check=True)
    here = cached_journal(path)
    assert scores(here) == [1, 2]
    here.append("evaluation", {"score": 3.0})
    assert scores(cached_journal(path)) == scores(Journal(path)) == [1, 2, 3]


@pytest.mark.parametrize(
    "now",
    [(), (1,), (1, 2), (1, 2, 4), (9, 2, 3), (1, 9, 3), (9,), (9, 8, 7, 6), (1, 2, 3, 4)],
    ids=str,
)
@pytest.mark.parametrize("how", ["written over", "replaced", "deleted first"])
@pytest.mark.parametrize("end", ["", '{"kind":"eval'])
def test_a_kept_journal_is_what_its_file_is(
    tmp_path: Path, now: tuple[float, ...], how: str, end: str
) -> None:
    """Cut, rolled back, changed in the middle at the same length and time, another run's."""
    path, other = tmp_path / "a.jsonl", tmp_path / "other"
    write(path, 1, 2, 3)
    stamp = path.stat()
    assert scores(cached_journal(path)) == [1, 2, 3]
    write(other, *now, end=end)
    if how == "written over":
        path.write_bytes(other.read_bytes())
    elif how == "replaced":
        other.replace(path)
    else:
        path.unlink()
        other.rename(path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert scores(cached_journal(path)) == list(now)
    cached_journal(path).append("evaluation", {"score": 5.0})
    assert scores(Journal(path)) == [*now, 5]


def test_a_journal_that_is_gone_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    cached_journal(path).append("evaluation", {"score": 1.0})
    path.unlink()
    with pytest.raises(JournalError, match="records are missing"):
        cached_journal(path)
    head_path(path).unlink()
    assert scores(cached_journal(path)) == []


def test_a_damaged_journal_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 2)
    assert scores(cached_journal(path)) == [1, 2]
    path.write_bytes(path.read_bytes() + b"3\nnot json\n")
    for _ in range(2):
        with pytest.raises(JournalError, match="line 4 does not fit its checksum"):
            cached_journal(path)
    write(path, 1, 2, 3)
    assert scores(cached_journal(path)) == [1, 2, 3]


@pytest.mark.parametrize(("most", "value", "kept"), [("MOST_KEPT", 2, 2), ("MOST_LINES", 7, 1)])
def test_a_process_keeps_no_more_than_so_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str, value: int, kept: int
) -> None:
    monkeypatch.setattr(journals, "_cache", journals._JournalCache())
    monkeypatch.setattr(journals, most, value)
    paths = [tmp_path / f"{n}.jsonl" for n in range(4)]
    for path in paths:
        write(path, 1, 2, 3)
        cached_journal(path)
    assert list(journals._cache._journals) == paths[-kept:]
    assert journals._cache._total == 4 * kept  # with the headers
    write(paths[0], *range(6))
    assert scores(cached_journal(paths[0])) == list(range(6))


HOLDER = """
import sys
from pathlib import Path
from flwr_fbo.runs.files.journal import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Another process that holds a journal until it is told or killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_journal_belongs_to_one_process_until_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with holder(path) as other:
        with pytest.raises(JournalBusyError, match="`partition-id` of its own"), exclusive(path):
            pass
        other.kill()
    with exclusive(path):
        Journal(path).append("evaluation", {"score": 1.0})
    assert len(Journal(path).read("evaluation")) == 1


def test_an_agent_whose_journal_is_held_declines_by_class_and_comes_back(
    federation: Make,
) -> None:
    f = federation(LocalTS(**SMALL))
    path = journal_path(f.directory.agents, 1)
    with holder(path) as other:

        def let_go(report: Any) -> bool:
            if report.round == 1:
                other.kill()
                other.wait()
            return False

        f.strategy.stop = let_go
        reports = f.start().reports
    assert [dict(r.declined) for r in reports] == [
        {"JournalBusyError": 1}, {"JournalBusyError": 1}, {}, {}, {}
    ]  # fmt: skip
    counts = [len(Journal(journal_path(f.directory.agents, n)).read("evaluation")) for n in (0, 1)]
    assert counts == [6, 3]


def full(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """A disk that takes so many more bytes of any journal and then none."""
    from flwr_fbo.runs.files import journal

    left = [after]

    def write(descriptor: int, data: bytes) -> None:
        taken = data[: left[0]]
        left[0] -= len(taken)
        os.write(descriptor, taken)
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "_write_all", write)


def test_a_full_disk_leaves_no_torn_line_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.append("evaluation", {"number": 1})
    with monkeypatch.context() as patch:
        full(patch, after=7)
        with pytest.raises(JournalError, match="cannot be written: No space left"):
            journal.append("evaluation", {"number": 2})
        with pytest.raises(JournalError, match="No space left"):
            journal.reserve()
    journal.append("evaluation", {"number": 3})
    assert [r["number"] for r in Journal(journal.path).read("evaluation")] == [1, 3]


def test_room_is_made_sure_of_before_work_is_paid_for(
    federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(monkeypatch, after=1000)
    f = federation(LocalTS(**SMALL))
    reports = f.start().reports
    assert all(r.declined == {"JournalError": 3} for r in reports)
    assert [p.read_bytes() for p in f.directory.agents.glob("*.jsonl")] == [b""] * 3


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({}, "integer `partition-id`, but got None"),
        ({"partition-id": "0", "num-partitions": 2}, "integer `partition-id`, but got '0'"),
        ({"partition-id": 0}, "integer `num-partitions`"),
        ({"partition-id": 2, "num-partitions": 2}, r"in \[0, `num-partitions`\), but got 2 of 2"),
        ({"partition-id": -1, "num-partitions": 2}, "but got -1 of 2"),
    ],
)
def test_a_node_must_say_which_agent_it_is(config: dict[str, Any], fault: str) -> None:
    context = Context(1, 2, UserConfig(config), RecordDict(), UserConfig())
    with pytest.raises(ValueError, match=fault):
        partition_of(context.node_config)
