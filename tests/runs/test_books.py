"""Books that cannot shrink: a lost or cut ledger never lowers what a run says it spent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo import DPFTSDE, Callback, Float, resume, simulate, task
from flwr_fbo.privacy.ledger import LedgerError
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory

REFUSED = (LedgerError, RunDirectoryError)


@task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - abs(float(params["x"]) - 0.3)


class Crash(Callback):
    def on_round(self, run: Any, report: Any) -> None:
        if report.round == 2:
            raise ArithmeticError("the power went")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run that crashed after three of five releases."""
    folder = tmp_path_factory.mktemp("books") / "run"
    with pytest.raises(ArithmeticError):
        simulate(
            hill, agents=3, rounds=5, strategy=DPFTSDE(epsilon=5.0, releases="all", features=10),
            initial_points=1, run_dir=folder, callbacks=[Crash()],
        )  # fmt: skip
    assert RunDirectory(folder).releases.count() == 3
    return folder


@pytest.fixture
def run(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "run"))


def test_untouched_it_goes_on_and_says_the_whole_epsilon(run: Path) -> None:
    found = resume(run, hill)
    assert found.private
    assert found.epsilon == pytest.approx(5.0, rel=1e-3)
    assert (run / "ledger.jsonl").read_text().count('"event"') == 5


def test_every_cut_of_the_ledger_is_refused(run: Path) -> None:
    ledger = run / "ledger.jsonl"
    data = ledger.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10][:-1]
    for end in sorted({0, 1, *ends, *(e - 1 for e in ends), *(e + 9 for e in ends), len(data) - 1}):
        ledger.write_bytes(data[:end])
        with pytest.raises(REFUSED):
            resume(run, hill)
        assert not (run / "result.json").exists()
        # An attempt that is refused must not make the next one pass.
        with pytest.raises(REFUSED):
            resume(run, hill)
    ledger.write_bytes(data)


@pytest.mark.parametrize(
    "lost",
    [
        ["ledger.jsonl"],
        ["ledger.jsonl.key"],
        ["ledger.jsonl", "ledger.jsonl.key"],
        ["ledger.jsonl", "checkpoint.npz"],
        ["ledger.jsonl", "ledger.jsonl.key", "checkpoint.npz"],
    ],
)
def test_a_lost_ledger_is_refused(run: Path, lost: list[str]) -> None:
    for name in lost:
        (run / name).unlink()
    for _ in range(2):
        with pytest.raises(REFUSED, match=r"(?i)what was spent is unknown|cannot be trusted"):
            resume(run, hill)


def test_a_lost_checkpoint_costs_more_and_never_less(run: Path) -> None:
    (run / "checkpoint.npz").unlink()
    found = resume(run, hill)
    events = (run / "ledger.jsonl").read_text().count('"event"')
    assert events >= 5
    assert found.epsilon is not None
    assert found.privacy.spent is not None
    assert found.epsilon >= found.privacy.spent
    assert found.epsilon <= 5.0


def test_an_older_ledger_is_refused(run: Path) -> None:
    """Ledger and key of an earlier round: only the checkpoint and the releases tell."""
    data = (run / "ledger.jsonl").read_text().splitlines(keepends=True)
    key = json.loads((run / "ledger.jsonl.key").read_text())
    (run / "ledger.jsonl").write_text("".join(data[:2]))
    key |= {"lines": 2, "hash": json.loads(data[1])["hash"]}
    (run / "ledger.jsonl.key").write_text(json.dumps(key))
    with pytest.raises(REFUSED, match=r"charges are missing|what was spent is unknown"):
        resume(run, hill)


def test_early_stops_do_not_lower_what_is_promised(tmp_path: Path) -> None:
    given: dict[str, Any] = {"agents": 3, "rounds": 8, "initial_points": 1, "epsilon": 5.0}
    whole = simulate(hill, run_dir=tmp_path / "whole", releases="all", **given)
    cut = simulate(hill, run_dir=tmp_path / "cut", releases="all", max_evaluations=9, **given)
    assert cut.stopped_early
    assert cut.privacy.spent is not None
    assert whole.privacy.spent is not None
    assert cut.privacy.spent < whole.privacy.spent
    assert cut.epsilon == whole.epsilon
    stored = json.loads((tmp_path / "cut" / "privacy.json").read_text())
    assert stored["epsilon"] == cut.epsilon
    assert stored["spent"] == cut.privacy.spent
