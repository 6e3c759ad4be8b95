"""Rounds end in time, whatever nodes and Flower's object store do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Error, Message, RecordDict

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.simulation.in_process_grid import SERVER_NODE, InProcessGrid
from flwr_fbo.strategies import replies as courier
from flwr_fbo.strategies.baselines import LocalTS
from flwr_fbo.strategies.dp_fts_de import DPFTSDE
from flwr_fbo.strategies.fts import FTS
from flwr_fbo.strategies.replies import send_and_collect

from .conftest import SPACE, Federation, hill
from .test_strategies import SMALL, Make


class Scripted(InProcessGrid):
    """Answers by script: for each node the seconds until its reply can be pulled."""

    def __init__(self, delays: dict[int, float]) -> None:
        super().__init__(None, 0)  # type: ignore[arg-type]
        self.delays = delays
        self.pulled: list[list[str]] = []
        self.release = threading.Event()
        self.hang: set[int] = set()
        self.broken: set[int] = set()
        self.lost: set[int] = set()
        self.errors: dict[int, int] = {}
        self._sent: dict[str, tuple[Message, float]] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[Any]:
        numbers: list[str | None] = []
        for message in messages:
            number = f"m{message.metadata.dst_node_id}"
            message.metadata.__dict__["_message_id"] = number
            self._sent[number] = (message, time.monotonic())
            numbers.append(None if message.metadata.dst_node_id in self.lost else number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        (number,) = message_ids
        self.pulled.append([number])
        message, sent = self._sent[number]
        node = message.metadata.dst_node_id
        if node in self.hang:
            self.release.wait(60)
        if node in self.broken:
            raise ValueError("Unexpected format for object content")
        if time.monotonic() - sent < self.delays.get(node, 0.0):
            return []
        if node in self.errors:
            reply = Message(Error(self.errors[node], "gone"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SERVER_NODE  # as the SuperLink does
            return [reply]
        return [Message(RecordDict(), reply_to=message)]


def send(grid: Scripted, nodes: range, timeout: float, share: float = 1.0) -> tuple[Any, float]:
    messages = [Message(RecordDict(), n, "train") for n in nodes]
    started = time.monotonic()
    replies = send_and_collect(grid, messages, timeout, share)
    return replies, time.monotonic() - started


def test_all_replies_are_matched_to_their_messages() -> None:
    grid = Scripted({4: 0.1})
    replies, seconds = send(grid, range(3, 8), 60.0)
    assert {i: r.metadata.src_node_id for i, r in replies.items()} == dict(enumerate(range(3, 8)))
    assert seconds < 30


def test_a_round_ends_at_its_deadline() -> None:
    replies, seconds = send(Scripted({4: 60.0}), range(3, 8), 0.3)
    assert set(replies) == {0, 2, 3, 4}
    assert 0.3 <= seconds < 30


def test_a_round_ends_when_the_quorum_has_answered() -> None:
    grid = Scripted({6: 60.0, 7: 60.0})
    replies, seconds = send(grid, range(3, 8), 60.0, share=0.6)
    assert set(replies) == {0, 1, 2}
    assert seconds < 30


@pytest.mark.parametrize(("share", "least"), [(0.01, 1), (0.5, 3), (0.6, 3), (0.61, 4), (1.0, 5)])
def test_a_quorum_is_rounded_up(share: float, least: int) -> None:
    slow = dict.fromkeys(range(3 + least, 8), 60.0)
    replies, _ = send(Scripted(slow), range(3, 8), 30.0, share)
    assert len(replies) == least


def test_errors_of_the_superlink_are_told_by_what_they_answer() -> None:
    grid = Scripted({})
    grid.errors = {4: 3, 5: 5}
    replies, _ = send(grid, range(3, 8), 5.0)
    assert {i: r.error.code for i, r in replies.items() if r.has_error()} == {1: 3, 2: 5}
    assert len(replies) == 5


def test_messages_that_could_not_be_sent_are_not_waited_for() -> None:
    grid = Scripted({})
    grid.lost = {3, 4, 5}
    replies, seconds = send(grid, range(3, 8), 60.0)
    assert set(replies) == {3, 4}
    assert seconds < 30
    grid.lost = {3}
    assert send(grid, range(3, 4), 5.0)[0] == {}


def test_a_node_that_dies_in_an_upload_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replies hang in their pull, as they do for minutes while an upload is unfinished."""
    monkeypatch.setattr(courier, "STUCK", 0.2)
    grid = Scripted({7: 0.5})
    grid.hang = {3, 5}
    replies, seconds = send(grid, range(3, 8), 4.0)
    assert set(replies) == {1, 3, 4}
    assert seconds < 30
    assert grid.pulled.count(["m3"]) == grid.pulled.count(["m5"]) == 1
    grid.release.set()


def test_an_upload_that_is_only_slow_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "STUCK", 0.1)
    grid = Scripted({})
    grid.hang = {3}
    threading.Timer(0.6, grid.release.set).start()
    replies, seconds = send(grid, range(3, 6), 60.0)
    assert set(replies) == {0, 1, 2}
    assert seconds < 30


def test_a_reply_that_flower_cannot_take_apart_costs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = Scripted({})
    grid.broken = {4}
    replies, _ = send(grid, range(3, 8), 0.3)
    assert set(replies) == {0, 2, 3, 4}
    assert "could not be pulled: ValueError" in caplog.text
    assert "object content" not in caplog.text


