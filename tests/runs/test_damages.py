"""Damaged files of a run: mended and said so, or refused at the start; never a wrong result."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flwr_fbo import Callback, Float, RandomSearch, Result, join, resume, simulate, task
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core.settings import SettingsError, kebab
from flwr_fbo.report.runs import read_run
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal_check import JournalError
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.files.statement import read_statement
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.runs.result import StaleResultError
from flwr_fbo.runs.resume import continued_spec
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.server_app import serve
from tests.command import flwr_fbo as command

made: list[float] = []


@task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    made.append(float(params["x"]))
    return 1.0 - abs(float(params["x"]) - 0.3)


class Crash(Callback):
    def __init__(self, after: int) -> None:
        self._after = after

    def on_round(self, run: Any, report: Any) -> None:
        if report.round == self._after:
            raise ArithmeticError("the power went")


SETTINGS: dict[str, Any] = {"agents": 3, "rounds": 5, "epsilon": 5.0, "releases": "all",
                            "features": 10, "initial_points": 1}  # fmt: skip


@pytest.fixture(scope="module")
def made_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one that crashed after three of its rounds."""
    folder = tmp_path_factory.mktemp("damages")
    simulate(hill, run_dir=folder / "finished", **SETTINGS)
    with pytest.raises(ArithmeticError):
        simulate(hill, run_dir=folder / "crashed", callbacks=[Crash(2)], **SETTINGS)
    return folder


@pytest.fixture
def crashed(made_runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_runs / "crashed", tmp_path / "run"))


@pytest.fixture
def finished(made_runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_runs / "finished", tmp_path / "finished"))


def to_journals_of_agents(run: Path) -> None:
    """Give each agent a journal of its own, as with the engine `ray`."""
    arrange(run / "agents", RunDirectory(run).identity, shared=False)


def flip(path: Path, place: float = 0.5) -> None:
    """Flip the lowest bit of a digit or letter near a place of a file."""
    data = bytearray(path.read_bytes())
    where = next(i for i in range(int(place * len(data)), len(data)) if chr(data[i]).isalnum())
    data[where] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "space.json",
        "checkpoint.npz",
        "ledger.jsonl",
        "agents/agents.jsonl",
        "agents/agent-0001.jsonl",
    ],
)
def test_a_flipped_bit_is_refused_at_the_start(crashed: Path, name: str) -> None:
    """The error names the file and what to do, and comes before anything is evaluated."""
    if name == "agents/agent-0001.jsonl":
        to_journals_of_agents(crashed)
    flip(crashed / name)
    made.clear()
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError), match=Path(name).name) as caught:
            resume(crashed, hill)
        assert not isinstance(caught.value, (KeyError, TypeError, UnicodeError))
    assert made == []


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("name", ["result.json", "rounds.csv", "config.json", "space.json"])
def test_a_damaged_file_of_a_finished_run_is_an_error_and_no_traceback(
    finished: Path, name: str, place: float
) -> None:
    flip(finished / name, place)
    with pytest.raises(RunDirectoryError, match=rf"{name}.*Restore the file from a backup"):
        read_run(finished)


def test_the_command_line_says_it_in_one_line(finished: Path) -> None:
    flip(finished / "result.json")
    done = command("report", str(finished), cwd=finished.parent)
    assert done.returncode != 0
    assert "result.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_damaged_release_blocks_only_who_needs_it(finished: Path, damage: str) -> None:
    path = finished / "releases" / "round-0001.npz"
    whole = Result.read(finished)
    flip(path) if damage == "flipped" else path.unlink()
    assert Result.read(finished) == whole
    assert read_run(finished).result == whole
    with pytest.raises(RunDirectoryError, match=r"round-0001\.npz"):
        join(finished)
    longer = resume(finished, hill, rounds=7)
    assert longer.complete
    assert len(longer.damages) == 1
    assert "round-0001.npz" in longer.damages[0]
    assert longer.epsilon == whole.epsilon
    assert longer.recommendation is not None
    assert whole.recommendation is not None
    assert longer.recommendation["releases"] == whole.recommendation["releases"] - 1
    assert read_run(finished).notices == longer.damages


