"""Tasks as people write them: what the docs show, with torch where it is installed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Float, Partition, Result, simulate, task
from tests.app.test_docs import ROOT


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_with_torch(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own-task.md").read_text()
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
    assert found.best[-1] is not None
    assert found.best[-1] > 0.8


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
