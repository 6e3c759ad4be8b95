"""The secret by which the owner of an agent proves that the agent is theirs.

The secret is made at the agent's first registration in a run, from the operating system's entropy.
It lies beside the journal of the agent (``agent-0000.secret``), so an owner who moves to another
node takes both along. The server keeps a hash of the secret only
(:mod:`flwr_fbo.strategies.roster`).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.journal import exclusive

#: The length of a secret: 32 bytes in hexadecimal digits.
DIGITS = 64


def secret_path(journal: Path) -> Path:
    """Return the file that holds the secret of a journal's owner."""
    return journal.with_suffix(".secret")


def owner_secret(journal: Path) -> str:
    """Return the secret of a journal's owner; make one where there is none yet."""
    path = secret_path(journal)
    if not path.exists():
        new = path.with_name(f"{path.name}.new")
        with exclusive(new):  # two messages at once must not make two secrets
            if not path.exists():
                _write(new, secrets.token_hex(DIGITS // 2))
                new.replace(path)
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if len(text) != DIGITS or not text.isalnum():
        raise RunDirectoryError(
            f"{path} must hold {DIGITS} hexadecimal digits, but is damaged: restore it from a "
            "backup, or register from the same node as before and delete the file"
        )
    return text


def mended_secret(journal: Path) -> str:
    """Return the secret of a journal's owner; replace a damaged one.

    Only for a simulation, whose parties are all in one place. Elsewhere a new secret is a new
    owner.
    """
    try:
        return owner_secret(journal)
    except RunDirectoryError:
        secret_path(journal).unlink()
        return owner_secret(journal)


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner can read, and flush it to the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, f"{text}\n".encode())
        # The server remembers the secret from now on, so a power cut must not lose it.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
