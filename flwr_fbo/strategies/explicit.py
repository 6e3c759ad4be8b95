"""Constructors with a written-out signature, checked and passed on in one way.

A strategy class repeats the settings of its method as arguments, so that editors complete the
arguments and ``help()`` shows them. ``scripts/signatures.py`` writes these signatures from the
settings classes, and a test compares the two. The decorator :func:`explicit` implements all of the
constructors.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from flwr_fbo.core.settings import SettingsError, kebab
from flwr_fbo.core.space import Space
from flwr_fbo.runs.callbacks import Callback

P = ParamSpec("P")
S = TypeVar("S")


class ArgumentError(SettingsError, TypeError):
    """An error for an argument that a constructor does not have."""


@dataclass(frozen=True)
class StrategyOptions:
    """The options of every strategy, beside the settings of its method.

    Parameters
    ----------
    space
        The search space, as a :class:`Space` or a mapping of names to parameters.
    num_agents
        How many agents take part; where unset, the number of connected nodes.
    num_rounds
        Rounds after the initial points, for loops that do not call ``start``.
    timeout
        Seconds that a round may take, for loops that do not call ``start``.
    seed
        Seed of everything but privacy noise.
    run_dir
        Directory of the run; where unset, a folder named after the run below the home of runs.
    round_quorum
        Share of the asked agents whose replies end a round before its timeout.
    answer_within
        Seconds after which an agent replies although its evaluation still runs; None waits.
    node_ids
        The node of each agent by its number, in a deployment; where unset, the first node that
        registers as an agent is the agent's.
    callbacks
        Objects that watch the run.
    """

    space: Space | None = None
    num_agents: int | None = None
    num_rounds: int = 20
    timeout: float = 3600.0
    seed: int = 0
    run_dir: Path | None = None
    round_quorum: float = 1.0
    answer_within: float | None = None
    node_ids: Sequence[int] = ()
    callbacks: Sequence[Callback] = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all options."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def of(cls, given: dict[str, Any]) -> StrategyOptions:
        """Return the options of a constructor; raise SettingsError for one that breaks a rule."""
        values = dict(given)
        space = values.get("space")
        if space is not None and not isinstance(space, Space):
            values["space"] = Space(space)
        if values.get("run_dir") is not None:
            values["run_dir"] = Path(values["run_dir"])
        for name, low in (("num_agents", 1), ("num_rounds", 0), ("seed", 0)):
            _check_integer(name, values.get(name), low)
        _check_number("timeout", values.get("timeout", cls.timeout), "> 0", lambda v: v > 0)
        quorum = values.get("round_quorum", cls.round_quorum)
        _check_number("round_quorum", quorum, "in (0, 1]", lambda v: 0 < v <= 1)
        if values.get("answer_within") is not None:
            _check_number("answer_within", values["answer_within"], ">= 0", lambda v: v >= 0)
        values["node_ids"] = _checked_node_ids(values.get("node_ids", ()), values)
        return cls(**values)


def _check_integer(name: str, value: Any, low: int) -> None:
    """Raise SettingsError unless the value is None or an integer of at least ``low``."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise SettingsError(f"`{name}` must be an integer >= {low}, but got {value!r}")


def _checked_node_ids(value: Any, given: dict[str, Any]) -> tuple[int, ...]:
    """Return the nodes of agents; raise SettingsError unless each agent has a node of its own."""
    ids = tuple(value)
    if not all(type(node) is int for node in ids) or len(set(ids)) < len(ids):
        raise SettingsError(f"`node_ids` must be different integers, but got {value!r}")
    agents = given.get("num_agents")
    if ids and agents is not None and len(ids) != agents:
        raise SettingsError(
            f"`node_ids` must name one node for each of {agents} agents, but got {len(ids)}"
        )
    return ids


def _check_number(name: str, value: Any, rule: str, keeps_rule: Callable[[float], bool]) -> None:
    """Raise SettingsError unless the value is a number that keeps the rule."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not keeps_rule(value):
        raise SettingsError(f"`{name}` must be a number {rule}, but got {value!r}")


def explicit(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Return a constructor that checks its arguments and passes them to ``self._configure``.

    Only the signature of the decorated function counts; its body is never run. An argument that
    was not given is not passed on with its default, because a preset may fill it.
    """
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def checked_init(self: S, *args: P.args, **given: P.kwargs) -> None:
        written = type(self).__name__
        if args:
            raise ArgumentError(f"{written}() takes keyword arguments only, such as {known[0]}=...")
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                raise ArgumentError(f"{written}() has no argument `{name}`{hint}")
        # Only the given arguments, and never the defaults of the signature.
        options = {k: v for k, v in given.items() if k in StrategyOptions.names()}
        stated = {kebab(k): v for k, v in given.items() if k not in options}
        self._configure(options, stated)  # type: ignore[attr-defined]

    # mypy sees the wrapper of functools, whose first parameter is named.
    return cast("Callable[Concatenate[S, P], None]", checked_init)
