"""The cost of a published model: by hand, by exact laws of small mechanisms, by dp_accounting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from absl import logging as absl_logging
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant, common
from dp_accounting.pld import accountant as library_composition
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from flwr_fbo.cli.main import app
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.publishing import cost_of_publishing
from flwr_fbo.privacy.selection import (
    LAWS,
    epsilon_from_renyi,
    law_mean,
    selection_curve,
    stopping_probability,
)
from flwr_fbo.privacy.trainings import (
    AccountedTraining,
    ApproximateTraining,
    composed_delta,
    optimal_composition,
    randomised_response,
)
from flwr_fbo.runs.files.journal import Journal

GAUSSIAN = dp_event.GaussianDpEvent(2.0)
SGD = dp_event.SelfComposedDpEvent(
    dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.1)), 300
)
FINE = np.unique(np.concatenate([np.geomspace(1.01, 5000.0, 600), np.arange(2.0, 65.0)]))


@pytest.fixture(autouse=True)
def _quiet_library() -> Any:
    """dp_accounting warns about fractional orders that it leaves out."""
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    yield
    absl_logging.set_verbosity(before)


# ------------------------------------------------------------------ composition


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_two_trainings_by_hand(epsilon: float) -> None:
    """KOV, Theorem 3.3, k = 2, i = 1: the delta at epsilon 0 is (e^2eps - 1) / (1 + e^eps)^2."""
    expected = (math.exp(2 * epsilon) - 1) / (1 + math.exp(epsilon)) ** 2
    assert composed_delta(0.0, epsilon, 0.0, 2) == pytest.approx(expected, rel=1e-12)
    assert composed_delta(2 * epsilon, epsilon, 0.0, 2) == 0.0
    # A failure of either training counts as well.
    failing = 1 - (1 - 0.01) ** 2 * (1 - expected)
    assert composed_delta(0.0, epsilon, 0.01, 2) == pytest.approx(failing, rel=1e-12)


@pytest.mark.parametrize("count", [1, 7, 40])
def test_composition_is_that_of_the_worst_mechanism(count: int) -> None:
    """The worst mechanism answers with one bit, which is true with probability e^eps/(1+e^eps)."""
    epsilon, total = 0.4, 0.9
    p = mpmath.exp(epsilon) / (1 + mpmath.exp(epsilon))
    delta = mpmath.mpf(0)
    for flips in range(count + 1):  # hockey-stick divergence of two binomial laws
        one = mpmath.binomial(count, flips) * p ** (count - flips) * (1 - p) ** flips
        other = mpmath.binomial(count, flips) * (1 - p) ** (count - flips) * p**flips
        delta += max(0, one - mpmath.exp(total) * other)
    assert composed_delta(total, epsilon, 0.0, count) == pytest.approx(float(delta), rel=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "delta", "count", "total"),
    [(1.0, 0.001, 30, 0.06), (1.0, 0.001, 30, 0.1), (0.25, 0.0, 50, 0.01), (0.1, 1e-7, 200, 1e-4)],
)
def test_the_library_finds_the_same_at_multiples_of_epsilon(
    epsilon: float, delta: float, count: int, total: float
) -> None:
    each = common.DifferentialPrivacyParameters(epsilon, delta)
    theirs = library_composition.advanced_composition(each, count, total)
    ours = optimal_composition(epsilon, delta, count, total)
    assert ours <= theirs < ours + 2 * epsilon  # theirs is one of eps k, eps (k - 2), ...
    assert composed_delta(ours, epsilon, delta, count) <= total
    assert composed_delta(ours * (1 - 1e-6), epsilon, delta, count) > total


def test_the_advanced_composition_of_the_textbook_is_never_smaller() -> None:
    """Dwork, Rothblum and Vadhan 2010: eps sqrt(2k log(1/d')) + k eps (e^eps - 1)/(e^eps + 1)."""
    for count in (10, 100, 1000):
        epsilon, slack = 0.05, 1e-6
        advanced = epsilon * math.sqrt(2 * count * math.log(1 / slack))
        advanced += count * epsilon * math.expm1(epsilon) / (math.exp(epsilon) + 1)
        assert optimal_composition(epsilon, 0.0, count, slack) <= advanced


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(1e-3, 5.0),
    count=st.integers(1, 300),
    total=st.floats(1e-8, 0.3),
)
def test_composition_grows_with_trainings_and_never_exceeds_the_sum(
    epsilon: float, count: int, total: float
) -> None:
    one = optimal_composition(epsilon, 0.0, count, total)
    assert 0.0 <= one <= count * epsilon
    assert one <= optimal_composition(epsilon, 0.0, count + 1, total) * (1 + 1e-9)
    assert one <= optimal_composition(1.1 * epsilon, 0.0, count, total) * (1 + 1e-9)
    assert optimal_composition(epsilon, 0.0, count, min(0.9, 2 * total)) <= one


def test_a_total_delta_below_that_of_the_trainings_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"`delta` must be > 0.26, the delta that 30 trainings"):
        optimal_composition(1.0, 0.01, 30, 0.2)


