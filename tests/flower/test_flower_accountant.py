"""Our accountant in Flower's protocol, in Flower's own strategy, and ledgers in Flower's form."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyAccountant,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from flwr_fbo.privacy.accountants import PldAccountant, make_accountant
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.events import Event, FixedSizeRelease, GaussianRelease, LaplaceRelease
from flwr_fbo.privacy.flower_state import flower_state
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.accountant import PldPrivacyAccountant

DELTA = 1e-5


def config(**changes: Any) -> PrivacyConfig:
    given = {
        "target_delta": DELTA,
        "population_size": 100,
        "neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "sampling_method": SamplingMethod.POISSON,
        **changes,
    }
    return PrivacyConfig(**given)


STEP = GaussianPrivacyEvent(noise_multiplier=1.0, sample_size=25, population_size=100)


def test_it_has_every_member_of_the_protocol() -> None:
    accountant: PrivacyAccountant = PldPrivacyAccountant(config())  # checked by mypy as well
    members = {name for name in vars(PrivacyAccountant) if not name.startswith("_")}
    assert len(members) > 7
    assert members <= set(dir(accountant))


def test_epsilon_is_our_accountants_and_below_flowers() -> None:
    ours, flowers = PldPrivacyAccountant(config()), RdpAccountant(config())
    for accountant in (ours, flowers):
        accountant.compose(STEP, 30)
        accountant.compose(STEP, 10)
    direct = PldAccountant()
    direct.compose(GaussianRelease(1.0, 0.25), 40)
    spent = ours.get_privacy_spent()
    assert spent.epsilon == ours.get_epsilon(DELTA) == direct.epsilon(DELTA)
    assert (spent.delta, spent.num_releases, spent.accounting_method) == (DELTA, 40, "pld")
    assert 0.8 * flowers.get_epsilon(DELTA) < spent.epsilon < flowers.get_epsilon(DELTA)
    assert ours.get_delta(spent.epsilon) == pytest.approx(DELTA, rel=1e-3)
    assert ours.get_delta(spent.epsilon) <= DELTA
    assert ours.get_privacy_spent(1e-3).epsilon < spent.epsilon


def test_without_amplification_everybody_counts() -> None:
    accountant = PldPrivacyAccountant(config(sampling_method=SamplingMethod.NO_AMPLIFICATION))
    accountant.compose(STEP, 4)
    direct = PldAccountant()
    direct.compose(GaussianRelease(1.0, 1.0), 4)
    assert accountant.get_epsilon(DELTA) == direct.epsilon(DELTA)


def test_no_release_costs_nothing() -> None:
    accountant = PldPrivacyAccountant(config())
    assert (accountant.num_releases, accountant.get_epsilon(DELTA)) == (0, 0.0)
    assert accountant.get_delta(0.0) == 0.0


def test_would_exceed_is_what_composing_does_and_adds_nothing() -> None:
    accountant = PldPrivacyAccountant(config(max_epsilon=5.0))
    made = 0
    while not accountant.would_exceed(STEP):
        accountant.compose(STEP)
        made += 1
    assert accountant.num_releases == made > 1
    assert accountant.get_epsilon(DELTA) <= 5.0
    assert not accountant.would_exceed(STEP, max_epsilon=6.0)
    assert accountant.would_exceed(STEP, max_epsilon=6.0, count=100)
    accountant.compose(STEP)
    assert accountant.get_epsilon(DELTA) > 5.0


def test_its_state_is_json_and_continues() -> None:
    accountant = PldPrivacyAccountant(config(max_epsilon=9.0))
    accountant.compose(STEP, 7)
    state = json.loads(json.dumps(accountant.state_dict()))
    again = PldPrivacyAccountant(config(max_epsilon=9.0))
    again.load_state_dict(state)
    assert again.get_privacy_spent() == accountant.get_privacy_spent()
    assert again.state_dict() == accountant.state_dict()


def test_it_takes_over_from_flowers_accountant() -> None:
    flowers = RdpAccountant(config())
    flowers.compose(STEP, 7)
    ours = PldPrivacyAccountant(config())
    ours.load_state_dict(flowers.state_dict())
    assert ours.num_releases == 7
    assert ours.get_epsilon(DELTA) < flowers.get_epsilon(DELTA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "`schema_version` must be 1"),
        ({"backend": "moments"}, "`backend` must be one of pld, rdp"),
        ({"config": {}}, "`config` must be"),
        ({"compositions": [{"event": {}}]}, "`compositions` must be a list"),
        ({"compositions": None}, "`compositions` must be a list"),
        (
            {"compositions": [{"event": dataclasses.asdict(STEP), "count": 0}]},
            "`count` must be an integer",
        ),
    ],
)
def test_a_bad_state_is_refused_and_changes_nothing(change: Any, message: str) -> None:
    accountant = PldPrivacyAccountant(config())
    accountant.compose(STEP)
    before = accountant.state_dict()
    with pytest.raises(PrivacyError, match=message):
        accountant.load_state_dict({**before, **change})
    assert accountant.state_dict() == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PldPrivacyAccountant(config(target_delta=1e-12)), "`target_delta` must be"),
        (
            lambda: PldPrivacyAccountant(
                config(
                    sampling_method=SamplingMethod.WITHOUT_REPLACEMENT,
                    neighboring_relation=NeighboringRelation.REPLACE_ONE,
                )
            ),
            "use flwr.serverapp.RdpAccountant",
        ),
        (lambda: PldPrivacyAccountant(config()).would_exceed(STEP), "`max_epsilon` must be given"),
        (
            lambda: PldPrivacyAccountant(config()).compose(GaussianPrivacyEvent(1.0, 2, 50)),
            "`population_size` must be 100",
        ),
        (lambda: PldPrivacyAccountant(config()).compose(STEP, 0), "`count` must be"),
        (lambda: PldPrivacyAccountant(config()).get_delta(-1.0), "`epsilon` must be"),
    ],
)
def test_bad_use_is_refused(make: Any, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        make()


# ------------------------------------------------------------------ Flower's own strategy


def trainer() -> ClientApp:
    """A client that sends back what it was sent, a little changed."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = [a + 0.1 for a in message.content["arrays"].to_numpy_ndarrays()]  # type: ignore[union-attr]
        content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 8})}
        return Message(RecordDict(content), reply_to=message)  # type: ignore[arg-type]

    return app


