"""An agent's memory on disk: one line a record, only ever appended.

A line is complete or it does not count: a torn last line, left by a crash in the middle of a
write, is dropped when the journal is opened. Records are flushed to the disk before
:meth:`Journal.append` returns, except those that say they took less time than the flush would:
they survive the process, not a power cut.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Records of work that took longer (seconds) than this are worth an fsync each.
WORTH_A_FLUSH = 0.05
#: Kinds of records that can be computed again from the others.
RECOMPUTABLE = frozenset({"fit"})


class JournalError(RuntimeError):
    """A journal is damaged in a way that no crash of ours leaves behind."""


class Journal:
    """Records (see :class:`flwr_fbo.core.evaluation.Records`) in a JSON-lines file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._records: dict[str, list[dict[str, Any]]] = {}
        if self.path.exists():
            self._load()
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def _load(self) -> None:
        data = self.path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(len(data) - len(torn))
        for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
            try:
                record = json.loads(line)
                self._records.setdefault(record.pop("kind"), []).append(record)
            except (ValueError, KeyError, AttributeError, TypeError):
                raise JournalError(f"{self.path}: line {number} is not a record") from None

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.core.evaluation.Records`."""
        line = json.dumps({"kind": kind, **record}, allow_nan=False, separators=(",", ":"))
        with self.path.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            if kind not in RECOMPUTABLE and record.get("seconds", math.inf) > WORTH_A_FLUSH:
                os.fsync(file.fileno())
        self._records.setdefault(kind, []).append(dict(record))

    def read(self, kind: str) -> list[dict[str, Any]]:
        """See :class:`flwr_fbo.core.evaluation.Records`."""
        return list(self._records.get(kind, []))
