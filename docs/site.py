"""Build the site in the folder ``site``: gather the pages, rewrite their links, run Sphinx.

The pages are gathered in ``build/site-pages``. The README is the first page; CONTRIBUTING,
CHANGELOG and SECURITY are pages as well. A link to a file of the package leads to its page in the
API reference. A link to any other file (a test, a benchmark, an example) becomes plain text, as
the site does not hold it. A link that leads nowhere stops the build, as does a warning.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from docs import notebooks  # noqa: E402

PAGES, SITE, API = ROOT / "build" / "site-pages", ROOT / "site", DOCS / "api"
#: Pages of the site that lie elsewhere in the repository.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
#: The parts of the site in the order of its menu. A page that is in no part stops the build.
PARTS = {
    "Tutorials": [
        "First run <tutorials/first-run>",
        "Your own model <tutorials/own-model>",
        "An existing Flower app <tutorials/flower-app>",
        "Two hospitals <tutorials/two-hospitals>",
        "Read a report <tutorials/report>",
    ],
    "How-to": [
        "Your own task <how-to/own-task>",
        "Add tuning to a Flower app <how-to/existing-apps>",
        "With Optuna <how-to/optuna>",
        "Divide a data set <how-to/partitions>",
        "Deploy between organisations <how-to/deployment>",
        "Troubleshooting <how-to/troubleshooting>",
    ],
    "Concepts": [
        "Overview <concepts/overview>",
        "Which strategy <concepts/strategies>",
        "Privacy <concepts/what-is-private>",
    ],
    "Reference": [
        "Glossary <reference/glossary>",
        "Command line <reference/command-line>",
        "From Python <reference/python>",
        "Python API <api>",
        "Strategy dp-fts-de <reference/strategies/dp-fts-de>",
        "Strategy fts <reference/strategies/fts>",
        "Strategy fed-pne <reference/strategies/fed-pne>",
        "Strategy voting <reference/strategies/voting>",
        "Strategies ldp <reference/strategies/ldp-bo>",
        "Tasks and their data <reference/tasks>",
        "Privacy in detail <reference/privacy>",
        "Threat model <reference/threat-model>",
        "Secure sum <reference/secure-sum>",
        "Deployment in detail <reference/deployment>",
        "Proofs <reference/proofs>",
    ],
    "Evidence": [
        "Defaults <evidence/defaults>",
        "What the papers teach <evidence/lessons>",
        "The papers' figures <evidence/reproduction>",
        "The suite <evidence/suite>",
        "The agent <evidence/agent>",
        "The audit <evidence/audit>",
        "Fed-PNE <evidence/fed-pne>",
        "LDP-BO <evidence/ldp-bo>",
        "Benchmarks <evidence/benchmarks>",
        "Scale <evidence/scale>",
        "Reliability <evidence/reliability>",
    ],
    "Project": [
        "Architecture <architecture>",
        "Contributing <contributing>",
        "Changelog <changelog>",
        "Security <security>",
    ],
}
#: A link or an image: its mark, its label, its target and its anchor.
LINK = re.compile(
    r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)"
)
#: The last line of a tutorial: docs/notebooks.py writes the file, and CI runs it.
NOTEBOOK = '\n<a href="../notebooks/{name}.ipynb" download>Download this page as a notebook</a>\n'
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def sources() -> dict[str, str]:
    """Return the path in the repository of every page, by its path on the site."""
    inside = {
        path.relative_to(DOCS).as_posix(): path.relative_to(ROOT).as_posix()
        for path in DOCS.rglob("*.md")
        if API not in path.parents
    }
    return {page: file for file, page in ELSEWHERE.items()} | inside


def place(path: str) -> str | None:
    """Return where the site has a file of the repository; None where it does not have it."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/") if (ROOT / path).is_file() else None
    if path.startswith("flwr_fbo"):
        page = path.removesuffix(".py").removesuffix("/__init__") + ".html"
        return f"api/{page}" if (API / page).exists() else None
    return None


def with_links(text: str, page: str, source: str) -> str:
    """Return a page's text with its links as the site needs them, code left as it is."""

    def link(found: re.Match[str]) -> str:
        mark, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = os.path.normpath(Path(source).parent / target)
        if not (ROOT / path).exists():
            raise SystemExit(f"{source} links to {target}, which does not exist")
        goal = place(path)
        if goal is None:
            return label
        relative = os.path.relpath(goal, Path(page).parent)
        if goal.startswith("api/"):  # Sphinx does not know these pages, and would refuse the link
            return f'<a href="{relative}">{html_of(label)}</a>'
        return f"{mark}[{label}]({relative}{anchor})"

    parts = FENCE.split(text)
    return "".join(p if p.startswith("```") else LINK.sub(link, p) for p in parts)


def html_of(label: str) -> str:
    """Return a link's label as HTML: its code is the only markup that labels have."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", label)


def menu() -> str:
    """Return the tables of contents that make the menu."""
    lines = []
    for part, pages in PARTS.items():
        lines += ["", "```{toctree}", ":hidden:", f":caption: {part}", "", *pages, "```"]
    return "\n".join(lines) + "\n"


def gather() -> None:
    """Write all pages and pictures to ``build/site-pages``."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for page, source in sources().items():
        text = with_links((ROOT / source).read_text(encoding="utf-8"), page, source)
        target = PAGES / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page == "index.md":
            text += menu()
        if page.startswith("tutorials/"):
            text += NOTEBOOK.format(name=Path(page).stem)
        target.write_text(text, encoding="utf-8")
    for picture in DOCS.rglob("*.svg"):
        target = PAGES / picture.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    here = '<a href="api/index.html">The reference of all modules</a>'
    (PAGES / "api.md").write_text(f"# Python API\n\n{here} is generated from the docstrings.\n")


def build() -> int:
    """Build the site from the gathered pages and the API reference; return the exit code."""
    gather()
    shutil.rmtree(SITE, ignore_errors=True)
    options = [
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-c",
        str(DOCS),
        "-d",
        str(ROOT / "build/doctrees"),
    ]
    done = subprocess.call([sys.executable, "-m", "sphinx", *options, str(PAGES), str(SITE)])
    if done == 0:
        shutil.copytree(API, SITE / "api")
        notebooks.main(["--out", str(SITE / "notebooks")])
        print(f"the site begins at {SITE / 'index.html'}")
    return done


if __name__ == "__main__":
    sys.exit(build())
