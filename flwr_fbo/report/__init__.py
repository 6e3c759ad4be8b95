"""Reports of finished or interrupted runs: one HTML file that opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flwr_fbo.report.page import render_page
from flwr_fbo.report.runs import read_run


def write_report(runs: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write a report of run directories and return the path of the HTML file.

    Parameters
    ----------
    runs
        Run directories. Several runs are compared with one another.
    out
        Path of the report; by default ``report.html`` in the run directory, or ``compared.html``
        in the first of several.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_fbo import simulate
    >>> from flwr_fbo.report import write_report
    >>> folder = tempfile.mkdtemp()
    >>> result = simulate("synthetic", agents=2, rounds=2, points=50, run_dir=f"{folder}/run")
    >>> write_report([result.run_dir]).name
    'report.html'
    """
    if not runs:
        raise ValueError("a report needs at least one run directory, but got none")
    # A comparison does not replace the report of its first run.
    name = "report.html" if len(runs) == 1 else "compared.html"
    path = Path(runs[0]) / name if out is None else Path(out)
    if out is not None and not path.parent.is_dir():
        raise ValueError(
            f"`out` must lie in a directory that exists, but {path.parent} does not exist"
        )
    text = render_page([read_run(run) for run in runs])
    path.write_text(text, encoding="utf-8")
    return path


__all__ = ["write_report"]