@pytest.mark.parametrize("event", [GAUSSIAN, SGD])
def test_trainings_with_known_events_cost_what_the_library_says(event: Any) -> None:
    library = PLDAccountant()
    library.compose(event, 12)
    bounds = AccountedTraining.of(event).compositions(12, 1e-5)
    assert [b.epsilon for b in bounds] == sorted(b.epsilon for b in bounds)
    assert bounds[0].name == "privacy-loss distributions"
    assert bounds[0].epsilon == pytest.approx(library.get_epsilon(1e-5), rel=5e-3)
    assert bounds[0].epsilon >= library.get_epsilon(1e-5) * (1 - 1e-4)


def test_at_a_delta_below_the_rounding_of_transforms_renyi_remains() -> None:
    bounds = AccountedTraining.of(GAUSSIAN).compositions(3, 1e-12)
    assert [bound.name for bound in bounds] == ["Renyi divergences"]


# ------------------------------------------------------------------ selection


@pytest.mark.parametrize(("law", "shape"), [(k, v) for k, v in LAWS.items() if v < math.inf])
@pytest.mark.parametrize("mean", [1.001, 2.0, 40.0, 1e6])
def test_the_law_has_the_stated_mean(law: str, shape: float, mean: float) -> None:
    gamma = stopping_probability(mean, shape)
    assert law_mean(gamma, shape) == pytest.approx(mean, rel=1e-6)
    assert law_mean(gamma, shape) >= mean * (1 - 1e-12)  # rounded to the safe side
    if law == "geometric":
        assert gamma == pytest.approx(1 / mean, rel=1e-9)


def test_the_means_by_their_series() -> None:
    """PS, Definition 1: P(K = k) is (1-g)^k / (k log 1/g), and g (1-g)^(k-1) for shape 1."""
    k = np.arange(1.0, 4000.0)
    logarithmic = 0.8**k / (k * -math.log(0.2))
    assert logarithmic.sum() == pytest.approx(1.0)
    assert law_mean(0.2, 0.0) == pytest.approx((k * logarithmic).sum())
    assert law_mean(0.2, 1.0) == pytest.approx((k * 0.2 * 0.8 ** (k - 1)).sum())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_published_factors_of_a_training_without_delta(epsilon: float) -> None:
    """Liu and Talwar: 3 epsilon for the geometric law. PS, Corollary 3: (2 + eta) epsilon."""
    training = ApproximateTraining(epsilon)
    assert training.selected(1e9, 1.0, 1e-12) == pytest.approx(3 * epsilon)
    assert training.selected(1e9, 0.0, 1e-12) == pytest.approx(2 * epsilon)
    assert training.selected(40.0, 1.0, 1e-5) <= 3 * epsilon
    assert training.selected(40.0, 0.0, 1e-5) <= 2 * epsilon


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize(("rho", "gamma"), [(0.01, 0.01), (0.1, 0.1), (1.0, 0.05)])
def test_the_published_bound_of_gaussian_trainings(shape: float, rho: float, gamma: float) -> None:
    """PS, Corollary 4, for a training with divergences rho lambda."""
    mean = law_mean(gamma, shape)
    orders = np.unique(np.append(FINE, [math.sqrt(-math.log(gamma) / rho)]))
    found = selection_curve(orders, rho * orders, mean, shape, lambda e: e)
    base = 2 * (1 + shape) * math.sqrt(-rho * math.log(gamma)) - shape * rho
    large = orders > 1 + math.sqrt(math.log(mean) / rho)
    expected = rho * (orders - 1) + math.log(mean) / (orders - 1) + base
    np.testing.assert_allclose(found[large], expected[large], rtol=1e-5)


