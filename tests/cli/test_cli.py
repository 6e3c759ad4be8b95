"""The command line as programs and people use it."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flwr_fbo.cli.main import app
from flwr_fbo.runs.files.directory import RunDirectory
from tests.command import flwr_fbo, run_json

OWN_TASK = """
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

@task(space={"x": Float(0.0, 1.0)}, metric="height")
def hill(params):
    return 1.0 - (params["x"] - 0.3) ** 2

@task(space={"x": Float(0.0, 1.0)})
def words(params):
    return "good"

not_a_task = 3
"""


#: Modules that cannot be imported, each for its own reason.
FAULTY = {
    "syntax": "def t(params) return 1",
    "space": "from flwr_fbo import Float, task\n\n@task(space={'x': Float(1.0, 0.0)})\n"
    "def t(params):\n    return 1.0\n",
    "names": "from flwr_fbo import Float, task\n\n@task(space={'x': Float(0.0, 1.0)})\n"
    "def t(params, dta):\n    return 1.0\n",
}


QUICK = ("--agents", "3", "--rounds", "2", "--seed", "5", "--set", "initial-points=2")


class TestJson:
    @pytest.mark.parametrize("strategy", ["dp-fts-de", "fts", "local-ts", "random"])
    def test_has_the_fields_of_the_contract(self, tmp_path: Path, strategy: str) -> None:
        found = run_json(
            tmp_path, "synthetic", "--strategy", strategy, *QUICK, "--set", "points=50"
        )
        assert found["history"]["evaluations"] == [2, 3, 4]
        assert len(found["history"]["best"]) == len(found["history"]["regret"]) == 3
        assert found["history"]["best"] == sorted(found["history"]["best"])
        assert found["history"]["regret"] == sorted(found["history"]["regret"], reverse=True)
        assert found["history"]["regret"][-1] >= 0
        assert found["epsilon"] is None
        assert found["delta"] is None
        assert found["private"] is False
        assert found["failures"] == 0
        assert found["seconds"] > 0
        directory = tmp_path / found["run_dir"]
        stored = json.loads((directory / "result.json").read_text())
        assert set(stored.pop("file")) == {"layout", "run", "names", "check"}
        assert stored == found

    def test_of_a_private_run_says_what_was_spent(self, tmp_path: Path) -> None:
        found = run_json(tmp_path, "digits", *QUICK, "--epsilon", "6", "--compare", "random")
        assert found["private"] is True
        assert 5.9 < found["epsilon"] <= 6
        assert found["delta"] == pytest.approx(1e-5)
        assert found["history"]["regret"] is None
        assert (
            found["compared"]["random"]["history"]["evaluations"] == found["history"]["evaluations"]
        )
        directory = tmp_path / found["run_dir"]
        assert (directory / "ledger.jsonl").read_text().count('"event"') >= 1
        rounds = (directory / "rounds.csv").read_text().splitlines()
        assert rounds[0].startswith("round,asked,replied")
        assert len(rounds) == 4

    def test_of_equal_seeds_is_equal_and_of_others_is_not(self, tmp_path: Path) -> None:
        def best(seed: str) -> Any:
            return run_json(
                tmp_path, "synthetic", "--agents", "3", "--rounds", "2", "--seed", seed
            )["history"]["best"]

        assert best("1") == best("1") != best("2")

    def test_the_papers_preset_reaches_strategy_and_task(self, tmp_path: Path) -> None:
        found = run_json(
            tmp_path, "synthetic", "--agents", "2", "--rounds", "1", "--set", "preset=paper"
        )
        config = json.loads((tmp_path / found["run_dir"] / "config.json").read_text())
        assert (config["features"], config["regions"], config["clip"]) == (50, 2, 11.0)
        assert config["standardise"] is False
        assert config["feature-lengthscale"] == 0.03


def test_a_task_of_ones_own_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_TASK)
    found = run_json(tmp_path, "mine:hill", *QUICK)
    assert found["history"]["best"][-1] > 0.8
    assert found["agents_best"][0]["params"].keys() == {"x"}


@pytest.mark.slow(100)
def test_through_flowers_simulation_engine(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_TASK)
    done = flwr_fbo(
        "run", "mine:hill", *QUICK, "--engine", "ray", "--json", cwd=tmp_path, fresh=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "Registering 3 agents ..."
    assert "DEPRECATED" not in done.stderr
    ray = json.loads(done.stdout)
    assert ray["history"]["evaluations"] == [2, 3, 4]
    assert ray["history"]["best"] == run_json(tmp_path, "mine:hill", *QUICK)["history"]["best"]


def test_for_people_prints_progress_and_a_summary(tmp_path: Path) -> None:
    done = flwr_fbo(
        "run", "digits", *QUICK, "--epsilon", "5", "--engine", "inline",
        "--compare", "alone,tpe", "--compare", "dp-fts-de epsilon=2 releases=0,1",
        "--run-dir", "here", cwd=tmp_path, fresh=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # The first line is ours and plain, on either engine.
    assert done.stderr.splitlines()[0] == "Registering 3 agents ..."
    assert "round 2/2  replies 3/3  epsilon" in done.stderr
    assert "Comparing with dp-fts-de epsilon=2 releases=0,1 (3 of 3) ..." in done.stderr
    for text in ("mean best accuracy", "the same score", "95 % interval", "epsilon 5.00", "saved",
                 "next", "flwr-fbo report here", "flwr-fbo privacy --statement here"):  # fmt: skip
        assert text in done.stdout
    for name in ("alone", "tpe", "dp-fts-de epsilon=2 releases=0,1"):
        assert f"\n  {name} " in done.stdout
    assert (tmp_path / "here" / "compare" / "tpe" / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (("synthetic", "--agents", "2", "--set", "sampling-rat=0.5"), 2, "mean `sampling-rate`"),
        (("synthetic", "--agents", "2", "--set", "sampling-rate=2"), 2, "but got 2.0"),
        (("synthetic", "--agents", "2", "--set", "regions=two"), 2, "must be int, but got 'two'"),
        (("synthetic", "--agents", "2", "--set", "regions"), 2, "--set must be key=value"),
        (("synthetic", "--agents", "2", "--set", "regions=201"), 2, "`regions` must leave every"),
        (("synthetic", "--agents", "2", "--epsilon", "-1"), 2, "`epsilon` must be > 0"),
        (("synthetic", "--agents", "-2"), 2, "`agents` must be >= 0, but got -2"),
        (("synthetic",), 2, "`agents` must be given"),
        (("synthetik", "--agents", "2"), 2, "did you mean `synthetic`"),
        (("synthetic", "--agents", "2", "--strategy", "ftz"), 2, "did you mean `fts`"),
        (("synthetic", "--agents", "2", "--compare", "ranodm"), 2, "did you mean `random`"),
        (("mine:nothing", "--agents", "2"), 2, "cannot be imported"),
        (("mine:hil", "--agents", "2"), 2, "did you mean `hill`?"),
        (("syntax:t", "--agents", "2"), 2, "(syntax.py, line 1)"),
        (("space:t", "--agents", "2"), 2, "space.py, line 3)"),
        (("names:t", "--agents", "2"), 2, "t(params, dta) asks for `dta`"),
        (("mine:not_a_task", "--agents", "2"), 2, "must be a Task"),
        (("mine:words", "--agents", "2", "--rounds", "1"), 1, ""),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, fault: str
) -> None:
    (tmp_path / "mine.py").write_text(OWN_TASK)
    for name, text in FAULTY.items():
        (tmp_path / f"{name}.py").write_text(text)
    small = ("--set", "points=100") if arguments[0] == "synthetic" else ()
    done = flwr_fbo("run", *arguments, *small, "--engine", "inline", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert fault in done.stderr
    assert "Traceback" not in done.stderr


def test_help_teaches_by_an_example_each() -> None:
    commands = {command.callback.__name__: command for command in app.registered_commands}  # type: ignore[union-attr]
    assert set(commands) == {
        "cite", "doctor", "export", "run", "resume", "report", "new", "privacy", "audit", "tasks",
        "data", "strategies", "reproduce", "track",
    }  # fmt: skip
    for name, command in commands.items():
        assert f"Example: flwr-fbo {name}" in (command.callback.__doc__ or ""), name
        shown = CliRunner().invoke(app, [name, "-h"])
        assert shown.exit_code == 0
        assert "Example: flwr-fbo" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("ruin",), "run"),
        (("run", "digits", "--ronds", "3"), "--rounds"),
        (("tasks", "--jsn"), "--json"),
        (("strategies", "dp-ftsde"), "`dp-fts-de`"),
        (("data", "landmin"), "`landmine`"),
    ],
)
def test_what_is_unknown_suggests_the_nearest(arguments: tuple[str, ...], nearest: str) -> None:
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 2
    assert nearest in told.stderr


def test_a_directory_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    assert flwr_fbo(
        "run", "synthetic", *QUICK, "--engine", "inline", "--run-dir", "x", cwd=tmp_path
    ).returncode == 0  # fmt: skip
    done = flwr_fbo(
        "run", "synthetic", *QUICK, "--engine", "inline", "--run-dir", "x", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "already holds a run" in done.stderr


def test_a_data_directory_without_the_data_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLWR_FBO_DATA", raising=False)
    monkeypatch.setenv("FLWR_FBO_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = flwr_fbo(
        "run", "landmine", *QUICK, "--engine", "inline", "--data-dir", str(tmp_path), cwd=tmp_path
    )
    assert done.returncode == 2
    assert "andmine" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_was_killed_is_resumed(tmp_path: Path) -> None:
    """Killed with no warning in the middle of a round, it ends as if nothing had happened."""
    (tmp_path / "mine.py").write_text(
        OWN_TASK
        + """
