"""Surrogates of real tuning runs on OpenML data sets (YAHPO Gym): one data set is one party.

The files of a scenario (``model.onnx``, ``encoding.json``, ``config_space.json``) are read from
``yahpo/SCENARIO`` below the directory in FLWR_FBO_DATA; they come from
https://github.com/slds-lmu/yahpo_data. A surrogate knows no noise, so a party sees the score with
normal noise of ``noise``, and is judged by the score itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.federation import Federation, MissingDataError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.tasks.task import Params, Partition, Task


@dataclass(frozen=True)
class Scenario:
    """A scenario with a model file: which inputs are tuned, and which are fixed.

    Parameters
    ----------
    name : str
        The folder of the scenario.
    instance : str
        The categorical input that names the data set.
    categories, numbers : tuple of str
        The inputs of the model in its order: categorical ones, and numbers.
    fixed : mapping
        Inputs that are not tuned, such as the number of epochs.
    output : int
        The number of the output that is the score.
    scale : float
        What the output is divided by, so that scores lie in [0, 1].
    noise : float
        The standard deviation of the noise of what a party sees.
    """

    name: str
    instance: str
    categories: tuple[str, ...]
    numbers: tuple[str, ...]
    output: int
    fixed: Mapping[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    noise: float = 0.01

    @property
    def folder(self) -> Path:
        """Return the folder of the scenario's files."""
        root = os.environ.get("FLWR_FBO_DATA", "")
        folder = Path(root) / "yahpo" / self.name
        if not root or not (folder / "model.onnx").exists():
            raise MissingDataError(
                f"yahpo/{self.name}/model.onnx must be below the directory in FLWR_FBO_DATA, but "
                f"{folder} has none; the files are at https://github.com/slds-lmu/yahpo_data"
            )
        return folder

    def read(self, name: str) -> Any:
        """Return the content of one of the scenario's JSON files."""
        return json.loads((self.folder / name).read_text())

    def instances(self) -> list[str]:
        """Return the data sets, in the order of the scenario."""
        (entry,) = [h for h in self._hyperparameters() if h["name"] == self.instance]
        return [str(choice) for choice in entry["choices"]]

    def space(self) -> Space:
        """Return the space of the inputs that are tuned."""
        tuned = [h for h in self._hyperparameters() if h["name"] != self.instance]
        return Space({h["name"]: _parameter(h) for h in tuned if h["name"] not in self.fixed})

    def scores(self, instance: str, settings: Sequence[Params]) -> Any:
        """Return the scores of settings of one data set, without noise: (n,).

        A setting may name an input that is fixed otherwise, such as the epoch.
        """
        encoding = _encoding(str(self.folder))
        given = [{**self.fixed, **params, self.instance: instance} for params in settings]
        numbers = np.array([[g[k] for k in self.numbers] for g in given], dtype=np.float32)
        codes = [[encoding[k][str(g[k])] for k in self.categories] for g in given]
        inputs = {"x_cont": numbers, "x_cat": np.array(codes, dtype=np.int32)}
        model = _model(str(self.folder / "model.onnx"))
        return model.run(None, inputs)[0][:, self.output].astype(np.float64) / self.scale

    def _hyperparameters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.read("config_space.json")["hyperparameters"]
        return found


def _parameter(h: Mapping[str, Any]) -> Any:
    if h["type"] == "categorical":
        return Categorical(h["choices"])
    kind = {"uniform_int": Int, "uniform_float": Float}[h["type"]]
    return kind(h["lower"], h["upper"], bool(h["log"]))


@cache
def _model(path: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingDataError(
            "the package onnxruntime is needed: pip install 'flwr-fbo[suite]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@cache
def _encoding(folder: str) -> dict[str, dict[str, int]]:
    """Return the codes of categories, by input and category."""
    codes: dict[str, dict[str, int]] = json.loads((Path(folder) / "encoding.json").read_text())
    return codes


class YahpoTask(Task):
    """The surrogate of one data set."""

    score_range = (0.0, 1.0)

    def __init__(self, scenario: Scenario, label: str) -> None:
        super().__init__()
        self.scenario, self._label = scenario, label
        self._space = scenario.space()
        _model(str(scenario.folder / "model.onnx"))  # here, so that a missing package is said now

    @property
    def name(self) -> str:
        return self._label

    @property
    def space(self) -> Space:
        return self._space

    def prepare(self, partition: Partition) -> None:
        self.instance = self.scenario.instances()[partition.index]

    def expected_of_all(self, settings: Sequence[Params]) -> Any:
        """Return the scores of many settings, by one call of the model: (n,)."""
        return self.scenario.scores(self.instance, settings)

    def expected(self, params: Params) -> float:
        return float(self.expected_of_all([params])[0])

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        seen = self.expected(params) + self.scenario.noise * rng.standard_normal()
        return float(np.clip(seen, 0.0, 1.0))


LCBENCH_SCENARIO = Scenario(
    "lcbench",
    instance="OpenML_task_id",
    categories=("OpenML_task_id",),
    numbers=(
        "epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers",
        "max_units", "max_dropout",
    ),
    fixed={"epoch": 50},
    output=1,
    scale=100.0,
)  # fmt: skip
RPART_SCENARIO = Scenario(
    "rbv2_rpart",
    instance="task_id",
    categories=("task_id", "num.impute.selected.cpo"),
    numbers=("cp", "maxdepth", "minbucket", "minsplit", "trainsize", "repl"),
    fixed={"trainsize": 1.0, "repl": 10},
    output=2,
)


def yahpo(scenario: Scenario, name: str, title: str, parties: int, **more: Any) -> Federation:
    """Return a federation from a scenario of YAHPO Gym."""
    return Federation(
        name=name,
        title=title,
        version=1,
        task=lambda: YahpoTask(scenario, name),
        parties=parties,
        random_settings=4000,
        **more,
    )


LCBENCH = yahpo(
    LCBENCH_SCENARIO, "lcbench", "LCBench: networks on 34 data sets", 34, evaluations=30,
    about="Seven hyperparameters of a network; validation accuracy of a surrogate (YAHPO Gym).",
)  # fmt: skip
RPART_60 = yahpo(
    RPART_SCENARIO, "rpart-60", "rbv2_rpart: decision trees on 60 data sets", 60, evaluations=20,
    about="Five hyperparameters of a decision tree, one of them a category; AUC of a surrogate.",
)  # fmt: skip
RPART = yahpo(
    RPART_SCENARIO, "rpart-117", "rbv2_rpart: decision trees on 117 data sets", 117,
    evaluations=20, about="The same with all data sets of the scenario.",
)  # fmt: skip
