"""Constructors with a written-out signature, checked and passed on in one way.

A strategy class declares its arguments once more than its settings do, so that editors complete
them and ``help()`` shows them. ``scripts/signatures.py`` writes these signatures from the
settings classes, and a test compares the two. The decorator here does the work of all of them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from flwr_fbo.core.settings import SettingsError, kebab
from flwr_fbo.core.space import Space
from flwr_fbo.runs.callbacks import Callback

P = ParamSpec("P")
S = TypeVar("S")


class ArgumentError(SettingsError, TypeError):
    """A constructor was given an argument that it does not have."""


@dataclass(frozen=True)
class StrategyOptions:
    """What every strategy may be given besides the settings of its method.

    Parameters
    ----------
    space
        The search space, as a :class:`Space` or a mapping of names to parameters.
    num_agents
        How many agents take part; the nodes that are connected where unset.
    num_rounds
        Rounds after the initial points, for loops that do not call ``start``.
    timeout
        Seconds that a round may take, for loops that do not call ``start``.
    seed
        Seed of everything but privacy noise.
    run_dir
        Directory of the run; below the home of runs, by the run's number, where unset.
    round_quorum
        Share of the asked agents whose replies end a round before its timeout.
    answer_within
        Seconds after which agents answer while an evaluation goes on; None waits.
    callbacks
        Watchers of the run.
    """

    space: Space | None = None
    num_agents: int | None = None
    num_rounds: int = 20
    timeout: float = 3600.0
    seed: int = 0
    run_dir: Path | None = None
    round_quorum: float = 1.0
    answer_within: float | None = None
    callbacks: Sequence[Callback] = ()

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all options."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def of(cls, given: dict[str, Any]) -> StrategyOptions:
        """Return checked options."""
        values = dict(given)
        space = values.get("space")
        if space is not None and not isinstance(space, Space):
            values["space"] = Space(space)
        if values.get("run_dir") is not None:
            values["run_dir"] = Path(values["run_dir"])
        for name, low in (("num_agents", 1), ("num_rounds", 0), ("seed", 0)):
            _check_whole(name, values.get(name), low)
        timeout = values.get("timeout", cls.timeout)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise SettingsError(f"`timeout` must be a number of seconds > 0, but got {timeout!r}")
        quorum = values.get("round_quorum", 1.0)
        if isinstance(quorum, bool) or not 0 < quorum <= 1:
            raise SettingsError(f"`round-quorum` must be in (0, 1], but got {quorum!r}")
        patience = values.get("answer_within")
        if patience is not None and (isinstance(patience, bool) or not patience >= 0):
            raise SettingsError(f"`answer-within` must be >= 0, but got {patience!r}")
        return cls(**values)


def _check_whole(name: str, value: Any, low: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise SettingsError(f"`{name}` must be an integer >= {low}, but got {value!r}")


def explicit(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Make a constructor that passes what it was given to ``self._configure``.

    The body of the decorated function is never run: its signature is all that counts. Arguments
    that were not given stay apart from those given with their default, because a preset may
    fill the former only.
    """
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def __init__(self: S, *args: P.args, **given: P.kwargs) -> None:
        written = type(self).__name__
        if args:
            raise ArgumentError(f"{written}() takes keyword arguments only, such as {known[0]}=...")
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                raise ArgumentError(f"{written}() has no argument `{name}`{hint}")
        options = {k: v for k, v in given.items() if k in StrategyOptions.names()}
        stated = {kebab(k): v for k, v in given.items() if k not in options}
        self._configure(options, stated)  # type: ignore[attr-defined]

    return __init__
