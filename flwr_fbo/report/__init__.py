"""A report of one or several runs: one HTML file, readable everywhere, for ever."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flwr_fbo.report.page import page
from flwr_fbo.report.runs import read_run


def write_report(runs: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write a report of run directories; beside the first one's result where not said."""
    if not runs:
        raise ValueError("a report needs at least one run directory")
    text = page([read_run(run) for run in runs])
    path = Path(runs[0]) / "report.html" if out is None else Path(out)
    path.write_text(text, encoding="utf-8")
    return path


__all__ = ["write_report"]