@pytest.mark.parametrize("event", [GAUSSIAN, SGD])
@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_the_library_says_the_same_of_a_random_number(event: Any, shape: float) -> None:
    library = RdpAccountant()
    library.compose(dp_event.RepeatAndSelectDpEvent(event, 40.0, shape))
    ours = AccountedTraining.of(event).selected(40.0, shape, 1e-5)
    # Ours has more orders, and the exact profile where the theorem for the Poisson law needs one.
    assert ours <= library.get_epsilon(1e-5) * (1 + 1e-3)
    if shape < math.inf:
        assert ours == pytest.approx(library.get_epsilon(1e-5), rel=0.02)


def test_the_library_says_the_same_of_randomised_response() -> None:
    response = dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(0.5)), 2)
    for shape in LAWS.values():
        library = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        library.compose(dp_event.RepeatAndSelectDpEvent(response, 40.0, shape))
        ours = ApproximateTraining(0.5).selected(40.0, shape, 1e-5)
        assert ours <= library.get_epsilon(1e-5) * (1 + 1e-6)
        assert ours == pytest.approx(library.get_epsilon(1e-5), rel=0.02)


def best_of(chances: np.ndarray, law: str, mean: float) -> np.ndarray:
    """The exact law of the best of K outcomes 1 < 2 < ...; outcome 0 is that K = 0."""
    below = np.concatenate([[0.0], np.cumsum(chances)])  # P(one training's outcome <= y)
    if law == "Poisson":
        generated = np.exp(-mean * (1 - below))
        return np.concatenate([[generated[0]], np.diff(generated)])
    gamma = stopping_probability(mean, LAWS[law])
    if law == "geometric":
        generated = gamma * below / (1 - (1 - gamma) * below)
    else:
        generated = np.log1p(-(1 - gamma) * below) / math.log(gamma)
    return np.concatenate([[0.0], np.diff(generated)])


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("mean", [2.0, 12.0])
@pytest.mark.parametrize("seed", range(6))
def test_exact_laws_of_the_best_are_within_the_bounds(law: str, mean: float, seed: int) -> None:
    """A training with five scores, whose chances differ by at most e^epsilon for a neighbour."""
    epsilon, delta = 0.7, 1e-4
    rng = np.random.default_rng(seed)
    # Mixtures of a law and its reverse, weighted as randomised response weights them.
    base = rng.dirichlet(np.full(5, 0.5))
    p = 1 / (1 + math.exp(-epsilon))
    one, other = p * base + (1 - p) * base[::-1], p * base[::-1] + (1 - p) * base
    assert np.max(np.abs(np.log(one / other))) <= epsilon + 1e-12
    orders = FINE[FINE <= 200.0]
    profile = ApproximateTraining(epsilon)._profile
    divergences = randomised_response(epsilon, orders)
    curve = selection_curve(orders, divergences, mean, LAWS[law], profile, epsilon)
    claimed = ApproximateTraining(epsilon).selected(mean, LAWS[law], delta)
    for a, b in ((one, other), (other, one)):
        left, right = best_of(a, law, mean), best_of(b, law, mean)
        kept = right > 0
        log_ratio = np.log(left[kept]) - np.log(right[kept])
        for order, bound in zip(orders, curve, strict=True):
            exact = np.log(np.sum(right[kept] * np.exp(order * log_ratio))) / (order - 1)
            assert exact <= bound * (1 + 1e-9)
        assert np.sum(np.maximum(0.0, left - math.exp(claimed) * right)) <= delta


def test_a_delta_of_the_training_is_paid_for_every_training() -> None:
    """With delta the bound is the one without, at what is left of the total delta."""
    with_delta = ApproximateTraining(0.5, 1e-7).selected(40.0, 1.0, 1e-5)
    without = ApproximateTraining(0.5).selected(40.0, 1.0, 1e-5 - 40 * 1e-7)
    assert with_delta == without
    assert ApproximateTraining(0.5, 1e-6).selected(40.0, 1.0, 1e-5) == math.inf


