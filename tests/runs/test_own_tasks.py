"""Tasks as people write them: what the docs show, with torch where it is installed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Float, Int, Partition, Result, Space, Task, simulate, task
from flwr_fbo.runs.summary import summary
from tests.command import flwr_fbo as command
from tests.docs.test_docs import ROOT


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_with_torch(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "own-task.md").read_text()
    (code,) = re.findall(r"```python\n(# neural.py\n.*?)```", page, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)

    def load(partition: Partition) -> Any:
        import torch

        x = partition.rng().normal(size=(60, 3)).astype(np.float32)
        return torch.from_numpy(x), torch.from_numpy((x[:, 0] > 0).astype(np.int64))

    space = {"rate": Float(1e-5, 1.0, log=True)}
    neural = task(space=space, metric="accuracy", prepare=load)(namespace["train"])
    found = simulate(neural, agents=2, rounds=2, initial_points=3, run_dir=tmp_path / "r")
    assert found.failures == 0
    assert found.history.best[-1] is not None
    assert found.history.best[-1] > 0.8


def test_the_command_for_long_evaluations(tmp_path: Path) -> None:
    """That of the docs, shorter: `--set answer-within=5` of a task that is a module's."""
    page = (ROOT / "docs" / "how-to" / "own-task.md").read_text()
    (code,) = re.findall(r"```python\n(# hills.py\n.*?)\nresult = ", page, re.DOTALL)
    (told,) = re.findall(r"```sh\n([^`]*answer-within[^`]*)```", page)
    (tmp_path / "hills.py").write_text(code)
    program, *arguments = told.split()
    assert program == "flwr-fbo"
    assert "answer-within=5" in arguments
    short = ("--rounds", "2", "--set", "initial-points=2", "--engine", "inline", "--json")
    done = command(*arguments, *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["complete"]
    assert found["agents"] == 3
    assert found["history"]["evaluations"][-1] >= 1
    assert sorted(p.name for p in tmp_path.glob("flwr-fbo-runs/*/agents/*.worker.log"))


def test_errors_are_kept_for_the_owner_with_their_parameters(tmp_path: Path) -> None:
    @task(space={"x": Float(0.0, 1.0)})
    def fragile(params: Any) -> float:
        if params["x"] > 0.5:
            raise LookupError(f"secret of x = {params['x']:.3f}")
        return float(params["x"])

    simulate(fragile, agents=3, rounds=3, initial_points=4, epsilon=5.0, run_dir=tmp_path / "r")
    found = Result.read(tmp_path / "r")
    failed = [row for row in found.to_records() if row["failure"]]
    assert failed
    assert found.failures == len(failed)
    for row in failed:
        assert row["params_x"] > 0.5
        assert row["failure"] == f"LookupError: secret of x = {row['params_x']:.3f}"
    assert found.complete
    for path in (tmp_path / "r").glob("*.*"):  # what the server wrote
        assert b"secret" not in path.read_bytes(), path


def test_an_agent_whose_data_are_missing_is_named_by_its_error(tmp_path: Path) -> None:
    def load(partition: Partition) -> Any:
        if partition.index == 1:
            raise FileNotFoundError("/secret/data.csv")
        return partition.index

    @task(space={"x": Float(0.0, 1.0)}, prepare=load)
    def fine(params: Any, data: int) -> float:
        return float(params["x"])

    stream = io.StringIO()
    few: dict[str, Any] = {"agents": 3, "rounds": 1, "initial_points": 5}
    found = simulate(fine, run_dir=tmp_path / "r", progress=stream, **few)
    assert "declined 1 (FileNotFoundError)" in stream.getvalue()
    assert "secret" not in stream.getvalue()
    assert not found.complete
    assert [a["evaluations"] for a in found.agents_best] == [6, 0, 6]


def test_of_failures_only_nothing_is_recommended(tmp_path: Path) -> None:
    @task(space={"x": Float(0.0, 1.0)})
    def broken(params: Any) -> float:
        return float("nan")

    stream = io.StringIO()
    found = simulate(
        broken, agents=2, rounds=2, epsilon=4.0, run_dir=tmp_path / "r", progress=stream
    )
    assert not found.complete
    assert found.failed_evaluations == found.failures == 8
    assert "most evaluations fail: 8 of 8" in stream.getvalue()
    assert "most evaluations fail: 8 of 8" in summary(found)
    assert found.recommended is None
    told = summary(found)
    assert "the score must be finite, but got nan   (x = " in told
    assert "recommended" not in told
    assert f"read the errors:  cat {tmp_path}/r/agents/*.jsonl" in told


def test_a_run_in_which_few_evaluations_fail_does_not_say_that_most_do(tmp_path: Path) -> None:
    @task(space={"n": Int(1, 100)})
    def seldom(params: Any) -> float:
        if params["n"] > 95:
            raise MemoryError
        return float(params["n"])

    stream = io.StringIO()
    found = simulate(seldom, agents=2, rounds=4, run_dir=tmp_path / "r", progress=stream)
    assert 2 * found.failed_evaluations <= 12
    assert "most evaluations fail" not in stream.getvalue() + summary(found)
    # A result of before the field was there can still be read.
    content = found.to_dict()
    del content["failed_evaluations"]
    assert Result.from_dict(content).failed_evaluations == 0


class Fragile(Task):
    """A class whose evaluations fail for some values."""

    @property
    def space(self) -> Space:
        return Space({"x": Float(0.0, 1.0)})

    def evaluate(self, params: Any, *, rng: np.random.Generator) -> float:
        if params["x"] > 0.5:
            raise ZeroDivisionError("of the class")
        return float(params["x"])


def _forest() -> Task:
    from sklearn.datasets import load_iris
    from sklearn.svm import SVC

    x, y = load_iris(return_X_y=True)

    @task(space={"C": Float(-1.0, 1.0)}, metric="accuracy")
    def svm(params: Any) -> float:
        return float(SVC(C=params["C"]).fit(x, y).score(x, y))

    return svm


def _network() -> Task:
    @task(space={"size": Int(1, 9)})
    def network(params: Any) -> float:
        import torch

        layer = torch.nn.Linear(5, params["size"])
        return float(layer(torch.ones(2, 5)) @ torch.ones(5, 1).mean())

    return network


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (Fragile, "ZeroDivisionError: of the class"),
        (_forest, "InvalidParameterError: The 'C' parameter of SVC must be"),
        pytest.param(
            _network, "RuntimeError: ",
            marks=pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
        ),
    ],
)  # fmt: skip
def test_errors_of_any_code_are_kept_and_the_run_goes_on(
    tmp_path: Path, make: Callable[[], Task], fault: str
) -> None:
    found = simulate(make(), agents=3, rounds=3, initial_points=4, run_dir=tmp_path / "r")
    failed = [row for row in found.to_records() if row["failure"]]
    assert failed
    assert all(row["failure"].startswith(fault) for row in failed)
    assert len(found.to_records()) == 3 * (4 + 3)
