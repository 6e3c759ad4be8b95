"""Journals as Optuna studies."""

from __future__ import annotations

import shutil
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from typer.testing import CliRunner

from flwr_fbo import Float, Int, Result, resume, simulate, task
from flwr_fbo.cli.main import app
from flwr_fbo.optuna.storages import without_password
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.directory import RunDirectory


@task(space={"x": Float(1e-3, 1.0, log=True), "n": Int(1, 5)})
def partly(params: dict[str, float]) -> float:
    if params["n"] == 5:
        raise MemoryError("too many")
    return params["x"] * params["n"]


def run_cli(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def studies(storage: str) -> dict[str, optuna.Study]:
    names = optuna.get_all_study_names(storage)
    return {name: optuna.load_study(study_name=name, storage=storage) for name in names}


def test_every_evaluation_is_a_trial_that_optuna_reads(tmp_path: Path) -> None:
    run, storage = tmp_path / "run", f"sqlite:///{tmp_path / 's.db'}"
    simulate(partly, agents=2, rounds=8, initial_points=4, strategy="random", run_dir=run, seed=1)
    assert "24 evaluations of 2 agents" in run_cli("export", run, "--storage", storage)
    found = studies(storage)
    assert sorted(found) == ["run-agent-0000", "run-agent-0001"]
    rows = Result.read(run).to_records()
    failed = 0
    for agent, study in enumerate(found.values()):
        mine = [row for row in rows if row["agent"] == agent]
        for row, trial in zip(mine, study.trials, strict=True):
            assert trial.params == {"x": row["params_x"], "n": row["params_n"]}
            assert trial.value == row["score"]
            if row["failure"]:
                failed += 1
                assert trial.state == TrialState.FAIL
                assert trial.user_attrs["failure"] == row["failure"] == "MemoryError: too many"
        assert study.best_value == max(row["score"] for row in mine if row["score"] is not None)
    assert failed > 0


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ("study.db", "Could not parse"),
        ("sqlite:///{folder}/missing/study.db", "unable to open database file"),
        ("nothing://study", "plugin"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_refused_in_one_line(
    storage: str, reason: str, tmp_path: Path
) -> None:
    simulate(partly, agents=1, rounds=1, strategy="random", run_dir=tmp_path / "run")
    given = storage.format(folder=tmp_path)
    done = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--storage", given])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert (
        f"must be one that Optuna can open, such as sqlite:///study.db, but got {given!r}" in line
    )
    assert reason in line


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("mysql://ada:s3cr@t@db.example/runs", "mysql://ada:***@db.example/runs"),
        ("redis://:s3cr@t@db.example:6379", "redis://:***@db.example:6379"),
        ("mysql://db.example/runs?password=s3cr@t&ssl=1", "mysql://db.example/runs?password=***&ssl=1"),
        ("postgresql://ada@db.example:5432/runs", "postgresql://ada@db.example:5432/runs"),
        ("sqlite:///study@home.db", "sqlite:///study@home.db"),
    ],
)  # fmt: skip
def test_what_is_printed_of_an_address_has_no_password(address: str, shown: str) -> None:
    assert without_password(address) == shown


def test_an_error_and_a_result_keep_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(partly, agents=1, rounds=1, strategy="random", run_dir=tmp_path / "run")
    secret = "mysql+nothing://ada:s3cret@db.example/runs"
    done = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--storage", secret])
    assert done.exit_code == 2
    assert "ada:***@db.example" in done.stderr
    assert "s3cret" not in done.output
    place = optuna.storages.InMemoryStorage()
    monkeypatch.setattr("flwr_fbo.optuna.export.opened", lambda storage: place)
    assert "are in mysql+nothing://ada:***@db.example/runs" in run_cli(
        "export", tmp_path / "run", "--storage", secret
    )


def test_a_longer_run_adds_what_is_new(tmp_path: Path) -> None:
    run, storage = tmp_path / "run", f"sqlite:///{tmp_path / 's.db'}"
    simulate(partly, agents=2, rounds=2, initial_points=2, strategy="random", run_dir=run)
    run_cli("export", run, "--storage", storage, "--name", "mine")
    resume(run, partly, rounds=5)
    told = run_cli("export", run, "--storage", storage, "--name", "mine")
    assert f"14 evaluations of 2 agents are in {storage}, 6 of them new" in told
    assert [len(study.trials) for study in studies(storage).values()] == [7, 7]


def test_a_party_names_its_task(tmp_path: Path) -> None:
    run, storage = tmp_path / "run", f"sqlite:///{tmp_path / 's.db'}"
    simulate(partly, agents=2, rounds=1, initial_points=2, strategy="random", run_dir=run)
    party = tmp_path / "party"
    (party / "agents").mkdir(parents=True)
    arrange(run / "agents", RunDirectory(run).identity, shared=False)
    shutil.copy(run / "agents" / "agent-0001.jsonl", party / "agents")
    done = CliRunner().invoke(app, ["export", str(party), "--storage", storage])
    assert done.exit_code == 2
    assert "has no space.json" in done.output
    run_cli("export", party, "--storage", storage, "--task", "tests.optuna.test_export:partly")
    assert list(studies(storage)) == ["party-agent-0001"]


def test_a_directory_without_journals_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", str(tmp_path), "--storage", "sqlite://"])
    assert done.exit_code == 2
    assert "must have a folder `agents` with journals" in done.output


@pytest.fixture(autouse=True)
def restore_verbosity() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
