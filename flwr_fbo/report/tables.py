"""Tables of a report as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that scrolls sideways where the page is narrow."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
