"""Write the tutorials as notebooks: ``python docs/notebooks.py [NAME ...] [--execute]``.

A notebook has the text of its page. A block of Python becomes a cell, a block of commands a cell of
bash, and a block that names a file is written to this file first. ``--execute`` runs the notebooks
(``flwr-fbo[docs]``), each in a clean clone and with a home directory of its own, and stores what
they print. A cell that fails stops it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.blocks import Block, blocks_of, fixed_ports  # noqa: E402

TUTORIALS = ROOT / "docs" / "tutorials"
OUT = ROOT / "site" / "notebooks"


def names() -> list[str]:
    """Return the names of all tutorials."""
    return sorted(page.stem for page in TUTORIALS.glob("*.md"))


def notebook(text: str) -> dict[str, Any]:
    """Return a page as a notebook, in Jupyter's format 4.5."""
    cells, done = [], 0
    for block in blocks_of(text):
        if block.runs:
            cells += [markdown(text[done : block.start]), *code(block)]
            done = block.end
    cells.append(markdown(text[done:]))
    kept = [cell for cell in cells if cell["source"].strip()]
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": kept,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def markdown(text: str) -> dict[str, Any]:
    """Return a cell of text."""
    return {"cell_type": "markdown", "metadata": {}, "source": text.strip()}


def code(block: Block) -> list[dict[str, Any]]:
    """Return the cells that do what a block does."""
    text = block.text.strip()
    if block.language == "sh":
        return [cell(f"%%bash\nset -euo pipefail\n{text}")]
    if block.file is None:
        return [cell(text)]
    written = cell(f"%%writefile {block.file}\n{text}")
    # A file in a folder belongs to an app, which alone can import it.
    return [written] if "/" in block.file else [written, cell(f"%run {block.file}")]


def cell(source: str) -> dict[str, Any]:
    """Return a cell of code that has not run."""
    empty: dict[str, Any] = {"execution_count": None, "metadata": {}, "outputs": []}
    return {"cell_type": "code", "source": source, **empty}


def executed(
    written: dict[str, Any], programs: Path = Path(sys.executable).parent
) -> dict[str, Any]:
    """Return a notebook with what its cells print, run in a clean clone.

    Cells of commands find their programs in the folder `programs` first.
    """
    import nbclient
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        clone, home = Path(folder) / "flwr-fbo", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        ours = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "FLWR_HOME": str(home / ".flwr"),
            "FLWR_FBO_HOME": str(home / ".flwr-fbo"),
            "FLWR_TELEMETRY_ENABLED": "0",
        }
        run = nbformat.from_dict(written)
        client = nbclient.NotebookClient(
            run, timeout=3600, resources={"metadata": {"path": str(clone)}}
        )
        with fixed_ports("".join(cell["source"] for cell in written["cells"])):
            try:
                client.execute(env={**os.environ, **ours})
            finally:
                leave(Path(folder))
    return dict(json.loads(json.dumps(run)))


def leave(folder: Path) -> None:
    """End what a notebook left running: Flower keeps a SuperLink for `flwr run`."""
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True)
    for line in listed.stdout.decode(errors="replace").splitlines():
        pid, _, arguments = line.strip().partition(" ")
        with contextlib.suppress(OSError):  # ended meanwhile, or not ours
            where = Path(f"/proc/{pid}/cwd")
            if str(folder) in arguments or (
                where.exists() and str(folder) in str(where.readlink())
            ):
                os.kill(int(pid), signal.SIGTERM)


def main(given: Sequence[str] | None = None) -> None:
    """Write notebooks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="tutorials; all unless told otherwise")
    parser.add_argument("--execute", action="store_true", help="run them")
    parser.add_argument(
        "--programs", type=Path, default=Path(sys.executable).parent,
        help="folder whose programs the cells of commands run; where unset, this Python's",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the notebooks")
    asked = parser.parse_args(given)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names or names():
        made = notebook((TUTORIALS / f"{name}.md").read_text(encoding="utf-8"))
        made = executed(made, asked.programs) if asked.execute else made
        path = asked.out / f"{name}.ipynb"
        path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
