"""Turn requests and replies into Flower records, and back.

No other module knows the names of records and keys. A message to an agent has the records from
which Flower's compatibility layer calls ``NumPyClient.fit``: the arrays of ``fitins.parameters``
and the scalars of ``fitins.config``. A reply has the records in which that layer packs the result
of ``fit``: ``fitres.parameters``, ``fitres.num_examples`` (always 1), ``fitres.metrics`` and
``fitres.status``. Only the arrays of a reply depend on an agent's data.

=================  ===================================================================
config key         meaning
=================  ===================================================================
``flwr-fbo``       version of this layout; another version is refused
``kind``           ``setup``, or the kind of the request
``setup``          digest of the setup that the request belongs to
``round``          number of the server's round; -1 for ``setup``
``arrays``         names of the arrays, in the order of the parameters, joined by commas
``expects``        shapes of the reply's arrays as JSON
``words``          names of the arrays of 64-bit words, which follow the others (may be absent)
``expects-words``  shapes of the reply's arrays of words as JSON (may be absent)
``value.NAME``     a scalar of the request or of the setup
``space``          the search space as JSON (``setup`` only)
``agent-kind``     which agent answers (``setup`` only)
``run``            the name of the run (``setup`` only)
``identity``       the identity of the run (``setup`` only, may be absent)
``seed``           the seed of the agents' own choices (``setup`` only)
``answer-within``  seconds after which agents answer early (``setup`` only, may be absent)
``equal-waits``    true where every agent must wait equally long (``setup`` only, may be absent)
=================  ===================================================================

**Doors.** An app receives tuning messages in one of two ways. An app of handlers has a handler
``@app.train("fbo")``. Its messages have the type ``train.fbo``, so the app's own ``train`` handler
never sees a tuning message. An app with a ``client_fn`` does not know the type ``train.fbo``. Its
clients answer a ``get_properties`` message with the property ``flwr-fbo`` if they take part in
tuning, and then receive ``train`` messages.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from flwr_fbo.core.arrays import Array, Words
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked_reply
from flwr_fbo.core.settings import Scalar
from flwr_fbo.core.space import Space

SCHEMA = 3
#: The config key that holds the version. A message with this key is a tuning message.
MARK = "flwr-fbo"
SETUP = "setup"
PARAMETERS, CONFIG = "fitins.parameters", "fitins.config"
REPLY_PARAMETERS, REPLY_EXAMPLES = "fitres.parameters", "fitres.num_examples"
REPLY_METRICS, REPLY_STATUS = "fitres.metrics", "fitres.status"
EMPTY = "_empty"
#: The types of messages that carry requests: to an app with handlers, or with a ``client_fn``.
HANDLER_DOOR, CLIENT_DOOR = "train.fbo", "train"
#: The type of the message that asks a ``client_fn`` app whether its clients take part in tuning.
PROBE = "get_properties"
PROBE_CONFIG, PROPERTIES = "getpropertiesins.config", "getpropertiesres.properties"
#: The word with which an agent declines a request whose setup the agent does not have.
NEEDS_SETUP = "needs-setup"
#: The longest declining word and the longest agent name that the server reads.
MAX_WORD = 64
#: The fewest characters of an owner's secret: 128 bits in hexadecimal digits.
SHORTEST_SECRET = 32
#: The most numbers that a request may expect in one reply.
MOST_NUMBERS = 10**7
#: The longest numpy header that the server reads. A header of this layout is shorter.
MAX_HEADER = 512


#: The shapes of arrays by name.
Shapes: TypeAlias = dict[str, tuple[int, ...]]


class WireError(ValueError):
    """An error for a message that breaks this layout; the text quotes no data of an agent."""


@dataclass(frozen=True)
class Instruction:
    """A decoded message to an agent: a setup, or a request.

    Parameters
    ----------
    setup, request
        The content; exactly one of them is not None.
    digest
        The digest of the setup, or of the setup that the request belongs to.
    """

    setup: Setup | None
    request: Request | None
    digest: str


@dataclass(frozen=True)
class Claim:
    """What an agent says of itself when it registers.

    Parameters
    ----------
    name
        The name of the agent, which is the number of its partition.
    secret
        The secret of the agent's owner in this run.
    """

    name: str
    secret: str = field(repr=False)


# -- messages to agents ------------------------------------------------------------------------


def encode_setup(setup: Setup) -> RecordDict:
    """Return a setup as the content of a message."""
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
    # A ConfigRecord cannot hold None, so the key is absent instead.
    if setup.answer_within is not None:
        config["answer-within"] = setup.answer_within
    if setup.equal_waits:
        config["equal-waits"] = True
    if setup.identity:
        config["identity"] = setup.identity
    return _content(config, setup.values, setup.arrays)


class ArrayEncoder:
    """Encodes the arrays of a round's requests; one that several requests share, once.

    The messages share the encoded array too, which nobody writes into. In a deployment Flower also
    cuts and hashes it once.
    """

    def __init__(self) -> None:
        # By identity; the arrays themselves are kept, so that no identity is used again.
        self._encoded: dict[int, tuple[np.ndarray, FlowerArray]] = {}

    def numbers(self, array: Array) -> FlowerArray:
        """Return real numbers as Flower sends them."""
        return self._encode(array, _float64)

    def words(self, array: Words) -> FlowerArray:
        """Return 64-bit words as Flower sends them."""
        return self._encode(array, _uint64)

    def _encode(
        self, array: np.ndarray, convert: Callable[[np.ndarray], np.ndarray]
    ) -> FlowerArray:
        """Return an array as Flower sends it, encoded unless it was before."""
        if id(array) not in self._encoded:
            self._encoded[id(array)] = array, FlowerArray(convert(array))
        return self._encoded[id(array)][1]


def encode_request(
    request: Request, digest: str, encoder: ArrayEncoder | None = None
) -> RecordDict:
    """Return a request as the content of a message; ``digest`` names the setup of the run.

    The requests of a round may share an encoder.
    """
    config: dict[str, Scalar] = {
        MARK: SCHEMA,
        "kind": request.kind,
        "setup": digest,
        "round": request.round,
        "expects": json.dumps({name: list(shape) for name, shape in request.expects.items()}),
    }
    if request.words:
        config["words"] = ",".join(sorted(request.words))
    if request.expects_words:
        shapes = {name: list(shape) for name, shape in request.expects_words.items()}
        config["expects-words"] = json.dumps(shapes)
    return _content(config, request.values, request.arrays, request.words, encoder)


def _content(
    config: dict[str, Scalar],
    values: Mapping[str, Scalar],
    arrays: Mapping[str, Array],
    words: Mapping[str, Words] | None = None,
    encoder: ArrayEncoder | None = None,
) -> RecordDict:
    """Return the records of a message with this config and these values and arrays."""
    config["arrays"] = ",".join(sorted(arrays))
    config.update({f"value.{name}": value for name, value in values.items()})
    encoder, words = encoder or ArrayEncoder(), words or {}
    sent = [encoder.numbers(arrays[name]) for name in sorted(arrays)]
    sent += [encoder.words(words[name]) for name in sorted(words)]
    return RecordDict({PARAMETERS: _array_record(sent), CONFIG: ConfigRecord(dict(config))})


def _in_order(arrays: Mapping[str, Array], words: Mapping[str, Words]) -> list[np.ndarray]:
    """Return the arrays in the order of the wire, little-endian: numbers first, then words."""
    numbers = [_float64(arrays[name]) for name in sorted(arrays)]
    return numbers + [_uint64(words[name]) for name in sorted(words)]


# These records are made once, as nobody writes into the records of a message. One empty array
# under the key EMPTY is how Flower's compatibility layer marks a list without arrays.
_NO_ARRAYS = ArrayRecord({EMPTY: FlowerArray(dtype="", shape=(), stype="numpy.ndarray", data=b"")})
_ONE_EXAMPLE = MetricRecord({"num_examples": 1})
_SUCCESS = ConfigRecord({"code": 0, "message": "Success"})


def _array_record(arrays: Sequence[FlowerArray]) -> ArrayRecord:
    """Return a record of arrays with the keys "0", "1", ..., as Flower names them."""
    if not arrays:
        return _NO_ARRAYS
    record = ArrayRecord()
    for i, array in enumerate(arrays):  # a record that is made from a mapping copies its arrays
        record[str(i)] = array
    return record


def encode_probe() -> RecordDict:
    """Return the content of the message that asks whether a ``client_fn`` app takes part."""
    return RecordDict({PROBE_CONFIG: ConfigRecord({MARK: SCHEMA})})


# -- messages at an agent ----------------------------------------------------------------------


def is_tuning_message(config: Mapping[str, Any]) -> bool:
    """Return whether a message with this config is a tuning message, of any version."""
    return MARK in config


def fit_arguments(content: RecordDict) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Return the arguments of ``NumPyClient.fit`` that a message holds."""
    # Flower's compatibility layer returns the same arguments, but takes longer.
    try:
        arrays, config = content[PARAMETERS], dict(content[CONFIG])
        if not isinstance(arrays, ArrayRecord):
            raise WireError(f"the record `{PARAMETERS}` must be an ArrayRecord")
        parameters = [array.numpy() for key, array in arrays.items() if key != EMPTY]
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"a message must hold the arguments of NumPyClient.fit: {error}") from None
    scalars = {k: v for k, v in config.items() if isinstance(v, (bool, int, float, str))}
    if len(scalars) < len(config):
        raise WireError(f"the values of `{CONFIG}` must be scalars, not lists or bytes")
    return parameters, scalars


