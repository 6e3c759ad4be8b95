"""The table of a run's rounds: one line per round in ``rounds.csv``."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY
from flwr_fbo.runs.callbacks import Callback, RoundReport, RunView
from flwr_fbo.runs.files import RunDirectoryError


class RoundTable(Callback):
    """A callback that appends one line per round to the table."""

    COLUMNS = (
        "round", "asked", "replied", "under-way", "declined", "missing", "refused", "epsilon",
        "seconds",
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_round(self, run: RunView, report: RoundReport) -> None:
        """Append the line of a closed round."""
        epsilon = "" if report.privacy is None else f"{report.privacy.spent or 0.0:.6g}"
        busy = report.declined.get(UNDER_WAY, 0)  # an evaluation still runs: not a failure
        declined = sum(report.declined.values()) - busy
        counts = (report.asked, report.replied, busy, declined, report.missing, report.refused)
        row = [report.round, *counts, epsilon, f"{report.seconds:.3f}"]
        try:
            self._append(row)
        except OSError as error:
            raise RunDirectoryError(
                f"{self._path} could not be written: {error.strerror}. The round itself is stored, "
                "so the run can be resumed"
            ) from error

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        """Return the rows of a table, one per round; of a repeated round, the last row."""
        if not path.exists():
            return []
        with path.open(newline="") as file:
            rows = {row["round"]: row for row in csv.DictReader(file) if None not in row.values()}
        return list(rows.values())

    def _append(self, row: list[Any]) -> None:
        """Append a row, after the header in a new file."""
        with self._path.open("a+", newline="") as file:
            end = file.seek(0, os.SEEK_END)
            table = csv.writer(file)
            if end == 0:
                table.writerow(self.COLUMNS)
            elif _last_byte(self._path) != b"\n":
                file.write("\n")  # a crash left half a row, which ends here
            table.writerow(row)


def _last_byte(path: Path) -> bytes:
    """Return the last byte of a file that is not empty."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
