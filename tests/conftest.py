"""What all tests share."""

from __future__ import annotations

import os
import signal
from itertools import chain, islice, zip_longest
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run tests are shared and slow at times: time limits would fail at random.
settings.register_profile(
    "flwr-fbo", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("flwr-fbo")


@pytest.fixture(autouse=True)
def _home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the runs and budgets of the user who runs the tests."""
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path / "home-of-runs"))


# -- the order of the tests, for `pytest -n N` ---------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Let a worker that has nothing left take over tests of the others; hear Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if getattr(config.option, "dist", "no") == "load":  # what `-n` alone chooses
        config.option.dist = "worksteal"


@pytest.hookimpl(trylast=True)  # after the tests that nobody asked for were left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the slow tests to the first workers, before the quick ones.

    Slow tests wait for processes of their own most of the time, and quick tests compute meanwhile.
    A worker begins with as many tests as the others, one after the other in the order of `items`.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = dealt(items, workers)


#: Workers that begin with slow tests. Many of them start Ray, which gives up where one of its
#: processes takes longer than 15 s to start: on two cores, too many at once are too slow.
SLOW_WORKERS = 2


def seconds(item: pytest.Item) -> float:
    """Return how long a slow test takes on a busy machine, where its mark says so; else 0."""
    marker = item.get_closest_marker("slow")
    return float(marker.args[0]) if marker is not None and marker.args else 0.0


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return the tests in the order in which equal parts of them go to the workers."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = iter([item for item in items if not item.get_closest_marker("slow")])
    modules: dict[str, list[pytest.Item]] = {}
    for item in slow:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    # One of each file, then the second of each: tests of one file may wait for one another. But
    # first the longest, so that none of them begins when the other workers have nothing left.
    turns = chain.from_iterable(zip_longest(*modules.values()))
    in_turn = sorted((item for item in turns if item is not None), key=seconds, reverse=True)
    parts: list[pytest.Item] = []
    for worker in range(workers):
        share = (len(items) - len(parts)) // (workers - worker)
        first = in_turn[worker::SLOW_WORKERS] if worker < SLOW_WORKERS else []
        parts += [*first, *islice(quick, max(0, share - len(first)))]
    return [*parts, *quick]