def by_messages(folder: Path, *callbacks: Callback) -> Result:
    """Begin or continue a run whose parties are asked by messages."""
    directory = RunDirectory(folder)
    if directory.holds_a_run:
        spec = continued_spec(directory, {"timeout": 60.0}, hill)
    else:
        given = {kebab(key): value for key, value in SETTINGS.items()}
        spec = RunSpec.from_mapping({"task": hill, "strategy": "dp-fts-de", **given})
    run = directory.identity if directory.holds_a_run else None
    stopper = Stopper(spec.run, RunHistory(directory.agents, 3, run))
    grid = InProcessGrid(simulated_client_app(spec.task, directory.agents), 3)
    found = serve(spec, grid, directory, callbacks, stopper).result
    assert found is not None
    assert found.details is not None
    return found.details


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "another's"])
@pytest.mark.parametrize("from_checkpoint", [True, False])
def test_a_party_of_a_simulation_gets_a_new_secret_for_a_damaged_one(
    tmp_path: Path, damage: str, from_checkpoint: bool
) -> None:
    """Without its secret the party could not come back, and the run would wait for it in vain."""
    # Only parties behind messages have secrets, as in Flower's engine.
    crashed = tmp_path / "run"
    with pytest.raises(ArithmeticError):
        by_messages(crashed, Crash(2))
    path = crashed / "agents" / "agent-0001.secret"
    if not from_checkpoint:
        for name in ("checkpoint.npz", "ledger.jsonl", "ledger.jsonl.key"):
            (crashed / name).unlink()
        shutil.rmtree(crashed / "releases")
    text = path.read_text()
    damaged = {
        "flipped": chr(ord(text[0]) ^ 1) + text[1:],
        "cut": text[:20],
        "another's": (crashed / "agents" / "agent-0002.secret").read_text(),
    }
    path.unlink() if damage == "gone" else path.write_text(damaged[damage])
    found = by_messages(crashed)
    assert found.complete
    assert found.missed == []
    named = [text for text in found.damages if "agent-0001.secret was damaged" in text]
    assert len(named) == from_checkpoint
    assert len({p.read_text() for p in path.parent.glob("*.secret")}) == 3 - (damage == "another's")


def test_damaged_features_are_made_anew(crashed: Path) -> None:
    path = crashed / "releases" / "features.npz"
    before = RunDirectory(crashed).releases.features()
    flip(path)
    found = resume(crashed, hill)
    assert any("features.npz was damaged" in damage for damage in found.damages)
    after = RunDirectory(crashed).releases.features()
    assert all((before[name] == after[name]).all() for name in before)
    join(crashed)


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_table_that_lost_rows_is_mended_and_said(crashed: Path, keep: int) -> None:
    path = crashed / "rounds.csv"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 4
    path.write_text("".join(lines[: keep + 1] if keep else []))
    found = resume(crashed, hill)
    (damage,) = found.damages
    assert "rows are missing at its end" in damage
    assert f"{3 - keep} rows" in damage
    identity = RunDirectory(crashed).identity
    rows = [row["round"] for row in RoundTable.read(path, identity)]
    assert rows == [*map(str, range(keep)), "3", "4", "5"]


