"""``flwr-fbo privacy`` and ``flwr-fbo audit``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flwr_fbo import DPFTSDE, simulate, task
from flwr_fbo.cli.main import app
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.privacy.mechanisms import GaussianSum
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from tests.command import flwr_fbo

PAPER = [
    # z, q, moments as printed in Figs. 2c and 2d (N = 200, T = 40)
    (1.0, 0.15, 5.93), (1.0, 0.25, 9.91), (1.0, 0.5, 20.12), (1.2, 0.25, 7.39), (1.5, 0.25, 5.22),
]  # fmt: skip


@pytest.mark.parametrize(("z", "q", "printed"), PAPER)
def test_the_papers_losses(tmp_path: Path, z: float, q: float, printed: float) -> None:
    done = flwr_fbo(
        "privacy", "--agents", "200", "--rounds", "40", "--noise-multiplier", str(z),
        "--sampling-rate", str(q), "--delta", str(200**-1.1), "--json", cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["noise_multiplier"], found["sampling_rate"]) == (z, q)
    assert found["delta"] == pytest.approx(200**-1.1)
    assert round(found["epsilon"]["moments"], 2) == printed
    assert found["epsilon"]["pld"] <= found["epsilon"]["rdp"] <= found["epsilon"]["moments"]


def test_the_plan_is_what_a_run_will_use(tmp_path: Path) -> None:
    done = flwr_fbo(
        "privacy", "--agents", "30", "--rounds", "12", "--epsilon", "5", "--json", cwd=tmp_path
    )
    planned = json.loads(done.stdout)
    space = Space({"x": Float(0.0, 1.0)})
    settings = DPFTSDESettings(epsilon=5.0, reward_low=0.0, reward_high=1.0)
    server = DPFTSDEServer(space, 30, settings, 12)
    assert server.noise_multiplier == pytest.approx(planned["noise_multiplier"])
    assert server.delta == pytest.approx(planned["delta"])
    assert len(server.release_plan.rounds) == planned["releases"]
    assert server.release_plan.sampling_rate == planned["sampling_rate"]
    made = [row["round"] for row in planned["by_round"] if row["release"]]
    assert made == list(server.release_plan.rounds)


def test_the_plan_of_secure_sums_is_what_a_run_will_use(tmp_path: Path) -> None:
    done = flwr_fbo(
        "privacy", "--agents", "30", "--rounds", "12", "--epsilon", "5", "--aggregation", "secure",
        "--secure-threshold", "0.8", "--secure-colluding", "2", "--json", cwd=tmp_path,
    )  # fmt: skip
    planned = json.loads(done.stdout)
    settings = DPFTSDESettings(
        epsilon=5.0, reward_low=0.0, reward_high=1.0, aggregation="secure", secure_threshold=0.8,
        secure_colluding=2,
    )  # fmt: skip
    server = DPFTSDEServer(Space({"x": Float(0.0, 1.0)}), 30, settings, 12)
    assert server.noise_multiplier == pytest.approx(planned["noise_multiplier"])
    assert len(server.release_plan.rounds) == planned["releases"]
    facts = server.statement().secure_sum
    assert planned["trust"] == server.statement().trust == "secure-sum"
    for key in ("threshold", "colluding", "excess_noise"):
        assert planned[key] == facts[key]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["privacy", "--epsilon", "5", "--agents", "30"], "but got --agents 30 and --epsilon 5.0"),
        (["privacy"], "but got none of them"),
        (
            ["privacy", "--epsilon", "5", "--agents", "30", "--rounds", "200000000"],
            "`rounds` must be so small that the run fits into this machine's memory",
        ),
        (["audit", "--epsilon", "5", "--rounds", "200000000"], "but got 200000000"),
        (["audit", "--fast", "--trials", "0"], "`trials` must be an integer >= 100, but got 0"),
    ],
)
def test_a_wrong_number_is_one_line_with_its_value(given: list[str], words: str) -> None:
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert words in line


PLANS = [
    ("--epsilon 5 --set finalists=3", {"epsilon": 5, "finalists": 3}),
    (
        "--epsilon 5 --set finalists=3 --set final-round=5 --set parallel=2",
        {"epsilon": 5, "finalists": 3, "final_round": 5, "parallel": 2},
    ),
    (
        "--epsilon 2 --aggregation secure --set finalists=2",
        {"epsilon": 2, "aggregation": "secure", "finalists": 2},
    ),
    (
        "--noise-multiplier 2 --sampling-rate 0.5 --delta 1e-6 --regions 2",
        {
            "noise_multiplier": 2, "sampling_rate": 0.5, "delta": 1e-6, "regions": 2,
            "releases": "all",
        },
    ),
    (
        "--epsilon 8 --set accountant=rdp --set releases=0,2",
        {"epsilon": 8, "accountant": "rdp", "releases": "0,2"},
    ),
]  # fmt: skip


@task(space={"x": Float(0.0, 1.0), "y": Float(1.0, 2.0)}, score_range=(0.0, 1.0))
def slope(params: Any) -> float:
    return float(params["x"])


@pytest.mark.parametrize(("options", "settings"), PLANS, ids=[options for options, _ in PLANS])
def test_the_statement_of_a_plan_is_that_of_the_run(
    tmp_path: Path, options: str, settings: dict[str, Any]
) -> None:
    """All fields agree with the run's at its end, but for what was spent."""
    planned = ("privacy", "--agents", "12", "--rounds", "6", *options.split(), "--as-statement")
    done = flwr_fbo(*planned, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    result = simulate(
        slope, agents=12, rounds=6, strategy=DPFTSDE(**settings), run_dir=tmp_path / "run"
    )
    made = json.loads(json.dumps(result.privacy.to_dict()))
    assert found["spent"] == 0.0
    assert found["epsilon"] == pytest.approx(made["spent"])
    assert {**found, "spent": made["spent"]} == made
    page = flwr_fbo(*planned, cwd=tmp_path).stdout
    assert page.replace("epsilon 0.000\n", f"epsilon {made['spent']:.3f}\n", 1) == (
        result.privacy.to_page()
    )


def test_the_plan_with_finalists_pays_for_their_scores(tmp_path: Path) -> None:
    command = ("privacy", "--agents", "30", "--rounds", "20", "--epsilon", "5")
    plain = json.loads(flwr_fbo(*command, "--json", cwd=tmp_path).stdout)
    command = (*command, "--set", "finalists=8")
    planned = json.loads(flwr_fbo(*command, "--json", cwd=tmp_path).stdout)
    assert (plain["final_round"], planned["final_round"]) == (None, 20)
    rounds = [row["round"] for row in planned["by_round"] if row["release"]]
    # Agents evaluate the finalists in the rounds 13 to 20, so no function is released after 12.
    assert rounds[-1] == 20
    assert max(rounds[:-1]) < 13
    text = flwr_fbo(*command, cwd=tmp_path).stdout
    assert f"{len(rounds)} releases, in the rounds {', '.join(map(str, rounds))}\n" in text
    assert "finalists            scored by all agents, released in round 20\n" in text
    table = text.split("epsilon after round")[1].split("\n\n")[0]
    assert [int(line.split()[0]) for line in table.splitlines()[1:]] == rounds


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--epsilon", "5", "--aggregation", "secure", "--sampling-rate", "0.5"), "must be 1"),
        (("--epsilon", "5", "--secure-threshold", "0.3"), "`secure-threshold` must be"),
        (("--epsilon", "0"), "`epsilon` must be"),
        (("--epsilon", "5", "--delta", "1"), "`delta` must be"),
        (("--noise-multiplier", "1"), "--sampling-rate must be given with --noise-multiplier"),
        (("--noise-multiplier", "1", "--sampling-rate", "1.5"), "`sampling-rate` must be"),
        ((), "either --epsilon or --noise-multiplier must be given"),
        (("--epsilon", "5", "--set", "delta=1e-6"), "`delta` has an option of its own: give --del"),
        (("--epsilon", "5", "--set", "finalists=6"), "`finalists` must be at most 5"),
        (("--epsilon", "5", "--set", "finalist=3"), "unknown setting `finalist`"),
        (("--epsilon", "5", "--set", "accountant=rdp"), "`accountant` must be pld in a table"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, arguments: tuple[str, ...], fault: str) -> None:
    done = flwr_fbo("privacy", "--agents", "20", "--rounds", "5", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert fault in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ audit

#: The noise is the system's here, and at the default confidence one true claim in a hundred may
#: fail. At this one it is one in a million.
SURE = ("--confidence", "0.999999")


def test_the_audit_command_passes_the_server(tmp_path: Path) -> None:
    done = flwr_fbo("audit", "--trials", "800", *SURE, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["passed"] is True
    assert found["faults"] == []
    assert (found["agents"], found["sampling_rate"]) == (7, 0.5)
    assert found["rounds"] == [0, 1, 2, 4, 8]
    assert 0 < found["epsilon_lower"] <= found["epsilon_claimed"]
    assert found["epsilon_lower"] < found["epsilon_profile"] <= found["epsilon_claimed"]


def test_the_fast_audit_attacks_one_release(tmp_path: Path) -> None:
    done = flwr_fbo("audit", "--fast", "--trials", "800", *SURE, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1600 trials of 2 releases, sampling rate 0.5" in done.stdout
    assert "PASSED" in done.stdout


def config_of(folder: Path, **given: Any) -> Path:
    """Write the configuration of a run, as a run does."""
    stated = {"task": "digits", "strategy": "dp-fts-de", "agents": 8, "rounds": 6, **given}
    RunDirectory(folder).create(RunSpec.from_mapping(stated).to_mapping())
    return folder


def test_the_configuration_of_a_run_is_audited(tmp_path: Path) -> None:
    run = config_of(tmp_path / "run", epsilon=6.0, regions=3, **{"sampling-rate": 0.6})
    settings = DPFTSDESettings(
        epsilon=6.0, regions=3, sampling_rate=0.6, reward_low=0.0, reward_high=1.0
    )
    server = DPFTSDEServer(Space({"x": Float(0.0, 1.0)}), 8, settings, 6)
    done = flwr_fbo("audit", str(run), "--trials", "300", *SURE, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["rounds"] == list(server.release_plan.rounds)
    assert found["noise_multiplier_claimed"] == server.noise_multiplier
    assert (found["agents"], found["sampling_rate"]) == (8, 0.6)
    assert found["epsilon_declared"] == pytest.approx(6.0, rel=1e-3)


def test_an_audit_that_fails_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GaussianSum, "deviation", property(lambda self: 0.3 * self.sensitivity))
    done = CliRunner().invoke(app, ["audit", "--trials", "300", *SURE])
    assert done.exit_code == 1
    assert "FAILED: the run reveals more than is claimed" in done.stdout
    drawn = re.search(r"noise multiplier 0.9506 is charged, but ([\d.]+) to ([\d.]+)", done.stdout)
    assert drawn is not None
    assert float(drawn[1]) < 0.3 < float(drawn[2]) < 0.32


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"strategy": "fts"}, "an audit needs a run of dp-fts-de, but .* is of 'fts'"),
        ({}, "an audit needs a private run, but .* has neither `epsilon` nor `noise-multiplier`"),
        ({"epsilon": 5, "noise-seed": 3}, "`noise-seed` must be unset in an audit"),
        ({"epsilon": 5, "diagnostics": True}, "`diagnostics` must be false in an audit"),
        ({"epsilon": 50, "sampling": "fixed-size"}, "`sampling` must be poisson in an audit"),
        ({"epsilon": 5, "rounds": 0}, "an audit needs a run with at least one release"),
    ],
)
def test_runs_without_a_claim_are_refused(tmp_path: Path, given: Any, fault: str) -> None:
    run = config_of(tmp_path / "run", **given)
    done = CliRunner().invoke(app, ["audit", str(run)])
    assert done.exit_code == 2
    assert re.search(fault, done.output)


def test_the_settings_of_a_run_cannot_be_changed_in_its_audit(tmp_path: Path) -> None:
    run = config_of(tmp_path / "run", epsilon=5.0)
    done = CliRunner().invoke(app, ["audit", str(run), "--rounds", "3"])
    assert done.exit_code == 2
    assert "--rounds must be left out in the audit of a run" in done.output
    done = CliRunner().invoke(app, ["audit", str(tmp_path)])
    assert done.exit_code == 2
    assert "is not the directory of a run: no config.json" in done.output


def test_the_planned_releases_are_shown(tmp_path: Path) -> None:
    command = ("privacy", "--agents", "29", "--rounds", "18", "--epsilon", "8")
    done = flwr_fbo(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    known = DPFTSDESettings(epsilon=8.0, reward_low=0.0, reward_high=1.0)
    planned = known.release_plan(29, 18)
    assert 1 < len(planned.rounds) < 18
    listed = ", ".join(map(str, planned.rounds))
    assert f"{len(planned.rounds)} releases, in the rounds {listed}\n" in done.stdout
    assert "epsilon              8.00" in done.stdout.replace("7.999 by pld", "8.000 by pld")
