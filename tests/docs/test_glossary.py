"""The glossary: its terms are in order, its names of the code exist, links to its terms work."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from flwr_fbo.core.settings import Settings
from flwr_fbo.methods.registry import find_method, method_names
from flwr_fbo.runs.spec import RunSettings

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TERMS = re.findall(r"^### (.+)$", GLOSSARY.read_text(), re.MULTILINE)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def entries() -> dict[str, str]:
    parts = re.split(r"^### (.+)$", GLOSSARY.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def named(entry: str, label: str) -> list[str]:
    """Names in backquotes after a label, up to the end of the clause."""
    clauses = re.findall(rf"\b{label} ((?:`[^`]+`(?:,\s)?)+)", entry, re.IGNORECASE)
    return [name for clause in clauses for name in re.findall(r"`([^`]+)`", clause)]


def exists(name: str) -> bool:
    """Whether a name below the package is a module, an object, or a field of a class."""
    parts = ["flwr_fbo", *name.split(".")]
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if part in getattr(found, "__dataclass_fields__", {}):
                return True
            found = getattr(found, part, None)
            if found is None:
                return False
        return True
    return False


def test_terms_are_in_alphabetical_order() -> None:
    assert len(TERMS) > 60
    assert sorted(TERMS, key=str.casefold) == TERMS


@pytest.mark.parametrize("term", TERMS)
def test_names_of_the_code_exist(term: str) -> None:
    for name in named(entries()[term], "code"):
        assert exists(name), name


def test_settings_exist() -> None:
    classes: list[type[Settings]] = [
        RunSettings,
        *(find_method(name).settings_class for name in method_names()),
    ]
    keys = set().union(*(settings.keys() for settings in classes))
    for term, entry in entries().items():
        for key in named(entry, "setting"):
            assert key in keys, (term, key)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_to_terms_lead_somewhere(page: Path) -> None:
    anchors = {anchor(term) for term in TERMS}
    own = (
        r"\]\(#([^)]+)\)"
        if page == GLOSSARY
        else r"\]\((?:\.\./|reference/)*glossary\.md#([^)]+)\)"
    )
    for target in re.findall(own, page.read_text()):
        assert target in anchors, target
