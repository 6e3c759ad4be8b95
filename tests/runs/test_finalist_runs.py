"""Runs with finalists in a run directory: their files, a crash in the last leg, more rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import DPFTSDE, Callback, Float, join, resume, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.report.runs import read_run
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.newcomer import read_shared_knowledge

SMALL: dict[str, Any] = {"agents": 8, "rounds": 7, "seed": 4}
PRIVATE: dict[str, Any] = {"epsilon": 8.0, "finalists": 3}


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, score_range=(-1.0, 0.0))
def hill(params: Any) -> float:
    return -((float(params["x"]) - 0.3) ** 2) - (float(params["y"]) - 0.6) ** 2


def test_the_report_shows_the_function_and_never_the_scores(tmp_path: Path) -> None:
    found = simulate(hill, strategy=DPFTSDE(**PRIVATE), run_dir=tmp_path / "r", **SMALL)
    rounds = [r.round for r in RunDirectory(tmp_path / "r").releases.read()]
    assert rounds[-1] == 7  # the final round
    assert len(found.recommendation["finalists"]) == 3
    assert found.recommendation["releases"] == len(rounds)
    assert found.recommended == found.recommendation["finalists"][0]["params"]
    assert found.epsilon == pytest.approx(8.0, rel=1e-3)
    released = read_run(tmp_path / "r").released
    assert released is not None
    assert [r.round for r in released.releases] == rounds[:-1]


def test_more_rounds_keep_the_finalists_and_spend_nothing(tmp_path: Path) -> None:
    before = simulate(hill, strategy=DPFTSDE(**PRIVATE), run_dir=tmp_path / "r", **SMALL)
    after = resume(tmp_path / "r", hill, rounds=9)
    assert after.recommendation == before.recommendation
    assert after.epsilon == before.epsilon
    sources = [e.source for e in read_run(tmp_path / "r").histories[0]]
    assert [s == "finalist" for s in sources] == [False] * 6 + [True] * 3 + [False] * 2


class Stop(Callback):
    """Ends the process, as Ctrl-C does, after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round(self, strategy: Any, report: Any) -> None:
        if report.round == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [4, 5, 6])
def test_a_run_that_stops_before_its_scores_goes_on_to_the_same_finalists(
    tmp_path: Path, after: int
) -> None:
    strategy = DPFTSDE(finalists=3)  # without noise a run can be compared to the last bit
    whole = simulate(hill, strategy=strategy, run_dir=tmp_path / "whole", **SMALL)
    with pytest.raises(KeyboardInterrupt):
        simulate(hill, strategy=strategy, run_dir=tmp_path / "r", callbacks=[Stop(after)], **SMALL)
    assert resume(tmp_path / "r", hill).recommendation == whole.recommendation


def test_a_crash_after_the_last_charge_does_not_pay_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DPFTSDEServer._remember

    def dies(server: DPFTSDEServer, vector: np.ndarray, deviation: float, round: int) -> None:
        if round == 7:
            raise KeyboardInterrupt
        real(server, vector, deviation, round)

    monkeypatch.setattr(DPFTSDEServer, "_remember", dies)
    with pytest.raises(KeyboardInterrupt):
        simulate(hill, strategy=DPFTSDE(**PRIVATE), run_dir=tmp_path / "r", **SMALL)
    monkeypatch.undo()
    found = resume(tmp_path / "r", hill)
    assert found.epsilon <= 8.0
    assert found.recommended is not None  # from the function, as the scores were lost
    assert "finalists" not in found.recommendation


def test_secure_sums_carry_the_scores_and_the_ledger_has_one_charge_for_each(
    tmp_path: Path,
) -> None:
    secure = DPFTSDE(**PRIVATE, aggregation="secure")
    found = simulate(hill, strategy=secure, run_dir=tmp_path / "r", **SMALL)
    rounds = [r.round for r in RunDirectory(tmp_path / "r").releases.read()]
    assert rounds[-1] == 7
    assert len(found.recommendation["finalists"]) == 3
    lines = (tmp_path / "r" / "ledger.jsonl").read_text().splitlines()
    assert len(lines) == 1 + len(rounds)  # a header, and a charge for each release
    assert found.epsilon <= 8.0


