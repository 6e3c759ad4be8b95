"""Checksums of the files of a run: of single texts, and of lines that follow one another.

A checksum finds bits that flipped, files that were cut, and files of another run. It keeps nobody
from forging a file, as everybody can compute it; the privacy ledger has a secret key for that
(:mod:`flwr_fbo.privacy.ledger`).

In a *chain* the checksum of a line covers the checksum of the line before. A line that is missing
from the middle, doubled, moved or taken from another file therefore does not fit. A chain cannot
tell that its last lines are missing, so another file names how far the chain had come: the head of
a journal, and the checkpoint for the table of rounds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

#: The layout of all files of a run directory. Version 0.1 had layout 1, version 0.2 layout 2.
#: Layouts 3 (no records of many evaluations) and 4 (one journal for each agent of a simulation)
#: were in no release.
LAYOUT = 5
#: The member of a JSON object that holds its seal.
SEAL = "file"
#: Digits of a checksum: 64 bits.
DIGITS = 16
#: What stands between the text of a line and its checksum, and after the checksum.
_BEFORE, _AFTER = b',"check":"', b'"}'
_TAIL = len(_BEFORE) + DIGITS + len(_AFTER)


class ChecksumError(ValueError):
    """An error for a text that does not fit its checksum."""


def checksum(*parts: bytes | str) -> str:
    """Return the checksum of some texts, which also depends on where one ends."""
    framed = b""  # journals call this for every record, so it makes few calls
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        framed += b"%d:%b" % (len(data), data)
    return hashlib.blake2b(framed, digest_size=DIGITS // 2).hexdigest()


class Chain:
    """How far a chain of lines has come: the number of lines and the last checksum.

    Each line is a JSON object whose last member is its checksum.

    Examples
    --------
    >>> line = Chain().add(b'{"kind":"note"}')
    >>> next(Chain().read(line))
    b'{"kind":"note"}'
    """

    def __init__(self, lines: int = 0, last: str = "") -> None:
        self.lines, self.last = lines, last

    def copy(self) -> Chain:
        """Return a chain that has come as far."""
        return Chain(self.lines, self.last)

    def sealed(self, text: bytes) -> tuple[bytes, str]:
        """Return the line of a JSON object, and its checksum; the chain itself stays."""
        check = checksum(self.last, text)
        return text[:-1] + _BEFORE + check.encode() + _AFTER + b"\n", check

    def add(self, text: bytes) -> bytes:
        """Return the line of a JSON object, which is the chain's last line from now on."""
        line, self.last = self.sealed(text)
        self.lines += 1
        return line

    def read(self, data: bytes) -> Iterator[bytes]:
        """Yield the JSON objects of complete lines; raise ChecksumError for one that is damaged."""
        for line in data.split(b"\n")[:-1]:
            text = line[:-_TAIL] + b"}"
            expected, check = self.sealed(text)
            if expected[:-1] != line:
                raise ChecksumError(
                    f"line {self.lines + 1} does not fit its checksum: the line was changed, or "
                    "lines before it are missing, doubled or of another file"
                )
            self.last = check
            self.lines += 1
            yield text


def length_of_line(text: bytes) -> int:
    """Return the length of the line that :meth:`Chain.add` makes of a JSON object."""
    return len(text) + _TAIL


def text_of_line(line: bytes) -> bytes:
    """Return the JSON object of a complete line, whose checksum was compared before."""
    return line[: -_TAIL - 1] + b"}"


def check_of_line(line: bytes) -> str:
    """Return the checksum at the end of a complete line, which is not compared."""
    return line[-len(_AFTER) - 1 - DIGITS : -len(_AFTER) - 1].decode("ascii", "replace")


def seal_object(
    content: Mapping[str, Any], run: str, name: str, names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON object to store for some content, with a seal as its last member.

    The seal holds the layout, the identity of the run, what the file names of other files, and the
    checksum of all of these, of the content and of the file's name.
    """
    seal = {"layout": LAYOUT, "run": run, **({"names": dict(names)} if names else {})}
    return {**content, SEAL: {**seal, "check": checksum(name, _canonical([content, seal]))}}


def open_object(stored: Any, name: str) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return what :func:`seal_object` was given: the content, the run, and what the file names."""
    if not isinstance(stored, dict):
        raise ChecksumError("it must be a JSON object")
    content = {key: value for key, value in stored.items() if key != SEAL}
    seal = stored.get(SEAL)
    if seal is None:
        raise ChecksumError(f"it has no checksum: it is of another version of flwr-fbo{_ADVICE}")
    if not isinstance(seal, dict):
        raise ChecksumError(f"its member `{SEAL}` is damaged")
    check, layout = seal.pop("check", None), seal.get("layout")
    if type(layout) is int and layout != LAYOUT:
        raise ChecksumError(
            f"its layout must be {LAYOUT}, but is {layout!r}: it is of another version of "
            f"flwr-fbo{_ADVICE}"
        )
    if check != checksum(name, _canonical([content, seal])):
        raise ChecksumError("its content does not fit its checksum: it was changed")
    return content, str(seal["run"]), seal.get("names", {})


#: What to do with a file of another version.
_ADVICE = "; finish the run with the version that environment.json names, or start a new run"


def _canonical(content: Any) -> str:
    """Return the text of JSON values, the same whatever the order of names and the blanks."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
