"""Settings that a party knows already, with or without their scores.

Known settings are the party's own data: the agent takes them in before its first evaluation, and
they count in the vectors that the agent shares, under the same bound and the same guarantee. They
are written to the party's own journal and never leave the party.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from flwr_fbo.core.space import Space, SpaceError
from flwr_fbo.tasks.task import Partition

#: A setting, or a setting and its score.
Known: TypeAlias = Mapping[str, Any] | tuple[Mapping[str, Any], float | None]
#: Known settings, an Optuna study, or a function that returns either for a party.
WarmStart: TypeAlias = Sequence[Known] | Any | Callable[[Partition], Any]
#: A point (D,) of the unit cube as a list, and its score; None for a setting to try.
KnownPoint: TypeAlias = tuple[list[float], float | None]


def known_points(space: Space, given: WarmStart, partition: Partition) -> list[KnownPoint]:
    """Return the points of a warm start; raise SpaceError for a setting outside the space.

    Trials of a study are different: those that are not complete, or not of this space, are left
    out, because an earlier study may have had other ranges.

    Examples
    --------
    >>> from flwr_fbo.core.space import Float
    >>> space = Space({"x": Float(0.0, 2.0)})
    >>> known_points(space, [{"x": 1.0}, ({"x": 0.5}, 0.9)], Partition(0, 1))
    [([0.5], None), ([0.25], 0.9)]
    """
    if callable(given) and not hasattr(given, "get_trials"):
        given = given(partition)
    if hasattr(given, "get_trials"):
        return _points_of_study(space, given)
    points: list[KnownPoint] = []
    for entry in given:
        params, score = entry if isinstance(entry, tuple) else (entry, None)
        if score is not None and not math.isfinite(score):
            raise SpaceError(
                f"the score of a known setting must be finite or None, but got {score!r}"
            )
        unit = space.to_unit(params).tolist()
        points.append((unit, None if score is None else float(score)))
    return points


def _points_of_study(space: Space, study: Any) -> list[KnownPoint]:
    """Return the complete trials of an Optuna study that lie in the space."""
    sign = -1.0 if study.direction.name == "MINIMIZE" else 1.0
    points: list[KnownPoint] = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name != "COMPLETE" or not math.isfinite(trial.value):
            continue
        try:
            unit = space.to_unit({name: trial.params[name] for name in space.names})
        except (KeyError, SpaceError):
            continue
        points.append((unit.tolist(), sign * float(trial.value)))
    return points
