"""Forecasts: the paper's figures, budgets that are kept, and alternatives that make sense."""

from __future__ import annotations

import json

import pytest

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.forecast import SecureForecast, forecast_privacy


def test_the_setting_of_the_paper():
    """N=200, T=40, z=1, q=.25: one release a round."""
    made = forecast_privacy(200, 40, noise_multiplier=1.0, sampling_rate=0.25, delta=200**-1.1)
    data = json.loads(json.dumps(made.to_dict()))
    assert data["delta"] == pytest.approx(200**-1.1)
    assert round(data["epsilon"]["moments"], 2) == 9.91
    assert data["epsilon"]["pld"] == pytest.approx(7.054, abs=1e-3)
    assert (data["noise_multiplier"], data["sampling_rate"], data["releases"]) == (1.0, 0.25, 40)
    assert [row["round"] for row in data["by_round"]] == list(range(40))
    last = data["by_round"][-1]
    assert {name: last[name] for name in data["epsilon"]} == data["epsilon"]
    for name in data["epsilon"]:
        costs = [row[name] for row in data["by_round"]]
        assert costs == sorted(costs)
    assert data["noise_to_signal"] == pytest.approx(1.0 * 100**0.5 / (200 * 0.25))


def test_a_budget_is_kept_with_little_to_spare():
    made = forecast_privacy(200, 40, epsilon=5.0)
    assert made.sampling_rate == 1.0
    assert 4.99 < made.epsilon["pld"] <= 5.0
    assert forecast_privacy(200, 40, epsilon=5.0, sampling_rate=0.25).epsilon["pld"] <= 5.0
    # At a given epsilon sampling everyone has the least noise against signal.
    assert (
        made.noise_to_signal
        < forecast_privacy(200, 40, epsilon=5.0, sampling_rate=0.25).noise_to_signal
    )


def test_rounds_without_a_release_cost_nothing():
    schedule = [t in (0, 1, 2, 4) for t in range(10)]
    made = forecast_privacy(200, 10, epsilon=5.0, schedule=schedule)
    assert made.releases == 4
    costs = [row["pld"] for row in made.by_round]
    assert costs[2] == costs[3] < costs[4] == costs[9]
    assert made.noise_multiplier < forecast_privacy(200, 10, epsilon=5.0).noise_multiplier


def test_alternatives_of_given_noise_change_epsilon():
    made = forecast_privacy(200, 20, noise_multiplier=1.0, sampling_rate=0.25)
    rows = {next(iter(row.items())): row["epsilon"] for row in made.alternatives}
    base = made.epsilon["pld"]
    assert rows["sampling_rate", 0.125] < base < rows["sampling_rate", 0.5]
    assert rows["rounds", 10] < base < rows["rounds", 40]
    assert all(row["noise_multiplier"] == 1.0 for row in made.alternatives)


def test_alternatives_of_a_budget_change_the_noise():
    made = forecast_privacy(50, 10, epsilon=3.0)
    rows = {next(iter(row.items())): row for row in made.alternatives}
    assert ("sampling_rate", 2.0) not in rows
    assert all(row["epsilon"] <= 3.0 for row in rows.values())
    assert rows["rounds", 5]["noise_multiplier"] < made.noise_multiplier
    assert rows["rounds", 20]["noise_multiplier"] > made.noise_multiplier
    assert rows["agents", 100]["noise_to_signal"] < made.noise_to_signal


def test_with_chosen_releases_the_alternatives_are_of_their_number():
    made = forecast_privacy(
        29, 18, epsilon=8.0, schedule=[t in (0, 1, 3, 7, 15) for t in range(18)]
    )
    rows = {next(iter(row.items())): row["noise_multiplier"] for row in made.alternatives}
    assert not any(name == "rounds" for name, _ in rows)
    assert rows["releases", 2] < made.noise_multiplier < rows["releases", 10]
    # two releases cost what two rounds with one each do
    assert rows["releases", 2] == forecast_privacy(29, 2, epsilon=8.0).noise_multiplier
    assert "releases = 10" in made.to_text()


def test_a_given_delta_is_used_and_kept():
    made = forecast_privacy(50, 4, epsilon=3.0, delta=1e-6)
    assert made.delta == 1e-6
    assert "1/(10 N)" not in made.to_text()
    assert forecast_privacy(50, 4, epsilon=3.0).noise_multiplier < made.noise_multiplier


def test_the_text_is_a_table():
    text = forecast_privacy(
        200, 40, noise_multiplier=1.0, sampling_rate=0.25, delta=200**-1.1
    ).to_text()
    assert "epsilon              7.054 by pld" in text
    assert any(line.split() == ["39", "9.908", "8.362", "7.054"] for line in text.splitlines())
    assert "q = 0.5" in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_release_is_singular():
    text = forecast_privacy(20, 5, epsilon=8.0, schedule=[False, True, False, False, False])
    assert text.to_text().startswith("20 agents, 5 rounds, 1 release, in round 1\n")