def decode_instruction(
    parameters: Sequence[np.ndarray], config: Mapping[str, Scalar]
) -> Instruction:
    """Return the setup or request that the arguments of ``NumPyClient.fit`` hold."""
    if config.get(MARK) != SCHEMA:
        raise WireError(
            f"`{MARK}` must be {SCHEMA}, but got {config.get(MARK)!r}: server and agent run "
            "versions of flwr-fbo that do not understand each other"
        )
    try:
        names = [name for name in str(config["arrays"]).split(",") if name]
        of_words = [name for name in str(config.get("words", "")).split(",") if name]
        arrays = dict(zip(names + of_words, parameters, strict=True))
        words = {name: _words(arrays.pop(name)) for name in of_words}
        values = {k.removeprefix("value."): v for k, v in config.items() if k.startswith("value.")}
        digest = str(config["setup"])
        if str(config["kind"]) == SETUP:
            return Instruction(_decode_setup(config, values, arrays), None, digest)
        return Instruction(None, _decode_request(config, values, arrays, words), digest)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise WireError(f"a message must have the layout of flwr-fbo: {error}") from None


def _decode_setup(
    config: Mapping[str, Scalar], values: dict[str, Scalar], arrays: dict[str, Array]
) -> Setup:
    """Return the setup of a message."""
    return Setup(
        str(config["agent-kind"]),
        Space.from_json(str(config["space"])),
        values,
        arrays,
        run=str(config["run"]),
        seed=_integer("seed", config["seed"]),
        answer_within=_seconds(config.get("answer-within")),
        equal_waits=config.get("equal-waits") is True,
        identity=str(config.get("identity", "")),
    )


