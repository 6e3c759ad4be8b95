"""The only owner of names on the wire: requests and replies as Flower records, and back.

A message to an agent is what Flower's compatibility layer would hand to ``NumPyClient.fit``: the
arrays of record ``fitins.parameters`` and the scalars of ``fitins.config``. A reply is what it
would make of what ``fit`` returned: ``fitres.parameters``, ``fitres.num_examples`` (always 1) and
``fitres.metrics``. Nothing in a reply depends on an agent's data but its arrays.

=================  ===================================================================
config key         meaning
=================  ===================================================================
``flwr-fbo``       version of this layout; another version is refused
``kind``           ``setup``, or the kind of the request
``setup``          fingerprint of the setup that the request presumes
``round``          the server's round; -1 for ``setup``
``arrays``         names of the arrays, in the order of the parameters, joined by commas
``expects``        shapes of the reply's arrays as JSON
``value.NAME``     a scalar of the request or of the setup
``space``          the search space as JSON (``setup`` only)
``agent-kind``     which agent answers (``setup`` only)
``run``            the name of the run (``setup`` only)
``seed``           the seed of the agents' own choices (``setup`` only)
``answer-within``  seconds after which agents answer early (``setup`` only, may be absent)
=================  ===================================================================


**Doors.** An app receives tuning messages in one of two ways. An app of handlers has a handler
``@app.train("fbo")``, whose messages have the type ``train.fbo``, so that the app's own ``train``
handler never sees a message of ours. An app with a ``client_fn`` knows no such type; its clients
answer a ``get_properties`` message with the property ``flwr-fbo`` if they take part in tuning,
and are then sent ``train`` messages.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked
from flwr_fbo.core.settings import Scalar
from flwr_fbo.core.space import Space

SCHEMA = 2
#: The key that holds the version, and by which messages of ours are known.
MARK = "flwr-fbo"
SETUP = "setup"
PARAMETERS, CONFIG = "fitins.parameters", "fitins.config"
REPLY_PARAMETERS, REPLY_EXAMPLES = "fitres.parameters", "fitres.num_examples"
REPLY_METRICS, REPLY_STATUS = "fitres.metrics", "fitres.status"
EMPTY = "_empty"
#: The types of the messages that carry requests: of an app with handlers, or with a client_fn.
HANDLER_DOOR, CLIENT_DOOR = "train.fbo", "train"
#: The type of the message that asks a client_fn app whether its clients take part in tuning.
PROBE = "get_properties"
PROBE_CONFIG, PROPERTIES = "getpropertiesins.config", "getpropertiesres.properties"
#: An agent without the setup that a request presumes declines with this word and is set up.
NEEDS_SETUP = "needs-setup"
#: Longest declining word and longest agent name that are read at all.
MAX_WORD = 64
#: A numpy array header is shorter than this; anything longer is not one of ours.
MAX_HEADER = 512


class WireError(ValueError):
    """A message is not in this layout. The text never quotes an agent's data."""


@dataclass(frozen=True)
class Instruction:
    """A decoded message to an agent: a setup, or a request that presumes one."""

    setup: Setup | None
    request: Request | None
    presumes: str


def encode_setup(setup: Setup) -> RecordDict:
    """A setup as the content of a message."""
    config: dict[str, Scalar] = {
        MARK: SCHEMA,
        "kind": SETUP,
        "setup": setup.digest,
        "round": -1,
        "agent-kind": setup.kind,
        "space": setup.space.to_json(),
        "run": setup.run,
        "seed": setup.seed,
    }
    if setup.answer_within is not None:
        config["answer-within"] = setup.answer_within
    return _content(config, setup.values, setup.arrays)


def encode_request(request: Request, digest: str) -> RecordDict:
    """A request as the content of a message."""
    config: dict[str, Scalar] = {
        MARK: SCHEMA,
        "kind": request.kind,
        "setup": digest,
        "round": request.round,
        "expects": json.dumps({name: list(shape) for name, shape in request.expects.items()}),
    }
    return _content(config, request.values, request.arrays)


