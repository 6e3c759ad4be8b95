"""An agent that replies while an evaluation is running: no Flower, no processes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from flwr_fbo.core.protocol import Request, checked_reply
from flwr_fbo.methods.fts.server import FTSServer, FTSSettings
from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY, AsynchronousAgent, ThreadWork

from .thompson_harness import SQUARE, Party, bump

OMEGA = {"omega": (8,)}
EXPLORE = Request("explore", 0, {"count": 2, "home": -1}, {}, OMEGA)


def step(t, expects=OMEGA):
    return Request("step", t, {"own-probability": 1.0}, {}, expects)


class Slow:
    """An agent whose evaluations run until the test ends them, one by one."""

    def __init__(self, answer_within=0.0, function=bump):
        settings = FTSSettings(features=8, initial_points=2, refit_every=0)
        self.server = FTSServer(SQUARE, 1, settings, rounds=5)
        self.gate, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.function = function
        self.party = Party(self.server.setup(), self._wait)
        self.background = ThreadWork(self.party.build)
        self.agent = AsynchronousAgent(self.party.build, self.background, answer_within)

    def _wait(self, params, rng):
        self.begun.release()
        assert self.gate.acquire(timeout=300)
        return self.function(params, rng)

    def answer(self, request):
        return checked_reply(request, self.agent.answer(request))

    def finish(self, count=1):
        """Let evaluations end, and wait until the work on the request is over."""
        for _ in range(count):
            self.gate.release()
        self.background.wait(300)
        assert not self.background.busy()

    def made(self):
        return [(e["round"], e["play"]) for e in self.party.evaluations()]


def test_an_agent_without_evaluations_declines_and_begins():
    slow = Slow()
    assert slow.answer(EXPLORE).declined == UNDER_WAY
    assert slow.background.busy()
    assert slow.answer(step(1)).declined == UNDER_WAY
    slow.finish(2)
    assert slow.made() == [(0, 0), (0, 1)]
    assert slow.party.calls == 2


def test_where_no_vector_is_expected_there_is_nothing_to_decline():
    slow = Slow()
    assert slow.answer(Request("explore", 0, {"count": 1, "home": -1})).declined == ""
    slow.finish()


def test_replies_over_several_rounds_hold_what_is_known_by_then():
    slow = Slow()
    slow.answer(EXPLORE)
    slow.finish(2)
    replies = [slow.answer(step(t)) for t in (1, 2, 3)]  # one evaluation, under way all along
    reference = slow.party.build()  # two evaluations
    for t, reply in zip((1, 2, 3), replies, strict=True):
        assert np.array_equal(reply.arrays["omega"], reference.share(step(t)).arrays["omega"])
    assert slow.background.busy()
    slow.finish()
    assert slow.made() == [(0, 0), (0, 1), (1, 0)]  # once, under the round in which it was begun
    later = slow.answer(step(4)).arrays["omega"]
    assert not np.array_equal(later, reference.share(step(4)).arrays["omega"])
    assert np.array_equal(later, slow.party.build().share(step(4)).arrays["omega"])
    slow.finish()
    assert slow.made()[-1] == (4, 0)


def test_quick_evaluations_are_in_the_reply():
    slow = Slow(answer_within=20.0)
    slow.gate.release(7)
    replies = [slow.answer(r) for r in (EXPLORE, *(step(t) for t in range(1, 6)))]
    assert all(reply.declined == "" for reply in replies)
    assert slow.made() == [(0, 0), (0, 1), *((t, 0) for t in range(1, 6))]
    # An agent that waits for every evaluation gives the same replies.
    waiting = Party(slow.server.setup())
    expected = [waiting.answer(r) for r in (EXPLORE, *(step(t) for t in range(1, 6)))]
    for reply, other in zip(replies, expected, strict=True):
        assert np.array_equal(reply.arrays["omega"], other.arrays["omega"])


def test_being_asked_again_begins_nothing_twice():
    slow = Slow()
    for _ in range(3):
        slow.answer(EXPLORE)
    slow.finish(2)
    again = [slow.answer(EXPLORE).arrays["omega"] for _ in range(2)]
    assert np.array_equal(*again)
    assert not slow.background.busy()
    assert slow.party.calls == 2


def test_an_evaluation_that_fails_is_recorded_and_the_agent_goes_on():
    def fails(params, rng):
        raise MemoryError("too large")

    slow = Slow(function=fails)
    slow.answer(EXPLORE)
    slow.finish(2)
    assert [e["score"] for e in slow.party.evaluations()] == [None, None]
    assert slow.answer(step(1)).declined == ""
    slow.finish()


def test_work_that_fails_is_reported_by_the_class_of_its_error_and_tried_again():
    slow = Slow(answer_within=20.0)
    broken = [True]

    def make():
        if broken[0]:
            raise FileNotFoundError("/data/patients.csv")
        return slow.party.build()

    slow.background._make = make
    assert slow.answer(EXPLORE).declined == "FileNotFoundError"
    assert slow.answer(step(1)).declined == "FileNotFoundError"
    broken[0] = False
    slow.gate.release(3)
    assert slow.answer(step(2)).declined == ""
    assert slow.made() == [(0, 0), (0, 1)]  # what was asked first comes first
    assert slow.answer(step(3)).declined == ""
    assert slow.made()[-1] == (3, 0)


def test_a_request_that_no_agent_knows_is_an_error_of_the_work():
    slow = Slow(answer_within=20.0)
    assert slow.answer(Request("confess", 1, {}, {}, OMEGA)).declined == "ValueError"


def test_background_work_is_for_one_request_at_a_time():
    slow = Slow()
    slow.answer(EXPLORE)
    with pytest.raises(RuntimeError, match="one request at a time"):
        slow.background.begin(step(1))
    slow.finish(2)


def test_a_federation_of_slow_and_quick_agents_by_hand():
    """One agent in three is slow: the others do not wait, and the slow one's vector counts."""
    settings = FTSSettings(features=8, initial_points=2, refit_every=0)
    server = FTSServer(SQUARE, 3, settings, rounds=4)
    slow = Slow()
    slow.party.setup = server.setup()
    quick = [Party(server.setup(), seed=n) for n in (1, 2)]
    agents = [slow.agent, *(p.agent for p in quick)]
    senders = []
    while not server.finished:
        requests = server.requests(range(3))
        if server.round == 2:
            slow.finish(2)
        server.close({n: checked_reply(r, agents[n].answer(r)) for n, r in requests.items()})
        senders.append(sorted(server.messages))
    slow.finish()
    assert senders[:4] == [[1, 2], [1, 2], [0, 1, 2], [0, 1, 2]]
    assert [p.calls for p in quick] == [6, 6]
    assert slow.party.calls == 3
