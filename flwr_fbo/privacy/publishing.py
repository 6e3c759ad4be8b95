r"""The privacy cost of a published model: all trainings that the search made count.

A party tunes a model: it trains k models, scores each of them, and publishes the best. The choice
of the best looks at all k scores. The published model therefore costs more than one training, even
where each training is differentially private by itself.

Two kinds of bounds are computed. A *composition* bound holds for the search that was made: it
covers all k models and scores, and everything computed from them
(:mod:`flwr_fbo.privacy.trainings`). A *selection* bound is smaller, but needs another search:
random search, with a number of trainings that is drawn at random and kept secret
(:mod:`flwr_fbo.privacy.selection`). A selection bound says what such a search would have cost. It
never holds for an adaptive search such as Bayesian optimisation.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from dataclasses import dataclass
from typing import Any

from flwr_fbo.privacy import checks
from flwr_fbo.privacy.selection import LAWS
from flwr_fbo.privacy.trainings import ApproximateTraining, Bound, Training, smallest_first

#: The least total delta at which epsilon is given, where the caller states none.
_LEAST_DELTA = 1e-5

COMPOSITION_NEEDS = (
    "The guarantee of one training covers its model and its score. A score on the same people's "
    "data, without noise, is not covered.",
    "Every training had this guarantee, whatever its settings: batch size, number of steps and "
    "noise are not among the tuned parameters, or the largest cost is stated.",
    "The number of trainings was planned, or did not follow from their scores. Otherwise the "
    "largest possible number counts.",
    "One training is all that one evaluation did: with cross-validation, all folds together.",
    "The published model is one of the trainings counted here. A model that is trained again with "
    "the chosen settings is one training more.",
    "A person's data is used by this party alone, in no other search.",
)
SELECTION_NEEDS = (
    "The number of trainings was drawn from the law before the first training, whatever the data, "
    "and is never published.",
    "The settings of each training were drawn from one fixed distribution, independently of all "
    "other trainings (random search).",
    "Only the model with the best score is published, and no other model, score or message.",
    "Where the number is 0, as the Poisson law allows, what is published depends on no data.",
    "The guarantee of one training covers its model and its score.",
)


@dataclass(frozen=True)
class PublishedModel:
    """The cost of a published model, as :func:`cost_of_publishing` returns it.

    Parameters
    ----------
    training : str
        The guarantee of one training, in words.
    trainings, failed : int
        How many trainings were made, and how many of them failed.
    delta : float
        The total delta of the epsilons.
    compositions : tuple of Bound
        Bounds that hold for the search that was made, the smallest epsilon first.
    selections : tuple of Bound
        Bounds of random searches that were *not* made; empty for a single training.
    """

    training: str
    trainings: int
    failed: int
    delta: float
    compositions: tuple[Bound, ...]
    selections: tuple[Bound, ...]

    @property
    def epsilon(self) -> float:
        """Return the smallest epsilon that holds for the search that was made."""
        return self.compositions[0].epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as a JSON object; an epsilon without a bound is None."""

        def rows(bounds: tuple[Bound, ...]) -> list[dict[str, Any]]:
            found = [dataclasses.asdict(bound) for bound in bounds]
            return [{**row, "epsilon": _finite(row["epsilon"])} for row in found]

        return {
            "training": self.training,
            "trainings": self.trainings,
            "failed": self.failed,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "composition": rows(self.compositions),
            "composition_needs": list(COMPOSITION_NEEDS),
            "would_hold_for_random_search": rows(self.selections),
            "random_search_needs": list(SELECTION_NEEDS),
        }

    def to_text(self) -> str:
        """Return the cost as a text: what holds, what it needs, and what would have held."""
        failed = f" ({self.failed} of them failed)" if self.failed else ""
        lines = [
            f"{self.trainings} trainings{failed}, each with {self.training}",
            "",
            "The published model costs one person in the training data:",
            *_table(self.compositions),
            "This holds under these conditions:",
            *_listed(COMPOSITION_NEEDS),
        ]
        if self.selections:
            lines += [
                "",
                "NOT for this search. A random search whose number of trainings is random,",
                f"{self.trainings} in the mean, would have cost:",
                *_table(self.selections),
                "That would need all of these conditions:",
                *_listed(SELECTION_NEEDS),
            ]
        return "\n".join(lines)


def default_publishing_delta(training: Training, trainings: int) -> float:
    """Return the total delta where none is given: 1e-5, or twice what the trainings have."""
    each = training.delta if isinstance(training, ApproximateTraining) else 0.0
    return min(max(_LEAST_DELTA, 2.0 * trainings * each), 0.5)


def cost_of_publishing(
    training: Training, trainings: int, failed: int = 0, delta: float | None = None
) -> PublishedModel:
    """Return what it costs to publish one model of a search.

    Parameters
    ----------
    training : Training
        The guarantee of one training.
    trainings : int
        How many trainings were made, the failed ones included: a failed training used the data.
    failed : int
        How many of them failed, for the report only.
    delta : float, optional
        The total delta at which epsilon is given.

    Examples
    --------
    >>> found = cost_of_publishing(ApproximateTraining(1.0), trainings=2, delta=0.4)
    >>> round(found.epsilon, 3)
    0.62
    """
    count = checks.count("trainings", trainings)
    total = default_publishing_delta(training, count) if delta is None else delta
    checks.open_unit("delta", total)
    selections: list[Bound] = []
    if count > 1:
        found = {law: training.selected(float(count), shape, total) for law, shape in LAWS.items()}
        selections = [Bound(f"{law} number of trainings", eps, total) for law, eps in found.items()]
    return PublishedModel(
        training=str(training),
        trainings=count,
        failed=checks.count("failed", failed, low=0),
        delta=total,
        compositions=tuple(training.compositions(count, total)),
        selections=tuple(sorted(selections, key=smallest_first)),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _listed(needs: tuple[str, ...]) -> list[str]:
    """Return the conditions as a list, in lines of at most 100 characters."""
    return [textwrap.fill(f"- {need}", 100, subsequent_indent="  ") for need in needs]


def _table(bounds: tuple[Bound, ...]) -> list[str]:
    """Return the bounds as lines under a heading."""
    rows = [f"{b.epsilon:11.4f}  {b.delta:9.3g}  {b.name}" for b in bounds]
    return [f"{'epsilon':>11}  {'delta':>9}  by", *rows]
