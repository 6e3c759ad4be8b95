"""The files that maintainers and hosts read: they must name what exists, and agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import flwr_fbo
from flwr_fbo import Float, simulate, task

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_yaml(path: str) -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / path).read_text())


def test_versions_agree() -> None:
    version = flwr_fbo.__version__
    assert PROJECT["project"]["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"Version {version}" in (ROOT / "README.md").read_text()
    assert version in re.findall(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    supported = version.rpartition(".")[0]
    assert f"| {supported} | yes |" in (ROOT / "SECURITY.md").read_text()


def test_urls_are_links_and_name_no_repository_that_is_not_there() -> None:
    urls = PROJECT["project"]["urls"]
    assert len(urls) >= 5
    assert all(url.startswith("https://") for url in urls.values())
    arxiv = [url for url in urls.values() if "arxiv.org" in url]
    assert all(re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}", url) for url in arxiv)


def test_the_workflow_calls_what_is_here() -> None:
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in steps
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    for step in steps:
        for script in re.findall(r"scripts/\w+\.py", step):
            assert (ROOT / script).exists(), script
    # The command is the README's, so that the screenshots are of what a reader sees.
    (main,) = [step for step in steps if step.startswith("flwr-fbo run")]
    assert main.removesuffix(" --run-dir run") in (ROOT / "README.md").read_text()
    extras = PROJECT["project"]["optional-dependencies"]
    for step in steps:
        for named in re.findall(r"'\.\[([\w,]+)\]'", step):
            assert set(named.split(",")) <= set(extras)


def test_hooks_are_programs_of_the_environment() -> None:
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook["entry"].split()[0] for hook in repository["hooks"]}
    assert {"ruff", "mypy"} <= set(hooks)
    for program in hooks.values():
        assert (Path(sys.executable).parent / Path(program).name).exists(), program


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_templates_are_forms(name: str) -> None:
    form = read_yaml(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form["name"]
    assert form["description"]
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids)) >= 3


@pytest.mark.parametrize("page", ["SECURITY.md", "RELEASING.md"])
def test_files_that_the_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (ROOT / target).exists(), target
    for target in re.findall(r"(?:scripts|benchmarks)/\w+\.py", text):
        assert (ROOT / target).exists(), target


def screenshots_of_the_site() -> list[str]:
    """The pages of the site that the script takes; each must be a page of the docs."""
    text = (ROOT / "scripts" / "screenshots.py").read_text()
    names = re.findall(r'"([\w/-]+)"', re.findall(r"^SITE = \((.*)\)$", text, re.M)[0])
    for name in names:
        assert name == "index" or (ROOT / "docs" / f"{name}.md").exists(), name
    return names


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium binary on PATH")
def test_screenshots_are_taken_wide_and_narrow_light_and_dark(tmp_path: Path) -> None:
    @task(space={"x": Float(0.0, 1.0)})
    def hill(params: Any) -> float:
        return 1.0 - float(params["x"] - 0.3) ** 2

    simulate(hill, agents=2, rounds=2, strategy="random", run_dir=tmp_path / "run")
    site = tmp_path / "site"
    for name in screenshots_of_the_site():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / f"{name}.html").write_text(f"<h1>{name}</h1>" + "<p>words</p>" * 200)
    script = str(ROOT / "scripts" / "screenshots.py")
    command = [sys.executable, script, "run", "--site", "site", "--out", "shots"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    looks = [f"{width}-{shade}" for width in (1280, 390) for shade in ("dark", "light")]
    taken = {p.stem for p in (tmp_path / "shots").glob("site-*.png")}
    names = [Path(name).name for name in screenshots_of_the_site()]
    assert taken == {f"site-{name}-{look}" for name in names for look in looks}
    pictures = sorted((tmp_path / "shots").glob("report-*.png"))
    assert [p.stem for p in pictures] == [f"report-{look}" for look in looks]
    sizes = {p.stem: p.stat().st_size for p in pictures}
    assert min(sizes.values()) > 10_000  # no empty picture
    assert pictures[0].read_bytes() != pictures[1].read_bytes()
