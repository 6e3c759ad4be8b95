"""Arrays of 64-bit words on the wire: they arrive bit for bit, and nothing else passes as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, Message

from flwr_fbo import wire
from flwr_fbo.core.protocol import Reply, ReplyError, Request, checked_reply
from flwr_fbo.simulation.in_process_grid import InProcessGrid

WORDS = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
REQUEST = Request(
    "secure-open", 3, {"party": 4}, {"weights": np.array([0.5, 2.0])}, {"extra": (2,)},
    {"codes": WORDS.reshape(2, 2), "a": WORDS}, {"shares": (2, 2)},
)  # fmt: skip


@pytest.fixture(autouse=True)
def _a_run() -> None:
    InProcessGrid(None, 1)  # type: ignore[arg-type]  # messages take their sender from its run


def reply_message(reply: Reply) -> Message:
    result = wire.encode_reply(reply, 3, None, REQUEST.expects, REQUEST.expects_words)
    return Message(wire.reply_content(result), 7, "train.fbo")


def test_words_of_a_request_arrive_bit_for_bit() -> None:
    content = wire.encode_request(REQUEST, "digest")
    found = wire.decode_instruction(*wire.fit_arguments(content)).request
    assert found is not None
    assert (found.kind, found.round, found.values) == ("secure-open", 3, {"party": 4})
    assert found.expects == {"extra": (2,)}
    assert found.expects_words == {"shares": (2, 2)}
    np.testing.assert_array_equal(found.arrays["weights"], [0.5, 2.0])
    assert set(found.words) == {"codes", "a"}
    for name, array in REQUEST.words.items():
        assert found.words[name].dtype == np.uint64
        np.testing.assert_array_equal(found.words[name], array)


def test_words_of_a_reply_arrive_bit_for_bit() -> None:
    reply = Reply({"extra": np.array([1.5, -2.0])}, words={"shares": WORDS.reshape(2, 2)})
    found = wire.decode_reply(reply_message(reply), REQUEST)
    np.testing.assert_array_equal(found.words["shares"], WORDS.reshape(2, 2))
    np.testing.assert_array_equal(found.arrays["extra"], [1.5, -2.0])


def test_a_declined_reply_is_as_long_as_a_good_one() -> None:
    good = Reply({"extra": np.zeros(2)}, words={"shares": WORDS.reshape(2, 2)})
    sizes = [
        sum(len(a.data) for a in reply_message(r).content[wire.REPLY_PARAMETERS].values())
        for r in (good, Reply(declined="error"))
    ]
    assert sizes[0] == sizes[1]
    assert wire.decode_reply(reply_message(Reply(declined="error")), REQUEST).declined == "error"


def test_a_request_without_words_has_the_layout_it_always_had() -> None:
    content = wire.encode_request(Request("step", 1, {}, {"x": np.zeros(1)}), "digest")
    assert not {"words", "expects-words"} & set(content[wire.CONFIG])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.zeros(2), np.zeros((2, 2))], "must be uint64 of shape"),
        ([np.zeros(2), np.zeros((2, 2), np.int64)], "must be uint64 of shape"),
        ([np.zeros(2), np.zeros((3, 2), np.uint64)], "must be uint64 of shape"),
        ([np.zeros(2, np.uint64), np.zeros((2, 2), np.uint64)], "must be float64 of shape"),
        ([np.zeros(2)], "must hold 2 arrays"),
    ],
)
def test_other_arrays_are_refused(arrays: list[Any], message: str) -> None:
    reply = reply_message(Reply(declined="error"))
    reply.content[wire.REPLY_METRICS]["declined"] = " " * 64
    record = {str(i): FlowerArray(array) for i, array in enumerate(arrays)}
    reply.content[wire.REPLY_PARAMETERS] = ArrayRecord(record)
    with pytest.raises(wire.WireError, match=message):
        wire.decode_reply(reply, REQUEST)


def test_a_request_whose_words_are_numbers_is_refused() -> None:
    content = wire.encode_request(REQUEST, "digest")
    parameters, config = wire.fit_arguments(content)
    parameters[1] = parameters[1].astype(np.float64)
    with pytest.raises(wire.WireError, match="words must be uint64"):
        wire.decode_instruction(parameters, config)


def test_a_reply_without_flower_is_checked_too() -> None:
    good = Reply({"extra": np.zeros(2)}, words={"shares": np.zeros((2, 2), np.uint64)})
    assert checked_reply(REQUEST, good) is good
    for words in ({}, {"shares": np.zeros((2, 2))}, {"shares": np.zeros(4, np.uint64)}):
        with pytest.raises(ReplyError):
            checked_reply(REQUEST, Reply(good.arrays, words=words))  # type: ignore[arg-type]
