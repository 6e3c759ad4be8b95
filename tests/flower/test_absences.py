"""Silent parties are asked with growing pauses and reported; the sample does not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo import LocalTS, Result
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.methods.dp_fts_de import aggregation
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.report import write_report
from flwr_fbo.runs.absent import absence_rows, missed_text
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.summary import summary
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies import rounds
from flwr_fbo.strategies.absences import LONGEST_PAUSE, Absences

from .conftest import SPACE, Federation, hill
from .test_population import private

FIRST = 2  # the node of agent 0
SMALL: dict[str, Any] = {"initial_points": 2, "features": 8, "refit_every": 0}


class SilentGrid(InProcessGrid):
    """Nodes that are online and do not answer while ``silent`` says so, by the code of an error."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.silent: set[int] = set()
        self.gone: set[int] = set()
        self.code: int | None = None
        self.asked: list[set[int]] = []

    def get_node_ids(self) -> Any:
        return [node for node in super().get_node_ids() if node - FIRST not in self.gone]

    def push_messages(self, messages: Any) -> Any:
        messages = list(messages)
        agents = {m.metadata.dst_node_id - FIRST for m in messages}
        if messages and messages[0].metadata.group_id != "setup":
            self.asked.append(agents)
        numbers = super().push_messages(messages)
        for number, message in zip(numbers, messages, strict=True):
            if message.metadata.group_id == "setup":
                continue
            if message.metadata.dst_node_id - FIRST in self.silent:
                reply = self._replies.pop(number)
                if self.code is not None:
                    error = Message(Error(self.code), reply_to=message)
                    error.metadata.__dict__["_message_id"] = reply.metadata.message_id
                    self._replies[number] = error
        return numbers


def run(
    folder: Path,
    silent: Callable[[int], set[int]],
    code: int | None = 3,
    rounds: int = 12,
    gone: Callable[[int], set[int]] = lambda round: set(),
) -> tuple[SilentGrid, list[RoundReport], LocalTS]:
    grid = SilentGrid(simulated_client_app(hill, folder), 3)
    grid.code = code
    strategy = LocalTS(**SMALL)
    strategy.open_run(RunParameters(SPACE, 3, rounds, timeout=60.0 if code else 0.3))
    grid.silent = silent(0)

    def after(report: RoundReport) -> bool:
        grid.silent, grid.gone = silent(report.round + 1), gone(report.round + 1)
        return False

    strategy.stop = after
    strategy.run(grid)
    return grid, strategy.reports, strategy


def test_a_silent_party_is_asked_with_growing_pauses(tmp_path: Path) -> None:
    grid, _, strategy = run(tmp_path, lambda round: {1}, rounds=20)
    assert [t for t, asked in enumerate(grid.asked) if 1 in asked] == [0, 1, 3, 7, 15]
    assert all({0, 2} <= asked for asked in grid.asked)
    assert strategy.rounds.absences.missed == {1: [[0, 20]]}
    assert strategy.rounds.absences.answered == pytest.approx(2 / 3)


def test_one_reply_ends_the_pauses(tmp_path: Path) -> None:
    grid, _, strategy = run(tmp_path, lambda round: {1} if 2 <= round <= 4 else set())
    # Silent in 2 and 3, not asked in 4, back in 5, and asked in every round from then on.
    assert [t for t, asked in enumerate(grid.asked) if 1 not in asked] == [4]
    assert strategy.rounds.absences.missed == {1: [[2, 4]]}


@pytest.mark.parametrize("back", [4, 5, 6, 10])
def test_a_node_that_comes_back_ends_the_pause(tmp_path: Path, back: int) -> None:
    """Silent in 0, 1 and 3, and in a pause until 7; its node is away, and is back in a round."""
    grid, *_ = run(
        tmp_path,
        lambda t: {1} if t < 4 else set(),
        gone=lambda t: {1} if t == back - 1 > 3 else set(),
    )
    first = min(back, 7) if back > 4 else 7
    expected = [0, 1, 3, *(t for t in range(first, 13) if t != back - 1)]
    assert [t for t, asked in enumerate(grid.asked) if 1 in asked] == expected


def test_a_silent_node_that_comes_back_has_a_longer_pause_next(tmp_path: Path) -> None:
    grid, *_ = run(tmp_path, lambda t: {1}, rounds=20, gone=lambda t: {1} if t == 4 else set())
    # Asked when it is back, silent a fourth time, and then not asked in seven rounds.
    assert [t for t, asked in enumerate(grid.asked) if 1 in asked] == [0, 1, 3, 5, 13]


@pytest.mark.parametrize("code", [None, 0, 3, 5, 8])
def test_errors_of_flower_are_silence_and_end_the_run_when_nobody_answers(
    tmp_path: Path, code: int | None
) -> None:
    """A SuperLink's word that a message has expired is no reply, and nothing is released for it."""
    grid, reports, strategy = run(tmp_path, lambda round: {0, 1, 2} if round else set(), code)
    assert strategy.stopped == "no agent replied in 3 rounds in a row"
    assert len(reports) == 1
    assert grid.asked == [{0, 1, 2}] * 4
    assert strategy.rounds.absences.missed == {n: [[1, 1]] for n in range(3)}