class Costly(Scripted):
    """Looking for a reply computes for two milliseconds, as it may where agents are many."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return super().pull_messages(message_ids)


def test_asking_leaves_its_time_to_the_agents() -> None:
    """A pass over 20 messages computes for 40 ms, and 35 of them would fit the wait."""
    grid = Costly(dict.fromkeys(range(3, 23), 1.5))
    replies, seconds = send(grid, range(3, 23), 120.0)
    assert len(replies) == 20
    assert len(grid.pulled) <= 5 * 20  # one at the start, one a second, and the last
    assert seconds < 100


class OneByOne(Costly):
    """The first two passes find nothing; each one after them finds a reply."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = super().pull_messages(message_ids)
        (number,) = self.pulled[-1]
        passes = sum(pulled == [number] for pulled in self.pulled)
        return found if passes == int(number[1:]) else []


def test_while_replies_come_the_next_are_looked_for_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over m3 to m7 computes for 10 ms, of which 50 times are slept, or 5 times."""
    rests: list[float] = []
    # The clock is the CPU's, so that what other processes do to a pass is no part of its length.
    clock = SimpleNamespace(
        monotonic=time.process_time, thread_time=time.thread_time, sleep=rests.append
    )
    monkeypatch.setattr(courier, "time", clock)
    replies, _ = send(OneByOne({}), range(3, 8), 30.0)
    assert len(replies) == 5
    assert min(rests[:2]) >= courier.REST * 5 * 0.002
    assert max(rests[2:6]) < min(rests[:2]) / 2


class Slow(InProcessGrid):
    """One node whose replies to rounds are never there in time."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = list(super().pull_messages(message_ids))
        late = [m for m in found if m.metadata.src_node_id == 2 and m.metadata.group_id != "setup"]
        return [m for m in found if m not in late]


def test_a_run_with_a_quorum_goes_on_without_the_slow(federation: Make) -> None:
    f = federation(LocalTS(**SMALL), quorum=0.6, timeout=300.0)
    f.grid.__class__ = Slow
    started = time.monotonic()
    reports = f.start().reports
    assert time.monotonic() - started < 300  # not one round waited for the slow
    assert [(r.asked, r.missing) for r in reports] == [(3, 1)] * 5


class Backwards(InProcessGrid):
    """Nodes of which the last one replies first."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        last = max(self._replies, key=int, default="")
        return super().pull_messages(number for number in message_ids if number == last)


def test_a_sum_does_not_depend_on_who_replied_first(tmp_path: Path) -> None:
    """A sum of floating-point numbers has other last digits in another order."""
    taken: dict[type[InProcessGrid], list[list[int]]] = {}
    made = []
    for grid in (InProcessGrid, Backwards):
        strategy = DPFTSDE(**SMALL, regions=2)
        f = Federation(strategy, tmp_path / grid.__name__, 5, hill, timeout=300.0)
        f.grid.__class__ = grid
        orders = taken.setdefault(grid, [])
        close = f.strategy.server.close

        def noted(replies: Any, close: Any = close, orders: Any = orders) -> None:
            orders.append(list(replies))
            close(replies)

        f.strategy.server.close = noted  # type: ignore[method-assign]
        f.start()
        histories = read_evaluations(f.directory.agents, 5)
        made.append([[(e.round, e.play, e.unit, e.score) for e in h] for h in histories])
    assert taken[Backwards] == taken[InProcessGrid] == [[0, 1, 2, 3, 4]] * 5
    assert made[0] == made[1]


class Late(InProcessGrid):
    """One node whose reply to round 1 can only be pulled when round 2 has begun."""

    held: dict[str, Message]
    asked_late: int
    begun: int

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.begun = max((int(m.metadata.group_id) for m in messages
                          if m.metadata.group_id != "setup"), default=0)  # fmt: skip
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = list(message_ids)
        for message in super().pull_messages(wanted):
            late = message.metadata.src_node_id == 2 and message.metadata.group_id == "1"
            if late and self.begun == 1:
                self.held[wanted[0]] = message
            else:
                yield message
        for number in wanted:
            if number in self.held and self.begun > 1:
                self.asked_late += 1
                yield self.held.pop(number)


def test_a_late_reply_is_dropped_and_its_evaluation_kept(federation: Make) -> None:
    f = federation(FTS(**SMALL), timeout=0.4)
    f.grid.__class__ = Late
    grid: Any = f.grid
    grid.held, grid.asked_late = {}, 0
    seen: list[dict[int, Any]] = []
    f.strategy.stop = lambda report: bool(seen.append(dict(f.strategy.server.messages)))  # type: ignore[attr-defined, func-returns-value]
    reports = f.start().reports
    assert [(r.replied, r.missing) for r in reports] == [(3, 0), (2, 1), (3, 0), (3, 0), (3, 0)]
    assert [sorted(vectors) for vectors in seen[:3]] == [[0, 1, 2], [1, 2], [0, 1, 2]]
    assert len(grid.held) == 1  # it was there, and nobody asked for it any more
    assert grid.asked_late == 0
    histories = read_evaluations(f.directory.agents, 3)
    assert [len(h) for h in histories] == [6, 6, 6]


def test_a_private_run_has_no_quorum() -> None:
    strategy = DPFTSDE(**SMALL, epsilon=4.0)
    with pytest.raises(SettingsError, match="`round-quorum` must be 1 in a private run"):
        strategy.open_run(RunParameters(SPACE, 3, 2, quorum=0.9))
    DPFTSDE(**SMALL).open_run(RunParameters(SPACE, 3, 2, quorum=0.9))
