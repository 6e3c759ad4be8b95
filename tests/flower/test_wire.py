"""Every byte that goes over the wire is one that was meant to."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common.recorddict_compat import fitres_to_recorddict, recorddict_to_fitins
from flwr.compat.common.typing import Code, FitRes, Status
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flwr_fbo import wire
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.space import Float, Space
from flwr_fbo.simulation.in_process_grid import InProcessGrid

SPACE = Space({"x": Float(0.0, 1.0)})
REQUEST = Request("step", 3, expects={"omega": (4,)})


@pytest.fixture(autouse=True, scope="module")
def _identity() -> None:
    InProcessGrid(None, 1)  # type: ignore[arg-type]  # sets the identity messages need


def through_fit(content: RecordDict) -> wire.Instruction:
    """What NumPyClient.fit would be handed, decoded."""
    ins = recorddict_to_fitins(content, keep_input=True)
    return wire.decode_instruction(parameters_to_ndarrays(ins.parameters), ins.config)


def message(record: RecordDict) -> Message:
    return Message(record, 2, "train")


def reply_record(parameters: list[np.ndarray], metrics: dict[str, Any] | None = None) -> RecordDict:
    values = {"flwr-fbo": wire.SCHEMA, "round": 3, "declined": ""} if metrics is None else metrics
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(parameters), 1, values)
    return fitres_to_recorddict(result, keep_input=True)


def same(ours: RecordDict, flowers: RecordDict) -> bool:
    """The same names, scalars and bytes."""

    def plain(content: RecordDict) -> dict[str, Any]:
        return {
            name: {key: getattr(value, "data", value) for key, value in record.items()}
            for name, record in content.items()
        }

    return plain(ours) == plain(flowers)


@pytest.mark.parametrize(
    "parameters", [[], [np.arange(3.0)], [np.eye(2), np.array(1.5)], [np.zeros((0, 2))]]
)
def test_what_flowers_own_layer_would_make_of_a_reply(parameters: list[np.ndarray]) -> None:
    metrics = {"flwr-fbo": wire.SCHEMA, "round": 3, "declined": "", "agent": "4"}
    result = FitRes(Status(Code.OK, "Success"), ndarrays_to_parameters(parameters), 1, metrics)
    flowers = fitres_to_recorddict(result, keep_input=True)
    assert same(wire.reply_content((parameters, 1, metrics)), flowers)


@pytest.mark.parametrize("arrays", [{}, {"a": np.arange(3.0)}, {"b": np.eye(2), "a": np.ones(1)}])
def test_what_flowers_own_layer_would_call_fit_with(arrays: dict[str, np.ndarray]) -> None:
    content = wire.encode_request(Request("step", 7, {"p": 0.5, "w": "x"}, arrays), "digest")
    ins = recorddict_to_fitins(content, keep_input=True)
    parameters, config = wire.fit_arguments(content)
    assert config == ins.config
    flowers = parameters_to_ndarrays(ins.parameters)
    assert len(parameters) == len(flowers) == len(arrays)
    assert all(map(np.array_equal, parameters, flowers))


@pytest.mark.parametrize(
    "content",
    [
        {},
        {wire.PARAMETERS: ArrayRecord()},
        {wire.PARAMETERS: ConfigRecord(), wire.CONFIG: ConfigRecord()},
        {wire.PARAMETERS: ArrayRecord(), wire.CONFIG: ConfigRecord({"round": [1, 2]})},
        {wire.PARAMETERS: ArrayRecord({"0": FlowerArray("", (), "numpy.ndarray", b"no")}),
         wire.CONFIG: ConfigRecord()},
        {wire.PARAMETERS: ArrayRecord({"0": FlowerArray("", (), "torch", b"no")}),
         wire.CONFIG: ConfigRecord()},
    ],
)  # fmt: skip
def test_what_is_no_call_of_fit_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(wire.WireError):
        wire.fit_arguments(RecordDict(content))


@given(
    st.dictionaries(
        st.sampled_from(["own-probability", "count", "home", "flag", "word"]),
        st.one_of(st.booleans(), st.integers(-5, 5), st.floats(-1, 1), st.text(max_size=5)),
    ),
    arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6)),
)
def test_a_request_arrives_as_it_was_sent(values: dict[str, Any], advice: np.ndarray) -> None:
    request = Request("step", 7, values, {"advice": advice}, {"omega": (3,), "b": ()})
    got = through_fit(wire.encode_request(request, "digest"))
    assert got.digest == "digest"
    assert got.request is not None
    assert (got.request.kind, got.request.round) == ("step", 7)
    assert got.request.values == values
    assert got.request.expects == request.expects
    np.testing.assert_array_equal(got.request.arrays["advice"], advice)


def test_an_array_that_the_requests_of_a_round_share_is_encoded_once() -> None:
    shared, encoder = np.arange(3.0), wire.ArrayEncoder()
    requests = [Request("step", 7, {"n": n}, {"advice": shared, "own": np.ones(n)}) for n in (1, 2)]
    contents = [wire.encode_request(request, "digest", encoder) for request in requests]
    first, second = (content[wire.PARAMETERS] for content in contents)
    assert first is not second  # nobody's message changes with another one
    assert first["0"] is second["0"]
    for request, content in zip(requests, contents, strict=True):
        got = through_fit(content).request
        assert got is not None
        for name, array in request.arrays.items():
            np.testing.assert_array_equal(got.arrays[name], array)
        got.arrays["advice"][0] = 9.0  # what an agent does to its copy is nobody else's
    assert shared.tolist() == [0.0, 1.0, 2.0]


def test_an_encoder_takes_no_new_array_for_an_old_one() -> None:
    encoder = wire.ArrayEncoder()
    for value in range(50):  # each array could be where the one before was
        content = wire.encode_request(Request("step", 1, {}, {"a": np.full(3, value)}), "", encoder)
        got = through_fit(content).request
        assert got is not None
        assert got.arrays["a"].tolist() == [value] * 3


def test_a_request_without_arrays_arrives() -> None:
    got = through_fit(wire.encode_request(Request("explore", 0, {"count": 3}), "d"))
    assert got.request is not None
    assert got.request.arrays == {}


def test_a_setup_arrives_with_the_same_fingerprint() -> None:
    rng = np.random.default_rng(0)
    arrays_ = {"frequencies": rng.normal(size=(5, 1)), "phases": rng.normal(size=5)}
    setup = Setup("thompson", SPACE, {"features": 5, "kernel": "se", "beta": 1.0}, arrays_)
    got = through_fit(wire.encode_setup(setup)).setup
    assert got is not None
    assert got.digest == setup.digest
    assert got.space == SPACE
    changed = Setup("thompson", SPACE, {**setup.values, "beta": 2.0}, arrays_)
    assert changed.digest != setup.digest


def test_another_schema_is_refused_by_the_agent() -> None:
    content = wire.encode_request(Request("step", 0), "d")
    content.config_records[wire.CONFIG]["flwr-fbo"] = wire.SCHEMA + 1
    with pytest.raises(wire.WireError, match="versions of flwr-fbo"):
        through_fit(content)


def test_a_good_reply_is_read() -> None:
    omega = np.arange(4.0)
    parameters, examples, metrics = wire.encode_reply(Reply({"omega": omega}), 3)
    assert examples == 1
    reply = wire.decode_reply(message(reply_record(parameters, metrics)), REQUEST)
    np.testing.assert_array_equal(reply.arrays["omega"], omega)


def test_a_declined_request_is_read() -> None:
    parameters, _, metrics = wire.encode_reply(Reply(declined="budget"), 3)
    reply = wire.decode_reply(message(reply_record(parameters, metrics)), REQUEST)
    assert reply == Reply(declined="budget")


def pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([object()], dtype=object), allow_pickle=True)
    return stream.getvalue()


def claims_a_billion() -> bytes:
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**9,)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def raw(data: bytes) -> RecordDict:
    record = reply_record([])
    array = FlowerArray(dtype="", shape=(), stype="numpy.ndarray", data=data)
    record.array_records[wire.REPLY_PARAMETERS] = ArrayRecord({"0": array})
    return record


GOOD = {"flwr-fbo": wire.SCHEMA, "round": 3, "declined": ""}


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (reply_record([np.arange(5.0)]), "shape"),
        (reply_record([np.arange(4.0)[:, None]]), "shape"),
        (reply_record([np.arange(4, dtype=np.float32)]), "float64"),
        (reply_record([np.arange(4)]), "float64"),
        (reply_record([np.array([1, 2, 3, np.nan])]), "finite"),
        (reply_record([np.array([1, 2, 3, np.inf])]), "finite"),
        (reply_record([]), "1 arrays, got 0"),
        (reply_record([np.arange(4.0)] * 2), "1 arrays, got 2"),
        (reply_record([np.arange(4.0)], {**GOOD, "round": 2}), "another round"),
        (reply_record([np.arange(4.0)], {**GOOD, "round": 3.5}), "another round"),
        (reply_record([np.arange(4.0)], {**GOOD, "flwr-fbo": 99}), "schema"),
        (reply_record([np.arange(4.0)], {**GOOD, "best": 0.9}), "exactly the values"),
        (reply_record([np.arange(4.0)], {**GOOD, "declined": "x" * 65}), "at most 64"),
        (reply_record([np.arange(4.0)], {**GOOD, "declined": 1}), "printable text"),
        (reply_record([np.arange(4.0)], {}), "schema"),
        (RecordDict(), "records of a reply"),
        (RecordDict({"x": MetricRecord({"a": 1})}), "records of a reply"),
        (raw(b""), "numpy's format"),
        (raw(b"\x93NUMPY\x01\x00"), "numpy's format"),
        (raw(b"\x93NUMPY\x02\x00" + b"\x00" * 100), "format 1.0"),
        (raw(pickled()), "float64 of shape"),
        (raw(claims_a_billion()), "float64 of shape"),
    ],
)
def test_a_bad_reply_is_refused_without_quoting_it(record: RecordDict, fault: str) -> None:
    with pytest.raises(wire.WireError, match=fault):
        wire.decode_reply(message(record), REQUEST)


def test_too_few_or_too_many_bytes_are_refused() -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(4.0))
    for data in (stream.getvalue()[:-1], stream.getvalue() + b"\x00"):
        with pytest.raises(wire.WireError, match="must hold 4 numbers"):
            wire.decode_reply(message(raw(data)), REQUEST)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_reply(message(raw(data)), REQUEST)


@given(
    st.dictionaries(
        st.sampled_from(["flwr-fbo", "round", "declined", "agent", "other"]),
        st.one_of(st.integers(), st.text(max_size=80), st.booleans(), st.binary(max_size=9)),
    )
)
def test_no_metrics_crash_the_decoder(metrics: dict[str, Any]) -> None:
    record = reply_record([np.arange(4.0)])
    record.config_records[wire.REPLY_METRICS] = ConfigRecord(metrics)
    try:
        reply = wire.decode_reply(message(record), REQUEST)
    except wire.WireError:
        return
    assert reply.declined or set(reply.arrays) == {"omega"}


CLAIM = wire.Claim("7", "f" * 64)


def registration(reply: Reply, claim: wire.Claim | None) -> Message:
    parameters, _, metrics = wire.encode_reply(reply, -1, claim)
    return message(reply_record(parameters, metrics))


def test_registration_names_the_agent_and_its_owner() -> None:
    assert wire.decode_registration(registration(Reply(), CLAIM)) == CLAIM


@pytest.mark.parametrize("claim", [None, CLAIM])
def test_a_setup_that_is_declined_says_why(claim: wire.Claim | None) -> None:
    with pytest.raises(wire.WireError, match="the agent declined its setup: ValueError"):
        wire.decode_registration(registration(Reply(declined="ValueError"), claim))


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        (None, "`agent` must be printable text"),
        (wire.Claim("", "f" * 64), "must not be empty"),
        (wire.Claim("7", ""), "must have at least 32 characters"),
        (wire.Claim("7", "f" * 65), "at most 64 characters"),
    ],
)
def test_a_registration_without_an_owner_is_refused(claim: wire.Claim | None, rule: str) -> None:
    with pytest.raises(wire.WireError, match=rule):
        wire.decode_registration(registration(Reply(), claim))


@pytest.mark.parametrize(
    "shapes",
    ['{"omega": [-1]}', '{"omega": [2.0]}', '{"omega": [true]}', '{"omega": [10000, 10000]}',
     '{"omega": "ab"}', '[]', "{", '{"omega": 3}'],
)  # fmt: skip
def test_shapes_that_cannot_be_are_refused(shapes: str) -> None:
    content = wire.encode_request(REQUEST, "digest")
    config = dict(content.config_records[wire.CONFIG]) | {"expects": shapes}
    with pytest.raises(wire.WireError):
        wire.decode_instruction([], config)
    assert wire.readable_part(config) == (REQUEST.round, {}, {})


@pytest.mark.parametrize("config", [None, 3, {}, {"round": "3"}, {"round": True}, {"expects": 1}])
def test_what_cannot_be_read_is_no_round_and_no_shapes(config: Any) -> None:
    assert wire.readable_part(config) == (-1, {}, {})
