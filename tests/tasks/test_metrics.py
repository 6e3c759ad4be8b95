"""The range of a score by its metric's name, and what the range is used for."""

from __future__ import annotations

import pytest

from flwr_fbo import Float, task
from flwr_fbo.methods.registry import find_method
from flwr_fbo.models.score_scale import SCALE_NUMBERS
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks.metrics import SHARES, known_range

SPACE = {"x": Float(0.0, 1.0)}


@pytest.mark.parametrize(
    "metric",
    [*sorted(SHARES), "Accuracy", "validation accuracy", "val_accuracy", "ROC AUC", "mean-cv auc"],
)
def test_shares_lie_between_0_and_1(metric):
    assert known_range(metric) == (0.0, 1.0)


@pytest.mark.parametrize(
    "metric", ["score", "", "height", "negative log loss", "error", "r2", "faccuracy"]
)
def test_of_other_metrics_nothing_is_known(metric):
    assert known_range(metric) is None


def presets(**stated):
    made = task(space=SPACE, **stated)(lambda params: params["x"])
    return find_method("dp-fts-de").presets_for(made, 0)


def test_the_metric_s_name_states_the_range_where_the_task_does_not():
    assert presets(metric="accuracy") == {"reward-low": 0.0, "reward-high": 1.0}
    assert presets(metric="accuracy", score_range=(0.0, 100.0))["reward-high"] == 100.0
    assert presets(metric="height") == {}


def test_a_run_on_accuracies_shares_their_scale_unasked():
    def vector_length(metric):
        made = task(space=SPACE, metric=metric)(lambda params: params["x"])
        return RunSpec.from_mapping({"task": made, "strategy": "dp-fts-de"}).settings.vector_length

    assert vector_length("accuracy") == vector_length("height") + SCALE_NUMBERS