import os
from pathlib import Path
import flwr_fbo.core.evaluation

@task(space={"x": Float(0.0, 1.0)})
def fragile(params):
    count = len(Path("calls").read_text()) if Path("calls").exists() else 0
    if count == 9 and not Path("died").exists():
        Path("died").touch()
        os._exit(9)
    with Path("calls").open("a") as file:
        file.write(".")
    return -(params["x"] - 0.3) ** 2
"""
    )
    arguments = ("run", "mine:fragile", *QUICK, "--epsilon", "5", "--engine", "inline",
                 "--set", "releases=all")  # fmt: skip
    assert flwr_fbo(*arguments, "--run-dir", "r", cwd=tmp_path).returncode == 9
    assert not (tmp_path / "r" / "result.json").exists()
    done = flwr_fbo("resume", "r", "--engine", "inline", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["history"]["evaluations"] == [2, 3, 4]
    assert found["complete"] is True
    # Three agents, two initial points and two rounds: no evaluation was made twice or lost.
    assert len((tmp_path / "calls").read_text()) == 3 * 4
    ledger = (tmp_path / "r" / "ledger.jsonl").read_text()
    assert ledger.count('"event"') == 2


def test_only_a_run_can_be_resumed(tmp_path: Path) -> None:
    done = flwr_fbo("resume", "nothing", cwd=tmp_path, fresh=True)
    assert done.returncode == 2
    assert "config.json" in done.stderr


MISTAKES = [
    ("report", "nowhere"),
    ("report", "r", "--out", "no/such/folder.html"),
    ("resume", "nowhere"),
    ("run", "synthetic", *QUICK, "--engine", "inline", "--run-dir", "r"),
    ("privacy", "--statement", "nowhere"),
    ("audit", "nowhere"),
    ("new", "r"),
    ("cite", "nowhere"),
    ("data", "nowhere"),
    ("strategies", "nowhere"),
    ("reproduce", "nowhere"),
]


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_like_mistakes_have_one_exit_code(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "config.json").write_text("{}")
    done = flwr_fbo(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_cite_prints_the_entry_of_a_strategy_or_a_run(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "r").create({"strategy": "fts"})
    alone, strategy, run = (
        flwr_fbo("cite", *name, cwd=tmp_path).stdout for name in ((), ("fts",), ("r",))
    )
    assert alone.count("@") == 1
    assert strategy == run
    assert "year      = {2020}" in strategy


def test_reproduce_finds_the_source_tree_around_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that was installed without -e does not lie in the source tree."""
    from flwr_fbo.cli import reproduce
    from flwr_fbo.core.settings import SettingsError

    monkeypatch.setattr(reproduce, "__file__", str(tmp_path / "site-packages/f/cli/reproduce.py"))
    inside = Path(__file__).parents[2] / "docs"
    monkeypatch.chdir(inside)
    assert reproduce._source_tree() == inside.parent
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="inside a clone"):
        reproduce._source_tree()


