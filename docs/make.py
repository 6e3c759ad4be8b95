"""Write what is generated in the docs: ``python docs/make.py`` from the project's root.

The script rewrites the tables in the pages, each between a mark and ``<!-- end -->``, draws the
pictures of ``docs/pictures.py``, writes the API reference to ``docs/api`` with pdoc, and builds the
site (``docs/site.py``; ``flwr-fbo[docs]``). A test checks that tables and pictures are up to date.

=========================  ===============================================================
mark                       table
=========================  ===============================================================
``<!-- settings: NAME -->``  settings of a method, or of a run (``run``)
``<!-- packages -->``        the packages in the order of their layers, and who knows Flower
``<!-- modules: NAME -->``   the first sentence of a package and of each of its modules
=========================  ===============================================================
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pictures

from flwr_fbo.core.settings import Settings, describe
from flwr_fbo.methods.registry import find_method
from flwr_fbo.runs.spec import RunSettings

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "flwr_fbo"
NEED_TORCH = {"flwr_fbo.tasks.papers.networks", "flwr_fbo.tasks.papers.cnn"}
TABLE = re.compile(
    r"(<!-- (settings|modules|packages)(?:: ([\w-]+))? -->\n).*?(<!-- end -->)", re.S
)
#: The end of a sentence: a full stop before a capital letter, but not that of "et al." or "App.".
SENTENCE_END = re.compile(r"(?<!\bal\.)(?<!\bApp\.)(?<=\.)\s+(?=[A-Z`])")


# -- tables of settings ------------------------------------------------------------------------


def settings_table(name: str) -> str:
    """Return every setting of a method or a run: its default, its rule and what it does."""
    settings: type[Settings] = RunSettings if name == "run" else find_method(name).settings_class
    rows = ["| setting | default | must be | meaning |", "| --- | --- | --- | --- |"]
    for d in describe(settings):
        default = "unset" if d.default in (None, "") else f"`{d.default}`"
        rule = d.rule or d.type
        cells = (f"`{d.key}`", default, rule.replace("|", "or"), d.help)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


# -- tables of packages and modules ------------------------------------------------------------


def packages_table(name: str) -> str:
    """Return the packages from the top layer down, as the contracts in pyproject.toml have them."""
    layers, without_flower = contracts()
    rows = ["| layer | package | what it is for | Flower |", "| --- | --- | --- | --- |"]
    for number, layer in zip(range(len(layers), 0, -1), layers, strict=True):
        for module in layer:
            path = PACKAGE / module
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            knows = "no" if module in without_flower else "yes"
            shown = module if path.is_dir() else f"{module}.py"
            rows.append(f"| {number} | {link(file, shown)} | {first_sentence(file)} | {knows} |")
    return "\n".join(rows) + "\n"


def contracts() -> tuple[list[list[str]], set[str]]:
    """Return the layers from the top down, and the packages that must not import Flower."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    layers: list[list[str]] = []
    without_flower: set[str] = set()
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            layers = [[short(n) for n in layer.split(" | ")] for layer in contract["layers"]]
        elif "flwr" in contract.get("forbidden_modules", ()):
            without_flower = {short(name) for name in contract["source_modules"]}
    return layers, without_flower


def short(name: str) -> str:
    """Return a module's name below the package."""
    return name.strip().removeprefix("flwr_fbo.")


def modules_table(name: str) -> str:
    """Return what a package is for, and a row for each of its modules at any depth."""
    folder = PACKAGE / name
    rows = [
        first_sentence(folder / "__init__.py"),
        "",
        "| module | what it is for |",
        "| --- | --- |",
    ]
    files = [file for file in folder.rglob("*.py") if file != folder / "__init__.py"]
    for file in sorted(files, key=lambda f: (f.parent, f.name != "__init__.py", f.name)):
        place = file.relative_to(folder)
        shown = f"{place.parent}/" if place.name == "__init__.py" else str(place)
        rows.append(f"| {link(file, shown)} | {first_sentence(file)} |")
    return "\n".join(rows) + "\n"


def link(file: Path, shown: str) -> str:
    """Return a link from a page in docs to a file of the package."""
    target = file.parent if file.name == "__init__.py" else file
    return f"[`{shown}`](../{target.relative_to(DOCS.parent).as_posix()})"


def first_sentence(file: Path) -> str:
    """Return the first sentence of a module's docstring, as Markdown for a cell of a table."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = SENTENCE_END.split(paragraph)[0]
    sentence = re.sub(r":mod:`~?(?:flwr_fbo\.)?([\w.]+)`", r"`\1`", sentence)
    sentence = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", sentence)
    return sentence.replace("``", "`").replace("|", "or")


# -- pages -------------------------------------------------------------------------------------

TABLES: Mapping[str, Callable[[str], str]] = {
    "settings": settings_table,
    "packages": packages_table,
    "modules": modules_table,
}


def with_tables(text: str) -> str:
    """Return a page with its tables as they should be."""
    return TABLE.sub(lambda m: m[1] + TABLES[m[2]](m[3] or "") + m[4], text)


def main() -> None:
    """Write tables and pictures, then the API reference and the site."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if TABLE.search(text):
            page.write_text(with_tables(text), encoding="utf-8")
    pictures.main()
    command = ["pdoc", "--docformat", "restructuredtext", "-o", str(DOCS / "api"), *modules()]
    failed = subprocess.call([sys.executable, "-W", "ignore", "-m", *command])
    sys.exit(failed or subprocess.call([sys.executable, str(DOCS / "site.py")]))


def modules() -> list[str]:
    """Return all modules by name, because the lazy names of the package hide them from pdoc."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = (".".join(path.relative_to(DOCS.parent).with_suffix("").parts) for path in paths)
    found = (name.removesuffix(".__init__") for name in names)
    return [name for name in found if name not in NEED_TORCH]


if __name__ == "__main__":
    main()
