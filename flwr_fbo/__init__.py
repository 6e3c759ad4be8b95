"""Federated Bayesian optimisation with real privacy, as a Flower plugin.

The public names are imported at their first use, so that ``import flwr_fbo`` is fast. Names from
:mod:`flwr_fbo.runs.trackers` and :mod:`flwr_fbo.strategies.accountant` are imported from there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from flwr_fbo.clients.client_app import client_app as client_app
    from flwr_fbo.clients.doors import answer as answer
    from flwr_fbo.clients.doors import with_tuning as with_tuning
    from flwr_fbo.clients.tuning_client import TuningClient as TuningClient
    from flwr_fbo.core.parameters import Categorical as Categorical
    from flwr_fbo.core.parameters import Float as Float
    from flwr_fbo.core.parameters import Int as Int
    from flwr_fbo.core.space import Space as Space
    from flwr_fbo.methods.citation import citation as citation
    from flwr_fbo.report.figures import Figure as Figure
    from flwr_fbo.report.figures import plot_contour as plot_contour
    from flwr_fbo.report.figures import plot_edf as plot_edf
    from flwr_fbo.report.figures import plot_evaluations_saved as plot_evaluations_saved
    from flwr_fbo.report.figures import plot_optimization_history as plot_optimization_history
    from flwr_fbo.report.figures import plot_parallel_coordinate as plot_parallel_coordinate
    from flwr_fbo.report.figures import plot_param_importances as plot_param_importances
    from flwr_fbo.report.figures import plot_privacy as plot_privacy
    from flwr_fbo.report.figures import plot_slice as plot_slice
    from flwr_fbo.report.figures import plot_timeline as plot_timeline
    from flwr_fbo.runs.callbacks import Callback as Callback
    from flwr_fbo.runs.maximise import maximise as maximise
    from flwr_fbo.runs.newcomer import join as join
    from flwr_fbo.runs.result import Result as Result
    from flwr_fbo.simulation.simulate import resume as resume
    from flwr_fbo.simulation.simulate import simulate as simulate
    from flwr_fbo.strategies.baselines import LocalTS as LocalTS
    from flwr_fbo.strategies.baselines import RandomSearch as RandomSearch
    from flwr_fbo.strategies.dp_fts_de import DPFTSDE as DPFTSDE
    from flwr_fbo.strategies.fed_pne import FedPNE as FedPNE
    from flwr_fbo.strategies.fts import FTS as FTS
    from flwr_fbo.strategies.ldp import LDPBO as LDPBO
    from flwr_fbo.strategies.result import TuningResult as TuningResult
    from flwr_fbo.strategies.server_app import server_app as server_app
    from flwr_fbo.strategies.voting import Voting as Voting
    from flwr_fbo.tasks.task import Partition as Partition
    from flwr_fbo.tasks.task import Task as Task
    from flwr_fbo.tasks.task import task as task

#: The module of each public name.
_PUBLIC = {
    "DPFTSDE": "flwr_fbo.strategies.dp_fts_de",
    "FTS": "flwr_fbo.strategies.fts",
    "LDPBO": "flwr_fbo.strategies.ldp",
    "Callback": "flwr_fbo.runs.callbacks",
    "Categorical": "flwr_fbo.core.parameters",
    "FedPNE": "flwr_fbo.strategies.fed_pne",
    "Figure": "flwr_fbo.report.figures",
    "Float": "flwr_fbo.core.parameters",
    "Int": "flwr_fbo.core.parameters",
    "LocalTS": "flwr_fbo.strategies.baselines",
    "Partition": "flwr_fbo.tasks.task",
    "RandomSearch": "flwr_fbo.strategies.baselines",
    "Result": "flwr_fbo.runs.result",
    "Space": "flwr_fbo.core.space",
    "Task": "flwr_fbo.tasks.task",
    "TuningClient": "flwr_fbo.clients.tuning_client",
    "TuningResult": "flwr_fbo.strategies.result",
    "Voting": "flwr_fbo.strategies.voting",
    "answer": "flwr_fbo.clients.doors",
    "citation": "flwr_fbo.methods.citation",
    "client_app": "flwr_fbo.clients.client_app",
    "join": "flwr_fbo.runs.newcomer",
    "maximise": "flwr_fbo.runs.maximise",
    "plot_contour": "flwr_fbo.report.figures",
    "plot_edf": "flwr_fbo.report.figures",
    "plot_evaluations_saved": "flwr_fbo.report.figures",
    "plot_optimization_history": "flwr_fbo.report.figures",
    "plot_parallel_coordinate": "flwr_fbo.report.figures",
    "plot_param_importances": "flwr_fbo.report.figures",
    "plot_privacy": "flwr_fbo.report.figures",
    "plot_slice": "flwr_fbo.report.figures",
    "plot_timeline": "flwr_fbo.report.figures",
    "resume": "flwr_fbo.simulation.simulate",
    "server_app": "flwr_fbo.strategies.server_app",
    "simulate": "flwr_fbo.simulation.simulate",
    "task": "flwr_fbo.tasks.task",
    "with_tuning": "flwr_fbo.clients.doors",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value  # so that __getattr__ is called once for each name
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