@settings(max_examples=30, deadline=None)
@given(epsilon=st.floats(0.01, 3.0), mean=st.floats(1.5, 1e4), law=st.sampled_from(list(LAWS)))
def test_selection_grows_with_the_mean_and_with_epsilon(
    epsilon: float, mean: float, law: str
) -> None:
    def cost(e: float, m: float) -> float:
        return ApproximateTraining(e).selected(m, LAWS[law], 1e-5)

    assert cost(epsilon, mean) <= cost(epsilon, 1.5 * mean) * (1 + 1e-9)
    assert cost(epsilon, mean) <= cost(1.2 * epsilon, mean) * (1 + 1e-9)


def test_renyi_of_randomised_response_by_hand() -> None:
    """Order 2: log of (p^2/(1-p) + (1-p)^2/p)."""
    p = math.exp(1.0) / (1 + math.exp(1.0))
    expected = math.log(p**2 / (1 - p) + (1 - p) ** 2 / p)
    assert randomised_response(1.0, np.array([2.0]))[0] == pytest.approx(expected)
    assert randomised_response(1.0, np.array([1e6]))[0] == pytest.approx(1.0, abs=1e-5)


def test_epsilon_from_renyi_by_hand() -> None:
    """One order a = 2: R + log(1/2) + log(1/(2 delta))."""
    found = epsilon_from_renyi(np.array([2.0]), np.array([0.3]), 1e-3)
    assert found == pytest.approx(0.3 + math.log(0.5) - math.log(2e-3))


# ------------------------------------------------------------------ a model


def test_the_smallest_bound_of_the_search_comes_first() -> None:
    found = cost_of_publishing(ApproximateTraining(0.5, 1e-8), 40, failed=3)
    assert found.epsilon == found.compositions[0].epsilon < 20.0
    assert found.compositions[1].epsilon == 20.0
    assert found.compositions[1].delta == pytest.approx(40e-8)
    assert found.delta == 1e-5
    assert [b.epsilon for b in found.selections] == sorted(b.epsilon for b in found.selections)
    text = found.to_text()
    assert "40 trainings (3 of them failed), each with epsilon 0.5 at delta 1e-08" in text
    holds, would = text.split("NOT for this search")
    assert "optimal composition" in holds
    assert "geometric" not in holds
    assert "random search" in would
    assert max(map(len, text.splitlines())) <= 100
    assert json.loads(json.dumps(found.to_dict()))["epsilon"] == found.epsilon


def test_few_trainings_of_large_epsilon_add_up() -> None:
    found = cost_of_publishing(ApproximateTraining(8.0), 2)
    assert found.compositions[0].epsilon == pytest.approx(16.0, rel=1e-2)
    assert cost_of_publishing(ApproximateTraining(1.0), 1).selections == ()


def test_the_default_delta_is_more_than_the_trainings_have() -> None:
    assert cost_of_publishing(ApproximateTraining(0.5, 1e-5), 40).delta == pytest.approx(8e-4)
    assert cost_of_publishing(ApproximateTraining(0.5), 40).delta == 1e-5


def test_an_impossible_bound_is_none_in_json() -> None:
    # 40 trainings fail with probability 0.33 at most, but with 0.4 by the sum that selection needs.
    found = cost_of_publishing(ApproximateTraining(0.5, 0.01), 40, delta=0.35)
    assert found.epsilon < 20.0
    assert {row["epsilon"] for row in found.to_dict()["would_hold_for_random_search"]} == {None}


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (GAUSSIAN, ((("gaussian", 2.0, 1.0), 1),)),
        (SGD, ((("gaussian", 1.1, 0.02), 300),)),
        (
            dp_event.ComposedDpEvent([SGD, dp_event.LaplaceDpEvent(4.0), SGD]),
            ((("gaussian", 1.1, 0.02), 600), (("laplace", 0.25, 1.0), 1)),
        ),
    ],
)
def test_events_of_the_library_are_read(event: Any, counts: Any) -> None:
    assert AccountedTraining.of(event).counts == counts


