"""Figures of "Differentially Private Federated Bayesian Optimization with Distributed Exploration".

Settings are the paper's (``preset = "paper"``): Sec. 5 and App. B. Epsilon is the paper's moments
accountant's, and noise is real, from the operating system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .checks import Check, below, below_all, comparable, least, ordered, prints, value
from .figures import Figure, Run, Size, SizeName

Settings = Mapping[str, Any]
#: No vector is as long: FTS and FTS-DE without privacy do not clip.
NO_CLIP = 1e6
SYNTHETIC = {"task": "synthetic", "agents": 200, "rounds": 40}
LANDMINE = {"task": "landmine", "agents": 29, "rounds": 60, "task-seed": 0}
ACTIVITY = {"task": "activity", "agents": 30, "rounds": 60, "task-seed": 0}
EMNIST = {"task": "emnist", "agents": 50, "rounds": 60, "task-seed": 0, "data": "writers"}
EMNIST_NOTE = "MNIST digits by NIST writer instead of EMNIST, which is not available"
EMNIST_OBSTACLE = (
    "EMNIST is not available, and in the digits by writer the first ten networks already "
    "classify all but 0.8 %, so no method can be ahead"
)
#: Scores come from tables (lattice.py).
TABLES: Mapping[str, Settings] = {
    "landmine": {"lattice": "interpolated"}, "activity": {"lattice": "points"},
}  # fmt: skip
TABLES_NOTE = {
    "landmine": "scores are interpolated between 49 x 49 values",
    "activity": "agents choose among 17 x 33 x 33 points",
}
HAR_NOTE = "the 561 features derived again from the inertial windows"
#: Privacy losses that the authors' notebook (`analyze.ipynb`) prints for landmine.
EPSILONS = {
    "q=0.35 z=1": 15.17, "q=0.35 z=1.6": 7.12, "q=0.35 z=2": 5.14, "q=0.35 z=3": 3.05,
    "q=0.35 z=4": 2.16, "q=0.1 z=1": 3.75, "q=0.15 z=1": 5.98, "q=0.2 z=1": 7.69,
    "q=0.25 z=1": 9.82,
}  # fmt: skip


def ts(of: Settings) -> Run:
    """Thompson sampling, each agent alone."""
    return Run("federation", {**of, "strategy": "local-ts"})


def de(of: Settings, **settings: Any) -> Run:
    """DP-FTS-DE with some settings; without noise and clip it is FTS-DE, with regions=1 FTS."""
    given = {k.replace("_", "-"): v for k, v in settings.items()}
    return Run("federation", {**of, "strategy": "dp-fts-de", **given})


def dp(of: Settings, q: float, z: float, **settings: Any) -> Run:
    """The private method at a sampling rate and a noise multiplier."""
    return de(of, sampling_rate=q, noise_multiplier=z, **settings)


def sizes(
    quick: Size, medium: int, full: int, shorter: Settings | None = None
) -> dict[SizeName, Size]:
    """Quick: two seeds and little of everything; medium: as full, fewer seeds."""
    return {"quick": quick, "medium": Size(medium, shorter or {}), "full": Size(full)}


QUICK = Size(2, {"agents": 12, "rounds": 5})
ON_GRID = sizes(QUICK, 6, 20)
FEW = Size(2, {"agents": 6, "rounds": 4})
#: Networks are trained a few times only, and briefly.
TINY = Size(2, {"agents": 2, "rounds": 1}, {"epochs": 1, "initial-points": 1})


def synthetic() -> list[Figure]:
    """Figs. 2, 4 to 7, 12a: functions on a grid of [0, 1], N = 200."""
    alone, fts = ts(SYNTHETIC), de(SYNTHETIC, regions=1, clip=NO_CLIP)
    fts_de = {p: de(SYNTHETIC, regions=p, clip=NO_CLIP) for p in (2, 3)}
    published = dp(SYNTHETIC, 0.25, 1.0)
    mixed = {
        alpha: {**SYNTHETIC, "agents": 50, "family": "mixed", "alpha": alpha} for alpha in (0.7, 1)
    }
    told = "each seed another function (the paper: one function, five initialisations)"
    return [
        Figure(
            "dp-fts-de-2a", "DP-FTS-DE Fig. 2a",
            "FTS is ahead of TS, FTS-DE of FTS, and more sub-regions of fewer",
            {"TS": alone, "FTS": fts, "FTS-DE P=2": fts_de[2], "FTS-DE P=3": fts_de[3]},
            [below("FTS", "TS"), below("FTS-DE P=2", "FTS"), below("FTS-DE P=3", "FTS-DE P=2")],
            ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-2b", "DP-FTS-DE Fig. 2b", "S = 11 is best; smaller and larger S are worse",
            {f"S={s:g}": dp(SYNTHETIC, 0.25, 1.0, clip=float(s)) for s in (2, 5, 11, 30, 100)},
            [least("S=11", ["S=2", "S=5", "S=30", "S=100"]), *below_all("S=11", "S=2", "S=100")],
            ON_GRID, note=f"{told}; q = .25, z = 1; the paper prints no other S",
        ),
        Figure(
            "dp-fts-de-2c", "DP-FTS-DE Fig. 2c",
            "a larger q is better and costs epsilon 5.93, 9.91, 20.12",
            {f"q={q:g}": dp(SYNTHETIC, q, 1.0) for q in (0.15, 0.25, 0.5)},
            [prints("q=0.15", "epsilon", 5.93), prints("q=0.25", "epsilon", 9.91),
             prints("q=0.5", "epsilon", 20.12), ordered("q=0.5", "q=0.25", "q=0.15"),
             below("q=0.5", "q=0.15")],
            ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-2d", "DP-FTS-DE Fig. 2d",
            "a smaller z is better and costs epsilon 9.91, 7.39, 5.22",
            {f"z={z:g}": dp(SYNTHETIC, 0.25, z) for z in (1.0, 1.2, 1.5)},
            [prints("z=1", "epsilon", 9.91), prints("z=1.2", "epsilon", 7.39),
             prints("z=1.5", "epsilon", 5.22), ordered("z=1", "z=1.2", "z=1.5"),
             below("z=1", "z=1.5")],
            ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-4", "DP-FTS-DE Fig. 4",
            "at the same epsilon DP-FTS-DE is ahead of DP-FTS, and of TS",
            {"TS": alone, "DP-FTS S=8": dp(SYNTHETIC, 0.25, 1.0, regions=1, clip=8.0),
             "DP-FTS-DE": published},
            [below("DP-FTS-DE", "DP-FTS S=8"), below("DP-FTS-DE", "TS")], ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-5", "DP-FTS-DE Fig. 5",
            "without its weights, or without exploring at home, FTS-DE is worse",
            {"FTS-DE": fts_de[2],
             "equal weights": de(SYNTHETIC, clip=NO_CLIP, weights="uniform"),
             "explores everywhere": de(SYNTHETIC, clip=NO_CLIP, explore_home=False)},
            below_all("FTS-DE", "equal weights", "explores everywhere"), ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-6", "DP-FTS-DE Fig. 6",
            "with q, z and S fixed a middle P is best",
            {f"P={p}": dp(SYNTHETIC, 0.25, 1.0, regions=p) for p in (1, 2, 4)},
            [least("P=2", ["P=1", "P=4"]), *below_all("P=2", "P=1", "P=4")], ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-7a", "DP-FTS-DE Fig. 7a", "FTS-DE is ahead of TS for agents that differ",
            {"TS": ts(mixed[0.7]), "FTS-DE": de(mixed[0.7], clip=NO_CLIP)},
            [below("FTS-DE", "TS")], ON_GRID, note=told,
        ),
        Figure(
            "dp-fts-de-7b", "DP-FTS-DE Fig. 7b",
            "with unrelated agents FTS-DE is behind TS; trusting itself sooner makes up for it",
            {"TS": ts(mixed[1]), "FTS-DE": de(mixed[1], clip=NO_CLIP),
             "FTS-DE, 1-p = 1/t": de(mixed[1], clip=NO_CLIP, p_schedule="1-1/t")},
            [below("TS", "FTS-DE"), below("FTS-DE, 1-p = 1/t", "FTS-DE"),
             comparable("FTS-DE, 1-p = 1/t", "TS")],
            ON_GRID, note=f"{told}; the paper prints no schedule for 'faster', here 1/t",
        ),
        Figure(
            "dp-fts-de-12a", "DP-FTS-DE Fig. 12a",
            "weights that fade are better late than fixed ones, and both ahead of TS",
            {"TS": alone, "adaptive": published,
             "fixed weights": de(SYNTHETIC, sampling_rate=0.25, noise_multiplier=1.0,
                                 weights_hold=10_000)},
            [below("adaptive", "fixed weights"), *below_all("adaptive", "TS"),
             below("fixed weights", "TS")],
            ON_GRID, measure="end", note=told,
        ),
    ]  # fmt: skip


def trade_off(of: Settings, quick: Size, letters: str, data: str, medium: int,
              full: int, note: str, shorter: Settings | None = None) -> list[Figure]:  # fmt: skip
    """Figs. 3a to 3f: privacy against utility after 60 iterations, and convergence."""
    emnist = of["task"] == "emnist"
    needs, obstacle = (("torch",), EMNIST_OBSTACLE) if emnist else ((), "")
    private = {
        **{f"q=0.35 z={z:g}": dp(of, 0.35, z) for z in (1.0, 1.6, 2.0, 3.0, 4.0)},
        **{f"q={q:g} z=1": dp(of, q, 1.0) for q in (0.1, 0.15, 0.2, 0.25)},
    }
    open_ones = {
        "TS": ts(of), "FTS": de(of, regions=1, clip=NO_CLIP), "FTS-DE": de(of, clip=NO_CLIP),
    }  # fmt: skip
    far = "q=0.35 z=4", "q=0.1 z=1"
    size = sizes(quick, medium, full, shorter)
    drawn = ("q=0.35 z=1", "q=0.35 z=2", "q=0.25 z=1", *far)
    chosen = {label: private[label] for label in drawn}
    return [
        Figure(
            f"dp-fts-de-3{letters[0]}", f"DP-FTS-DE Fig. 3{letters[0]}",
            f"{data}: all private settings end ahead of TS, more privacy costs utility, and "
            "FTS-DE is ahead of FTS",
            {**open_ones, **private},
            [*[below(label, "TS") for label in private], below("FTS-DE", "FTS"),
             ordered("q=0.35 z=1", far[0]), ordered("q=0.35 z=1", far[1])],
            size, measure="end", unit="error", plot="privacy", note=note, needs=needs,
            obstacle=obstacle,
        ),
        Figure(
            f"dp-fts-de-3{letters[1]}", f"DP-FTS-DE Fig. 3{letters[1]}",
            f"{data}: FTS-DE and DP-FTS-DE converge faster than TS; less privacy is faster",
            {"TS": open_ones["TS"], "FTS-DE": open_ones["FTS-DE"], **chosen},
            [below("FTS-DE", "TS"), *[below(label, "TS") for label in chosen],
             *[ordered("q=0.35 z=1", label) for label in far]],
            size, unit="error", note=note, needs=needs, obstacle=obstacle,
        ),
    ]  # fmt: skip


def _losses() -> Figure:
    """The horizontal axis of Fig. 3a."""
    settings = {label: [float(part[2:]) for part in label.split()] for label in EPSILONS}
    return Figure(
        "dp-fts-de-3-losses", "DP-FTS-DE Fig. 3a, privacy losses",
        "landmine: the privacy losses are those that the authors' notebook prints",
        {label: dp(LANDMINE, q, z) for label, (q, z) in settings.items()},
        [prints(label, "epsilon", expected) for label, expected in EPSILONS.items()],
        sizes(FEW, 1, 1), measure="epsilon", unit="epsilon", plot="nothing",
    )  # fmt: skip


#: How much of EMNIST's networks is trained at the medium size.
SHORT = {"rounds": 12, "agents": 8}


def real() -> list[Figure]:
    """Figs. 3, 8 to 11, 12b: landmine, activity, EMNIST."""
    return [
        *from_tables(LANDMINE, lambda of: trade_off(of, FEW, "ad", "landmine", 2, 100, "")),
        *from_tables(ACTIVITY, lambda of: trade_off(of, FEW, "be", "activity", 3, 10, HAR_NOTE)),
        *trade_off(EMNIST, TINY, "cf", "EMNIST", 2, 10, EMNIST_NOTE, SHORT),
        _losses(),
        *from_tables(ACTIVITY, without_exploration),
        *from_tables(ACTIVITY, lambda of: [robustness(of, n, "a", "lattice" in of)
                                          for n in (9, 10)]),
        *[robustness(EMNIST, n, "b", False) for n in (9, 10)],
        *from_tables(LANDMINE, lambda of: [renyi_whole(of) if "lattice" in of else renyi(of)]),
        *from_tables(ACTIVITY, fixed_weights),
    ]  # fmt: skip


def from_tables(of: Settings, make: Callable[[Settings], Sequence[Figure]]) -> list[Figure]:
    """Return figures whose scores come from tables; exact ones stand in for them."""
    note = TABLES_NOTE[of["task"]]
    return [
        replace(figure, instead=whole, note="; ".join(filter(None, (figure.note, note))))
        for figure, whole in zip(make({**of, **TABLES[of["task"]]}), make(of), strict=True)
    ]


def fixed_weights(of: Settings) -> list[Figure]:
    """Fig. 12b: weights of sub-regions that do not fade."""
    return [
        Figure(
            "dp-fts-de-12b", "DP-FTS-DE Fig. 12b",
            "activity: weights that fade are better late than fixed ones, and both ahead of TS",
            {"TS": ts(of), "adaptive": dp(of, 0.35, 1.0),
             "fixed weights": dp(of, 0.35, 1.0, weights_hold=10_000)},
            [below("adaptive", "fixed weights"), below("adaptive", "TS"),
             below("fixed weights", "TS")],
            sizes(FEW, 3, 10), measure="end", unit="error", note=HAR_NOTE,
        ),
    ]  # fmt: skip


def without_exploration(of: Settings) -> list[Figure]:
    """Fig. 8: DP-FTS-DE beside DP-FTS."""
    found = []
    for letter, (q, z) in {"a": (0.35, 1.0), "b": (0.35, 2.0), "c": (0.2, 1.0)}.items():
        with_de, without = dp(of, q, z), dp(of, q, z, regions=1, clip=11.0)
        found.append(
            Figure(
                f"dp-fts-de-8{letter}", f"DP-FTS-DE Fig. 8 ({letter})",
                f"activity, q = {q:g}, z = {z:g}: DP-FTS-DE is ahead of DP-FTS at its epsilon",
                {"TS": ts(of), "DP-FTS S=11": without, "DP-FTS-DE": with_de},
                [below("DP-FTS-DE", "DP-FTS S=11")], sizes(FEW, 3, 10), unit="error",
                note=f"{HAR_NOTE}; the three settings are not printed",
            )
        )  # fmt: skip
    return found


def robustness(of: Settings, number: int, letter: str, both: bool) -> Figure:
    """Figs. 9 and 10: other weights, and other numbers of sub-regions; both with and without DP."""
    emnist = letter == "b"
    name = "EMNIST" if emnist else "activity"
    if number == 9:
        what, reference = "weights", "ours"
        changed: dict[str, dict[str, Any]] = {
            "ours": {"weights": "softmax-15"}, "weights 1": {"weights": "softmax-9"},
            "weights 2": {"weights": "linear-1000"}, "weights 3": {"weights": "square-40"},
        }  # fmt: skip
    else:
        what, reference = "P", "P=4"
        changed = {f"P={p}": {"regions": p} for p in (2, 3, 4, 6)}
    families = {"DP": [dp(of, 0.35, 1.0, **c) for c in changed.values()]}
    if both:
        families["open"] = [de(of, clip=NO_CLIP, **c) for c in changed.values()]
    curves, checks = {"TS": ts(of)}, []
    for family, runs in families.items():
        curves |= {f"{family} {label}": r for label, r in zip(changed, runs, strict=True)}
        checks += [below(f"{family} {label}", "TS") for label in changed]
        checks += [comparable(f"{family} {label}", f"{family} {reference}")
                   for label in changed if label != reference]  # fmt: skip
    private = "; of the methods without privacy there are no runs yet" * (not both)
    return Figure(
        f"dp-fts-de-{number}{letter}", f"DP-FTS-DE Fig. {number} ({name})",
        f"{name}: robust against the choice of {what}, and always ahead of TS",
        curves, checks, sizes(TINY if emnist else FEW, 2 if emnist else 3, 10,
                              SHORT if emnist else None),
        unit="error", note=(EMNIST_NOTE if emnist else HAR_NOTE) + private,
        needs=("torch",) if emnist else (), obstacle=EMNIST_OBSTACLE if emnist else "",
    )  # fmt: skip


def renyi(of: Settings) -> Figure:
    """Fig. 11 by Poisson sampling, at two settings: the accountants alone differ."""
    rdp = {f"RDP z={z:g}": dp(of, 0.35, z, accountant="rdp") for z in (1.0, 2.0)}
    moments = {f"moments z={z:g}": dp(of, 0.35, z) for z in (1.0, 2.0)}
    return Figure(
        "dp-fts-de-11", "DP-FTS-DE Fig. 11",
        "landmine: Renyi accounting gives a slightly smaller epsilon and comparable utility",
        {**rdp, **moments},
        [*[smaller_epsilon(f"RDP z={z}", f"moments z={z}") for z in (1, 2)],
         *[comparable(f"RDP z={z}", f"moments z={z}") for z in (1, 2)]],
        sizes(FEW, 2, 100), measure="end", unit="error", plot="privacy",
        note="Poisson sampling, to compare the accountants; the paper's RDP is of "
        "fixed-size sampling",
    )  # fmt: skip


def renyi_whole(of: Settings) -> Figure:
    """Fig. 11 at all settings of Fig. 3a, without replacement as the cited accountant needs."""
    settings = {label: [float(part[2:]) for part in label.split()] for label in EPSILONS}
    rdp = {
        f"replace-one RDP {label}": dp(of, q, z, accountant="rdp", sampling="fixed-size")
        for label, (q, z) in settings.items()
    }
    moments = {f"moments {label}": dp(of, q, z) for label, (q, z) in settings.items()}
    pairs = [(f"replace-one RDP {label}", f"moments {label}") for label in EPSILONS]
    return Figure(
        "dp-fts-de-11", "DP-FTS-DE Fig. 11",
        "landmine: Renyi accounting gives a slightly smaller epsilon and comparable utility",
        {**rdp, **moments},
        [*[smaller_epsilon(a, b) for a, b in pairs], *[comparable(a, b) for a, b in pairs]],
        sizes(FEW, 2, 100), measure="end", unit="error", plot="privacy",
        note="RDP of samples without replacement, whose neighbours replace a party; the moments "
        "accountant's are of Poisson samples, whose neighbours add or remove one",
    )  # fmt: skip


def smaller_epsilon(a: str, b: str) -> Check:
    """The privacy loss of one curve is below that of another."""
    return value(
        f"epsilon of {a} over that of {b}",
        lambda n, r: r[a][0]["epsilon"] / r[b][0]["epsilon"], lambda v: v < 1,
    )  # fmt: skip


FIGURES = [*synthetic(), *real()]
