"""Figures of the rounds: the timeline, the privacy spent, the releases, and lost replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.report.importance import ranks
from flwr_fbo.report.runs import Run
from flwr_fbo.report.style import SHADES
from flwr_fbo.report.svg import Axis, Chart, linear_axis
from flwr_fbo.report.tree import tree_chart

#: The most agents of a timeline, and bars of one agent. Of more, an even share is drawn.
MAX_AGENTS, MAX_BARS = 40, 400
#: Height of an agent's row, and of everything else in the timeline; its width spans the page.
ROW_HEIGHT, FRAME, BROAD = 15, 96, 960


def timeline(run: Run, prefix: str) -> Chart | None:
    """Return the evaluations of each agent over time, with the ends of the rounds.

    A journal holds how long an evaluation took, and the table of rounds how long each round took.
    The bars of a round therefore begin with the round, one after another.
    """
    if not run.rounds or not run.evaluations:
        return None
    ends = np.cumsum([float(r["seconds"]) for r in run.rounds])
    starts = {int(r["round"]): t for r, t in zip(run.rounds, np.r_[0.0, ends], strict=False)}
    agents = np.unique(np.linspace(0, len(run.histories) - 1, MAX_AGENTS).astype(int))
    ticks = [(-k - 0.5, str(n)) for k, n in enumerate(agents)][:: 1 + len(agents) // 20]
    chart = Chart(
        f"{prefix}timeline",
        "Timeline",
        linear_axis(np.r_[0.0, ends], "seconds since the start", zero=True),
        Axis(-float(len(agents)), 0.0, "agent", ticks),
        height=FRAME + ROW_HEIGHT * len(agents),
        width=BROAD,
    )
    for end in ends[: MAX_BARS - 1]:
        chart.line(np.array([end, end]), np.array([-float(len(agents)), 0.0]), "rail")
    for k, agent in enumerate(agents):
        _agent_row(chart, k, int(agent), run.histories[agent], starts)
    chart.note = (
        "A bar is an evaluation, stronger where it ranks higher within its agent, red where it "
        "failed. A line is the end of a round. Time without bars is spent on models and messages."
    )
    if len(agents) < len(run.histories):
        chart.note += f" {len(agents)} of {len(run.histories)} agents are shown."
    return chart


def _agent_row(
    chart: Chart,
    k: int,
    agent: int,
    history: Sequence[Evaluation],
    starts: Mapping[int, float],
) -> None:
    """Draw the evaluations of one agent as bars in its row."""
    evaluations = history[:MAX_BARS]
    free: dict[int, float] = {}
    for e, rank in zip(evaluations, ranks(evaluations), strict=True):
        if e.round not in starts:
            continue
        start = free.get(e.round, starts[e.round])
        free[e.round] = start + e.seconds
        style = "failed" if e.failed else f"s{int(min(rank * SHADES, SHADES - 1))}"
        score = "failed" if e.score is None else f"{e.score:.4g}"
        title = f"agent {agent}, round {e.round}: {score}, {e.seconds:.3g} s"
        chart.bar((start, start + e.seconds), (-k - 0.85, -k - 0.15), style, title)


def epsilon(run: Run, prefix: str) -> Chart | None:
    """Return the privacy spent by round, and the budget where one is set."""
    rows = [(int(r["round"]), float(r["epsilon"])) for r in run.rounds if r.get("epsilon")]
    if not rows:
        return None
    rounds, spent = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    budget = run.config.get("epsilon")
    heights = np.r_[spent, [] if budget is None else [float(budget)]]
    chart = Chart(
        f"{prefix}epsilon",
        "Privacy spent",
        linear_axis(rounds, "round", whole=True),
        linear_axis(heights * 1.04, "epsilon", zero=True),  # room for the label of the budget
    )
    chart.note = "Epsilon of all releases up to a round, for each party. Lower is more private."
    if budget is not None:
        chart.level(float(budget), "budget")
    chart.steps(rounds, spent, "c0")
    return chart


def releases(run: Run, prefix: str) -> Chart | None:
    """Return bars of what the scores contribute to each release, and of what the noise does."""
    released = run.released
    if released is None or not any(r.deviation for r in released.releases):
        return None
    found = [(r.round, *released.signal_and_noise(r)) for r in released.releases]
    names = [(k + 0.5, str(round)) for k, (round, _, _) in enumerate(found)]
    top = max(max(signal, noise) for _, signal, noise in found)
    chart = Chart(
        f"{prefix}releases",
        "Signal and noise of the releases",
        Axis(0.0, float(len(found)), "round of the release", names[:: 1 + len(names) // 12]),
        linear_axis(np.array([0.0, top]), "variation over the space", zero=True),
    )
    for k, (round, signal, noise) in enumerate(found):
        for style, size, left, word in (
            ("b0", signal, k + 0.12, "signal"), ("b1", noise, k + 0.52, "noise")
        ):  # fmt: skip
            title = f"round {round}: {word} {size:.3g}"
            chart.bar((left, left + 0.36), (0.0, size), style, title)
    chart.legend += [("b0", "signal, estimated"), ("b1", "noise, added")]
    chart.note = (
        "Standard deviation over the space, in units of an agent's standardised scores. "
        "Agents average the releases, which lowers the noise."
    )
    return chart


def replies(run: Run, prefix: str) -> Chart | None:
    """Return the number of agents asked and answering by round; None where every agent answered."""
    if not lost_replies(run):
        return None
    rounds = np.array([int(r["round"]) for r in run.rounds], dtype=np.float64)
    asked = np.array([int(r["asked"]) for r in run.rounds], dtype=np.float64)
    answered = np.array([int(r["replied"]) for r in run.rounds], dtype=np.float64)
    x = linear_axis(rounds, "round", whole=True)
    y = linear_axis(asked * 1.02, "agents", zero=True)
    chart = Chart(f"{prefix}replies", "Agents asked and answering", x, y)
    chart.steps(rounds, asked, "c1", "asked")
    chart.steps(rounds, answered, "c0", "answered")
    return chart


def lost_replies(run: Run) -> int:
    """Return how many requests of a run were not answered."""
    return sum(int(r["asked"]) - int(r["replied"]) for r in run.rounds)


def tree(run: Run, prefix: str) -> Chart | None:
    """Return the partition that Fed-PNE explored; None for other strategies."""
    rows = [] if run.result is None else run.result.findings.get("tree") or []
    if not rows:
        return None
    return tree_chart(rows, int(run.config["arity"]), f"{prefix}tree")