def test_events_are_read_from_json() -> None:
    step = {"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}
    sampled = {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.02, "event": step}
    read = AccountedTraining.of(
        {"class_name": "SelfComposedDpEvent", "count": 300, "event": sampled}
    )
    assert read == AccountedTraining.of(SGD)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (dp_event.NonPrivateDpEvent(), "but got NonPrivateDpEvent"),
        (dp_event.PoissonSampledDpEvent(0.1, SGD), "but got PoissonSampledDpEvent"),
        (dp_event.ComposedDpEvent([]), "at least one event"),
        ({"class_name": "GaussianDpEvent"}, "needs the field `noise_multiplier`"),
        ({"noise": 3}, "but got None"),
        (dp_event.GaussianDpEvent(0.0), "`noise_multiplier` must be"),
        (dp_event.SelfComposedDpEvent(GAUSSIAN, 0), "`count` must be"),
    ],
)
def test_other_events_are_refused(event: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        AccountedTraining.of(event)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ApproximateTraining(0.0), "`epsilon` must be"),
        (lambda: ApproximateTraining(1.0, 1.0), "`delta` must be"),
        (lambda: cost_of_publishing(ApproximateTraining(1.0), 0), "`trainings` must be"),
        (lambda: cost_of_publishing(ApproximateTraining(1.0), 3, delta=0.0), "`delta` must be"),
        (lambda: stopping_probability(1.0, 1.0), "`mean` must be > 1"),
        (
            lambda: selection_curve(FINE, FINE, 0.5, math.inf, lambda e: e),
            "`mean` must be > 1",
        ),
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        make()


# ------------------------------------------------------------------ the command


RECORD: dict[str, Any] = {"round": 0, "play": 0, "params": {}, "unit": []}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal of three evaluations, one of which failed, and a record of another kind."""
    path = tmp_path / "agent-0000.jsonl"
    own = Journal(path)
    for score in (0.5, None):
        own.append("evaluation", {**RECORD, "score": score})
    own.append("fit", {"observations": 2})
    own.append("evaluation", {**RECORD, "score": 0.7})
    return path


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["privacy", *arguments])


def test_the_command_counts_every_training_of_the_journal(journal: Path) -> None:
    before = journal.read_bytes()
    done = command("--publish", str(journal), "--training-epsilon", "0.5", "--json")
    found = json.loads(done.stdout)
    assert (found["trainings"], found["failed"]) == (3, 1)
    assert found["composition"][-1]["epsilon"] == 1.5
    again = command("--publish", str(journal), "--training-epsilon", "0.5", "--retrained", "--json")
    assert json.loads(again.stdout)["trainings"] == 4
    text = command("--publish", str(journal), "--training-epsilon", "0.5").stdout
    assert "3 trainings (1 of them failed)" in text
    assert journal.read_bytes() == before  # the journal is only read


def test_the_command_reads_an_event(journal: Path, tmp_path: Path) -> None:
    event = tmp_path / "training.json"
    event.write_text('{"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}')
    done = command("--publish", str(journal), "--training-event", str(event), "--json")
    found = json.loads(done.stdout)
    assert found["composition"][0]["name"] == "privacy-loss distributions"
    assert found["epsilon"] == AccountedTraining.of(GAUSSIAN).compositions(3, 1e-5)[0].epsilon


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--publish", "absent.jsonl", "--training-epsilon", "1"), "own journal, but got absent"),
        (("--publish", "JOURNAL"), "needs either --training-epsilon or --training-event"),
        (
            ("--publish", "JOURNAL", "--training-epsilon", "1", "--training-event", "JOURNAL"),
            "needs either",
        ),
        (("--publish", "JOURNAL", "--training-event", "JOURNAL"), "must hold one dp-accounting"),
        (("--publish", "EMPTY", "--training-epsilon", "1"), "holds no evaluation"),
        (
            ("--rounds", "3"),
            "either --agents and --rounds, or --publish, or --statement must be given",
        ),
        (
            ("--publish", "JOURNAL", "--training-epsilon", "1", "--training-delta", "2"),
            "`delta` must be",
        ),
    ],
)
def test_mistakes_are_told(journal: Path, arguments: tuple[str, ...], fault: str) -> None:
    empty = journal.with_name("empty.jsonl")
    empty.write_text("")
    names = {"JOURNAL": str(journal), "EMPTY": str(empty)}
    done = command(*(names.get(word, word) for word in arguments))
    assert done.exit_code == 2
    assert fault in " ".join(done.output.split())
