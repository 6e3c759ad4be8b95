"""What an evaluation costs beside the library called bare.

    python benchmarks/task_overhead.py [--data-dir DIR]

Prints, for landmine and digits, the CPU time of a task's evaluation over that of scikit-learn's
SVC and its score called directly on the same arrays, and the times of the other tasks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.svm import SVC

from flwr_fbo.tasks import Partition, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default="", help="the originals; unset: generated data")
    directory = parser.parse_args().data_dir
    for name, bare in (("landmine", bare_auc), ("digits", bare_accuracy)):
        given = {"data-dir": directory} if directory else {"generated": name != "digits"}
        print(f"{name}: {ratio(load(name, given), bare):.2f} x scikit-learn called bare")
    for name in ("activity", "glasses", "mnist", "vaccine", "emnist"):
        task = load(name, {"generated": True})
        try:
            print(f"{task.name}: {1e3 * seconds(task):.1f} ms an evaluation")
        except ImportError as error:
            print(f"{name}: {error}")


def bare_auc(data: Any, params: dict[str, Any]) -> float:
    machine = SVC(C=params["C"], gamma=params["gamma"]).fit(data.x_train, data.y_train)
    return float(roc_auc_score(data.y_valid, machine.decision_function(data.x_valid)))


def bare_accuracy(data: Any, params: dict[str, Any]) -> float:
    machine = SVC(C=params["C"], gamma=params["gamma"]).fit(data.x_train, data.y_train)
    return float(accuracy_score(data.y_valid, machine.predict(data.x_valid)))


def ratio(task: Any, bare: Callable[[Any, dict[str, Any]], float], points: int = 200) -> float:
    """Median over points of the time of ``evaluate`` over that of the bare call."""
    task.prepare(Partition(0, task.default_agents))
    rng, ratios = np.random.default_rng(0), []
    for unit in task.space.sample(points, rng):
        params = task.space.from_unit(unit)
        bare(task.data, params)  # both warm
        ours = timed(lambda p=params: task.evaluate(p, rng=rng))
        theirs = timed(lambda p=params: bare(task.data, p))
        ratios.append(ours / theirs)
    return statistics.median(ratios)


def seconds(task: Any, points: int = 10) -> float:
    task.prepare(Partition(0, task.default_agents))
    rng = np.random.default_rng(0)
    params = [task.space.from_unit(unit) for unit in task.space.sample(points, rng)]
    return statistics.median(timed(lambda p=p: task.evaluate(p, rng=rng)) for p in params)


def timed(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


if __name__ == "__main__":
    main()
