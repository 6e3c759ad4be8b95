"""Fingerprints of setups, and replies that are not what was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked_reply
from flwr_fbo.core.space import Float, Int, Space

SPACE = Space({"x": Float(0, 1)})


def setup(kind="thompson", space=SPACE, values=None, arrays=None):
    arrays = {"a": np.arange(6.0).reshape(2, 3)} if arrays is None else arrays
    return Setup(kind, space, {"features": 3} if values is None else values, arrays)


def test_equal_setups_have_equal_fingerprints_whatever_their_order():
    one = setup(values={"a": 1, "b": 2.5}, arrays={"u": np.ones(2), "v": np.zeros(1)})
    two = setup(values={"b": 2.5, "a": 1}, arrays={"v": np.zeros(1), "u": np.ones(2)})
    assert one.digest == two.digest
    assert len(one.digest) == 16


@pytest.mark.parametrize(
    "other",
    [
        setup(kind="fed-pne"),
        setup(space=Space({"x": Int(0, 1)})),
        setup(values={"features": 4}),
        setup(arrays={"a": np.arange(6.0).reshape(3, 2)}),
        setup(arrays={"b": np.arange(6.0).reshape(2, 3)}),
        setup(arrays={"a": np.nextafter(np.arange(6.0).reshape(2, 3), 9)}),
    ],
)
def test_anything_that_differs_changes_the_fingerprint(other):
    assert setup().digest != other.digest


EXPECTING = Request("step", 1, expects={"omega": (3,)})


def test_a_good_reply_passes_and_a_declined_one_too():
    good, declined = Reply({"omega": np.zeros(3)}), Reply(declined="budget")
    assert checked_reply(EXPECTING, good) is good
    assert checked_reply(EXPECTING, declined) is declined
    assert checked_reply(Request("step", 1), Reply()) == Reply()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, r"^the arrays of a reply must be \['omega'\], but got \[\]$"),
        ({"omega": np.zeros(3), "y": np.zeros(1)}, r"but got \['omega', 'y'\]$"),
        (
            {"omega": np.zeros(4)},
            r"`omega` in a reply must be float64 of shape \(3,\), but got float64 of shape \(4,\)$",
        ),
        ({"omega": np.zeros((3, 1))}, r"of shape \(3, 1\)$"),
        ({"omega": np.zeros(3, dtype=np.float32)}, r"got float32 of shape \(3,\)$"),
        ({"omega": np.array([0.1234, np.nan, 0])}, "must be finite, but some numbers are not$"),
        ({"omega": np.array([0.1234, np.inf, 0])}, "must be finite, but some numbers are not$"),
    ],
)
def test_a_bad_reply_is_refused_without_its_data(arrays, says):
    with pytest.raises(ReplyError, match=says) as caught:
        checked_reply(EXPECTING, Reply(arrays))
    assert "1234" not in str(caught.value)
