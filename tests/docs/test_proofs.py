"""The page of proofs names tests that exist, numbers its lemmas, and proves every mechanism."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "proofs.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)+)`", PAGE)))
LEMMAS = [int(number) for number in re.findall(r"^\*\*Lemma (\d+) ", PAGE, re.MULTILINE)]


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """The names of all tests of a file; those of a class with the class before them."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return frozenset(found)


@pytest.mark.parametrize("name", NAMED)
def test_every_test_that_a_proof_names_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert test in names_of_tests(ROOT / path)
    assert test.rpartition("::")[2].startswith("test_")


def test_every_mention_of_a_test_is_a_whole_name() -> None:
    mentions = re.findall(r"tests/[^\s`]+", PAGE)
    assert len(NAMED) > 50
    assert set(mentions) == set(NAMED)


def test_lemmas_are_numbered_in_order_and_all_in_use() -> None:
    assert list(range(1, len(LEMMAS) + 1)) == LEMMAS
    rows = re.findall(r"^\| .+ \| ([\d, ]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    assert {int(n) for row in rows for n in row.split(",")} <= set(LEMMAS)


def test_every_lemma_but_general_facts_names_a_test() -> None:
    parts = re.split(r"^\*\*Lemma (\d+) ", PAGE, flags=re.MULTILINE)[1:]
    without = {
        int(number)
        for number, text in zip(parts[::2], parts[1::2], strict=True)
        if "tests/" not in text
    }
    assert without <= {1, 3}  # post-processing and rounding: nothing of ours to check


def test_the_page_reads_on_a_terminal() -> None:
    tables = [line for line in PAGE.splitlines() if line.startswith("|")]
    lines = [line for line in PAGE.splitlines() if line not in tables]
    assert max(map(len, lines)) <= 125
    assert "\\" not in PAGE
    assert "$" not in PAGE