def _decode_request(
    config: Mapping[str, Scalar],
    values: dict[str, Scalar],
    arrays: dict[str, Array],
    words: dict[str, Words],
) -> Request:
    """Return the request of a message."""
    expects, of_words = _decode_shapes(config)
    number = _integer("round", config["round"])
    return Request(str(config["kind"]), number, values, arrays, expects, words, of_words)


def _words(array: np.ndarray) -> Words:
    """Return an array of words; raise WireError for an array of another type."""
    if array.dtype != np.dtype("<u8"):
        raise WireError(f"an array of words must be uint64, but is {array.dtype}")
    return array.astype(np.uint64)


def _decode_shapes(config: Mapping[str, Scalar]) -> tuple[Shapes, Shapes]:
    """Return the shapes of the arrays of numbers and of words that a request expects."""
    numbers, words = (
        {str(name): tuple(shape) for name, shape in json.loads(str(text)).items()}
        for text in (config["expects"], config.get("expects-words", "{}"))
    )
    shapes = [*numbers.values(), *words.values()]
    if any(type(size) is not int or size < 0 for shape in shapes for size in shape):
        raise ValueError("the sizes of the expected arrays must be integers >= 0")
    if sum(map(math.prod, shapes)) > MOST_NUMBERS:
        raise ValueError(f"the expected arrays must hold at most {MOST_NUMBERS:,} numbers")
    return numbers, words


