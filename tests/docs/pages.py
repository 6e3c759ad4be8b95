"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.blocks import RUN, SHOWN, Block, blocks_of

__all__ = ["PAGES", "ROOT", "RUN", "SHOWN", "Block", "blocks", "name_of"]

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "api" not in page.parts),
]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    return blocks_of(page.read_text())


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()