def _content(
    config: dict[str, Scalar], values: Mapping[str, Scalar], arrays: Mapping[str, Array]
) -> RecordDict:
    names = sorted(arrays)
    config["arrays"] = ",".join(names)
    config.update({f"value.{name}": value for name, value in values.items()})
    parameters = _array_record([_float64(arrays[name]) for name in names])
    return RecordDict({PARAMETERS: parameters, CONFIG: ConfigRecord(dict(config))})


# Made once: nobody writes into the records of a message.
# ArrayRecord would keep the last of an empty list under no key: the compatibility layer marks "no
# arrays" by one empty array instead.
_NO_ARRAYS = ArrayRecord({EMPTY: FlowerArray(dtype="", shape=(), stype="numpy.ndarray", data=b"")})
_ONE_EXAMPLE = MetricRecord({"num_examples": 1})
_SUCCESS = ConfigRecord({"code": 0, "message": "Success"})


def _array_record(arrays: Sequence[np.ndarray]) -> ArrayRecord:
    if not arrays:
        return _NO_ARRAYS
    return ArrayRecord({str(i): FlowerArray(array) for i, array in enumerate(arrays)})


def arguments_of(content: RecordDict) -> tuple[list[np.ndarray], dict[str, Any]]:
    """What ``NumPyClient.fit`` is called with; Flower's own layer takes longer to say the same."""
    try:
        arrays, config = content[PARAMETERS], dict(content[CONFIG])
        if not isinstance(arrays, ArrayRecord):
            raise WireError(f"`{PARAMETERS}` must be arrays")
        parameters = [array.numpy() for key, array in arrays.items() if key != EMPTY]
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"not the arguments of a NumPyClient: {error}") from None
    scalars = {k: v for k, v in config.items() if isinstance(v, (bool, int, float, str))}
    if len(scalars) < len(config):
        raise WireError("the values of a message must be single ones")
    return parameters, scalars


def content_of(result: tuple[list[np.ndarray], int, Mapping[str, Any]]) -> RecordDict:
    """What ``NumPyClient.fit`` returned, as the content of a reply."""
    parameters, _, metrics = result  # how many examples an agent has is its own affair
    return RecordDict(
        {
            REPLY_METRICS: ConfigRecord(dict(metrics)),
            REPLY_EXAMPLES: _ONE_EXAMPLE,
            REPLY_PARAMETERS: _array_record(parameters),
            REPLY_STATUS: _SUCCESS,
        }
    )


def decode_instruction(
    parameters: Sequence[np.ndarray], config: Mapping[str, Scalar]
) -> Instruction:
    """What the arguments of ``NumPyClient.fit`` mean."""
    if config.get(MARK) != SCHEMA:
        raise WireError(
            f"`{MARK}` must be {SCHEMA}, but got {config.get('schema')!r}: server and agent run "
            "versions of flwr-fbo that do not understand each other"
        )
    try:
        names = [name for name in str(config["arrays"]).split(",") if name]
        arrays = dict(zip(names, parameters, strict=True))
        values = {k.removeprefix("value."): v for k, v in config.items() if k.startswith("value.")}
        kind, presumes = str(config["kind"]), str(config["setup"])
        if kind == SETUP:
            space = Space.from_json(str(config["space"]))
            setup = Setup(
                str(config["agent-kind"]),
                space,
                values,
                arrays,
                run=str(config["run"]),
                seed=_whole("seed", config["seed"]),
                answer_within=_seconds(config.get("answer-within")),
            )
            return Instruction(setup, None, presumes)
        expects = {n: tuple(shape) for n, shape in json.loads(str(config["expects"])).items()}
        number = _whole("round", config["round"])
        return Instruction(None, Request(kind, number, values, arrays, expects), presumes)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise WireError(f"not a message of this layout: {error}") from None


def is_ours(config: Mapping[str, Any]) -> bool:
    """Say whether the config of a message is of a tuning message, of whatever version."""
    return MARK in config


def _whole(name: str, value: Scalar) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"`{name}` must be an integer, but got {value!r}")
    return value


