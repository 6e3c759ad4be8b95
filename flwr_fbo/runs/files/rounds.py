"""The table of a run's rounds: one line per round in ``rounds.csv``.

The last column is a checksum that covers the line before, the columns' names and the run. The
checkpoint names how many lines there are, so that lines that are missing at the end are noticed.
The line of a round is written before the checkpoint: a crash between the two repeats the round, and
of a repeated round the last line counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_fbo.core.forks import Process
from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.checks import checksum

Row = dict[str, str]
#: Seven counts, epsilon (or nothing) and seconds.
_ROW = re.compile(r"(\d{1,18},){7}([-+.\de]{1,30}|inf|nan|),\d{1,18}\.\d{3}")


class RoundTable:
    """The table of a run's rounds, to which one process appends.

    Parameters
    ----------
    path
        The file.
    run
        The identity of the run.
    """

    COLUMNS = (
        "round", "asked", "replied", "under-way", "declined", "missing", "refused", "epsilon",
        "seconds", "check",
    )  # fmt: skip

    def __init__(self, path: Path, run: str) -> None:
        self.path, self._run, self._process = path, run, Process()
        #: The rows that fit their checksums, in the order in which they were written.
        self.rows: list[Row] = []
        #: What is wrong with the first line that does not; empty where all lines fit.
        self.damage = ""
        self._header = ",".join(self.COLUMNS)
        self._checks = [checksum(run, self._header)]  # before the first row, and after each row
        self._size = 0  # bytes of the file up to its last good row
        self._load()

    @property
    def state(self) -> dict[str, Any]:
        """Return how far the table has come, for a checkpoint to name: rows and last checksum."""
        return {"rows": len(self.rows), "check": self._checks[-1]}

    def holds(self, state: Mapping[str, Any]) -> bool:
        """Return whether the table holds the rows that a checkpoint names."""
        rows = int(state["rows"])
        return 0 <= rows < len(self._checks) and self._checks[rows] == state["check"]

    def by_round(self) -> list[Row]:
        """Return one row per round; of a repeated round, the last row."""
        return list({row["round"]: row for row in self.rows}.values())

    @classmethod
    def read(cls, path: Path, run: str, state: Mapping[str, Any] | None = None) -> list[Row]:
        """Return one row per round; raise RunDirectoryError for a damaged table.

        ``state`` names rows that the table must hold.
        """
        table = cls(path, run)
        if table.damage:
            raise RunDirectoryError(f"{path}: {table.damage}. {_ADVICE}")
        if state is not None and not table.holds(state):
            raise RunDirectoryError(
                f"{path} holds {len(table.rows)} rows, but must hold the {state['rows']} rows that "
                f"other files of the run name. {_ADVICE}"
            )
        return table.by_round()

    def mend(self, *, keep: bool = True) -> None:
        """Write the table with its good rows, or with none; keep the damaged file beside it."""
        self._process.check(self.path)
        if not keep:
            self.rows, self._checks, self._size = [], self._checks[:1], 0
        try:
            if self.path.exists():
                self.path.replace(self.path.with_suffix(".csv.damaged"))
            lines = [self._header, *(",".join(row.values()) for row in self.rows)]
            self.path.write_text("\n".join(lines) + "\n" if self.rows else "")
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path} could not be written: {error.strerror}"
            ) from error
        self.damage = ""

    def append(self, report: RoundReport) -> None:
        """Append the line of a closed round."""
        epsilon = "" if report.privacy is None else f"{report.privacy.spent or 0.0:.6g}"
        busy = report.declined.get(UNDER_WAY, 0)  # an evaluation still runs: not a failure
        declined = sum(report.declined.values()) - busy
        counts = (report.asked, report.replied, busy, declined, report.missing, report.refused)
        values = [report.round, *counts, epsilon, f"{report.seconds:.3f}"]
        text = ",".join(map(str, values))
        try:
            self._append(text)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path} could not be written: {error.strerror}. What was stored before is "
                "intact, so the run can be resumed, which repeats this round"
            ) from error
        self._add(text, self._check_of(text))

    def sync(self) -> None:
        """Force the rows to the disk, before a checkpoint names them."""
        if not self.rows:
            return
        try:
            with self.path.open("rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path} could not be written: {error.strerror}"
            ) from error

    def _load(self) -> None:
        """Read the rows; stop at the first line that is damaged."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunDirectoryError(f"{self.path} cannot be read: {error.strerror}") from error
        # A line without its end is left by a crash, and did not count yet.
        lines = data.decode("ascii", errors="replace").split("\n")[:-1]
        if lines and lines[0] != self._header:
            if "," in lines[0] and "check" not in lines[0].split(","):
                self.damage = (
                    "it has no checksums: it is of another version of flwr-fbo, or not a table"
                )
            else:
                self.damage = "line 1 does not hold the names of the columns"
            return
        for number, line in enumerate(lines[1:], start=2):
            text, _, check = line.rpartition(",")
            if check != self._check_of(text) or not _ROW.fullmatch(text):
                self.damage = (
                    f"line {number} does not fit its checksum: the line was changed, or lines "
                    "before it are missing, doubled or of another run"
                )
                return
            self._add(text, check)

    def _check_of(self, text: str) -> str:
        """Return the checksum of the next row."""
        return checksum(self._checks[-1], text)

    def _add(self, text: str, check: str) -> None:
        """Add a row to those in memory."""
        self.rows.append(dict(zip(self.COLUMNS, [*text.split(","), check], strict=True)))
        self._checks.append(check)
        # The columns' names come with the first row; all text is ASCII.
        self._size += len(text) + len(check) + 2 + (self._size == 0) * (len(self._header) + 1)

    def _append(self, text: str) -> None:
        """Append a row to the file, after the columns' names in a new file."""
        self._process.check(self.path)
        with self.path.open("ab") as file:
            # What a crash left of a line is overwritten.
            if file.tell() != self._size:
                file.truncate(self._size)
            head = "" if self.rows else self._header + "\n"
            file.write(f"{head}{text},{self._check_of(text)}\n".encode())


#: What to do about a damaged table.
_ADVICE = (
    "Restore the file from a backup, or resume the run: it keeps the good rows, and says what is "
    "missing"
)
