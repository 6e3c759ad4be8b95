"""Every Python block of the README and the docs, run in order, a page in one namespace.

A block whose first line is a comment that names a file (``# mine.py``) is written to that file
as well, so that later blocks and commands can import it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


def blocks(page: Path) -> list[str]:
    return [str(found) for found in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        named = re.match(r"# ([\w/]+\.py)\n", block)
        if named:
            path = tmp_path / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
        exec(compile(block, str(page.relative_to(ROOT)), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
