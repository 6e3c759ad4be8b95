"""What in the docs is generated: ``python docs/make.py`` from the project's root.

Rewrites the tables of settings in the pages (between ``<!-- settings: NAME -->`` and
``<!-- end -->``), and writes the API reference to ``docs/api`` with pdoc (``flwr-fbo[docs]``).
A test checks that the tables are those that this would write.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from flwr_fbo.core.settings import Settings, describe
from flwr_fbo.runs.spec import RunSettings
from flwr_fbo.strategies import strategy_class

DOCS = Path(__file__).parent
NEED_TORCH = {"flwr_fbo.tasks.papers.networks", "flwr_fbo.tasks.papers.cnn"}
TABLE = re.compile(r"(<!-- settings: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(settings: type[Settings]) -> str:
    """Every setting, its default, its rule and what it does."""
    rows = ["| setting | default | must be | meaning |", "| --- | --- | --- | --- |"]
    for d in describe(settings):
        default = "unset" if d.default in (None, "") else f"`{d.default}`"
        rule = d.rule or d.type
        cells = (f"`{d.key}`", default, rule.replace("|", "or"), d.help)
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def with_tables(text: str) -> str:
    """A page with its tables as they should be."""

    def fresh(match: re.Match[str]) -> str:
        name = match[2]
        settings = RunSettings if name == "run" else strategy_class(name).settings_class
        return match[1] + table(settings) + match[3]

    return TABLE.sub(fresh, text)


def main() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if TABLE.search(text):
            page.write_text(with_tables(text), encoding="utf-8")
    command = ["pdoc", "--docformat", "restructuredtext", "-o", str(DOCS / "api"), *modules()]
    sys.exit(subprocess.call([sys.executable, "-W", "ignore", "-m", *command]))


def modules() -> list[str]:
    """All modules by name: the lazy names of the package hide them from pdoc."""
    root = DOCS.parent
    paths = sorted((root / "flwr_fbo").rglob("*.py"))
    names = (".".join(path.relative_to(root).with_suffix("").parts) for path in paths)
    found = (name.removesuffix(".__init__") for name in names)
    return [name for name in found if name not in NEED_TORCH]


if __name__ == "__main__":
    main()
