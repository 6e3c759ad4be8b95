"""A budget refuses before it writes, and continues after a crash with the ledger's events."""

from __future__ import annotations

import json
import math

import pytest

from flwr_fbo.privacy.budget import BudgetExceeded, PrivacyBudget
from flwr_fbo.privacy.calibration import noise_multiplier_for
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.events import FixedSizeRelease, GaussianRelease, LaplaceRelease
from flwr_fbo.privacy.ledger import Ledger, MemoryLedger

DELTA = 200**-1.1


@pytest.mark.parametrize("name", ["pld", "rdp", "moments"])
def test_a_calibrated_schedule_fits_and_one_more_does_not(name):
    rates = [0.25] * 12
    z = noise_multiplier_for(4.0, DELTA, rates, name)
    ledger = MemoryLedger()
    budget = PrivacyBudget(4.0, DELTA, ledger, name)
    for t, rate in enumerate(rates):
        budget.charge(GaussianRelease(z, rate, t))
    assert 3.99 < budget.spent <= 4.0
    assert 0.0 <= budget.remaining < 0.01
    event = GaussianRelease(z, 0.25, 12)
    assert budget.would_exceed(event)
    with pytest.raises(
        BudgetExceeded, match=r"exceed epsilon=4 at delta=0\.0029\d*: 12 rel.* spent (4|3\.99)"
    ):
        budget.charge(event)
    assert len(ledger.events) == 12  # nothing was written
    assert budget.spent <= 4.0


def test_a_resumed_run_continues_where_the_ledger_stands(tmp_path):
    event = GaussianRelease(1.0, 0.25)
    with Ledger.create(tmp_path / "ledger", {"run": 1}) as ledger:
        first = PrivacyBudget(3.0, DELTA, ledger)
        while not first.would_exceed(event):
            first.charge(event)
        count, spent = len(ledger.events), first.spent
    with Ledger.resume(tmp_path / "ledger", {"run": 1}) as ledger:
        again = PrivacyBudget(3.0, DELTA, ledger)
        assert (len(ledger.events), again.spent) == (count, spent)
        with pytest.raises(BudgetExceeded):
            again.charge(event)


def test_spent_follows_every_release():
    budget = PrivacyBudget(math.inf, DELTA, MemoryLedger())
    assert budget.spent == 0.0
    seen = []
    for t in range(5):
        budget.charge(GaussianRelease(1.0, 0.25, t))
        seen.append(budget.spent)
    assert seen == sorted(seen)
    assert budget.remaining == math.inf


def test_the_report_shows_one_ledger_by_three_accountants():
    budget = PrivacyBudget(20.0, DELTA, MemoryLedger())
    for t in range(40):
        budget.charge(GaussianRelease(1.0, 0.25, t))
    report = json.loads(json.dumps(budget.report()))
    assert report["epsilon"]["moments"] == pytest.approx(9.909, abs=1e-3)
    assert report["epsilon"]["pld"] == report["epsilon_spent"] == pytest.approx(7.054, abs=1e-3)
    assert report["epsilon"]["pld"] < report["epsilon"]["rdp"] < report["epsilon"]["moments"]
    assert (report["releases"], report["epsilon_budget"]) == (40, 20.0)


def test_fixed_size_runs_are_reported_by_their_own_accountant():
    budget = PrivacyBudget(500.0, DELTA, MemoryLedger(), "fixed-size")
    budget.charge(FixedSizeRelease(2.0, 200, 50))
    report = budget.report()
    assert report["epsilon"]["fixed-size"] == budget.spent > 0
    assert report["epsilon"]["pld"] is None


def test_pure_budgets_add_up_and_need_no_delta():
    budget = PrivacyBudget(1.0, 0.0, MemoryLedger(), "pure")
    for t in range(10):
        budget.charge(LaplaceRelease(0.1, t))  # ten times .1 is 1, not 0.9999999999999999
    with pytest.raises(BudgetExceeded):
        budget.charge(LaplaceRelease(1e-9, 10))
    assert budget.report()["epsilon_spent"] == 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "name", "message"),
    [
        (0.0, DELTA, "pld", "`epsilon` must be a finite number > 0, but got 0.0"),
        (-1.0, DELTA, "pld", "`epsilon` must be a finite number > 0, but got -1.0"),
        (math.nan, DELTA, "pld", "`epsilon` must be a finite number > 0, but got nan"),
        (1.0, 0.0, "pld", r"`delta` must be in \(0, 1\), but got 0.0"),
        (1.0, 1.0, "rdp", r"`delta` must be in \(0, 1\), but got 1.0"),
        (1.0, DELTA, "gdp", "`accountant` must be one of pld"),
    ],
)
def test_bad_budgets(epsilon, delta, name, message):
    with pytest.raises(PrivacyError, match=message):
        PrivacyBudget(epsilon, delta, MemoryLedger(), name)


def test_an_event_the_accountant_cannot_take_never_reaches_the_ledger():
    for limit in (10.0, math.inf):
        ledger = MemoryLedger()
        with pytest.raises(PrivacyError, match="different neighbouring relations"):
            PrivacyBudget(limit, DELTA, ledger).charge(FixedSizeRelease(1.0, 10, 5))
        assert ledger.events == ()
