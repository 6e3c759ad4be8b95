"""An agent's journal loses nothing that was complete, and forgives only a torn last line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.journal import Journal, JournalError


def test_what_is_appended_is_read_back_by_kind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "a.jsonl")
    journal.append("evaluation", {"score": 1.5, "seconds": 0.0})
    journal.append("charge", {"epsilon": 1.0})
    journal.append("evaluation", {"score": None, "seconds": 9.0})
    for again in (journal, Journal(journal.path)):
        assert [r["score"] for r in again.read("evaluation")] == [1.5, None]
        assert again.read("charge") == [{"epsilon": 1.0}]
        assert again.read("nothing") == []


@given(cut=st.integers(0, 200))
def test_a_torn_last_line_is_dropped_and_mended(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "a.jsonl"
    journal = Journal(path)
    for i in range(4):
        journal.append("evaluation", {"number": i})
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])
    complete = path.read_bytes().count(b"\n")
    again = Journal(path)
    assert [r["number"] for r in again.read("evaluation")] == list(range(complete))
    again.append("evaluation", {"number": 99})
    numbers = [r["number"] for r in Journal(path).read("evaluation")]
    assert numbers == [*range(complete), 99]


@pytest.mark.parametrize("line", [b"not json", b"[]", b"{}", b'{"score": 1}', b"3"])
def test_damage_before_the_end_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"kind":"evaluation","score":1}\n' + line + b"\n")
    with pytest.raises(JournalError, match="line 2"):
        Journal(path)


def test_numbers_json_does_not_know_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append("evaluation", {"score": float("nan")})
    assert not journal.path.exists()
