"""The page of the reproduction, from the saved results and nothing else."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .charts import drawn
from .checks import CONTRADICTED, HOLDS, UNKNOWN, Finding, Verdict
from .exceptions import EXCEPTIONS
from .figures import SIZES, Figure, SizeName
from .lattice_checks import LATTICE_CHECKS, compared_with_ts
from .own import PAYS, paying
from .reasons import REASONS, section
from .store import Store

#: Where the charts lie, from the page.
IMAGES = "images/reproduction"
#: More seeds than this are not added to a figure, unless its paper has more.
MOST_SEEDS = 100
HEAD = """# The papers' figures, run again

This page answers one question for each figure of the four papers: do runs of this package confirm
the paper's claim? What follows for a user is on [What the papers teach](lessons.md).

"""

COMMAND = """To run a figure again, give its name:

```text
python -m benchmarks.reproduce NAME
```

`--quick` takes about a minute, and `--seeds N` adds seeds to the saved ones. Saved runs are
continued, not repeated. Data sets are read from `FLWR_FBO_DATA`; EMNIST figures need torch.

## Every figure

Links lead to charts of the means. The numbers are below, under
[Measurements and checks](#measurements-and-checks). *Runs*: *full* has the paper's number of runs
or more; *medium* has fewer, and the cell says what else is smaller. Seeds begin at 100. Settings
are the papers' but for the [exceptions](#exceptions).
"""

RULE = """
## What a verdict means

A claim is split into checks. A check compares curves, paired over seeds, by the mean difference
and its 95 % interval (Student's t). The interval is compared with zero and with the *claimed
effect*: the least difference that the paper's words can mean.

| outcome of a check | the claim is "A is ahead of B by at least e" |
|---|---|
| holds | the whole interval is on A's side of zero |
| contradicted | the interval leaves no room for e, and is not on A's side of zero |
| cannot be decided | the interval holds both zero and e; beside it: how many seeds would decide |

| verdict of a figure | its checks |
|---|---|
| holds | all hold |
| holds in part | some hold |
| contradicted | none holds, and at least one is contradicted |
| cannot be decided | none is decided, or the paper's data are not available |

The papers print charts and hardly any numbers. The claimed effect is therefore a twentieth of
the curve behind ("faster", "better"), a tenth ("significantly"), or a quarter of an axis where
the authors released one. [Measurements and checks](#measurements-and-checks) shows it for each
figure, with the paper's words.
"Comparable" means within a quarter of the mean. Seeds were added where a check was nearly
decided, so the 95 % is a little generous.
Where checks of a *full* figure cannot be decided, the reason is that starts differ by more than
the claimed effect: the paper's number of runs could not tell either.
"""


WHY = """Each paragraph explains claims that do not hold, with measurements that support the
explanation (`python -m benchmarks.reproduce --why`; seeds from 100, mean +- standard deviation).

- *own model*, *shared function*: mean errors of the points that agents choose by their own model
  and by the shared function, in the first ten rounds. Each round has the same weight in both.
- *gain*: by how much such a point lowers its agent's least error so far.
- *noise / release*: the length of the noise in a release over the length of the release.
"""

LATTICES = """### Landmine and activity from tables

In these figures all agents of a federation are computed together, and scores come from tables
that are computed once (`python -m benchmarks.reproduce --tables`, four minutes of CPU). A test
compares these agents with the package's: initial points, fits, messages and points by the shared
function are the same, and paths of the own model have the same law. A run takes a second of CPU
instead of seven to ten, so that Fig. 11 with the paper's 100 runs takes half an hour of one core.
With `--exact` agents search the whole space and train a model for each evaluation.
"""


SHARING = """Our own question: on the papers' data, with readable features (length scale .2)
and standardised scores, without privacy, in which rounds and for how many parties is FTS-DE ahead
of agents alone? Each cell is the mean error of FTS-DE less that of TS, best so far; a star marks a
95 % interval below zero.
"""


LEFT = """The table lists checks that more seeds would decide, and figures whose present form has
too few runs. Of such a figure the page shows an earlier form, described under
[Exceptions](#exceptions). The command in the last column continues where the saved runs end.
`python -m benchmarks.reproduce --left` prints the same list.

CPU hours are those that the missing runs take on one core, if they take as long as the last run
of a curve. The synthetic figures of DP-FTS-DE take a seventh of their figure: their saved runs
were made one agent at a time. Checks that would take more than 100 seeds are not listed: with so
many, a figure of 5 to 100 runs could not tell either.
"""

CHECKS = """Click a figure to see its measurements and checks. Lower is better. A measurement is the
mean +- standard deviation over the seeds; epsilon is that of the paper's moments accountant.
*Claimed* is the claimed effect, with the paper's words.
"""


@dataclass(frozen=True)
class Latest:
    """The largest size of a figure of which every run is there."""

    #: The figure, or the form of it that has runs.
    figure: Figure
    size: SizeName
    seeds: int
    verdict: Verdict
    findings: list[Finding]
    results: dict[str, list[dict[str, Any]]]


def last(figure: Figure, store: Store) -> Latest | None:
    """What the saved runs say of a figure: those with most seeds, of equals the larger size.

    Quick runs prove nothing and are left out. With fewer than the medium size has, it is what they
    say of the form that stands in for the figure (:attr:`Figure.instead`).
    """
    found: list[Latest] = []
    for size in (s for s in SIZES[::-1] if s != "quick"):
        runs = figure.runs(size)
        seeds: list[int] = []
        for seed in itertools.count(figure.seeds(size).start):
            if any(store.get(run, seed) is None for run in runs.values()):
                break
            seeds.append(seed)
        if not seeds:
            continue
        named: SizeName = size
        if size == "full" and len(seeds) < figure.sizes["full"].seeds:
            named = "medium"
        results = {
            label: [store.get(run, seed) or {} for seed in seeds] for label, run in runs.items()
        }
        verdict, findings = figure.verdict(results)
        found.append(Latest(figure, named, len(seeds), verdict, findings, results))
    best = max(found, key=lambda f: f.seeds) if found else None
    if figure.instead is None or (best is not None and best.seeds >= figure.sizes["medium"].seeds):
        return best
    return last(figure.instead, store) or best


def charts(figures: Sequence[Figure], store: Store) -> dict[str, str]:
    """The text of an SVG file for each figure that has runs and can be drawn, by its name."""
    found = {}
    for figure in figures:
        latest = last(figure, store)
        if latest is not None:
            text = drawn(latest.figure, latest.figure.runs(latest.size), latest.results)
            if text is not None:
                found[figure.name] = text
    return found


def word_of(figure: Figure, latest: Latest | None) -> str:
    """A figure's verdict; of one without runs, why there is none."""
    if latest is not None:
        return latest.verdict
    return UNKNOWN if figure.obstacle else "not run"


def page(figures: Sequence[Figure], store: Store) -> str:
    """The whole page."""
    found = {figure.name: last(figure, store) for figure in figures}
    lines = [HEAD.rstrip("\n"), "", *_counts(figures, found), COMMAND]
    lines += ["| figure | claim | verdict | runs | name |", "|---|---|---|---|---|"]
    for figure in figures:
        lines.append(_row(figure, found[figure.name]))
    forms = [
        figure if f is None else f.figure for figure, f in zip(figures, found.values(), strict=True)
    ]
    lines += [RULE, "## Why claims do not hold\n", WHY]
    for reason in REASONS:
        if any(reason.explains(figure) for figure in figures):
            lines += section(reason, store)
    lines += _where_sharing_pays(figures, found)
    lines += ["## Exceptions\n", *exceptions(forms), "", LATTICES]
    for check in LATTICE_CHECKS:
        lines += section(check, store)
    lines += compared_with_ts(store)
    lines += ["\n## What is left\n", LEFT, *left(figures, store)]
    lines += ["\n## Measurements and checks\n", CHECKS]
    for figure in figures:
        latest = found[figure.name]
        if latest is not None:
            lines += _checks(figure, latest)
    return "\n".join(lines).rstrip() + "\n"


def _checks(figure: Figure, latest: Latest) -> list[str]:
    """The checks of a figure, folded below a line with its verdict."""
    title = f"<code>{figure.name}</code>: {word_of(figure, latest)}"
    measure = {"mean": "mean of the curve", "end": "end of the curve"}.get(figure.measure)
    unit = figure.unit if measure is None else f"{figure.unit}, {measure}"
    rows = [f"| {f.says} | {f.outcome} | {f.evidence} |" for f in latest.findings]
    return [
        f"<details><summary>{title}</summary>\n",
        f"| curve | {unit} | epsilon |",
        "|---|---|---|",
        *_measured(latest),
        f"\nClaimed: {figure.effect.text}.\n",
        "| check | outcome | evidence |",
        "|---|---|---|",
        *rows,
        "\n</details>\n",
    ]


def _measured(latest: Latest) -> list[str]:
    """The rows of a table of curves: mean and deviation over the seeds, and epsilon."""
    rows = []
    for label, results in latest.results.items():
        numbers = np.array([latest.figure.number(r) for r in results])
        spread = f" +- {numbers.std(ddof=1):.2g}" if len(numbers) > 1 else ""
        epsilon = results[0].get("epsilon")
        cost = "-" if epsilon is None else f"{epsilon:.2f}"
        rows.append(f"| {label} | {numbers.mean():.3g}{spread} | {cost} |")
    return rows


def _where_sharing_pays(figures: Sequence[Figure], found: dict[str, Latest | None]) -> list[str]:
    """Our own figure: how far sharing is ahead, by number of parties and round."""
    lines: list[str] = []
    for figure in figures:
        latest = found[figure.name]
        if figure.name in PAYS and latest is not None:
            lines += [f"**{figure.figure}** (`{figure.name}`). {PAYS[figure.name]} "
                      f"Of {latest.seeds} seeds.", "", *paying(latest.results)]  # fmt: skip
    return ["## Where sharing pays\n", SHARING, *lines] if lines else []


#: Verdicts in the order in which they are counted.
WORDS = ("holds", "holds in part", "contradicted", UNKNOWN, "not run")


def _counts(figures: Sequence[Figure], found: dict[str, Latest | None]) -> list[str]:
    """How many figures come out how: a sentence, and a table by paper."""
    words = {figure.name: word_of(figure, found[figure.name]) for figure in figures}
    papers: dict[str, Counter[str]] = {}
    for figure in figures:
        papers.setdefault(figure.paper, Counter())[words[figure.name]] += 1
    shown = [w for w in WORDS if w in words.values()]
    lines = [
        f"| {len(figures)} experiments | {' | '.join(shown)} |",
        "|---" * (len(shown) + 1) + "|",
    ]
    lines += [
        f"| {name} | {' | '.join(str(c[w]) if c[w] else '-' for w in shown)} |"
        for name, c in papers.items()
    ]
    return [*lines, ""]


def exceptions(figures: Sequence[Figure]) -> list[str]:
    """A table of what differs from the papers, or is not printed there."""
    lines = ["| figures | what differs, or is not printed in the paper |", "|---|---|"]
    for names, text in EXCEPTIONS:
        lines.append(f"| {names} | {text} |")
    notes: dict[str, list[str]] = {}
    for figure in figures:
        if figure.note:
            notes.setdefault(figure.note, []).append(f"`{figure.name}`")
    lines += [f"| {', '.join(names)} | {note} |" for note, names in notes.items()]
    return lines


def wanted(figure: Figure, latest: Latest | None) -> int:
    """How many seeds would decide every check that at most MOST_SEEDS can; 0 if none is open."""
    if latest is None or figure.obstacle or latest.figure is not figure:
        return 0
    open_ones = [f.seeds_needed for f in latest.findings if f.outcome == UNKNOWN]
    return max((n for n in open_ones if n <= MOST_SEEDS), default=0)


def left(figures: Sequence[Figure], store: Store) -> list[str]:
    """A table of what more runs would decide, the cheapest first; of unknown cost, last."""
    rows = []
    for figure in figures:
        latest = last(figure, store)
        if figure.obstacle:
            continue
        if latest is None or latest.figure is not figure:
            seeds, what = figure.sizes["full"].seeds, "all, in its present form"
        else:
            seeds = wanted(figure, latest)
            unknown = [f for f in latest.findings if f.outcome == UNKNOWN]
            what = str(sum(f.seeds_needed <= MOST_SEEDS for f in unknown))
        if not seeds:
            continue
        hours = missing_hours(figure, seeds, store)
        made = 0 if latest is None or latest.figure is not figure else latest.seeds
        command = f"`python -m benchmarks.reproduce {figure.name} --seeds {seeds}`"
        cost = "not known" if np.isinf(hours) else f"{hours:.2g}"
        cells = [figure.figure, what, f"{made} of {seeds}", cost, command]
        rows.append((hours, f"| {' | '.join(cells)} |"))
    if not rows:
        return [f"Nothing is left that {MOST_SEEDS} seeds would decide."]
    head = ["| figure | open checks | seeds | CPU hours | command |", "|---|---|---|---|---|"]
    return head + [row for _, row in sorted(rows)]


def missing_hours(figure: Figure, seeds: int, store: Store) -> float:
    """CPU hours of the runs that a number of seeds lacks; infinite if no curve was ever run.

    A curve that was never run is taken to cost as much as the figure's other curves do on average.
    """
    runs, first = figure.runs("full").values(), figure.seeds("full").start
    known = [store.seconds(run) for run in runs]
    some = [cost for cost in known if cost is not None]
    if not some:
        return float("inf")
    total = 0.0
    for run, cost in zip(runs, known, strict=True):
        lacking = sum(store.get(run, first + i) is None for i in range(seeds))
        total += lacking * (float(np.mean(some)) if cost is None else cost)
    return total / 3600


def _row(figure: Figure, latest: Latest | None) -> str:
    command, verdict = f"`{figure.name}`", word_of(figure, latest)
    if figure.obstacle:
        verdict += f": {figure.obstacle}"
    if latest is None:
        return f"| {figure.figure} | {figure.claim} | {verdict} | - | {command} |"
    figure = latest.figure
    chosen = figure.sizes[latest.size]
    extra = "".join(f", {k} {v}" for k, v in {**chosen.smaller, **chosen.besides}.items())
    size = f"{latest.size}, {latest.seeds} seed{'s' * (latest.seeds > 1)}{extra}"
    name = figure.figure
    if figure.plot != "nothing":
        name = f"[{name}]({IMAGES}/{figure.name}.svg)"
    if not figure.obstacle:
        verdict += _counted(latest.findings)
    cells = [name, figure.claim, verdict, size, command]
    return f"| {' | '.join(cells)} |"


def _counted(findings: Sequence[Finding]) -> str:
    """How many checks come out how, where they do not all come out alike."""
    counts = Counter(f.outcome for f in findings)
    words = {
        HOLDS: "holds" if counts[HOLDS] == 1 else "hold",
        CONTRADICTED: "contradicted",
        UNKNOWN: "cannot be decided",
    }
    told = ", ".join(f"{counts[o]} {word}" for o, word in words.items() if counts[o])
    return f" (of {len(findings)} checks {told})" if len(counts) > 1 else ""