def test_long_runs_show_a_hundred_rounds():
    made = forecast_privacy(1000, 1000, noise_multiplier=4.0, sampling_rate=0.01)
    assert len(made.by_round) == 100
    assert made.by_round[-1]["round"] == 999


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either `epsilon` or `noise_multiplier` must be given"),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "either `epsilon` or `noise_multiplier`"),
        ({"noise_multiplier": 1.0}, "`sampling_rate` must be given with `noise_multiplier`"),
        ({"epsilon": 0.0}, "`epsilon` must be a finite number > 0, but got 0.0"),
        ({"epsilon": 1.0, "delta": 1.5}, r"`delta` must be in \(0, 1\), but got 1.5"),
        ({"epsilon": 1.0, "sampling_rate": 0.0}, r"`sampling_rate` must be in \(0, 1\]"),
        ({"noise_multiplier": -1.0, "sampling_rate": 0.5}, "`noise_multiplier` must be a finite"),
        ({"epsilon": 1.0, "schedule": [True]}, "`schedule` must say for each of 5 rounds"),
        ({"epsilon": 1.0, "schedule": [False] * 5}, "`schedule` must say for each of 5 rounds"),
        ({"epsilon": 1.0, "features": 0}, "`features` must be an integer >= 1, but got 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(PrivacyError, match=message):
        forecast_privacy(20, 5, **arguments)


def test_one_agent_alone_is_refused():
    with pytest.raises(PrivacyError, match="`agents` must be an integer >= 2, but got 1"):
        forecast_privacy(1, 5, epsilon=1.0)


# ------------------------------------------------------------------ secure sums


def test_secure_sums_have_the_same_epsilon_and_the_excess_noise_of_all_answers():
    plain = forecast_privacy(30, 20, epsilon=4.0)
    made = forecast_privacy(30, 20, epsilon=4.0, secure=SecureForecast())
    # A third may be lost and one of the other 20 may collude: 19 make the noise that is charged.
    assert made.excess_noise == pytest.approx((30 / 19) ** 0.5)
    assert made.noise_multiplier == pytest.approx(plain.noise_multiplier, rel=1e-6)
    assert 3.99 < made.epsilon["pld"] <= 4.0
    assert made.noise_to_signal == pytest.approx(plain.noise_to_signal * (30 / 19) ** 0.5)
    data = json.loads(json.dumps(made.to_dict()))
    assert (data["trust"], data["threshold"], data["colluding"]) == ("secure-sum", 20, 1)
    assert data["excess_noise"] == made.excess_noise
    assert plain.to_dict()["trust"] == "central"


def test_each_aggregation_is_the_alternative_of_the_other():
    plain = forecast_privacy(30, 20, epsilon=4.0)
    made = forecast_privacy(30, 20, epsilon=4.0, secure=SecureForecast())
    (secure,) = [row for row in plain.alternatives if row.get("aggregation")]
    (central,) = [row for row in made.alternatives if row.get("aggregation")]
    assert secure["noise_to_signal"] == pytest.approx(made.noise_to_signal)
    assert central["noise_to_signal"] == pytest.approx(plain.noise_to_signal)
    # Sampling lowers nothing against a server that sees who sends.
    assert not any("sampling_rate" in row for row in made.alternatives)
    sampled = forecast_privacy(30, 20, epsilon=4.0, sampling_rate=0.5)
    assert not any("aggregation" in row for row in sampled.alternatives)


def test_an_alternative_with_too_few_agents_for_a_sum_is_left_out():
    made = forecast_privacy(12, 5, epsilon=4.0, secure=SecureForecast(colluding=7))
    assert [row["agents"] for row in made.alternatives if "agents" in row] == [24]


def test_sums_that_cannot_be_are_refused():
    with pytest.raises(PrivacyError, match="`sampling_rate` must be 1 with secure sums"):
        forecast_privacy(30, 20, epsilon=4.0, sampling_rate=0.5, secure=SecureForecast())
    with pytest.raises(PrivacyError, match="colluding < threshold <= parties"):
        forecast_privacy(3, 20, epsilon=4.0, secure=SecureForecast(colluding=3))


@pytest.mark.parametrize("secure", [None, SecureForecast()])
def test_the_text_says_whom_to_trust_in_80_columns(secure: SecureForecast | None):
    lines = forecast_privacy(100_000, 20, epsilon=4.0, secure=secure).to_text().splitlines()
    assert max(map(len, lines)) <= 80
    (trust,) = [line for line in lines if line.startswith("trust ")]
    assert ("the server adds" in trust) == (secure is None)
