"""Planted faults of privacy can be planted, and are noticed by the tests or audits they name."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from benchmarks import mutations
from benchmarks.mutations import (
    ROOT,
    SAVED,
    CannotPlantError,
    Outcome,
    changed_files,
    check_copy,
    copy_package,
    node,
    outcome,
    planted,
    replaced,
)
from benchmarks.planted_faults import FAULTS, Edit, Fault

PAGE = ROOT / "docs" / "evidence" / "audit.md"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_can_be_planted_and_names_a_test_that_exists(fault: Fault) -> None:
    for path, text in changed_files(fault, ROOT / "flwr_fbo").items():
        ast.parse(text)
        assert text != path.read_text()
    tests = (ROOT / "tests" / fault.file).read_text()
    assert re.search(rf"^( *)def {fault.test}\(", tests, re.MULTILINE)


def test_faults_have_names_of_their_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 25


def test_a_fault_whose_text_has_changed_is_an_error() -> None:
    with pytest.raises(CannotPlantError, match="must occur once, but occurs 0 times: 'gone'"):
        replaced("some text", Edit("privacy/noise.py", "gone", "here"))
    with pytest.raises(CannotPlantError, match="must occur once, but occurs 2 times"):
        replaced("twice twice", Edit("privacy/noise.py", "twice", "once"))


def test_a_planted_fault_is_taken_out_again(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("x = 1\ny = 2\n")
    edits = (Edit("module.py", "x = 1", "x = 3"), Edit("module.py", "y = 2", "y = 4"))
    with planted(Fault("two numbers", edits, "none.py", "test_none"), tmp_path):
        assert path.read_text() == "x = 3\ny = 4\n"
    assert path.read_text() == "x = 1\ny = 2\n"


def test_the_table_shows_who_noticed() -> None:
    rows = [
        Outcome("no noise", "privacy/mechanisms.py", "test_noise", True, True),
        Outcome("rounded up", "privacy/mechanisms.py", "test_quantise", False, False),
        Outcome("a lost ledger", "privacy/ledger.py", "test_ledger", True, None),
    ]
    assert [row.caught for row in rows] == [True, False, True]
    lines = mutations.lines_of([row.__dict__ for row in rows])
    assert lines[0] == (
        "3 faults; the tests notice 2, the audit 1 of the 2 that lie in the code that it runs."
    )
    assert lines[4:] == [
        "| no noise | `test_noise` | failed |",
        "| rounded up | none | passed |",
        "| a lost ledger | `test_ledger` | - |",
    ]


def test_the_saved_outcomes_are_of_all_faults_and_every_fault_was_noticed() -> None:
    saved = json.loads(SAVED.read_text())
    again = "run `python -m benchmarks.mutations --out benchmarks/results/mutations.json`"
    assert [row["fault"] for row in saved] == [fault.name for fault in FAULTS], again
    assert all(Outcome(**row).caught for row in saved)
    page = PAGE.read_text()
    table = "run `python -m benchmarks.mutations --table docs/evidence/audit.md`"
    assert mutations.with_table(page, saved) == page, table


#: At its defaults the audit takes half a minute of CPU time and refutes one true claim of a hundred
#: at most: too often for a test whose copy without a fault must pass. Here it is one of a million.
#: The noise's deviation is known to .4 % at these trials (one standard error), and half of it is
#: more than a hundred of them away. A charge that is missing is missing in each trial's books.
AUDIT = ("--trials", "500", "--confidence", "0.999999")
#: A fault of the noise, one of the charges and one of an agent.
SOME = ("noise of half the deviation", "a release is not charged", "a local vector is not clipped")


@pytest.mark.slow
def test_some_faults_are_noticed_in_a_copy_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutations, "AUDIT_OPTIONS", AUDIT)
    chosen = [fault for fault in FAULTS if fault.name in SOME]
    assert len(chosen) == len(SOME)
    folder = copy_package(tmp_path / "copy")
    check_copy(folder, chosen, audit=True)
    for fault in chosen:
        found = outcome(fault, folder)
        assert found.test_fails, node(fault)
        assert found.audit_fails is (True if fault.audited else None)


def test_words_that_no_fault_has_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without any fault, pytest would be given no test, and run all.
    monkeypatch.setattr("sys.argv", ["mutations", "--only", "zebra"])
    with pytest.raises(SystemExit):
        mutations.main()
    assert "must be words of the name of a fault, but got ['zebra']" in capsys.readouterr().err
