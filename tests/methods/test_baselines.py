"""The baselines `alone` and `tpe`."""

from __future__ import annotations

import builtins
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from flwr_fbo import Categorical, Float, Int, simulate, task
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.space import Space
from flwr_fbo.methods.baselines.alone import AloneSettings
from flwr_fbo.methods.baselines.tpe import TPEAgent, TPEServer, TPESettings
from flwr_fbo.methods.comparators.optuna_space import distributions_of, params_of, unit_of
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.runs.history import read_evaluations

SPACE = Space(
    {
        "rate": Float(1e-4, 1.0, log=True),
        "width": Int(4, 64, log=True),
        "depth": Int(2, 10, step=2),
        "kind": Categorical(["a", "b", None]),
    }
)


def score(params: Any, rng: np.random.Generator) -> float:
    if params["depth"] == 10:
        raise MemoryError("too deep")
    return -((np.log10(params["rate"]) + 2) ** 2) - 0.1 * (params["kind"] != "b")


def agent(records: MemoryRecords, space: Space = SPACE) -> TPEAgent:
    setup = TPEServer(space, 1, TPESettings(initial_points=3), 20).setup()
    return TPEAgent(setup, Evaluator(space, score, records, seed=(1,)), (1,))


class TestTPE:
    def test_an_agent_restored_from_its_records_asks_for_the_same_points(self) -> None:
        whole, pieces = MemoryRecords(), MemoryRecords()
        one = agent(whole)
        for round in range(12):
            request = Request("evaluate", round, {"count": 3 if round == 0 else 1})
            one.answer(request)
            agent(pieces).answer(request)  # made anew for each request
            agent(pieces).answer(request)  # and asked twice
        first, second = (
            [record["params"] for record in records.read(Evaluator.KIND)]
            for records in (whole, pieces)
        )
        assert first == second
        assert len(first) == 14

    def test_it_is_what_optuna_itself_would_ask(self) -> None:
        records = MemoryRecords()
        ours = agent(records)
        for round in range(15):
            ours.answer(Request("evaluate", round, {"count": 1}))
        # The same trials in a study made by hand, with the seed of the agent's next question.
        seed = int(np.random.default_rng([1, 15, 0]).integers(2**32))
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
        )
        distributions = distributions_of(SPACE)
        for record in records.read(Evaluator.KIND):
            state = optuna.trial.TrialState.FAIL if record["score"] is None else None
            study.add_trial(
                optuna.trial.create_trial(
                    params=record["params"], distributions=distributions, value=record["score"],
                    state=state or optuna.trial.TrialState.COMPLETE,
                )
            )  # fmt: skip
        expected = study.ask(distributions).params
        np.testing.assert_array_equal(ours.ask(15, 0), SPACE.to_unit(expected))

    def test_points_and_trials_are_the_same_thing(self) -> None:
        rng = np.random.default_rng(0)
        for unit in SPACE.snap(rng.random((50, SPACE.dimension))):
            np.testing.assert_allclose(unit_of(SPACE, params_of(SPACE, unit)), unit, atol=1e-12)
        finite = Space({"x": Float(0.0, 1.0)}, points=np.linspace(0, 1, 7)[:, None])
        for unit in finite.points if finite.points is not None else ():
            np.testing.assert_array_equal(unit_of(finite, params_of(finite, unit)), unit)

    def test_without_optuna_the_error_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = builtins.__import__

        def absent(name: str, *rest: Any, **more: Any) -> Any:
            if name.partition(".")[0] == "optuna":
                raise ImportError(name)
            return real(name, *rest, **more)

        import importlib

        monkeypatch.setattr(importlib, "import_module", lambda name: absent(name))
        with pytest.raises(ImportError, match=r"flwr-fbo\[optuna\]"):
            TPEServer(SPACE, 1, TPESettings(), 3)


class TestAlone:
    def test_its_defaults_are_those_of_dp_fts_de(self) -> None:
        alone, theirs = AloneSettings(), DPFTSDESettings()  # type: ignore[call-arg]
        for f in dataclasses.fields(ThompsonSettings):
            assert getattr(alone, f.name) == getattr(theirs, f.name), f.name

    def test_it_sends_nothing(self, tmp_path: Path) -> None:
        @task(space={"x": Float(0.0, 1.0)})
        def hill(params: Any) -> float:
            return 1.0 - float(params["x"] - 0.3) ** 2

        simulate(hill, agents=2, strategy="alone", rounds=4, run_dir=tmp_path / "two", seed=2)
        simulate(hill, agents=3, strategy="alone", rounds=4, run_dir=tmp_path / "three", seed=2)
        two = read_evaluations(tmp_path / "two" / "agents", 2)
        three = read_evaluations(tmp_path / "three" / "agents", 3)
        # A third agent changes nothing for the first two.
        assert [[e.unit for e in h] for h in two] == [[e.unit for e in h] for h in three[:2]]
