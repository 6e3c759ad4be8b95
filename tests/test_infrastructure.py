"""What tests rely on: no test is lost in their order, and commands are processes of their own."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command import flwr_fbo, forked_python
from tests.conftest import SLOW_WORKERS, dealt
from tests.flower.processes import free_ports


@dataclass(frozen=True)
class Item:
    nodeid: str
    slow: bool

    #: What its mark says of its length.
    seconds: tuple[float, ...] = ()

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(args=self.seconds) if self.slow else None


def items(files: int, each: int, slow: int) -> list[Any]:
    """Tests of several files, of which some begin with slow ones."""
    return [
        Item(f"f{n}.py::t{i}", n % 2 == 0 and i < slow) for n in range(files) for i in range(each)
    ]


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
@pytest.mark.parametrize("given", [(6, 10, 3), (2, 3, 3), (5, 7, 0), (3, 2, 2), (1, 1, 1)])
def test_the_first_workers_get_the_slow_tests_first(
    given: tuple[int, int, int], workers: int
) -> None:
    every = items(*given)
    order = dealt(every, workers)
    assert sorted(i.nodeid for i in order) == sorted(i.nodeid for i in every)
    if len(every) < 10 * workers:
        return
    begin = 0
    for worker in range(workers):  # as xdist deals them out
        end = begin + (len(order) - begin) // (workers - worker)
        part = [item.slow for item in order[begin:end]]
        assert part == sorted(part, reverse=True)
        share = sum(i.slow for i in every) / SLOW_WORKERS if worker < SLOW_WORKERS else 0
        assert abs(sum(part) - share) < 1
        begin = end


def test_the_longest_tests_begin_first() -> None:
    lengths = [(), (100.0,), (), (300.0,), (200.0,)]
    slow = [Item(f"s{n}.py::t", True, length) for n, length in enumerate(lengths)]
    order = dealt([*slow, *items(5, 4, 0)], 2)
    first = [i.seconds for i in order[:3]], [i.seconds for i in order[12:15]]
    assert first == ([(300.0,), (100.0,), ()], [(200.0,), (), ()])


def test_a_command_is_a_process_with_a_directory_variables_and_output_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_FBO_TEST_SEEN", "by the child")
    code = (
        "import os, sys\n"
        "print(os.getpid(), os.getcwd(), sys.argv[1:], os.environ['FLWR_FBO_TEST_SEEN'])\n"
        "print(sys.stdin.read(), 'pytest' in sys.modules, file=sys.stderr)\n"
        "sys.exit(5)"
    )
    done = forked_python(code, "a", "b c", cwd=tmp_path)
    assert done.returncode == 5
    pid, rest = done.stdout.split(" ", 1)
    assert int(pid) != os.getpid()
    assert rest == f"{tmp_path} ['a', 'b c'] by the child\n"
    assert done.stderr == " False\n"


@pytest.mark.parametrize("fresh", [False, True])
def test_what_a_command_raises_is_seen(tmp_path: Path, fresh: bool) -> None:
    done = flwr_fbo("strategies", "nowhere", cwd=tmp_path, fresh=fresh)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    killed = forked_python("import os\nos.kill(os.getpid(), 9)")
    assert killed.returncode == -9
    broken = forked_python("raise ValueError('of its own')")
    assert broken.returncode == 1
    assert "ValueError: of its own" in broken.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="of the tests with processes of Flower")
def test_a_port_is_given_away_once() -> None:
    first, second = free_ports(20), free_ports(20)
    assert len({*first, *second}) == 40
