"""The privacy statement: of every strategy, in one form, and true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo import Float, simulate, task
from flwr_fbo.core.space import Space
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.registry import find_method, method_names
from flwr_fbo.privacy.calibration import gaussian_epsilon
from flwr_fbo.privacy.statement import DELTAS, PrivacyStatement
from tests.command import flwr_fbo

SPACE = Space({"x": Float(0.0, 1.0)})
PRIVATE: dict[str, dict[str, Any]] = {
    "dp-fts-de": {"epsilon": 4.0},
    "fts": {"local_epsilon": 4.0},
    "local-ts": {"local_epsilon": 4.0},
    "fed-pne": {"epsilon": 4.0, "budget": 400},
    "ldp-tgp": {"epsilon": 4.0, "budget": 40},
    "ldp-ata": {"epsilon": 4.0, "budget": 40},
    "ldp-moma": {"epsilon": 4.0, "budget": 40},
    "gp-ucb": {"epsilon": 4.0, "budget": 40},
    "uniform": {"epsilon": 4.0, "budget": 40},
}


def server_of(name: str, agents: int = 30, **settings: Any) -> Any:
    method = find_method(name)
    parameters = RunParameters(SPACE, agents, 10)
    return method.make_server(parameters, method.settings_class(**settings))


@pytest.mark.parametrize("name", PRIVATE)
def test_epsilon_is_one_partys_over_the_whole_run(name: str) -> None:
    statement = server_of(name, **PRIVATE[name]).statement()
    assert statement.unit == "party"
    assert statement.private
    assert statement.epsilon == pytest.approx(4.0, rel=1e-3)
    assert statement.epsilon <= 4.0
    assert statement.trust == ("central" if name == "dp-fts-de" else "local")
    assert statement.spent is None or statement.spent == 0.0
    assert "for each party, over the whole run" in str(statement)
    assert statement.relation
    assert statement.mechanism
    assert statement.not_covered


@pytest.mark.parametrize("name", method_names())
def test_every_strategy_has_one_and_it_survives_json(name: str, tmp_path: Path) -> None:
    for settings in ({}, PRIVATE.get(name, {})):
        if name.startswith("ldp-") and not settings:
            continue
        statement = server_of(name, **settings).statement()
        assert statement.method == name
        again = PrivacyStatement.from_dict(json.loads(json.dumps(statement.to_dict())))
        assert again == statement
        assert statement.to_page().startswith("Privacy statement")
        assert max(map(len, statement.to_page().splitlines())) < 80
        if not settings:
            assert not statement.private
            assert statement.epsilon is None


def test_what_is_per_reward_is_called_so_with_the_partys_epsilon_beside_it() -> None:
    """Today's false line was "epsilon 1.000, per agent, whole run" where a party lost 230."""
    server = server_of("fed-pne", agents=20, budget=200, epsilon_per_reward=1.0)
    statement = server.statement()
    assert statement.unit == "reward"
    assert statement.epsilon == 1.0
    assert statement.party_epsilon is not None
    assert statement.party_epsilon > 100
    assert "for one single evaluation" in str(statement)
    assert f"epsilon {statement.party_epsilon:.4g} for each party" in str(statement)


@pytest.mark.parametrize("noise_on", ["mean", "reward"])
def test_a_partys_epsilon_bounds_what_its_agent_counts(noise_on: str) -> None:
    from flwr_fbo.tasks.papers.garland import GarlandTask
    from tests.methods.fed_pne_harness import agents_of, play

    server = server_of(
        "fed-pne", agents=3, budget=300, epsilon_per_reward=2.0, noise_on=noise_on, smoothness=3.0
    )
    bound = server.statement().party_epsilon
    agents: list[FedPNEAgent] = agents_of(server, GarlandTask)
    play(server, agents)
    for agent in agents:
        found = agent.guarantees()
        assert found is not None
        assert found.one_user_epsilon <= bound


