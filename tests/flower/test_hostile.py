"""Whatever one node sends, the run goes on as if that agent had been away, and says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from flwr_fbo import wire
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.dp_fts_de import DPFTSDE
from flwr_fbo.strategies.fts import FTS

from .conftest import SPACE, Federation
from .test_strategies import SMALL, Make
from .test_wire import claims_a_billion, pickled

LIAR = 3  # the node of agent 1


class Hostile(InProcessGrid):
    """Lets a node's reply to round 1 be changed, or replaced."""

    change: Callable[[Message, Message], Message | None]

    def _call(self, message: Message, context: Any) -> Message:
        reply = super()._call(message, context)
        if message.metadata.group_id == "1" and message.metadata.dst_node_id == LIAR:
            return self.change(message, reply) or reply
        return reply


def arrays(*values: np.ndarray) -> Callable[[Message, Message], None]:
    def change(message: Message, reply: Message) -> None:
        reply.content.array_records[wire.REPLY_PARAMETERS] = ArrayRecord(list(values))

    return change


def raw(data: bytes) -> Callable[[Message, Message], None]:
    def change(message: Message, reply: Message) -> None:
        array = FlowerArray(dtype="", shape=(), stype="numpy.ndarray", data=data)
        reply.content.array_records[wire.REPLY_PARAMETERS] = ArrayRecord({"0": array})

    return change


def metrics(**values: Any) -> Callable[[Message, Message], None]:
    def change(message: Message, reply: Message) -> None:
        record = reply.content.config_records[wire.REPLY_METRICS]
        record.update(values)

    return change


def replaced(content: RecordDict) -> Callable[[Message, Message], Message]:
    return lambda message, reply: Message(content, reply_to=message)


GOOD = np.linspace(0.0, 1.0, 8)
REFUSED: dict[str, Any] = {
    "NaN": arrays(np.full(8, np.nan)),
    "infinity": arrays(np.full(8, np.inf)),
    "one NaN": arrays(np.where(np.arange(8) == 3, np.nan, 1.0)),
    "wrong shape": arrays(np.ones((2, 4))),
    "too short": arrays(np.ones(7)),
    "too long": arrays(np.ones(9)),
    "a million numbers": arrays(np.ones(1_000_000)),
    "a claim of a billion numbers": raw(claims_a_billion()),
    "single precision": arrays(np.ones(8, dtype=np.float32)),
    "integers": arrays(np.ones(8, dtype=np.int64)),
    "big-endian": arrays(np.ones(8, dtype=">f8")),
    "complex": arrays(np.ones(8, dtype=np.complex128)),
    "pickled objects": raw(pickled()),
    "no array": arrays(),
    "two arrays": arrays(GOOD, GOOD),
    "empty": raw(b""),
    "not numpy": raw(b"omega" * 100),
    "another round": metrics(round=0),
    "a future round": metrics(round=2),
    "a round that is no number": metrics(round="1"),
    "a future schema": metrics(schema=wire.SCHEMA + 1),
    "more than was asked for": metrics(best=0.99),
    "a declining word that is too long": metrics(declined="x" * 1000),
    "a declining word with control characters": metrics(declined="\x1b[2J"),
    "nothing": replaced(RecordDict()),
    "other records": replaced(RecordDict({"weights": ArrayRecord([GOOD])})),
    "metrics for arrays": replaced(
        RecordDict({wire.REPLY_PARAMETERS: MetricRecord({"x": 1}),
                    wire.REPLY_METRICS: ConfigRecord({"schema": 1})})
    ),
    "an app that cannot be loaded": lambda message, reply: Message(
        Error(1, "gone"), reply_to=message
    ),
    "an error that quotes data": lambda message, reply: Message(
        Error(2, "patient 4711"), reply_to=message
    ),
}  # fmt: skip


def run_with(federation: Make, strategy: Any, change: Any) -> Federation:
    f = federation(strategy, rounds=3)
    f.grid.__class__ = Hostile
    f.grid.change = change  # type: ignore[attr-defined]
    f.start()
    return f


@pytest.mark.parametrize("what", list(REFUSED))
def test_a_bad_reply_is_counted_and_is_as_if_the_agent_were_away(
    federation: Make, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Not private, so that what the server made of the replies can be compared exactly.
    f = run_with(federation, FTS(**SMALL), REFUSED[what])
    reports = f.strategy.reports
    assert [r.refused for r in reports] == [0, 1, 0, 0]
    assert [r.replied for r in reports] == [3, 2, 3, 3]
    assert f.strategy.server.finished
    assert "a reply of agent 1 is ignored" in caplog.text
    assert "4711" not in caplog.text
    assert "nan" not in caplog.text.lower().replace("finance", "")


def test_what_is_refused_leaves_nothing_in_the_servers_state(federation: Make) -> None:
    f = federation(FTS(**SMALL), rounds=3)
    f.grid.__class__ = Hostile
    f.grid.change = REFUSED["infinity"]  # type: ignore[attr-defined]
    f.strategy.stop = lambda report: report.round == 1
    f.start()
    assert set(f.strategy.server.messages) == {0, 2}  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [1e3, 1e150, 1e308])
def test_a_huge_vector_counts_as_one_of_the_length_of_the_clip(
    federation: Make, size: float
) -> None:
    def released(change: Any) -> np.ndarray:
        settings = {**SMALL, "regions": 1, "weights": "uniform", "clip": 1.0, "releases": "1"}
        f = run_with(federation, DPFTSDE(**settings), change)
        latest = f.strategy.server.released.latest  # type: ignore[attr-defined]
        for path in f.directory.root.rglob("*.*"):
            path.unlink()
        return np.array(latest)

    away = released(REFUSED["nothing"])
    lied = released(arrays(np.full(8, size)))
    moved = np.linalg.norm(lied - away)
    # A weight of a third and a clip of 1: the liar moves the sum by a third, and no further.
    assert moved == pytest.approx(1 / 3, rel=1e-9)


def test_a_reply_that_comes_twice_counts_once(federation: Make) -> None:
    class Twice(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            found = list(super().pull_messages(message_ids))
            return found + found

    f = federation(FTS(**SMALL))
    f.grid.__class__ = Twice
    reports = f.start().reports
    assert all((r.asked, r.replied, r.refused) == (3, 3, 0) for r in reports)


def test_replies_to_messages_that_nobody_sent_are_ignored(federation: Make) -> None:
    class Strange(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            found = list(super().pull_messages(message_ids))
            for message in found:
                stray = Message(RecordDict(), reply_to=message)
                stray.metadata.__dict__["_reply_to_message_id"] = "never-sent"
                yield stray
                yield message

    f = federation(FTS(**SMALL))
    f.grid.__class__ = Strange
    reports = f.start().reports
    assert all((r.asked, r.replied, r.refused) == (3, 3, 0) for r in reports)


@pytest.mark.parametrize("name", ["", "x" * 65, "\n", "99", "0"])
def test_a_node_cannot_take_a_name_that_is_not_its_own(
    federation: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Impostor(InProcessGrid):
        def _call(self, message: Message, context: Any) -> Message:
            reply = super()._call(message, context)
            if message.metadata.group_id == "setup" and message.metadata.dst_node_id == LIAR:
                reply.content.config_records[wire.REPLY_METRICS]["agent"] = name
            return reply

    f = federation(FTS(**SMALL), agents=3, timeout=0.3)
    f.grid.__class__ = Impostor
    reports = f.start().reports
    # "99" is as good as any name that is free; it is a stranger only where the places are taken.
    expected = 3 if name == "99" else 2
    assert {r.replied for r in reports} == {expected}
    assert SPACE.dimension == 2
