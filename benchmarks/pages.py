"""Tables in the pages of the documentation, kept between marks and written from saved figures.

A table stands between ``<!-- NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def filled(page: str, name: str, table: Sequence[str]) -> str:
    """A page with a table of this name; an error where the page has no place for it."""
    before, mark, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not mark or not end:
        raise ValueError(f"a page must have `<!-- {name} -->` and `<!-- end -->`, but has not")
    return before + mark + "\n".join(table) + "\n" + end + after


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as lines of Markdown, under the names of the first one's columns."""
    names = list(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return lines + [f"| {' | '.join(cell(row[name]) for name in names)} |" for row in rows]


def cell(value: Any) -> str:
    """Three digits of a fraction, whole numbers in full, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, float) and abs(value) < 1000 and not value.is_integer():
        return f"{value:.3g}"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)
