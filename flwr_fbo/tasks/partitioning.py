"""Shares of a data set by Flower's partitioners, for the ``prepare`` of a task.

Needs ``flwr-fbo[datasets]``. In a simulation, and in an experiment on one data set, every party
computes the same partition and takes its own share. In a deployment each party has data of its
own, and needs no partitioner.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks.task import Partition

#: Features and labels, or any arrays of equal length by name.
Data: TypeAlias = tuple[NDArray[Any], NDArray[Any]] | Mapping[str, NDArray[Any]]


def partition_by(partitioner: Any, data: Data | Callable[[], Any]) -> Callable[[Partition], Any]:
    """Return a function that returns the share of a party, for ``prepare`` of a task.

    Parameters
    ----------
    partitioner : flwr_datasets.partitioner.Partitioner or callable
        A partitioner, or a function that returns one for a number of agents. A function suits any
        number of agents. A partitioner of its own number fits this number only.
    data : tuple, mapping, datasets.Dataset or callable
        Features and labels (X, y), or arrays of equal length by name, or a data set of Hugging
        Face, or a function that returns one of these. The partitioner knows labels as ``label``.

    Returns
    -------
    callable
        Returns the share of a :class:`~flwr_fbo.Partition` in the form of the data: (X, y), a
        dict of arrays, or a data set.

    Examples
    --------
    With scikit-learn's digits; docs/how-to/partitions.md continues this example::

        def uneven(agents):
            return DirichletPartitioner(agents, partition_by="label", alpha=0.5)

        load = partition_by(uneven, lambda: load_digits(return_X_y=True))
        x, y = load(Partition(0, 10))
    """
    if not (callable(partitioner) or hasattr(partitioner, "load_partition")):
        raise SettingsError(
            "`partitioner` must be a partitioner of flwr_datasets, or a function that returns one "
            f"for a number of agents, but got {partitioner!r}"
        )

    def share(partition: Partition) -> Any:
        whole = data() if callable(data) else data
        made = _partitioner(partitioner, partition)
        made.dataset = _table(whole)
        if made.num_partitions < partition.count:
            raise SettingsError(
                f"the partitioner must make a share for each of the {partition.count} agents, but "
                f"it makes {made.num_partitions}"
            )
        found = made.load_partition(partition.index)
        if not isinstance(whole, (tuple, Mapping)):
            return found
        rows = np.asarray(found[_ROW], dtype=np.int64)
        if isinstance(whole, tuple):
            return tuple(np.asarray(part)[rows] for part in whole)
        return {name: np.asarray(column)[rows] for name, column in whole.items()}

    return share


#: The column that numbers the rows, by which arrays are divided without being converted.
_ROW = "flwr_fbo row"


def _partitioner(given: Any, partition: Partition) -> Any:
    """Return a partitioner without a data set."""
    if hasattr(given, "load_partition"):
        return copy.deepcopy(given)  # a partitioner accepts a data set only once
    return given(partition.count)


def _table(data: Any) -> Any:
    """Return the data set that a partitioner divides: the columns of one number per row."""
    try:
        datasets = importlib.import_module("datasets")
        importlib.import_module("flwr_datasets")
    except ImportError as error:
        raise ImportError(
            f"partition_by needs flwr-datasets, which cannot be imported ({error}): install it "
            "with `pip install 'flwr-fbo[datasets]'`"
        ) from error
    if isinstance(data, datasets.Dataset):
        return data
    if isinstance(data, tuple):
        columns = {"label": np.asarray(data[1])}
    elif isinstance(data, Mapping):
        columns = {name: np.asarray(column) for name, column in data.items()}
    else:
        raise SettingsError(
            "`data` must be (X, y), arrays by name or a datasets.Dataset, but got "
            f"{type(data).__name__}"
        )
    lengths = {
        len(column) for column in (*columns.values(), *(data if isinstance(data, tuple) else ()))
    }
    if len(lengths) != 1:
        raise SettingsError(f"the arrays of `data` must be equally long, but got {sorted(lengths)}")
    plain = {name: column.tolist() for name, column in columns.items() if column.ndim == 1}
    return datasets.Dataset.from_dict({_ROW: list(range(lengths.pop())), **plain})
