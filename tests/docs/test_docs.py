"""Every Python block of the README and the docs, run in order, a page in one namespace.

A block whose first line is a comment that names a file (``# mine.py``) is written to that file
as well, so that later blocks and commands can import it. A block below ``<!-- door: NAME -->`` is
a part of a Flower app: tests/flower/test_doors.py runs it, from docs/how-to/existing-apps.md.

The other tests hold what the pages say against the code: commands, settings, paths, names of
modules, generated tables and pictures, links, citations.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.main import get_command

import flwr_fbo
from flwr_fbo.cli.main import app
from flwr_fbo.methods.citation import citation
from flwr_fbo.methods.registry import find_method, method_names
from tests.docs.pages import PAGES, ROOT, SHOWN, Block, blocks
from tests.docs.test_glossary import exists

DOOR = re.compile(r"<!-- door: (\w+) -->\n```python\n(.*?)```", re.DOTALL)
#: Files of this repository, in code or in links: a folder of it, and a name with an ending.
PATH = re.compile(
    r"(?<![\w/.<-])(?:\.\./)*"
    r"((?:flwr_fbo|tests|benchmarks|docs|examples|scripts)/[\w./*-]*\.(?:py|md|sh|svg|json|toml))\b"
)
#: Names of the package as Python writes them.
DOTTED = re.compile(r"(?<![\w/.-])flwr_fbo((?:\.[A-Za-z_]\w*)+)")


def code(page: Path) -> list[Block]:
    """The Python of a page that needs no commands between its blocks."""
    found = [b for b in blocks(page) if b.language == "python"]
    return [b for b in found if b.reason is None or "the extra `" in b.reason]


#: Tutorials mix code and commands: tests/docs/test_blocks.py runs them.
WITH_CODE = [page for page in PAGES if code(page) and page.parent.name != "tutorials"]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "from flwr_datasets" in page.read_text():
        pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = types.ModuleType("page")  # where its classes say that they are
    monkeypatch.setitem(sys.modules, "page", module)
    namespace: dict[str, Any] = vars(module)
    for block in code(page):
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        exec(compile(block.text, str(page.relative_to(ROOT)), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_doors_are_those_that_are_tested(page: Path) -> None:
    tested = dict(DOOR.findall((ROOT / "docs" / "how-to" / "existing-apps.md").read_text()))
    assert set(tested) == {"server", "handler", "client", "both"}
    for name, text in DOOR.findall(page.read_text()):
        assert text == tested[name], name


#: Blocks that are files or parts of files: what compares them with the files.
ELSEWHERE = {
    ("docs/how-to/existing-apps.md", "diff"): ("tests/flower/test_existing_apps.py", "git"),
    ("docs/how-to/own-task.md", "toml"): ("tests/tasks/test_registry.py", "entry-points"),
    ("docs/how-to/deployment.md", "toml"): ("tests/flower/test_signed_apps.py", "toml"),
    ("docs/reference/proofs.md", "json"): ("tests/privacy/test_publishing.py", "SelfComposed"),
    ("docs/reference/secure-sum.md", "json"): (
        "tests/privacy/test_secure_vectors.py",
        "<!-- vectors -->",
    ),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_that_is_a_file_is_compared_with_it(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    for language in {block.language for block in blocks(page)} & (set(SHOWN) - {"text"}):
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


@pytest.fixture(scope="module")
def make() -> types.ModuleType:
    """The script docs/make.py as a module."""
    spec = importlib.util.spec_from_file_location("make", ROOT / "docs" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_generated_tables_are_those_of_the_code(page: Path, make: types.ModuleType) -> None:
    assert page.read_text() == make.with_tables(page.read_text()), "run docs/make.py"


def test_pictures_are_those_of_their_script(make: types.ModuleType) -> None:
    for name, text in make.pictures.pictures().items():
        assert (ROOT / "docs" / "images" / name).read_text() == text, "run docs/make.py"
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


def test_every_module_is_in_the_table(make: types.ModuleType) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    linked = set(re.findall(r"\]\(\.\./(flwr_fbo[\w/.]*)\)", page))
    for name in make.modules():
        path = name.replace(".", "/")
        assert path == "flwr_fbo" or {path, f"{path}.py"} & linked, name


def test_first_sentences_end_where_sentences_do(make: types.ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""GP-UCB (Srinivas et al. 2010): see :class:`~a.b.C`, ``x``\nor y. Not this."""'
    )
    assert make.first_sentence(file) == "GP-UCB (Srinivas et al. 2010): see `C`, `x` or y."
    file.write_text('"""Two functions (Fed-PNE, App. E.2; Chen et al. B). Not this."""')
    assert make.first_sentence(file) == "Two functions (Fed-PNE, App. E.2; Chen et al. B)."


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    text = re.sub(r"```diff\n.*?```", "", page.read_text(), flags=re.DOTALL)
    for path in PATH.findall(text):
        assert any(ROOT.glob(path)), path
    # The label of a link may be short, because the link says where the file is.
    prose = re.sub(r"\[[^\]]*\]\(", "(", text)
    written = set(re.findall(r"^# ([\w/]+\.py)$", text, re.MULTILINE))
    for name in re.findall(r"`([\w./-]+\.py)`", prose):
        assert name in written or (ROOT / name).exists(), f"`{name}` is no path from the root"


def test_what_counts_as_a_path() -> None:
    text = (
        "`flwr_fbo/wire.py`, [x](../flwr_fbo/core/space.py), `python benchmarks/a.py`, b/tests/c.py"
    )
    assert PATH.findall(text) == ["flwr_fbo/wire.py", "flwr_fbo/core/space.py", "benchmarks/a.py"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_name_of_the_package_exists(page: Path) -> None:
    for name in DOTTED.findall(page.read_text()):
        assert exists(name[1:]), f"flwr_fbo{name}"


def test_citations_agree() -> None:
    cff = (ROOT / "CITATION.cff").read_text()
    assert f"version: {flwr_fbo.__version__}\n" in cff
    for strategy in (name for name in method_names() if find_method(name).bibtex):
        found = re.search(r"title += \{(.*?)\},\n", citation(strategy).split("@inproc")[1], re.S)
        assert found
        title = re.sub(r"\s+", " ", found[1].replace("{", "").replace("}", ""))
        assert f"title: {title}\n" in cff.replace('"', "")  # YAML quotes a title with a colon
    assert "@inproceedings" not in citation("random")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_tutorial_on_reports_names_what_a_report_shows(tmp_path: Path) -> None:
    from flwr_fbo.report import write_report

    result = flwr_fbo.simulate(
        "digits", agents=3, rounds=3, epsilon=5.0, compare=["alone", "random"],
        run_dir=tmp_path / "run", initial_points=2,
    )  # fmt: skip
    shown = write_report([Path(result.run_dir)], tmp_path / "report.html").read_text()
    titles = set(re.findall(r"<(?:figcaption|h3)[^>]*>([^<]+)", shown))
    page = (ROOT / "docs" / "tutorials" / "report.md").read_text()
    named = set(re.findall(r"^\| \*\*(.+?)\*\* \|", page, re.MULTILINE))
    # These two stand for figures whose titles are names of parameters.
    assert named - titles == {"One figure for each parameter", "Two parameters together"}
    assert {"C", "gamma"} <= titles
    assert {"C and gamma", "gamma and C"} & titles  # the more important one comes first
