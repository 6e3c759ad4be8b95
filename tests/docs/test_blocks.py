"""Every command and code block of the README and the docs, as printed, in a fresh environment.

One environment is built the way the README says: a clean clone, and its first command. Each page
then has a clone of its own as its directory, and its blocks run there in order. Blocks that cannot
run there say why in a comment above them; their number is fixed here, so that none is left out
unseen. Where FLWR_FBO_NOTEBOOKS says that the tutorials are executed as notebooks, as in `.ci/run`,
tutorials of commands alone are left out here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from docs import notebooks
from docs.blocks import fixed_ports
from tests.docs.pages import PAGES, ROOT, RUN, SHOWN, blocks, name_of
from tests.flower.processes import free_ports

#: How many blocks of commands or code of a page are not run with it.
NOT_RUN = {
    "README.md": 4,
    "CONTRIBUTING.md": 1,
    "docs/evidence/agent.md": 1,
    "docs/evidence/suite.md": 5,
    "docs/how-to/deployment.md": 8,
    "docs/reference/deployment.md": 2,
    "docs/how-to/existing-apps.md": 4,
    "docs/how-to/partitions.md": 2,
    "docs/tutorials/first-run.md": 1,
}
RUNNER = Path(__file__).with_name("runner.py")
WITH_BLOCKS = [
    page for page in PAGES if any(b.runs for b in blocks(page)) and name_of(page) != "README.md"
]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_that_are_not_run_say_why_and_are_counted(page: Path) -> None:
    left_out = [b for b in blocks(page) if b.language in RUN and b.reason is not None]
    assert len(left_out) == NOT_RUN.get(name_of(page), 0), [(b.line, b.reason) for b in left_out]
    for block in left_out:
        assert len((block.reason or "").split()) >= 4, (block.line, "a reason is a sentence")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_language(page: Path) -> None:
    for block in blocks(page):
        assert block.language in (*RUN, *SHOWN), f"line {block.line}: {block.language!r}"
    # A fence that the pattern of blocks misses would hide a block from all of this.
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(list(blocks(page)))


@dataclass(frozen=True)
class Fresh:
    """A clean clone whose environment the README's first command made."""

    clone: Path

    def variables(self, home: Path) -> dict[str, str]:
        """Return the variables of a shell with this environment active, and a home of its own."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        link, control = free_ports(2)
        return {
            **kept,
            "PATH": f"{self.clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "FLWR_HOME": str(home / ".flwr"),
            "FLWR_FBO_HOME": str(home / ".flwr-fbo"),
            "FLWR_TELEMETRY_ENABLED": "0",
            # Two pages that run at the same time have a SuperLink each.
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(link),
            "FLWR_LOCAL_CONTROL_API_PORT": f"127.0.0.1:{control}",
        }


def leave(home: Path) -> None:
    """End what the blocks of a page left running: Flower keeps a SuperLink for `flwr run`."""
    # With their variables, by which the processes of this page are told from those of others.
    while left := _processes_with(f"{home}/"):  # again, as one may have started another just now
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes_with(text: str) -> list[int]:
    """Return the other living processes whose command or variables hold a text."""
    listed = subprocess.run(["ps", "axeww", "-o", "pid=,stat=,command="], capture_output=True)
    rows = [line.split(None, 2) for line in listed.stdout.decode(errors="replace").splitlines()]
    return [
        int(row[0])
        for row in rows
        if text in row[-1] and not row[1].startswith("Z") and int(row[0]) != os.getpid()
    ]


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    """Make the environment once for all workers; the last one that leaves removes it.

    `.ci/run` has run the README's first command already, and says where in FLWR_FBO_FRESH.
    """
    if made := os.environ.get("FLWR_FBO_FRESH"):
        yield Fresh(Path(made))
        return
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if worker else base) / "fresh"
    user = folder / f"user-{worker}"
    with locked(folder):
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)  # what was left of an attempt that failed
            make(folder)
        user.touch()
    yield Fresh(folder / "flwr-fbo")
    with locked(folder):
        user.unlink()
        if not list(folder.glob("user-*")):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let the block run in one process at a time."""
    import fcntl  # not on Windows, where nothing of this runs

    with (folder.parent / f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(folder: Path) -> None:
    """Do what the README says first, in a clean clone."""
    clone, home = folder / "flwr-fbo", folder / "home"
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    (first,) = [b for b in blocks(clone / "README.md") if "main command" in b.mark]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", first.text], cwd=clone,
        env={**Fresh(clone).variables(home), "PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "evaluations to" in done.stdout  # the table at the end
    (folder / "made").touch()


def only_commands(page: Path) -> bool:
    """Return whether a tutorial holds commands and an app's files, and no Python of its own.

    `docs/notebooks.py --execute --programs FOLDER` then runs all of it with these programs, as this
    test would, and not with the Python of the notebook.
    """
    runs = [b for b in blocks(page) if b.runs]
    return page.parent == notebooks.TUTORIALS and all(
        b.language == "sh" or (b.file is not None and "/" in b.file) for b in runs
    )


def test_tutorials_of_commands_alone() -> None:
    """`.ci/run` executes these once, as notebooks, with the programs that this test would run."""
    steps = (ROOT / ".ci" / "run").read_text()
    assert 'FLWR_FBO_FRESH="$work/first" FLWR_FBO_NOTEBOOKS=executed' in steps
    assert 'docs/notebooks.py --execute --programs "$work/first/.venv/bin"' in steps
    assert "full=(extras notebooks " in steps  # the step runs
    assert [p.stem for p in WITH_BLOCKS if only_commands(p)] == ["flower-app", "two-hospitals"]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_the_printed_code_runs_in_a_fresh_environment(
    page: Path, fresh: Fresh, tmp_path: Path
) -> None:
    if os.environ.get("FLWR_FBO_NOTEBOOKS") and only_commands(page):
        pytest.skip("a tutorial of commands alone: executed as a notebook, with these programs")
    folder, home = tmp_path / "flwr-fbo", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "-q", str(fresh.clone), str(folder)], check=True)
    to_run = [
        {"line": b.line, "language": b.language, "text": b.text}
        for b in blocks(folder / name_of(page))
        if b.runs
    ]
    (folder / "blocks.json").write_text(json.dumps(to_run))
    shutil.copy(RUNNER, folder / "runner.py")
    log = tmp_path / "log"
    with fixed_ports(page.read_text()), log.open("wb") as out:
        process = subprocess.Popen(
            [fresh.clone / ".venv" / "bin" / "python", "runner.py", "blocks.json"], cwd=folder,
            env=fresh.variables(home), stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=3600)
        finally:
            leave(home)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert code == 0, log.read_text(errors="replace")[-6000:]