def _seconds(value: Scalar | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise WireError(f"`answer-within` must be a number >= 0, but got {value!r}")
    return float(value)


def encode_probe() -> RecordDict:
    """Return the question whether a client_fn app takes part in tuning, as message content."""
    return RecordDict({PROBE_CONFIG: ConfigRecord({MARK: SCHEMA})})


def takes_part(message: Message) -> bool:
    """Say whether the reply to a probe says that the client takes part in tuning."""
    if message.has_error():
        return False
    record = message.content.get(PROPERTIES)
    return isinstance(record, ConfigRecord) and MARK in record


def encode_reply(
    reply: Reply, round: int, agent: str = ""
) -> tuple[list[np.ndarray], int, dict[str, Scalar]]:
    """What ``NumPyClient.fit`` returns. ``agent`` is the agent's name, for a setup only."""
    metrics: dict[str, Scalar] = {MARK: SCHEMA, "round": round, "declined": reply.declined}
    if agent:
        metrics["agent"] = agent
    return [_float64(reply.arrays[name]) for name in sorted(reply.arrays)], 1, metrics


def decode_reply(message: Message, request: Request) -> Reply:
    """The reply to a request, checked against what the request expects."""
    content = message.content
    metrics = _metrics(content, {MARK, "round", "declined"})
    if metrics["round"] != request.round:
        raise WireError("a reply of another round")
    declined = _word(metrics["declined"])
    if declined:
        return Reply(declined=declined)
    arrays = _arrays(content, request.expects)
    try:
        return checked(request, Reply(arrays))
    except ReplyError as error:
        raise WireError(str(error)) from None


def decode_registration(message: Message) -> str:
    """The name by which the agent that acknowledged a setup wants to be known."""
    metrics = _metrics(message.content, {MARK, "round", "declined", "agent"})
    declined = _word(metrics["declined"])
    if declined:
        raise WireError(f"the agent declined its setup: {declined}")
    name = _word(metrics["agent"])
    if not name:
        raise WireError("an agent must have a name")
    return name


def content(message: Message) -> Message:
    """The message, if it has content; the text of an error stays out of logs."""
    if message.has_error():
        raise WireError(f"Flower reports error {message.error.code}")
    return message


def _metrics(content: RecordDict, keys: set[str]) -> dict[str, Any]:
    names = {REPLY_PARAMETERS, REPLY_EXAMPLES, REPLY_METRICS, REPLY_STATUS}
    if set(content) != names:
        raise WireError("the records of a reply must be those of NumPyClient.fit")
    record = content[REPLY_METRICS]
    metrics = dict(record) if isinstance(record, ConfigRecord) else {}
    if metrics.get(MARK) != SCHEMA:
        raise WireError(f"a reply of another schema than {SCHEMA}: {_number(metrics)}")
    if set(metrics) != keys:
        raise WireError(f"a reply must have exactly the values {sorted(keys)}")
    return metrics


def _number(metrics: Mapping[str, Any]) -> str:
    """The schema that a reply names, if it is a number of few digits: others may quote data."""
    named = metrics.get(MARK)
    return str(named) if type(named) is int and 0 <= named < 10**6 else "none"


def _word(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_WORD or not value.isprintable():
        raise WireError(f"a word must be printable text of at most {MAX_WORD} characters")
    return value


def _arrays(content: RecordDict, expects: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    record = content[REPLY_PARAMETERS]
    arrays = record.items() if isinstance(record, ArrayRecord) else ()
    sent = [a for key, a in arrays if key != EMPTY]
    if len(sent) != len(expects):
        raise WireError(f"a reply must hold {len(expects)} arrays, got {len(sent)}")
    names = sorted(expects)
    return {name: _load(a.data, expects[name]) for name, a in zip(names, sent, strict=True)}


def _load(data: bytes, shape: tuple[int, ...]) -> Array:
    """An array of exactly this shape; the header is checked before anything is allocated."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise WireError("an array must be in numpy's format 1.0")
        header = np.lib.format.read_array_header_1_0(stream, max_header_size=MAX_HEADER)
    except WireError:
        raise
    except Exception:
        raise WireError("an array must be in numpy's format") from None
    if header != (shape, False, np.dtype("<f8")):
        raise WireError(f"an array must be float64 of shape {shape}")
    start = stream.tell()
    if len(data) - start != 8 * math.prod(shape):
        raise WireError(f"an array of shape {shape} must hold {math.prod(shape)} numbers")
    return np.frombuffer(data, dtype="<f8", offset=start).reshape(shape).astype(np.float64)


def _float64(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype="<f8").reshape(np.shape(array))