def test_parties_that_trust_no_server_add_their_own_noise_to_the_scores(tmp_path: Path) -> None:
    local = DPFTSDE(finalists=3, local_epsilon=20.0)
    found = simulate(hill, strategy=local, run_dir=tmp_path / "r", **SMALL)
    assert len(found.recommendation["finalists"]) == 3
    assert found.recommendation["noise"] > 0.0  # the parties' own, which the result states
    few = DPFTSDE(finalists=3, local_epsilon=20.0, local_answers=2, releases="all")
    spent = simulate(hill, strategy=few, run_dir=tmp_path / "few", **SMALL)
    # Two vectors were paid for, so that no party sends its scores: they all count as zero.
    final = RunDirectory(tmp_path / "few").releases.read()[-1]
    assert final.round < 7 or not final.vector.any()
    assert not spent.recommendation["clear"] or "finalists" not in spent.recommendation


# ------------------------------------------------------------------ a public list


def test_a_newcomer_never_takes_scores_for_the_shared_function(tmp_path: Path) -> None:
    """Its prior mean is the function that agents were last sent, as without finalists."""
    simulate(hill, strategy=DPFTSDE(**PRIVATE), run_dir=tmp_path / "r", **SMALL)
    directory = RunDirectory(tmp_path / "r")
    final = directory.releases.read()[-1]
    assert final.round == 7
    with_scores = read_shared_knowledge(tmp_path / "r").shared.weights
    earlier = max(r.round for r in directory.releases.read()[:-1])
    before = tmp_path / "r" / "releases" / f"round-{earlier:04d}.npz"
    np.testing.assert_array_equal(with_scores, read_shared_knowledge(before).shared.weights)


def test_a_run_with_a_list_is_reported_and_cannot_be_joined(tmp_path: Path) -> None:
    strategy = DPFTSDE(**PRIVATE, finalists_from="list")
    found = simulate(hill, strategy=strategy, run_dir=tmp_path / "r", **SMALL)
    assert [r.round for r in RunDirectory(tmp_path / "r").releases.read()] == [4, 7]
    assert found.recommendation["releases"] == 2
    assert found.epsilon == pytest.approx(8.0, rel=1e-3)
    run = read_run(tmp_path / "r")
    assert run.released is None  # no release is a function
    sources = [e.source for e in run.histories[0]]
    assert sources == ["list"] * 6 + ["finalist"] * 3
    with pytest.raises(
        SettingsError, match=r"`run_dir` must hold a release of the shared function"
    ):
        join(tmp_path / "r")
    after = resume(tmp_path / "r", hill, rounds=9)
    assert after.recommendation == found.recommendation
    assert after.epsilon == found.epsilon


@pytest.mark.parametrize("after", [0, 4, 5])
def test_a_stopped_run_with_a_list_goes_on_the_same(tmp_path: Path, after: int) -> None:
    strategy = DPFTSDE(finalists=3, finalists_from="list")
    whole = simulate(hill, strategy=strategy, run_dir=tmp_path / "whole", **SMALL)
    with pytest.raises(KeyboardInterrupt):
        simulate(hill, strategy=strategy, run_dir=tmp_path / "r", callbacks=[Stop(after)], **SMALL)
    assert resume(tmp_path / "r", hill).recommendation == whole.recommendation


def test_the_sums_of_a_list_are_secure(tmp_path: Path) -> None:
    strategy = DPFTSDE(**PRIVATE, finalists_from="list", aggregation="secure")
    found = simulate(hill, strategy=strategy, run_dir=tmp_path / "r", **SMALL)
    assert len(found.recommendation["finalists"]) == 3
    assert [r.round for r in RunDirectory(tmp_path / "r").releases.read()] == [4, 7]
