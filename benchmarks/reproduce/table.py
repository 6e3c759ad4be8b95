"""docs/reproduction.md, from the saved results and nothing else."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .charts import drawn
from .checks import Finding, Verdict
from .figures import SIZES, Figure, SizeName
from .reasons import REASONS, section
from .store import Store

#: Where the charts lie, from the page.
IMAGES = "images/reproduction"
HEAD = """# The papers' figures, run again

Written by `python -m benchmarks.reproduce --table docs/reproduction.md` from the saved runs in
`benchmarks/reproduce/results`; a test compares the two. To run a figure again, give its
name: `python -m benchmarks.reproduce NAME` (`--quick` for a minute's worth, `--size medium` for
fewer seeds, nothing for the paper's size). Runs are resumed, not repeated. Data
sets are read from `FLWR_FBO_DATA`; EMNIST figures need torch.

**What a verdict means.** A claim is split into checks, printed by the command. *Holds*: all do.
*Holds in part*: some do. *Not reproduced*: none does. "Ahead" means that the mean difference,
paired over seeds, has a 95 % interval (Student's t) clear of zero; "comparable" that this interval
lies within a quarter of the mean, "not above" that it ends there; the best of several is ahead of
each other, and in an order the first is ahead of the last. Behind a verdict is why checks failed:
with *undecided* ones the interval is too wide to tell, as happens with few seeds, which refutes
nothing; *the other way round* ones are clear of zero on the other side.
Settings are the papers'; epsilon is the paper's moments accountant's; seeds begin at 100. Lower is
better in all columns.

Figures are links to charts of the means. Measured: mean +- standard deviation over the seeds.
Sizes: *full* is the paper's or more; *medium* has fewer seeds, and what else is smaller is said.
"""


WHY = """What is behind those that do not hold, and measurements that bear it out
(`python -m benchmarks.reproduce --why`; seeds from 100, mean +- standard deviation). "Own model"
and "others' function" are the mean errors of the points that agents choose by them in the first ten
rounds, each round with the same weight in both; "gain" is by how much such a point lowers its
agent's least error so far, and "noise / release" the length of the noise in a release over the
length of the release.
"""


@dataclass(frozen=True)
class Latest:
    """The largest size of a figure of which every run is there."""

    size: SizeName
    seeds: int
    verdict: Verdict
    findings: list[Finding]
    results: dict[str, list[dict[str, Any]]]


def last(figure: Figure, store: Store) -> Latest | None:
    """What the saved runs say of a figure; quick runs prove nothing and are left out."""
    for size in (s for s in SIZES[::-1] if s != "quick"):
        runs = figure.runs(size)
        seeds: list[int] = []
        for seed in itertools.count(figure.seeds(size).start):
            if any(store.get(run, seed) is None for run in runs.values()):
                break
            seeds.append(seed)
        enough = len(seeds) >= (figure.sizes["full"].seeds if size == "full" else 1)
        if enough:
            results = {
                label: [store.get(run, seed) or {} for seed in seeds] for label, run in runs.items()
            }
            verdict, findings = figure.verdict(results)
            return Latest(size, len(seeds), verdict, findings, results)
    return None


def charts(figures: Sequence[Figure], store: Store) -> dict[str, str]:
    """The text of an SVG file for each figure that has runs and can be drawn, by its name."""
    found = {}
    for figure in figures:
        latest = last(figure, store)
        if latest is not None:
            text = drawn(figure, figure.runs(latest.size), latest.results)
            if text is not None:
                found[figure.name] = text
    return found


def page(figures: Sequence[Figure], store: Store) -> str:
    """The whole page."""
    found = {figure.name: last(figure, store) for figure in figures}
    counts: dict[str, int] = {}
    for latest in found.values():
        word = "not run" if latest is None else latest.verdict
        counts[word] = counts.get(word, 0) + 1
    told = ", ".join(f"{n} {word}" for word, n in sorted(counts.items()))
    lines = [HEAD, f"Of {len(figures)} experiments: {told}.\n"]
    lines += ["| figure | claim | measured | size | verdict | name |", "|---|---|---|---|---|---|"]
    for figure in figures:
        lines.append(_row(figure, found[figure.name]))
    lines += ["\n## Why\n", WHY]
    for reason in REASONS:
        if any(reason.explains(figure) for figure in figures):
            lines += section(reason, store)
    lines.append("## Checks\n")
    for figure in figures:
        latest = found[figure.name]
        if latest is None:
            continue
        lines.append(f"**{figure.name}** ({figure.unit}, {figure.measure} of the curve)"
                     + (f": {figure.note}" if figure.note else "") + "\n")  # fmt: skip
        lines += [
            f"- {'yes' if f.holds else f'no, {f.why}'}: {f.says} ({f.evidence})"
            for f in latest.findings
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(figure: Figure, latest: Latest | None) -> str:
    command = f"`{figure.name}`"
    if latest is None:
        why = "not run yet" + (f" ({figure.note})" if figure.note else "")
        return f"| {figure.figure} | {figure.claim} | - | - | {why} | {command} |"
    shown = []
    for label, results in latest.results.items():
        numbers = np.array([figure.number(r) for r in results])
        spread = f" +- {numbers.std(ddof=1):.2g}" if len(numbers) > 1 else ""
        epsilon = results[0].get("epsilon")
        cost = "" if epsilon is None else f" (eps {epsilon:.2f})"
        shown.append(f"{label}: {numbers.mean():.3g}{spread}{cost}")
    chosen = figure.sizes[latest.size]
    extra = "".join(f", {k} {v}" for k, v in {**chosen.smaller, **chosen.besides}.items())
    size = f"{latest.size}, {latest.seeds} seed{'s' * (latest.seeds > 1)}{extra}"
    verdict = latest.verdict + _reasons(latest.findings)
    name = figure.figure
    if figure.plot != "nothing":
        name = f"[{name}]({IMAGES}/{figure.name}.svg)"
    cells = [name, figure.claim, "; ".join(shown), size, verdict, command]
    return f"| {' | '.join(cells)} |"


def _reasons(findings: Sequence[Finding]) -> str:
    """Why checks do not hold: how many in which way."""
    reasons = Counter(f.why for f in findings if not f.holds)
    told = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
    return f": of {len(findings)} checks {told}" if told else ""