def test_a_private_release_is_not_charged_for_errors_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A private round lasts to its end where somebody is silent; nobody here has to be in time.
    f = Federation(private(), tmp_path / "run", 3, hill, rounds=3, timeout=0.5)
    grid = SilentGrid(simulated_client_app(hill, f.directory.agents), 3)
    grid.silent, grid.code = {0, 1, 2}, 3
    f.strategy.run(grid)
    assert f.strategy.stopped
    assert f.strategy.server.charges == 0
    assert f.strategy.server.statement().spent == 0.0


def test_pauses_do_not_change_what_is_drawn_and_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, float]] = []
    plain = aggregation.poisson_sample

    def spy(count: int, rate: float, entropy: Any) -> Any:
        drawn.append((count, rate))
        return plain(count, rate, entropy)

    monkeypatch.setattr(aggregation, "poisson_sample", spy)
    # A round after one with a silent party lasts its whole timeout, which is not waited for here.
    held: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=held.append)
    monkeypatch.setattr(rounds, "time", clock)

    def statement(silent: set[int]) -> Any:
        f = Federation(private(), tmp_path / str(silent), 4, hill, rounds=6, timeout=60.0)
        grid = SilentGrid(simulated_client_app(hill, f.directory.agents), 4)
        grid.silent, grid.code = silent, 3
        f.strategy.run(grid)
        ledger = [line.split('"event"')[1] for line in _charges(f)]
        return grid, f.strategy.server.statement(), ledger

    grid, with_pauses, its_ledger = statement({2})
    _, without, ledger = statement(set())
    assert [2 in asked for asked in grid.asked] == [True, True, False, True, False, False, False]
    assert with_pauses == without
    assert len(its_ledger) == len(ledger) == 6
    assert drawn == [(4, 0.5)] * 12
    (seconds,) = held  # of round 1; in round 2 the silent party is in a pause, and holds nobody
    assert seconds <= 60.0


def _charges(f: Federation) -> list[str]:
    return [line for line in f.directory.ledger.read_text().splitlines() if '"event"' in line]


def test_absences_are_in_the_result_and_outlive_the_process(tmp_path: Path) -> None:
    def strategy() -> LocalTS:
        return LocalTS(space=SPACE, num_agents=3, run_dir=tmp_path / "run", timeout=60.0, **SMALL)

    grid = SilentGrid(simulated_client_app(hill, tmp_path / "run" / "agents"), 3)
    grid.silent, grid.code = {1}, 8
    first = strategy()
    first.stop = lambda report: report.round == 2
    first.start(grid, num_rounds=6)
    grid.silent = set()
    result = strategy().start(grid, num_rounds=6).details
    assert result is not None
    assert result.missed == [{"party": 1, "rounds": [[0, 2]]}]
    assert result.answered == pytest.approx(1 - 3 / 21)
    assert Result.read(tmp_path / "run") == result
    text = summary(result)
    assert "party 1       missed rounds 0 to 2" in text
    assert "85.7 % of those expected came" in text
    page = write_report([tmp_path / "run"]).read_text()
    assert "replies: 85.7 % of those expected came; party 1: missed rounds 0 to 2." in page


def test_the_summary_names_those_that_missed_most(tmp_path: Path) -> None:
    grid = InProcessGrid(simulated_client_app(hill, tmp_path / "run" / "agents"), 2)
    strategy = LocalTS(space=SPACE, num_agents=2, run_dir=tmp_path / "run", **SMALL)
    result = strategy.start(grid, num_rounds=1).details
    assert result is not None
    assert absence_rows(result) == []
    missed = [{"party": n, "rounds": [[0, n]]} for n in range(8)]
    rows = absence_rows(Result(**{**vars(result), "missed": missed}))
    assert [row[0] for row in rows] == [
        "replies", "party 7", "party 6", "party 5", "party 4", "party 3", "more parties"
    ]  # fmt: skip
    assert rows[1][1] == "missed rounds 0 to 7"
    assert rows[-1][1] == "3 missed rounds too (result.json)"


def test_missed_rounds_as_text() -> None:
    assert missed_text([[4, 15]]) == "missed rounds 4 to 15"
    assert missed_text([[1, 1], [3, 4], [9, 9]]) == "missed rounds 1, 3 to 4 and 9"


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=40))
def test_nobody_is_left_out_for_longer_than_the_longest_pause(
    replies: Sequence[Sequence[bool]],
) -> None:
    absences, since, last = Absences(3), np.zeros(3, dtype=int), np.zeros(3, dtype=bool)
    for round, answers in enumerate(replies):
        awake = absences.awake([0, 1, 2]) or [0, 1, 2]
        # Whoever replied the last time it was asked is asked again at once.
        assert all(n in awake for n in range(3) if last[n])
        replied = [n for n in awake if answers[n]]
        absences.note(round, awake, replied, True)
        for n in range(3):
            since[n] = 0 if n in awake else since[n] + 1
            last[n] = answers[n] if n in awake else last[n]
        assert since.max(initial=0) <= LONGEST_PAUSE
        missed = sum(b - a + 1 for spans in absences.missed.values() for a, b in spans)
        assert absences.answered == pytest.approx(1 - missed / (3 * (round + 1)))
