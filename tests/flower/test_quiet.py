"""What a reply's size, timing and words tell: nothing that was not paid for."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict, UserConfig

from flwr_fbo import DPFTSDE, FTS, Float, task, wire
from flwr_fbo.clients import client_app
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.doors import answer
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.files.journal import exclusive, journal_path
from flwr_fbo.simulation.in_process_grid import InProcessGrid, payload
from flwr_fbo.strategies import replies as replies_module
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.replies import send_and_collect

from .conftest import SPACE, hill

SECRET = "the patient's name"


def size(reply: Reply, expects: dict[str, tuple[int, ...]]) -> int:
    content = wire.reply_content(wire.encode_reply(reply, 3, expects=expects))
    grid = InProcessGrid(None, 1)  # type: ignore[arg-type]
    (node,) = grid.contexts
    return payload(Message(content, node, "train"))


@pytest.mark.parametrize("expects", [{}, {"omega": (8,)}, {"means": (40,)}, {"reward": ()}])
def test_a_declined_reply_has_the_size_of_any_other(expects: dict[str, tuple[int, ...]]) -> None:
    good = size(Reply({name: np.ones(shape) for name, shape in expects.items()}), expects)
    for word in ("budget", "under-way", "E", "x" * 64):
        assert size(Reply(declined=word), expects) == good


def test_padding_is_no_part_of_the_word() -> None:
    request = Request("step", 3, {}, {}, {"omega": (2,)})
    content = wire.reply_content(
        wire.encode_reply(Reply(declined="budget"), 3, expects=request.expects)
    )
    grid = InProcessGrid(None, 1)  # type: ignore[arg-type]
    (node,) = grid.contexts
    assert wire.decode_reply(Message(content, node, "train"), request) == Reply(declined="budget")


def unreadable(expects: dict[str, tuple[int, ...]], **changes: Any) -> RecordDict:
    content = wire.encode_request(Request("step", 3, {}, {}, expects), "digest")
    content.config_records[wire.CONFIG].update(changes)
    return content


@pytest.mark.parametrize("expects", [{}, {"omega": (8,)}, {"means": (40,)}])
@pytest.mark.parametrize(
    "changes",
    [
        {"flwr-fbo": wire.SCHEMA + 1},  # another version
        {"arrays": "a,b"},  # arrays that are not there
        {"value.x": [1, 2]},  # no argument of NumPyClient.fit
        {},  # a request of a setup that the node does not have
    ],
)
def test_a_reply_to_what_cannot_be_read_has_the_size_of_any_other(
    expects: dict[str, tuple[int, ...]], changes: dict[str, Any]
) -> None:
    good = size(Reply({name: np.ones(shape) for name, shape in expects.items()}), expects)
    reply = answer(message(content=unreadable(expects, **changes)), context(), hill)
    assert not reply.has_error()
    assert payload(reply) == good


def test_a_reply_of_a_node_whose_task_cannot_be_made_has_the_size_of_any_other() -> None:
    expects = {"omega": (8,)}
    good = size(Reply({"omega": np.ones(8)}), expects)
    sent = message(content=unreadable(expects))
    assert payload(client_app.app(sent, context(task="no_such_module:task"))) == good
    without_partition = context()
    without_partition.node_config.clear()
    assert payload(answer(message(content=unreadable(expects)), without_partition, hill)) == good


@task(space=SPACE)
def leaking(params: Any) -> float:
    raise RuntimeError(SECRET)


class BrokenError(Exception):
    """An error whose text quotes data."""


def context(**config: Any) -> Context:
    node = UserConfig({"partition-id": 0, "num-partitions": 1})
    return Context(1, 2, node, RecordDict(), UserConfig(config))


def message(kind: str = "train.fbo", content: RecordDict | None = None) -> Message:
    grid = InProcessGrid(None, 1)  # type: ignore[arg-type]
    (node,) = grid.contexts
    given = RecordDict({"x": ConfigRecord({"a": SECRET})}) if content is None else content
    return Message(given, node, kind)


def told(reply: Message) -> str:
    assert not reply.has_error()
    return str(reply.content)


def test_what_is_no_message_of_ours_is_declined_in_one_word() -> None:
    assert SECRET not in told(answer(message(), context(), hill))


@pytest.mark.parametrize(
    "config",
    [
        {"task": "no_such_module:task"},
        {"task": "digits", "settings": "class-mix"},
        {"task": "digits", "settings": f"class-mix='{SECRET}'"},
    ],
)
def test_errors_of_the_run_config_and_of_imports_do_not_leave(config: dict[str, Any]) -> None:
    reply = client_app.app(message(), context(**config))
    text = told(reply)
    assert SECRET not in text
    assert "no_such_module" not in text
    metrics = reply.content.config_records[wire.REPLY_METRICS]
    assert str(metrics["declined"]).strip().endswith(("Error", "Exception"))


def test_a_task_whose_import_fails_is_declined_in_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaking_module.py").write_text(f"raise ValueError({SECRET!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    reply = client_app.app(message(), context(task="leaking_module:tuned"))
    assert SECRET not in told(reply)


@pytest.mark.parametrize("private", [False, True])
def test_an_agent_that_trusts_nobody_names_no_class_of_error(
    tmp_path: Path, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, *given: Any) -> Any:
        raise BrokenError(SECRET)

    monkeypatch.setattr("flwr_fbo.methods.thompson.agent.ThompsonAgent.answer", fail)
    given: dict[str, Any] = {"local_epsilon": 3.0} if private else {}
    strategy = FTS(initial_points=2, features=8, refit_every=0, **given)
    strategy.open_run(RunParameters(SPACE, 2, 1, timeout=0.3))
    strategy.run(InProcessGrid(simulated_client_app(hill, tmp_path), 2))
    assert strategy.reports[0].declined == {"error" if private else "BrokenError": 2}


class Late(InProcessGrid):
    """Replies that are there only from a moment on."""

    ready = 0.0

    def pull_messages(self, message_ids: Any) -> Any:
        return super().pull_messages(message_ids) if time.monotonic() >= self.ready else []


def test_a_reply_that_is_there_at_the_deadline_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two passes the server rests; a reply that came meanwhile is not lost."""
    monkeypatch.setattr(replies_module, "FIRST_PAUSE", 30.0)  # no second pass before the deadline
    monkeypatch.setattr(replies_module, "LONGEST_PAUSE", 30.0)
    grid = Late(simulated_client_app(hill, tmp_path), 3)
    strategy = FTS(initial_points=2, features=8, refit_every=0)
    strategy.open_run(RunParameters(SPACE, 3, 1, timeout=60.0))
    setup = strategy.rounds.setup
    messages = [
        Message(wire.encode_setup(setup), node, wire.HANDLER_DOOR) for node in grid.get_node_ids()
    ]
    grid.ready = time.monotonic() + 0.5
    assert len(send_and_collect(grid, messages, 1.5)) == 3
    assert threading.active_count() < 50


