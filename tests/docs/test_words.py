"""The docs are short: everything that is read from beginning to end, by the number of words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, name_of

#: Tables of measurements and what is looked up may be as long as they must.
LOOKED_UP = ("docs/evidence/", "docs/reference/", "docs/architecture.md", "CHANGELOG.md")
#: A page that is longer belongs in two, or in the reference.
LONGEST = 2500


def words(page: Path) -> int:
    return len(page.read_text().split())


READ = [page for page in PAGES if not name_of(page).startswith(LOOKED_UP)]


def test_what_is_read_has_fewer_than_15_000_words() -> None:
    assert len(READ) > 12
    assert sum(words(page) for page in READ) < 15_000


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_no_page_is_long(page: Path) -> None:
    assert words(page) < LONGEST


@pytest.mark.parametrize("page", READ, ids=name_of)
def test_the_first_sentence_is_short(page: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
    prose = [
        p for p in text.split("\n\n")
        if p.strip() and not p.strip().startswith(("#", "![", "```", "|"))
    ]  # fmt: skip
    sentence = re.split(r"(?<=[.:])\s", re.sub(r"\]\([^)]*\)", "]", prose[0]).strip())[0]
    assert len(sentence.split()) <= 20, sentence


def test_every_kind_of_page_is_there() -> None:
    kinds = {page.parent.name for page in (ROOT / "docs").rglob("*.md") if "api" not in page.parts}
    assert {"tutorials", "how-to", "concepts", "reference", "evidence"} <= kinds