@pytest.mark.parametrize("command", ["tasks", "strategies", "strategies dp-fts-de", "doctor"])
def test_lists_fit_into_a_terminal_and_stay_whole_in_a_pipe(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal of 80 columns a long line goes on under its own text; no word is broken."""
    whole = CliRunner().invoke(app, command.split()).stdout
    monkeypatch.setattr("flwr_fbo.cli.common.terminal_columns", lambda stream: 80)
    shown = CliRunner().invoke(app, command.split()).stdout
    for line in shown.splitlines():  # only a path may be longer than a line
        assert len(line) < 80 or any(len(word) > 40 for word in line.split()), line
    if command != "doctor":  # which measures the disk each time
        assert shown.split() == whole.split()
        assert max(len(line) for line in whole.splitlines()) > 80


def test_strategies_are_one_line_each(tmp_path: Path) -> None:
    from flwr_fbo.methods.registry import method_names

    lines = flwr_fbo("strategies", cwd=tmp_path).stdout.splitlines()
    for name in method_names():
        assert sum(line.startswith(f"{name} ") for line in lines) == 1, name
    assert len(lines) <= len(method_names()) + 5
    assert max(map(len, lines)) <= 100


def test_help_has_the_words_of_flower_and_optuna() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    for word in ("SuperNode", "ClientApp", "trial", "study", "Exit codes"):
        assert word in shown, word


@pytest.mark.parametrize("command", [[], ["run"], ["privacy"], ["track"]])
def test_help_fills_the_lines_of_a_narrow_terminal(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paragraph breaks where the terminal ends, and not where the source breaks it as well."""
    width = 60
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    said = CliRunner().invoke(app, [*command, "--help"], color=False).output
    text = said.partition("\u256d")[0]  # what stands above the first table
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        for line, after in pairwise(lines):
            assert len(line) + len(after.split()[0]) + 1 > width - 2, (line, after)
