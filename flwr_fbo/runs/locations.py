"""The folders in which runs keep their files; server and agents of one machine use the same."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

from flwr_fbo.core.settings import SettingsError

#: The form of the names of runs in setup messages, which can never be a path.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: The form of the names of journals; other files of an agent stand beside its journal.
_JOURNAL = re.compile(r"agent-(\d+)\.jsonl")


def home() -> Path:
    """Return the folder of runs whose directory is not given.

    The environment variable ``FLWR_FBO_HOME`` names this folder; the default is ``~/.flwr-fbo``.
    """
    return _home(os.environ.get("FLWR_FBO_HOME"), os.environ.get("HOME"))


@cache
def _home(given: str | None, user: str | None) -> Path:
    """Return the folder for these values of the environment."""
    return Path(given) if given else Path.home() / ".flwr-fbo"


def run_directory(name: str) -> Path:
    """Return the directory of the run with this name."""
    return home() / "runs" / checked_name(name)


def agents_of(root: Path) -> Path:
    """Return the folder of the agents' journals in the directory of a run."""
    return root / "agents"


def store_path(folder: Path) -> Path:
    """Return the file of the records of all agents that lived in a simulation's process."""
    return folder / "agents.jsonl"


def has_store(folder: Path) -> bool:
    """Return whether a folder has the journal of a whole simulation, or at least its head."""
    path = store_path(folder)
    return path.exists() or path.with_name(path.name + ".head").exists()


def agent_of_file(name: str) -> int | None:
    """Return the agent whose journal, or whose journal's head, has this name; None for others."""
    found = _JOURNAL.fullmatch(name.removesuffix(".head"))
    return None if found is None else int(found[1])


def agents_with_files(folder: Path) -> list[int]:
    """Return the agents with a journal of their own, or with the head of one."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted({agent for name in names if (agent := agent_of_file(name)) is not None})


def journals_in(folder: Path) -> list[Path]:
    """Return the files of all journals in a folder, by the number of the agent."""
    return sorted(path for path in folder.glob("*") if _JOURNAL.fullmatch(path.name))


def name_of_run(root: Path) -> str:
    """Return the name that the setup message gives to the run of this directory.

    The name of a directory outside :func:`home` holds a part of the hash of its path, so that two
    runs in folders of the same name never share journals.
    """
    path = root.absolute()
    if path.parent == (home() / "runs").absolute() and _NAME.fullmatch(path.name):
        return path.name
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", path.name).lstrip("._-")[:60] or "run"
    return f"{plain}-{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def checked_name(name: str) -> str:
    """Return the name; raise SettingsError for a name that could lead to another folder."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            "the name of a run must be at most 100 letters, digits, `.`, `_` and `-`, and begin "
            f"with a letter or digit, but got {name[:120]!r}"
        )
    return name


def owners_books(agent: int) -> Path:
    """Return the file of an owner's ledger over all runs, for an owner with a limit."""
    return home() / "budgets" / f"agent-{agent:04d}.jsonl"
