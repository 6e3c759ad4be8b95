"""The sizes of a run, which must fit into the memory of this machine.

The estimate is a lower bound: what the run certainly holds at one time, by its largest parts. A run
whose lower bound is more than the whole memory cannot work, so it is refused before it starts.

==================================  ============================================================
part                                bytes
==================================  ============================================================
N agents: places, nodes, messages   4,096 N
N agents in T rounds: histories     100 N T
M features: an agent's posterior    8 M^2
the vectors of a round              8 N M
P sub-regions: sums and weights     8 P (M + N)
T evaluations: an agent's model     8 T^2, for methods with a Gaussian process
K arms per dimension, D of them     8 D K^D
==================================  ============================================================

T is ``initial-points`` (or ``history``) and ``rounds`` times ``parallel``, or ``budget``. Where all
agents share one budget, as in LDP-BO, the histories hold T rounds in all.
"""

from __future__ import annotations

import os

from flwr_fbo.core.settings import Settings, SettingsError, kebab

#: Bytes of an agent's place in the run, and of an agent's round in the histories.
PER_AGENT, PER_ROUND = 4096, 100
NUMBER = 8


def memory() -> int | None:
    """Return the bytes of this machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def parts(settings: Settings, agents: int, rounds: int, dimension: int) -> dict[str, int]:
    """Return the parts of a run in bytes, by the setting that makes the part large."""
    given = {key: value for key, value in vars(settings).items() if isinstance(value, int)}
    features, regions = given.get("features", 0), given.get("regions", 0)
    counted = "budget" if "budget" in given else "rounds"
    before = max(given.get("initial_points", 0), given.get("history", 0))
    made = given["budget"] if counted == "budget" else rounds * given.get("parallel", 1) + before
    histories = 1 if getattr(settings, "shares_budget", False) else agents
    longest = "initial-points" if before > rounds and counted == "rounds" else counted
    model = NUMBER * made**2 if "initial_points" in given else 0
    found = {
        "agents": agents * (PER_AGENT + NUMBER * features),
        "features": NUMBER * features**2,
        "regions": NUMBER * regions * (features + agents),
        longest: PER_ROUND * histories * made + model,
    }
    if "arms" in given:
        found["arms"] = NUMBER * dimension * given["arms"] ** dimension
    for name in ("width", "most_means", "searches"):
        found[kebab(name)] = NUMBER * given.get(name, 0)
    return found


def check_sizes(settings: Settings, agents: int, rounds: int, dimension: int) -> None:
    """Raise SettingsError for a run that cannot fit into this machine's memory."""
    available = memory()
    if available is None:
        return
    found = parts(settings, agents, rounds, dimension)
    needed = sum(found.values())
    if needed <= available:
        return
    key = max(found, key=lambda k: found[k])
    values = {
        "agents": agents,
        "rounds": rounds,
        **{kebab(k): v for k, v in vars(settings).items()},
    }
    raise SettingsError(
        f"`{key}` must be so small that the run fits into this machine's memory of "
        f"{_gigabytes(available)}, but got {values[key]}: the run needs at least "
        f"{_gigabytes(needed)}, most of it for this setting"
    )


def _gigabytes(size: int) -> str:
    """Return a number of bytes as people read it."""
    # Of a number that is no float any more, the power of ten says enough.
    digits = len(str(size))
    return f"{size / 1e9:.3g} GB" if digits < 300 else f"10^{digits - 10} GB"
