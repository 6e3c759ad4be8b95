"""The two arrangements of a run's journals: one for the whole simulation, or one for each agent.

Agents in the process of a simulation share a journal
(:mod:`flwr_fbo.runs.files.simulation_store`). Agents in processes of their own, as with Ray, have a
journal each. A run may continue with the other engine, so its records can move from one arrangement
to the other. Where the journal of the simulation exists, it is whole, and journals of agents beside
it are the remains of a move that a crash ended: they are not read.

A checkpoint names the last lines of the journals. A move changes them, so the header of each
journal that a move writes has the same random word. A checkpoint that names another word, or none,
is compared with the numbers of evaluations.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from flwr_fbo.runs.files.checks import LAYOUT, Chain
from flwr_fbo.runs.files.journal import ENCODER, journal_path
from flwr_fbo.runs.files.journal_check import (
    ALL_AGENTS,
    HEADER,
    MOVED,
    Head,
    JournalOwner,
    JournalReader,
    head_path,
)
from flwr_fbo.runs.files.simulation_store import SimulationStore, tagged, untagged
from flwr_fbo.runs.locations import agents_with_files, has_store, store_path


def arrange(folder: Path, run: str, *, shared: bool) -> list[str]:
    """Move the records of a run to the arrangement that its engine needs.

    Return what was damaged. The caller holds the lock of the run.

    Parameters
    ----------
    folder
        The folder of the journals.
    run
        The identity of the run, which all journals must hold.
    shared
        Whether the agents share one journal.
    """
    move = secrets.token_hex(8)
    if shared:
        return [] if has_store(folder) else _join(folder, run, move)
    return _split(folder, run, move) if has_store(folder) else []


def _join(folder: Path, run: str, move: str) -> list[str]:
    """Write the records of all agents to one journal, and remove their own journals."""
    agents, damages = agents_with_files(folder), list[str]()
    if not agents:
        return []
    path = store_path(folder)
    temporary, chain = path.with_suffix(".tmp"), Chain()
    with temporary.open("wb") as file:
        file.write(chain.add(_header(JournalOwner(run, ALL_AGENTS), move)))
        for agent in agents:
            journal = journal_path(folder, agent)
            reader = JournalReader(journal, JournalOwner(run, agent))
            data = journal.read_bytes() if journal.exists() else b""
            for text in reader.take(data[: data.rfind(b"\n") + 1]):
                file.write(chain.add(tagged(text, agent)))
            reader.compare()
            if reader.lost:
                damages.append(
                    f"{journal.name} lost {reader.lost} records at its end, which are not made "
                    "again"
                )
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _write_head(path, chain)
    for journal in (journal_path(folder, agent) for agent in agents):
        head_path(journal).unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
    return damages


def _split(folder: Path, run: str, move: str) -> list[str]:
    """Write the records of each agent to its own journal, and remove the one of all."""
    store = SimulationStore(folder, run, reading=True)
    for agent in store.agents:
        path, chain = journal_path(folder, agent), Chain()
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(chain.add(_header(JournalOwner(run, agent), move)))
            file.writelines(chain.add(untagged(text)) for text in store.texts(agent))
            file.flush()
            os.fsync(file.fileno())
        head_path(path).unlink(missing_ok=True)  # of the journal before, if there was one
        temporary.replace(path)
        _write_head(path, chain)
    head_path(store.path).unlink(missing_ok=True)
    store.path.unlink(missing_ok=True)
    if not store.lost:
        return []
    return [f"{store.path.name} lost {store.lost} records at its end, which are not made again"]


def _header(owner: JournalOwner, move: str) -> bytes:
    """Return the JSON object of the first line of a journal that is written anew."""
    header = {"kind": HEADER, "layout": LAYOUT, **vars(owner), MOVED: move}
    return ENCODER.encode(header).encode()


def _write_head(path: Path, chain: Chain) -> None:
    """Name the last line of a journal that is on the disk."""
    Head(chain.lines, chain.last, chain.lines, chain.last).write(path)
