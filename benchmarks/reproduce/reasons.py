"""Why figures come out otherwise than the papers', and the measurements that show it.

``python -m benchmarks.reproduce --why`` makes the measurements; they are kept beside the figures'
own runs. Every figure that does not hold has a reason here: a test sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .dp_fts_de import (
    ACTIVITY,
    EMNIST,
    LANDMINE,
    NO_CLIP,
    SYNTHETIC,
    TABLES,
    Settings,
    de,
    dp,
    ts,
)
from .fed_pne import TASKS, fed_pne, on_arms, other
from .figures import Figure, Run
from .ldp_bo import curve
from .own import READABLE, ROUNDS
from .store import Store

#: Seeds of the measurements, from 100 on as the figures'.
FIRST = 100
#: Seeds of the functions on which methods are compared from several starts.
FUNCTIONS = (100, 101, 102)


@dataclass(frozen=True)
class Reason:
    """What explains some figures, in words, and a table of runs that bear it out."""

    title: str
    #: Names of figures, or what they begin with.
    figures: tuple[str, ...]
    text: str
    rows: Mapping[str, Run] = field(default_factory=dict)
    #: Heads of the table, and what of a run's result stands under them.
    columns: Mapping[str, str] = field(default_factory=dict)
    seeds: int = 5

    def explains(self, figure: Figure) -> bool:
        """Whether the reason is one for this figure."""
        return figure.name.startswith(self.figures)

    @property
    def seeds_of_runs(self) -> range:
        """The seeds of its measurements."""
        return range(FIRST, FIRST + self.seeds)


def _advice(run: Run) -> Run:
    """What advice is worth in a federation."""
    return Run("advice", run.settings)


def _relayed(of: Settings) -> Run:
    """FTS, whose server hands on single vectors."""
    return Run("advice", {**of, "strategy": "fts"})


def _three(of: Settings, name: str) -> dict[str, Run]:
    return {
        f"{name}, FTS": _relayed(of),
        f"{name}, FTS-DE": _advice(de(of, clip=NO_CLIP)),
        f"{name}, DP-FTS-DE q=.35 z=1": _advice(dp(of, 0.35, 1.0)),
    }


def _readable(of: Settings, name: str) -> dict[str, Run]:
    """Our own figures: what advice is worth there, and what exploring at home costs."""
    readable = {**of, **READABLE}
    short = {**readable, **TABLES[of["task"]], "rounds": ROUNDS}
    return {
        f"{name}, advice of FTS-DE": _advice(de(readable, clip=NO_CLIP)),
        f"{name}, TS": ts(short),
        f"{name}, FTS-DE": de(short, clip=NO_CLIP),
        f"{name}, FTS-DE that begins everywhere": de(short, clip=NO_CLIP, explore_home=False),
    }


def _mixed(alpha: float) -> dict[str, Any]:
    return {**SYNTHETIC, "agents": 50, "family": "mixed", "alpha": alpha}


def _differences(what: str, of: Run, less: Run) -> dict[str, Run]:
    """One method less another, on each of some functions from several starts."""
    return {
        f"{what}, function {k}": Run(
            "difference",
            {"of": {**of.settings, "task-seed": k}, "less": {**less.settings, "task-seed": k}},
        )
        for k in FUNCTIONS
    }


def _chance(letter: str) -> Run:
    task, given, _ = TASKS[letter]
    settings = {"task": task, "task-settings": given, "clients": 10, "budget": 1000, "draws": 100}
    return Run("chance", settings)


def _ours(letter: str, learner: str, **changed: Any) -> Run:
    """A learner of LDP-BO with our constants."""
    return curve(letter, learner, constants="practical", **changed)


_ADVICE = {
    "own model": "own", "shared function": "advised",
    "gain by own": "own-gain", "gain by shared": "advised-gain", "noise / release": "noise",
}  # fmt: skip
_REGRET = {"Fed-PNE's regret at T": "end", "of points at random": "random",
           "of the best common point": "best"}  # fmt: skip
_SHORT = {"rounds": 12, "agents": 8}

REASONS = [
    Reason(
        "Synthetic functions: the variants differ less than the functions",
        ("dp-fts-de-2b", "dp-fts-de-2c", "dp-fts-de-2d", "dp-fts-de-6", "dp-fts-de-12a", "fts-1a"),
        "The shared function points to far better places than an agent's own sample, as the "
        "papers say. Noise takes away much of this advantage. The checks that cannot be decided "
        "compare variants, which differ less than functions and starts do. With q, z and S fixed, "
        "more sub-regions mean that fewer agents explore each sub-region under the same noise. P "
        "= 1 therefore has the best shared function here. This contradicts Fig. 6, where P = 2 is "
        "best.",
        {
            "FTS": _advice(de(SYNTHETIC, regions=1, clip=NO_CLIP)),
            "FTS-DE P=2": _advice(de(SYNTHETIC, regions=2, clip=NO_CLIP)),
            "FTS-DE P=3": _advice(de(SYNTHETIC, regions=3, clip=NO_CLIP)),
            **{
                f"DP-FTS-DE q=.25 z=1 P={p}": _advice(dp(SYNTHETIC, 0.25, 1.0, regions=p))
                for p in (1, 2, 4)
            },
        },
        _ADVICE,
        10,
    ),
    Reason(
        "Synthetic functions: starts differ as much as methods",
        ("dp-fts-de-2a", "dp-fts-de-4", "dp-fts-de-5"),
        "On one function, which of two methods is ahead differs from start to start. All agents "
        "of a federation receive the same shared function, so a federation is one observation and "
        "not two hundred. The paper's curves are means of five starts on one function. With more "
        "starts, each on another function, some of the paper's differences are within chance.",
        {
            **_differences("FTS-DE P=2 less FTS", de(SYNTHETIC, clip=NO_CLIP),
                           de(SYNTHETIC, regions=1, clip=NO_CLIP)),
            **_differences("DP-FTS-DE less TS", dp(SYNTHETIC, 0.25, 1.0), ts(SYNTHETIC)),
        },
        {"difference of regrets": "value"},
    ),
    Reason(
        "Agents that differ: the mean of all functions fits no agent well",
        ("dp-fts-de-7",),
        "At alpha = .7 the points of the shared function still have smaller errors than those of "
        "an agent's own sample, but they lower an agent's own least error by less. They are good "
        "for all agents and best for none. At alpha = 1, where agents have nothing in common, "
        "the points of the shared function are worse in both.",
        {
            "alpha = .7, FTS-DE": _advice(de(_mixed(0.7), clip=NO_CLIP)),
            "alpha = 1, FTS-DE": _advice(de(_mixed(1), clip=NO_CLIP)),
        },
        _ADVICE,
        10,
    ),
    Reason(
        "Landmine and activity: the shared function is worse than the agent's own model",
        ("dp-fts-de-3a", "dp-fts-de-3d", "dp-fts-de-3b", "dp-fts-de-3e", "dp-fts-de-8",
         "dp-fts-de-9a", "dp-fts-de-10a", "dp-fts-de-12b", "own-c", "own-d"),
        "Agents have ten scores of their own before they receive a shared function. From then on "
        "points chosen by the shared function are worse than points chosen by the own model in the "
        "same round, with and without privacy. There are two causes. First, the features have a "
        "length scale of .01 and fit raw scores, so a shared function is flat but for spikes at "
        "the points already evaluated. Second, with 29 or 30 agents and the paper's q and z a "
        "release is as long as its noise. The authors' released landmine runs say the same: the "
        "error at the broadcast's best point is .353 +- .002 there, that of points at random .356. "
        "In our runs points of the broadcast have the error of points of a random vector of its "
        "length (`own-c`, `own-d`). Our defaults differ from the paper's for this reason "
        "([defaults](defaults.md)).",
        {**_three(LANDMINE, "landmine"), **_three(ACTIVITY, "activity")},
        _ADVICE,
        3,
    ),
    Reason(
        "Readable features: good points, at a price and seldom followed",
        ("own-a", "own-b"),
        "On activity the shared function is worth having: its points have a sixth of the error of "
        "those of an agent's own model. On landmine they are no better, as on the papers' linear "
        "scale good values of C and gamma lie in a strip that is narrower than the length scale. "
        "But an agent has ten scores of its own before it receives one, and follows it with "
        "probability 1 / t, less than four times in twenty rounds. And it spends these ten in its "
        "own sub-region: FTS-DE whose agents begin everywhere is ahead of FTS-DE on both, "
        "though by no more than seeds differ.",
        {**_readable(LANDMINE, "landmine"), **_readable(ACTIVITY, "activity")},
        {"own model": "own", "others' function": "advised", "error after the first points": "start",
         "mean of 20 rounds": "mean"},
        3,
    ),
    Reason(
        "Fig. 11: samples of a fixed size cost more privacy, not less",
        ("dp-fts-de-11",),
        "The accountant that the paper cites is for samples of a fixed size, whose neighbours "
        "replace a party. The sum then moves twice as far as where a party joins or leaves, and "
        "epsilon is 5 to 14 times that of the moments accountant. For Poisson samples, as in the "
        "rest of the paper, Renyi accounting does give a slightly smaller epsilon. Errors are "
        "comparable, as the noise is the same.",
        {
            "moments, Poisson samples": dp(LANDMINE, 0.35, 1.0),
            "Renyi, Poisson samples": dp(LANDMINE, 0.35, 1.0, accountant="rdp"),
            "Renyi, samples of a fixed size": dp(
                {**LANDMINE, **TABLES["landmine"]},
                0.35,
                1.0,
                accountant="rdp",
                sampling="fixed-size",
            ),
        },
        {"epsilon": "epsilon", "error at the end": "end"},
        5,
    ),
    Reason(
        "Digits by writer: all methods begin near the best error",
        ("dp-fts-de-3c", "dp-fts-de-3f", "dp-fts-de-9b", "dp-fts-de-10b"),
        "The best network of the first ten points classifies a writer's few digits nearly without "
        "an error, so no method can become much better. The paper's images are not available.",
        {"TS, alone": ts(EMNIST).with_(**_SHORT)},
        {"error after the first points": "start", "at the end": "end"},
        2,
    ),
    Reason(
        "FTS on data: a target hardly ever follows a helper",
        ("fts-2", "fts-3", "fts-4", "fts-5", "fts-6", "fts-7"),
        "With the paper's p_t = 1 - 1/t^2 a target follows a helper less than once in fifty "
        "iterations on average. FTS and TS then share nearly all queries, so neither can be far "
        "ahead: FTS is level with TS. TAF uses all helpers at every iteration. As published, "
        "where a gain is counted from what the helpers' models predict at the target's own "
        "points, TAF is ahead of FTS on landmine. With helpers' incumbents, as FTS describes it, "
        "TAF has a smaller error for agent 1 and a larger one for agents 1 to 6, by no more than "
        "starts differ. RGPE uses all helpers too: for agent 1 on landmine it is ahead of FTS, "
        "but its error differs more from start to start. "
        "Our TAF weighs all helpers in a few products of matrices, and does not slow down with "
        "their number as the paper's does.",
        {
            "p_t = 1 - 1/t^2 (data)": Run("follows", {"schedule": "1-1/t^2", "rounds": 50}),
            "p_t = 1 - 1/sqrt(t) (Fig. 1)": Run(
                "follows", {"schedule": "1-1/sqrt(t)", "rounds": 50}
            ),
        },
        {"times a helper is followed": "value", "of iterations": "iterations"},
        1,
    ),
    Reason(
        "LDP-BO: the constants decide which learner leads",
        ("ldp-bo-2",),
        "The paper sets its parameters order-wise as the theorems do. MoMA's width then holds the "
        "variance of the noise once. ATA's holds the second moment and a logarithm, and TGP's "
        "grows with its level of truncation, so both explore longer: MoMA leads in five panels of "
        "six, as the paper says. In the sixth (light sensors, private) all three are behind "
        "uniform play at this T. With our practical constants all learners have narrower widths "
        "of one form, each has a far smaller regret, and MoMA is behind.",
        {
            f"{what}, {name}, {constants}": curve(letter, name, constants=constants)
            for letter, what in (("a", "private"), ("d", "Student's t"))
            for constants in ("orders", "practical")
            for name in ("MoMA", "TGP", "ATA")
        },
        {"regret over uniform play's": "end"},
        40,
    ),
    Reason(
        "MoMA with practical constants: MoMA uses one of k estimates",
        ("ldp-bo-own",),
        "MoMA splits the rewards among k estimates and plays by the median estimate, so the "
        "rewards of the other estimates are lost. ATA and TGP use all rewards. Under Student's t "
        "regret grows with k, and k = 3, the least odd k above one, is level with TGP. Under "
        "Laplace noise, whose tails are light, MoMA's mean is behind TGP's at every k. The "
        "figures have k = 5. [LDP-BO](ldp-bo.md) has heavier tails.",
        {
            **{f"private, k = {k}": _ours("a", "MoMA", epoch=k) for k in (3, 9, 27)},
            "private, TGP": _ours("a", "TGP"),
            **{f"Student's t, k = {k}": _ours("d", "MoMA", epoch=k) for k in (3, 9, 27)},
            "Student's t, TGP": _ours("d", "TGP"),
        },
        {"regret over uniform play's": "end"},
        20,
    ),
    Reason(
        "Fed1-UCB on Garland: five arms are hardly better placed than three",
        ("fed-pne-3a",),
        "A mesh costs regret in two ways: its best arm is not the optimum, and the search for the "
        "best arm takes pulls. Garland's peaks are so narrow that meshes of up to twenty arms miss "
        "them by about as much. Meshes with more arms find the peaks, and cost more to search.",
        {f"K = {k}": Run("arms", {"task": "garland", "arms": k, "budget": 1000})
         for k in (3, 5, 10, 20, 50, 100)},
        {"regret at T of the best arm": "best", "of an arm on average": "mean"},
        60,
    ),
    Reason(
        "Fed-PNE on landmine: a thousand pulls are hardly better than points at random",
        ("fed-pne-2c", "fed-pne-6c"),
        "At T = 1000 Fed-PNE has nearly the regret of points at random, and HCT and the UCBs are "
        "level with Fed-PNE. Where nothing is learnt, neither the method nor the number of clients "
        "can matter. Our KernelTS, which assumes a smooth function, does learn; the public code's "
        "does not. No method can avoid most of the regret, as it is counted from an AUC of 1.",
        {"Fed-PNE": fed_pne("c"), "no method": _chance("c")},
        _REGRET,
        10,
    ),
    Reason(
        "Fed-PNE on vaccine dosage: most methods are near the best common dosage",
        ("fed-pne-2d", "fed-pne-6d"),
        "Regret is counted from 1, and the best dosage common to all clients has nearly the regret "
        "of Fed-PNE, HCT and our KernelTS. These methods differ by less than trials do, and more "
        "clients cannot lower their regret.",
        {"Fed-PNE": fed_pne("d"), "no method": _chance("d")},
        _REGRET,
        10,
    ),
    Reason(
        "Fed-PNE against HCT and BO: BO has less regret and far more messages",
        ("fed-pne-2a", "fed-pne-2b", "fed-pne-4"),
        "On DoubleSine HCT is level with Fed-PNE. A Gaussian process on the global objective has a "
        "far smaller regret with upper confidence bounds, and a smaller one on Garland with "
        "expected improvement, which the paper ran. This contradicts the paper. On DoubleSine "
        "expected improvement differs too much from trial to trial to tell. BO sends messages to "
        "all clients after every evaluation, Fed-PNE a few times in all. The public code's "
        "KernelTS draws each arm's value independently with a wide posterior, and hardly ever "
        "settles.",
        {
            f"{TASKS[letter][2]}, {name}": run
            for letter in "ab"
            for name, run in (
                ("Fed-PNE", fed_pne(letter)),
                ("BO, expected improvement", on_arms(letter, "gp-ei")),
                ("BO, upper bounds", other(letter, "gp-ucb")),
            )
        },
        {"regret at T": "end", "communication rounds": "rounds"},
        4,
    ),
    Reason(
        "Networks on MNIST: no method can avoid most of the regret",
        ("fed-pne-8",),
        "Fed1-UCB and FN-UCB are far behind Fed-PNE, as in the paper. Fed-PNE and HCT differ by "
        "less than trials do: regret is counted from an accuracy of 1, and the best common point "
        "has most of their regret too. Clients can only share the search for that point. With "
        "more clients regret therefore falls, but by little more than trials differ: after the "
        "paper's ten seeds the interval of Fig. 8b held zero, and after eleven it does not.",
        {"Fed-PNE": fed_pne("m"), "no method": _chance("m")},
        _REGRET,
        10,
    ),
]  # fmt: skip


def measured(result: Mapping[str, Any], key: str) -> float | None:
    """A number of a result, or where its curve starts or ends."""
    if key in ("start", "end") and key not in result and "curve" in result:
        return float(result["curve"][0 if key == "start" else -1])
    found = result.get(key)
    return None if found is None else float(found)


def section(reason: Reason, store: Store) -> list[str]:
    """The reason as lines of a page; its table is left out where a measurement is missing."""
    of = ", ".join(f"`{name}`" for name in reason.figures)
    seeds = f" Of {reason.seeds} seeds." if reason.seeds > 1 and reason.rows else ""
    lines = [f"**{reason.title}** ({of}).", f"{reason.text}{seeds}", ""]
    results = {
        label: [store.get(run, seed) for seed in reason.seeds_of_runs]
        for label, run in reason.rows.items()
    }
    if not results or any(None in made for made in results.values()):
        return lines
    lines += [
        f"| {' | '.join(['', *reason.columns])} |",
        f"|---{'|---' * len(reason.columns)}|",
    ]
    for label, made in results.items():
        cells = [
            _cell([measured(r, key) for r in made if r is not None])
            for key in reason.columns.values()
        ]
        lines.append(f"| {' | '.join([label, *cells])} |")
    return [*lines, ""]


def _cell(numbers: list[float | None]) -> str:
    """Mean and standard deviation; a dash where there is nothing to measure."""
    found = np.array([n for n in numbers if n is not None])
    if not len(found):
        return "-"
    mean = float(found.mean())
    spread = f" +- {found.std(ddof=1):.2g}" if len(found) > 1 else ""
    return (f"{mean:,.0f}" if mean >= 1000 else f"{mean:.3g}") + spread