@task(space={"x": Float(0.0, 1.0)})
def quick(params: Any) -> float:
    return float(params["x"])


def test_rounds_of_a_private_run_with_early_answers_last_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flwr_fbo.strategies.base.MESSAGE_SECONDS", 1.0)
    given: dict[str, Any] = {"initial_points": 1, "features": 8, "refit_every": 0}

    def seconds(**more: Any) -> list[float]:
        strategy = DPFTSDE(**given, answer_within=0.0, **more)
        strategy.open_run(RunParameters(SPACE, 2, 1, timeout=30.0))
        strategy.run(InProcessGrid(simulated_client_app(hill, tmp_path / str(more)), 2))
        assert strategy.rounds.setup.equal_waits == bool(more)
        return [report.seconds for report in strategy.reports]

    assert all(s >= 1.0 for s in seconds(epsilon=5.0))
    assert max(seconds()) < 30.0


class Lossy(InProcessGrid):
    """A grid that loses the replies of some nodes."""

    lost: frozenset[int] = frozenset()

    def _call(self, message: Message, ctx: Context) -> Message:
        reply = super()._call(message, ctx)
        if ctx.node_id in self.lost and message.metadata.group_id != "setup":
            reply.metadata.__dict__["_message_type"] = "lost"
        return reply

    def pull_messages(self, message_ids: Any) -> Any:
        pulled = super().pull_messages(message_ids)
        return [m for m in pulled if m.metadata.message_type != "lost"]


