"""Tasks whose evaluations end their process where x is above 0.5."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks import Partition, task

SPACE = Space({"x": Float(0.0, 1.0)})


@task(space=SPACE)
def exits(params: Mapping[str, Any]) -> float:
    return float(params["x"]) if params["x"] <= 0.5 else sys.exit(0)


@task(space=SPACE)
def vanishes(params: Mapping[str, Any]) -> float:
    return float(params["x"]) if params["x"] <= 0.5 else os._exit(0)


@task(space=SPACE)
def killed(params: Mapping[str, Any]) -> float:
    """A process that runs out of memory ends by SIGKILL."""
    if params["x"] > 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(params["x"])


def _no_data(partition: Partition) -> None:
    sys.exit(0)


@task(space=SPACE, prepare=_no_data)
def no_data(params: Mapping[str, Any], data: None) -> float:
    return float(params["x"])