def test_other_deltas_are_stated() -> None:
    statement = server_of("dp-fts-de", epsilon=4.0).statement()
    at = [statement.epsilon_at[f"{delta:g}"] for delta in DELTAS]
    assert at == sorted(at)
    assert at[0] == pytest.approx(statement.epsilon)
    assert statement.mu is not None
    for delta, epsilon in zip(DELTAS, at, strict=True):
        assert gaussian_epsilon(1 / statement.mu, delta) == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize(
    ("agents", "delta", "loud"), [(30, None, False), (30, 0.024, True), (10**7, None, False)]
)
def test_a_delta_that_says_little_is_said_aloud(
    agents: int, delta: float | None, loud: bool
) -> None:
    statement = server_of("dp-fts-de", agents, epsilon=4.0, delta=delta).statement()
    assert any("says little" in warning for warning in statement.warnings) == loud
    assert ("says little" in str(statement)) == loud
    assert statement.delta is not None
    assert loud or statement.delta <= 1 / (10 * agents)


def test_the_papers_delta_stays_with_the_papers_preset() -> None:
    assert server_of("dp-fts-de", 200, epsilon=4.0, delta_rule="paper").delta == 200**-1.1
    assert find_method("dp-fts-de").paper_settings["delta-rule"] == "paper"


@pytest.mark.parametrize(("agents", "epsilon", "warned"), [(3, 1.0, True), (200, 8.0, False)])
def test_noise_that_drowns_the_signal_is_said_before_anything_is_spent(
    agents: int, epsilon: float, warned: bool
) -> None:
    server = server_of("dp-fts-de", agents, epsilon=epsilon)
    assert bool(server.warnings()) == warned
    if warned:
        (text,) = server.warnings()
        needed = int(text.split("About ")[1].split(" agents")[0])
        assert needed > agents
        assert not server_of("dp-fts-de", 2 * needed, epsilon=epsilon).warnings()
    assert server.statement().spent == 0.0


@pytest.mark.parametrize(
    ("agents", "epsilon", "releases", "until"),
    [
        (30, 1.0, "0,27", 27),  # the first one is drowned
        (30, 1.0, "auto", 27),
        (30, 1.0, "27", 27),
        (2000, 1.0, "0,27", None),
        (2000, 1.0, "14", None),  # half of the rounds alone, by choice
        (2000, 1.0, "15", 15),
    ],
)
def test_releases_that_come_too_late_to_matter_are_said(
    agents: int, epsilon: float, releases: str, until: int | None
) -> None:
    settings = DPFTSDESettings(epsilon=epsilon, releases=releases)
    three = Space({name: Float(0.0, 1.0) for name in "xyz"})  # of fewer, more noise is sent
    server = DPFTSDEServer(three, agents, settings, rounds=28)
    if "0" in releases or releases == "auto":
        assert server.release_plan.rounds == (0, 27)
    if until is None:
        assert server.warnings() == []
    else:
        (text,) = server.warnings()
        assert f"agents work alone up to round {until} of 28" in text


@task(space=SPACE, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - abs(float(params["x"]) - 0.3)


def test_a_run_writes_its_statement_before_its_first_message(tmp_path: Path) -> None:
    @task(space=SPACE, score_range=(0.0, 1.0))
    def looking(params: Any) -> float:
        content = json.loads((tmp_path / "run" / "privacy.json").read_text())
        assert content["epsilon"] > 3.9
        assert content["private"] is True
        return hill.evaluate(params, rng=None)  # type: ignore[arg-type]

    found = simulate(
        looking, agents=3, rounds=2, epsilon=4.0, initial_points=2, run_dir=tmp_path / "run"
    )
    assert found.failures == 0
    written = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert written.pop("file")["names"] == {"charges": 1}  # what the file says of itself
    assert written == found.privacy.to_dict()


def test_the_command_prints_a_page_to_file(tmp_path: Path) -> None:
    simulate(hill, agents=3, rounds=2, epsilon=4.0, initial_points=2, run_dir=tmp_path / "run")
    done = flwr_fbo("privacy", "--statement", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for label in ("Guarantee", "Protected", "Neighbours", "Must be honest", "Not covered"):
        assert f"\n{label}" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 90
    asked = flwr_fbo("privacy", "--statement", "run", "--json", cwd=tmp_path)
    assert json.loads(asked.stdout)["unit"] == "party"
    (tmp_path / "run" / "privacy.json").write_text("{}")
    broken = flwr_fbo("privacy", "--statement", "run", cwd=tmp_path)
    assert broken.returncode == 1
    assert "privacy.json: it has no checksum" in broken.stderr
    none = flwr_fbo("privacy", "--statement", "elsewhere", cwd=tmp_path)
    assert "is not the directory of a run" in none.stderr
