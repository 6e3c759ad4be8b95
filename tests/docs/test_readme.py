"""What the README shows, run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.test_cli import run_json

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(language: str, first_words: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)
    (chosen,) = [text for text in found if text.startswith(first_words)]
    return str(chosen)


def test_the_own_task_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(block("python", "# mine.py"))
    found = run_json(
        tmp_path, "mine:tuned", "--agents", "2", "--rounds", "1", "--epsilon", "4",
        "--set", "initial-points=2",
    )  # fmt: skip
    assert found["history"]["evaluations"] == [2, 3]
    assert 0.5 < found["history"]["best"][-1] <= 1.0


def test_every_file_it_names_exists() -> None:
    names = set(re.findall(r"`(flwr_fbo/[a-z_/]+\.py)`", README))
    assert len(names) > 8
    for name in names:
        assert (Path(__file__).parents[2] / name).exists(), name