def readable_part(config: object) -> tuple[int, Shapes, Shapes]:
    """Return the round and the expected shapes of a config, as far as they can be read.

    With these even the reply to a request that cannot be read as a whole has the size of a good
    reply. What cannot be read is round -1, or no shapes.
    """
    part: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    number = part.get("round")
    round_number = number if type(number) is int else -1
    try:
        return round_number, *_decode_shapes(part)
    except Exception:  # whatever stands there
        return round_number, {}, {}


def _integer(name: str, value: Scalar) -> int:
    """Return an integer of the config; raise WireError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise WireError(f"`{name}` must be an integer, but got {value!r}")
    return value


def _seconds(value: Scalar | None) -> float | None:
    """Return the seconds of ``answer-within``; raise WireError for any other value."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise WireError(f"`answer-within` must be a number >= 0, but got {value!r}")
    return float(value)


def encode_reply(
    reply: Reply,
    round: int,
    claim: Claim | None = None,
    expects: Mapping[str, tuple[int, ...]] | None = None,
    expects_words: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[list[np.ndarray], int, dict[str, Scalar]]:
    """Return a reply as the result of ``NumPyClient.fit``.

    Parameters
    ----------
    reply
        The reply.
    round
        The number of the round; -1 for a setup.
    claim
        The name of the agent and its owner's secret, which only the reply to a setup holds.
    expects, expects_words
        The names and shapes of the expected arrays.
    """
    # All replies have one size, so that an observer cannot see which of them decline: the word is
    # padded, and a reply that declines holds zeros in the shape of the expected arrays.
    word = reply.declined[:MAX_WORD].ljust(MAX_WORD)
    metrics: dict[str, Scalar] = {MARK: SCHEMA, "round": round, "declined": word}
    if claim is not None:
        metrics |= {"agent": claim.name, "owner": claim.secret}
    arrays, words = reply.arrays, reply.words
    if reply.declined:
        arrays = {name: np.zeros(shape) for name, shape in (expects or {}).items()}
        words = {n: np.zeros(shape, np.uint64) for n, shape in (expects_words or {}).items()}
    return _in_order(arrays, words), 1, metrics


def reply_content(result: tuple[list[np.ndarray], int, Mapping[str, Any]]) -> RecordDict:
    """Return the result of ``NumPyClient.fit`` as the content of a reply."""
    parameters, _, metrics = result  # the number of examples would tell about the data
    return RecordDict(
        {
            REPLY_METRICS: ConfigRecord(dict(metrics)),
            REPLY_EXAMPLES: _ONE_EXAMPLE,
            REPLY_PARAMETERS: _array_record([FlowerArray(array) for array in parameters]),
            REPLY_STATUS: _SUCCESS,
        }
    )


# -- replies at the server ---------------------------------------------------------------------


def takes_part(message: Message) -> bool:
    """Return whether a client that was probed takes part in tuning, from its reply."""
    if message.has_error():
        return False
    record = message.content.get(PROPERTIES)
    return isinstance(record, ConfigRecord) and MARK in record


def decode_reply(message: Message, request: Request) -> Reply:
    """Return the reply to a request; raise WireError unless it is as the request expects."""
    metrics = _metrics(message, {MARK, "round", "declined"})
    if metrics["round"] != request.round:
        raise WireError(f"a reply must be to round {request.round}, but is to another round")
    declined = _word("declined", metrics["declined"])
    if declined:
        return Reply(declined=declined)
    arrays, words = _decode_arrays(message.content, request)
    try:
        return checked_reply(request, Reply(arrays, words=words))
    except ReplyError as error:
        raise WireError(str(error)) from None


def decode_registration(message: Message) -> Claim:
    """Return the claim of an agent from its reply to a setup."""
    metrics = _metrics(message, {MARK, "round", "declined"}, {"agent", "owner"})
    declined = _word("declined", metrics["declined"])
    if declined:
        raise WireError(f"the agent declined its setup: {declined}")
    claim = Claim(_word("agent", metrics.get("agent")), _word("owner", metrics.get("owner")))
    if not claim.name:
        raise WireError("`agent`, the name of an agent, must not be empty")
    if len(claim.secret) < SHORTEST_SECRET:
        raise WireError(f"`owner`, a secret, must have at least {SHORTEST_SECRET} characters")
    return claim


def _metrics(
    message: Message, keys: set[str], optional: frozenset[str] | set[str] = frozenset()
) -> dict[str, Any]:
    """Return the metrics of a reply, which must have exactly these keys, and may have others."""
    if message.has_error():
        # The code alone: the text of an error may quote an agent's data.
        raise WireError(f"Flower reports error {message.error.code} instead of a reply")
    content = message.content
    names = {REPLY_PARAMETERS, REPLY_EXAMPLES, REPLY_METRICS, REPLY_STATUS}
    if set(content) != names:
        raise WireError(f"the records of a reply must be {', '.join(sorted(names))}")
    record = content[REPLY_METRICS]
    metrics = dict(record) if isinstance(record, ConfigRecord) else {}
    if metrics.get(MARK) != SCHEMA:
        raise WireError(f"a reply must have schema {SCHEMA}, but has {_schema_text(metrics)}")
    if not keys <= set(metrics) <= keys | optional:
        raise WireError(f"a reply must have exactly the values {sorted(keys | optional)}")
    return metrics


def _schema_text(metrics: Mapping[str, Any]) -> str:
    """Return the schema that a reply names; "none" unless it is a number of few digits."""
    # Any other value is not quoted, as it may hold data.
    named = metrics.get(MARK)
    return str(named) if type(named) is int and 0 <= named < 10**6 else "none"


def _word(key: str, value: Any) -> str:
    """Return a word of a reply; raise WireError for long texts and control characters."""
    if not isinstance(value, str) or len(value) > MAX_WORD or not value.isprintable():
        raise WireError(f"`{key}` must be printable text of at most {MAX_WORD} characters")
    return value.strip()  # words are padded to one length


def _decode_arrays(
    content: RecordDict, request: Request
) -> tuple[dict[str, Array], dict[str, Words]]:
    """Return the arrays of a reply by name; raise WireError unless they are as expected."""
    record = content[REPLY_PARAMETERS]
    arrays = record.items() if isinstance(record, ArrayRecord) else ()
    sent = [a.data for key, a in arrays if key != EMPTY]
    numbers, words = request.expects, request.expects_words
    if len(sent) != len(numbers) + len(words):
        raise WireError(f"a reply must hold {len(numbers) + len(words)} arrays, got {len(sent)}")
    first, rest = sent[: len(numbers)], sent[len(numbers) :]
    return (
        {
            name: _decode_array(data, numbers[name], "<f8").astype(np.float64)
            for name, data in zip(sorted(numbers), first, strict=True)
        },
        {
            name: _decode_array(data, words[name], "<u8").astype(np.uint64)
            for name, data in zip(sorted(words), rest, strict=True)
        },
    )


def _decode_array(data: bytes, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of exactly this shape and type from bytes in numpy's format."""
    stream = io.BytesIO(data)
    # numpy's own reader is not used: it unpickles objects, and allocates what a header claims.
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise WireError("an array must be in numpy's format 1.0")
        header = np.lib.format.read_array_header_1_0(stream, max_header_size=MAX_HEADER)
    except WireError:
        raise
    except Exception:
        raise WireError("an array must be in numpy's format") from None
    if header != (shape, False, np.dtype(dtype)):
        raise WireError(f"an array must be {np.dtype(dtype).name} of shape {shape}")
    start = stream.tell()
    if len(data) - start != 8 * math.prod(shape):
        raise WireError(f"an array of shape {shape} must hold {math.prod(shape)} numbers")
    return np.frombuffer(data, dtype=dtype, offset=start).reshape(shape)


def _uint64(words: Words) -> Words:
    """Return words as little-endian uint64."""
    return np.ascontiguousarray(words, dtype="<u8")


def _float64(array: Array) -> Array:
    """Return the array as little-endian float64, the type of all real numbers on the wire."""
    return np.ascontiguousarray(array, dtype="<f8").reshape(np.shape(array))
