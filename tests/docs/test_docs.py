"""Every Python block of the README and the docs, run in order, a page in one namespace.

A block whose first line is a comment that names a file (``# mine.py``) is written to that file
as well, so that later blocks and commands can import it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import flwr_fbo
from flwr_fbo.cli.main import app
from flwr_fbo.methods.citation import citation
from flwr_fbo.methods.registry import find_method, method_names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


def blocks(page: Path) -> list[str]:
    return [str(found) for found in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = types.ModuleType("page")  # where its classes say that they are
    monkeypatch.setitem(sys.modules, "page", module)
    namespace: dict[str, Any] = vars(module)
    for block in blocks(page):
        named = re.match(r"# ([\w/]+\.py)\n", block)
        if named:
            path = tmp_path / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
        exec(compile(block, str(page.relative_to(ROOT)), "exec"), namespace)


#: Blocks that are not Python: who runs them, or something that holds for all of them.
ELSEWHERE = {
    ("README.md", "sh"): (".ci/run", "command_after"),
    ("CONTRIBUTING.md", "sh"): (".ci/run", ".venv/bin/mypy"),
    ("docs/existing-apps.md", "diff"): ("tests/flower/test_existing_apps.py", "git"),
    ("docs/defaults.md", "sh"): (
        "tests/cli/test_privacy_commands.py",
        '"privacy", "--agents", "29", "--rounds", "18", "--epsilon", "8"',
    ),
    ("docs/own-task.md", "sh"): ("tests/runs/test_own_tasks.py", "answer-within=5"),
    ("docs/deployment.md", "sh"): ("tests/flower/test_deployment.py", "supernode.sh"),
    ("docs/deployment.md", "toml"): ("tests/flower/processes.py", "[superlink."),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_other_block_is_run_elsewhere(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    languages = re.findall(r"^```(\S+)$", page.read_text(), re.MULTILINE)
    for language in set(languages) - {"python"}:
        where, what = ELSEWHERE[name, language]
        assert what in (ROOT / where).read_text(), where


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_their_options_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    text = page.read_text()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    code = [*re.findall(r"```sh\n(.*?)```", text, re.DOTALL), *re.findall(r"`([^`]+)`", prose)]
    shown = re.compile(r"^(?:\.venv/bin/)?flwr-fbo ([a-z]+)([^\n]*)", re.MULTILINE)
    for name, rest in (found for block in code for found in shown.findall(block)):
        assert name in commands, name
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z][a-z-]*", rest)) <= known, (name, rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_tables_of_settings_are_those_of_the_code(page: Path) -> None:
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert page.read_text() == make.with_tables(page.read_text()), "run docs/make.py"


def test_citations_agree() -> None:
    cff = (ROOT / "CITATION.cff").read_text()
    assert f"version: {flwr_fbo.__version__}\n" in cff
    for strategy in (name for name in method_names() if find_method(name).bibtex):
        found = re.search(r"title += \{(.*?)\},\n", citation(strategy).split("@inproc")[1], re.S)
        assert found
        title = re.sub(r"\s+", " ", found[1].replace("{", "").replace("}", ""))
        assert f"title: {title}\n" in cff
    assert "@inproceedings" not in citation("random")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
