"""Decode a serialised ``tf.train.Example`` without TensorFlow.

The message is a map from names to lists (field numbers in parentheses): ``Example.features (1) .
feature (1)`` holds entries of ``key (1)`` and ``value (2)``. A value is a list of bytes (1), of
floats (2) or of integers (3). Each list holds its items in field 1, and its numbers may be packed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Wire types of the protocol buffer format.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FLOATS, _INTEGERS = 2, 3
#: Field number, wire type and value.
Wire: TypeAlias = tuple[int, int, Any]


class DecodeError(ValueError):
    """The error for bytes that are not a well-formed message."""


def decode_example(message: bytes) -> dict[str, NDArray[Any]]:
    """Return the numeric features of an example: floats as float32, integers as int64."""
    features: dict[str, NDArray[Any]] = {}
    for entry in _submessages(b"".join(_submessages(message, 1)), 1):
        key = b"".join(_submessages(entry, 1)).decode("utf-8")
        for number, _, value in fields(b"".join(_submessages(entry, 2))):
            if number == _FLOATS:
                features[key] = _floats(value)
            elif number == _INTEGERS:
                features[key] = _integers(value)
    return features


def fields(message: bytes) -> Iterator[Wire]:
    """Yield field number, wire type and value of every field of a message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise DecodeError(f"wire type {kind} at byte {at} is not known")
        if at + size > len(message):
            raise DecodeError(f"a field of {size} bytes at byte {at} ends beyond the message")
        yield number, kind, message[at : at + size]
        at += size


def _submessages(message: bytes, wanted: int) -> list[bytes]:
    return [value for number, kind, value in fields(message) if (number, kind) == (wanted, BYTES)]


def _floats(message: bytes) -> NDArray[np.float32]:
    packed = b"".join(v for number, kind, v in fields(message) if number == 1 and kind != VARINT)
    if len(packed) % 4:
        raise DecodeError(f"floats need 4 bytes each, but there are {len(packed)} bytes")
    return np.frombuffer(packed, dtype="<f4")


def _integers(message: bytes) -> NDArray[np.int64]:
    values: list[int] = []
    for number, kind, value in fields(message):
        if number != 1:
            continue
        if kind == VARINT:
            values.append(value)
            continue
        at = 0
        while at < len(value):
            item, at = _varint(value, at)
            values.append(item)
    # Negative numbers are encoded as their 64-bit two's complement.
    return np.array([struct.unpack("<q", struct.pack("<Q", v))[0] for v in values], dtype=np.int64)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number that starts at a byte, and the place after the number.

    Each byte holds seven bits, the lowest first; its eighth bit says whether another one follows.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise DecodeError("the message ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise DecodeError("a number has more than ten bytes")