def private_training(accountant: PrivacyAccountant, nodes: int = 4) -> Any:
    average = FedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes
    )
    return DifferentialPrivacyServerSideFixedClipping(
        average, 2.0, 1.0, nodes, accountant=accountant
    )


def test_flowers_strategy_counts_with_it() -> None:
    accountant = PldPrivacyAccountant(
        config(population_size=4, sampling_method=SamplingMethod.NO_AMPLIFICATION)
    )
    strategy = private_training(accountant)
    grid = InProcessGrid(trainer(), 4)
    strategy.start(grid, ArrayRecord([np.zeros(3)]), num_rounds=3, train_config=ConfigRecord())
    direct = PldAccountant()
    direct.compose(GaussianRelease(2.0, 1.0), 3)
    assert strategy.privacy_spent().num_releases == 3
    assert strategy.privacy_spent().epsilon == direct.epsilon(DELTA)


def test_flowers_strategy_stops_at_its_limit() -> None:
    accountant = PldPrivacyAccountant(
        config(
            population_size=4,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            max_epsilon=3.0,
        )
    )
    strategy = private_training(accountant)
    with pytest.raises(PrivacyBudgetExhausted):
        strategy.start(InProcessGrid(trainer(), 4), ArrayRecord([np.zeros(3)]), num_rounds=50)
    assert 0 < accountant.num_releases < 50
    assert accountant.get_epsilon(DELTA) <= 3.0


# ------------------------------------------------------------------ a ledger in Flower's form


@pytest.mark.parametrize(
    ("events", "agents"),
    [
        ([GaussianRelease(2.0, 0.25, t) for t in range(5)], 40),
        ([GaussianRelease(2.0, 1.0, 0), GaussianRelease(3.0, 1.0, 4)], 30),
        ([GaussianRelease(1.5, 0.1, t) for t in (0, 1, 2, 4)], 30),
        ([FixedSizeRelease(4.0, 50, 10, t) for t in range(3)], 50),
    ],
)
def test_flower_reads_our_ledger_at_our_epsilon(
    events: list[Event], agents: int, tmp_path: Any
) -> None:
    with Ledger.create(tmp_path / "ledger.jsonl", {}) as ledger:
        for event in events:
            ledger.charge(event)
        state = json.loads(json.dumps(flower_state(ledger.events, agents, DELTA, epsilon=9.0)))
    read = RdpAccountant(
        PrivacyConfig(
            target_delta=DELTA,
            population_size=agents,
            neighboring_relation=NeighboringRelation(state["config"]["neighboring_relation"]),
            sampling_method=SamplingMethod(state["config"]["sampling_method"]),
            max_epsilon=9.0,
        )
    )
    read.load_state_dict(state)
    assert read.num_releases == len(events)
    ours = make_accountant("fixed-size" if isinstance(events[0], FixedSizeRelease) else "rdp")
    for event in events:
        ours.compose(event)
    # The rates are ratios of whole numbers, so nothing was rounded; the orders differ a little.
    assert read.get_epsilon(DELTA) == pytest.approx(ours.epsilon(DELTA), rel=0.01)


def test_our_accountant_reads_our_ledger_exactly() -> None:
    events = [GaussianRelease(1.0, 0.25, t) for t in range(3)]
    state = flower_state(events, 100, DELTA, backend="pld")
    accountant = PldPrivacyAccountant(config())
    accountant.load_state_dict(state)
    direct = PldAccountant()
    direct.compose(events[0], 3)
    assert accountant.get_epsilon(DELTA) == direct.epsilon(DELTA)
    assert accountant.state_dict() == state


@pytest.mark.parametrize(
    ("rate", "agents", "size"),
    [(0.1, 30, 3), (0.35, 29, 11), (1.0, 7, 7), (1e-9, 10, 1), (0.5, 1, 1)],
)
def test_a_rate_that_is_no_ratio_is_rounded_up(rate: float, agents: int, size: int) -> None:
    (found,) = flower_state([GaussianRelease(1.0, rate)], agents, DELTA)["compositions"]
    assert found["event"]["sample_size"] == size
    assert size / agents >= rate


def test_equal_releases_in_a_row_are_one_entry() -> None:
    events = [GaussianRelease(1.0, 0.5, t) for t in range(3)] + [GaussianRelease(2.0, 0.5, 9)]
    counts = [entry["count"] for entry in flower_state(events, 10, DELTA)["compositions"]]
    assert counts == [3, 1]
    assert flower_state([], 10, DELTA)["compositions"] == []


@pytest.mark.parametrize(
    ("events", "agents", "message"),
    [
        ([LaplaceRelease(0.1)], 10, "Gaussian releases only"),
        ([GaussianRelease(1.0), FixedSizeRelease(1.0, 10, 2)], 10, "cannot be in one state"),
        ([FixedSizeRelease(1.0, 10, 2)], 12, "`agents` must be the population"),
        ([GaussianRelease(1.0)], 0, "`agents` must be"),
    ],
)
def test_other_ledgers_are_refused(events: Any, agents: int, message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        flower_state(events, agents, DELTA)
