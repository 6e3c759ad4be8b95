"""Tutorials as notebooks: every block becomes a cell, in order, and the cells run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs import notebooks
from tests.docs.pages import ROOT, blocks

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PAGE = """# A page

Words.

```python
# one.py
x = 1
```

<!-- not run here: a reason of some words -->
```sh
exit 1
```

```sh
echo $((1 + 1))
```

```text
output
```
"""


def test_a_page_becomes_cells_in_order() -> None:
    made = notebooks.notebook(PAGE)
    sources = [(cell["cell_type"], cell["source"]) for cell in made["cells"]]
    assert sources == [
        ("markdown", "# A page\n\nWords."),
        ("code", "%%writefile one.py\n# one.py\nx = 1"),
        ("code", "%run one.py"),
        ("markdown", "<!-- not run here: a reason of some words -->\n```sh\nexit 1\n```"),
        ("code", "%%bash\nset -euo pipefail\necho $((1 + 1))"),
        ("markdown", "```text\noutput\n```"),
    ]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: str(p.stem))
def test_every_tutorial_is_a_valid_notebook(page: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="the extra `docs` is not installed")
    notebooks.main([page.stem, "--out", str(tmp_path)])
    made = json.loads((tmp_path / f"{page.stem}.ipynb").read_text())
    nbformat.validate(nbformat.from_dict(made))
    cells = [cell for cell in made["cells"] if cell["cell_type"] == "code"]
    files = [b for b in blocks(page) if b.runs and b.file is not None and "/" not in b.file]
    assert len(cells) == sum(b.runs for b in blocks(page)) + len(files)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's, about its own paths and sockets
def test_code_runs_and_a_cell_that_fails_stops_it() -> None:
    nbclient = pytest.importorskip("nbclient", reason="the extra `docs` is not installed")
    pytest.importorskip("ipykernel", reason="the extra `docs` is not installed")
    done = notebooks.executed(notebooks.notebook(PAGE))
    (printed,) = [
        output["text"]
        for cell in done["cells"]
        if cell["cell_type"] == "code" and "bash" in cell["source"]
        for output in cell["outputs"]
    ]
    assert printed == "2\n"
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        notebooks.executed(notebooks.notebook("```sh\nfalse\n```\n"))