def test_an_old_checkpoint_repeats_rounds_charges_again_and_says_so(
    made_runs: Path, tmp_path: Path
) -> None:
    run, saved = tmp_path / "run", tmp_path / "old.npz"

    class Keep(Callback):
        def on_round(self, run_: Any, report: Any) -> None:
            if report.round == 0:
                shutil.copy(run / "checkpoint.npz", saved)

    with pytest.raises(ArithmeticError):
        simulate(hill, run_dir=run, callbacks=[Keep(), Crash(2)], **SETTINGS)
    shutil.copy(saved, run / "checkpoint.npz")
    found = resume(run, hill)
    (damage,) = found.damages
    assert "rounds 1 to 2 are made again: checkpoint.npz is missing or an old copy" in damage
    # Two releases were charged twice, within the budget; the last two are not paid for.
    assert (run / "ledger.jsonl").read_text().count('"event"') == 5
    assert found.epsilon is not None
    assert found.epsilon <= 5.0
    assert found.history.evaluations[-1] == 6


def test_an_old_config_is_refused(finished: Path) -> None:
    old = (finished / "config.json").read_bytes()
    resume(finished, hill, rounds=8)
    (finished / "config.json").write_bytes(old)
    for read in (lambda: read_run(finished), lambda: resume(finished, hill, rounds=6)):
        with pytest.raises(
            (RunDirectoryError, SettingsError), match=r"config\.json is an old copy"
        ):
            read()


def test_an_old_statement_is_refused(crashed: Path) -> None:
    old = (crashed / "privacy.json").read_bytes()
    assert read_statement(RunDirectory(crashed)).spent is not None
    resume(crashed, hill)
    spent = read_statement(RunDirectory(crashed)).spent
    assert spent == Result.read(crashed).privacy.spent
    (crashed / "privacy.json").write_bytes(old)
    with pytest.raises(RunDirectoryError, match=r"knows of 3 charges, but ledger\.jsonl holds 5"):
        read_statement(RunDirectory(crashed))


def test_an_old_statement_of_a_run_without_a_ledger_is_refused(tmp_path: Path) -> None:
    """Parties with local privacy keep their own ledgers; the result says what was spent."""
    run, old = tmp_path / "run", tmp_path / "privacy.json"

    class Keep(Callback):
        def on_start(self, run_: Any) -> None:
            shutil.copy(run / "privacy.json", old)

    settings: dict[str, Any] = {"budget": 9, "epsilon": 60.0, "epsilon_per_answer": 2.0,
                                "bound": 1.0, "noise_bound": 0.1}  # fmt: skip
    found = simulate(
        hill, agents=3, strategy="ldp-ata", run_dir=run, callbacks=[Keep()], **settings
    )
    assert read_statement(RunDirectory(run)).spent == found.privacy.spent
    shutil.copy(old, run / "privacy.json")
    with pytest.raises(RunDirectoryError, match=r"says that 0 was spent, but result\.json says"):
        read_statement(RunDirectory(run))


def test_a_newcomer_refuses_a_checkpoint_that_does_not_name_every_release(tmp_path: Path) -> None:
    """Such a checkpoint is an old copy: the newcomer would begin from an older function."""
    open_run = {key: value for key, value in SETTINGS.items() if key != "epsilon"}
    simulate(hill, run_dir=tmp_path, **open_run)
    join(tmp_path)
    path = tmp_path / "releases" / "round-0004.npz"
    path.with_name("round-0005.npz").write_bytes(path.read_bytes())
    with pytest.raises(RunDirectoryError, match=r"round-0005\.npz is not named by checkpoint"):
        join(tmp_path)
    assert resume(tmp_path, hill, rounds=6).complete
    assert path.with_name("round-0005.npz.unsent").exists()
    join(tmp_path)