TIMEOUT = 1.0


def held(tmp_path: Path, **options: Any) -> tuple[FBOStrategy, Lossy]:
    """A run of three agents in a deployment, of rounds of at most a second."""
    more = {"epsilon": 50.0, "releases": "all", **options}
    strategy = DPFTSDE(initial_points=1, features=8, refit_every=0, **more)
    strategy.open_run(RunParameters(SPACE, 3, 6, timeout=TIMEOUT))
    return strategy, Lossy(simulated_client_app(hill, tmp_path), 3)


def is_held(strategy: FBOStrategy, grid: Lossy) -> bool:
    """Whether a round lasts its whole timeout even if all replies are there."""
    report = strategy._run_round(grid)
    assert report is not None
    planned = strategy.rounds._open.seconds
    assert planned is None or report.seconds >= planned == TIMEOUT
    return planned is not None


def test_after_a_late_agent_a_round_lasts_its_whole_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise others' time decides what the late agent knows when it is asked again."""
    caplog.set_level("INFO", "flwr.fbo")
    strategy, grid = held(tmp_path)
    assert not is_held(strategy, grid)
    assert not is_held(strategy, grid)
    grid.lost = frozenset({3})
    assert not is_held(strategy, grid)  # its evaluation outlasts the round
    assert strategy.reports[-1].seconds >= TIMEOUT
    grid.lost = frozenset()
    with exclusive(journal_path(tmp_path, 1)):  # and goes on: it declines at once
        assert is_held(strategy, grid)
        assert strategy.reports[-1].declined == {"JournalBusyError": 1}
    assert is_held(strategy, grid)  # it was late in the round before
    assert not is_held(strategy, grid)
    said = "agents were still at work at the end of the last round: 1"
    assert caplog.text.count(said) == 2


def test_a_late_agent_whose_node_is_gone_holds_no_round(tmp_path: Path) -> None:
    strategy, grid = held(tmp_path)
    grid.lost = frozenset({3})
    assert not is_held(strategy, grid)
    grid.online.remove(3)
    assert not is_held(strategy, grid)


def test_a_run_without_privacy_holds_no_round(tmp_path: Path) -> None:
    strategy, grid = held(tmp_path, epsilon=None)
    grid.lost = frozenset({3})
    assert not is_held(strategy, grid)
    grid.lost = frozenset()
    with exclusive(journal_path(tmp_path, 1)):
        assert not is_held(strategy, grid)


def test_a_busy_agent_of_an_owner_with_a_limit_says_no_more_than_that(tmp_path: Path) -> None:
    strategy, grid = held(tmp_path)
    for ctx in grid.contexts.values():
        ctx.node_config["epsilon-limit"] = 100.0
        ctx.node_config["budget-file"] = str(tmp_path / f"books-{ctx.node_id}.jsonl")
    with exclusive(journal_path(tmp_path, 1)):
        strategy._run_round(grid)
    assert strategy.reports[-1].declined == {"under-way": 1}


@pytest.mark.parametrize("answer_within", [0.0, None])
def test_no_node_waits_longer_than_the_others_in_a_private_run(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    answer_within: float | None,
) -> None:
    monkeypatch.setattr("flwr_fbo.strategies.base.MESSAGE_SECONDS", 0.1)
    strategy = DPFTSDE(epsilon=5.0, features=8, refit_every=0, answer_within=answer_within)
    strategy.open_run(RunParameters(SPACE, 2, 0, timeout=30.0))
    grid = InProcessGrid(simulated_client_app(hill, tmp_path), 2)
    for value, ctx in zip(("never", 3), grid.contexts.values(), strict=True):
        ctx.node_config["answer-within"] = value
    strategy.run(grid)
    # "never" is what a run without `answer-within` does.
    assert strategy.reports[0].declined == {"SettingsError": 1 if answer_within is None else 2}
    assert "must be left unset in a private run" in caplog.text