def test_a_run_that_goes_on_and_dies_is_not_taken_for_finished(finished: Path) -> None:
    """Before, the old result.json said that there is nothing to continue."""
    with pytest.raises(ArithmeticError):
        resume(finished, hill, rounds=9, callbacks=[Crash(7)])
    with pytest.raises(StaleResultError, match="the run has gone on since"):
        Result.read(finished)
    (notice,) = read_run(finished).notices
    assert "result.json" in notice
    found = resume(finished, hill)
    assert found.history.evaluations[-1] == 10
    assert found == Result.read(finished)


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint.npz",
        "rounds.csv",
        "agents/agents.jsonl",
        "agents/agent-0000.jsonl",
        "space.json",
    ],
)
def test_files_of_another_run_of_the_same_settings_are_refused_or_said(
    crashed: Path, finished: Path, name: str
) -> None:
    if "agent-" in name:
        to_journals_of_agents(crashed)
        to_journals_of_agents(finished)
    shutil.copy(finished / name, crashed / name)
    if name == "rounds.csv":
        (damage,) = resume(crashed, hill).damages
        assert "or of another run" in damage
        return
    other = r"but (is|holds those) of|holds other records|missing or replaced"
    with pytest.raises((RunDirectoryError, JournalError), match=other):
        resume(crashed, hill)


@pytest.mark.parametrize(
    "name", ["agents.jsonl", "agents.jsonl.head", "agent-0000.jsonl", "agent-0000.jsonl.head"]
)
def test_a_lost_journal_is_said_and_its_evaluations_are_not_counted(
    crashed: Path, name: str
) -> None:
    if "agent-" in name:
        to_journals_of_agents(crashed)
    for path in crashed.glob(f"agents/{name.removesuffix('.head')}*"):
        if path.name == name or name.endswith("jsonl"):
            path.unlink()
    found = resume(crashed, hill)
    if name.endswith("head"):  # the journal itself is whole
        assert found.damages == ()
        assert found.complete
        return
    assert any("agents.jsonl lost" in damage for damage in found.damages)
    assert not found.complete


def test_a_new_run_of_an_old_name_does_not_take_the_old_journals(
    tmp_path: Path,
) -> None:
    """Before, agents answered from the evaluations of another run, without a word."""
    settings: dict[str, Any] = {"agents": 2, "strategy": "random", "rounds": 2}
    simulate(hill, run_dir=tmp_path / "run", seed=1, **settings)
    shutil.copytree(tmp_path / "run" / "agents", tmp_path / "new" / "agents")
    with pytest.raises(JournalError, match=r"agents\.jsonl .* another `run-name`"):
        simulate(hill, run_dir=tmp_path / "new", seed=2, **settings)


def test_a_party_refuses_the_journal_of_an_older_run_of_the_same_name(tmp_path: Path) -> None:
    """In a deployment the server has no journals: the party declines, and its log says why."""

    def serve(folder: Path) -> list[Any]:
        strategy = RandomSearch(space=hill.space, num_agents=2, run_dir=folder, timeout=1.0)
        # The parties keep their journals where they did in the run before.
        grid = InProcessGrid(simulated_client_app(hill, tmp_path / "agents"), 2)
        strategy.start(grid, num_rounds=2)
        return strategy.reports

    assert [dict(report.declined) for report in serve(tmp_path / "one")] == [{}] * 3
    reports = serve(tmp_path / "two")
    assert [dict(report.declined) for report in reports] == [{"JournalError": 2}] * 3


def test_a_run_of_an_older_version_is_refused_by_version(crashed: Path) -> None:
    path = crashed / "config.json"
    plain = {k: v for k, v in json.loads(path.read_text()).items() if k != "file"}
    path.write_text(json.dumps(plain))
    with pytest.raises(RunDirectoryError, match="it is of another version of flwr-fbo"):
        resume(crashed, hill)


def _load() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "damages.py"
    spec = importlib.util.spec_from_file_location("flwr_fbo_damages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_random_damage_is_silent() -> None:
    """A small part of the measurement in docs/evidence/reliability.md, with a seed of its own."""
    damages = _load()
    cases = damages.matrix(90, seed=11, strategies=damages.QUICK)
    assert len(cases) == 90
    assert [case for case in cases if case.outcome == "silent"] == []
    # The damages reach what they are for: each outcome occurs, on most kinds of files.
    assert {case.outcome for case in cases} == {"same", "declared", "refused"}
    assert len({case.damage.label for case in cases}) >= 8
