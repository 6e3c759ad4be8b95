"""The summary of a finished run in plain text: what was gained, at what cost, and what now."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from flwr_fbo.runs.absent import absence_rows
from flwr_fbo.runs.comparison import Saving
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.texts import failing_text, listed, params_text

#: The width of the labels at the left.
LABEL = 14
#: Labels of rows whose text is copied into a shell, so that no line break may be added.
COPIED = frozenset({"files", "next", ""})
#: How to compare a run with baselines, on the command line and in Python.
BY_COMMAND = "flwr-fbo run ... --compare alone,random"
IN_PYTHON = 'simulate(..., compare=["alone", "random"])'


def summary(result: Result, columns: int | None = None, comparing: str = BY_COMMAND) -> str:
    """Return the summary of a finished run: scores, gains, privacy, failures, and what to do next.

    Parameters
    ----------
    result
        The result of the run.
    columns
        The width of the terminal. Lines of text are broken there, and a table that is too wide is
        printed as two. None breaks nothing.
    comparing
        How the reader can compare the run with baselines; empty where that is not possible, as in
        a deployment.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_fbo import Float, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = simulate(hill, agents=2, strategy="random", rounds=3, run_dir=folder)
    >>> print(summary(result).splitlines()[1].rpartition(",")[0])  # without the seconds
    random on hill: 2 agents, 8 evaluations each
    """
    spent = f", {result.evaluations:.3g} evaluations each" if result.evaluations else ""
    title = (
        f"{result.strategy} on {result.task}: {result.agents} agents{spent}, {result.seconds:.1f} s"
    )
    lines = ["", title, ""]
    if result.best_score is not None:
        lines += [*score_table(result, columns), ""]
    for label, text in _rows(result, comparing):
        lines += _labelled(label, text, None if label in COPIED else columns)
    return "\n".join(lines)


def _labelled(label: str, text: str, columns: int | None) -> list[str]:
    """Return a text beside its label, in lines of so many columns."""
    first, others = f"  {label:<{LABEL}}", " " * (LABEL + 2)
    # A very narrow terminal breaks lines anyway; a word is never broken.
    if columns is None or columns < 2 * LABEL + 20:
        return [first + text]
    lines = textwrap.wrap(
        text, columns - 1, initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines or [first]


def steps_text(result: Result) -> str:
    """Return the cost in steps, and how many evaluations were pruned."""
    made = round(result.evaluations * result.agents)
    steps, pruned = result.findings["steps"], result.findings["pruned"]
    return f"{steps:g} for each agent; {pruned:g} of {made} evaluations pruned"


def score_table(result: Result, columns: int | None = None) -> list[str]:
    """Return the lines of the table of scores: the run, and each baseline beside it.

    In a terminal of fewer columns than the table has, the differences are a second table.
    """
    width = max(12, *(len(name) + 2 for name in (result.strategy, *result.compared)))
    score = f"{result.best_score:.4f}" if result.best_score is not None else "-"
    title = f"mean best {result.metric}"
    if not result.compared:
        return [f"  {'strategy':<{width}}{title}", f"  {result.strategy:<{width}}{score}"]
    names = ["", "strategy", result.strategy, *result.compared]
    others = result.compared.values()
    theirs = ["-" if r.best_score is None else f"{r.best_score:.4f}" for r in others]
    found = [result.savings.get(name) for name in result.compared]
    texts = ["" if s is None else s.text for s in found]
    ends = ["" if s is None else str(s.at_end) for s in found]
    overs = ["" if s is None else str(s.over_run) for s in found]
    labels = [f"  {name:<{width}}" for name in names]
    scores = [f"{t:<{max(len(title), 8) + 3}}" for t in ("", title, score, *theirs)]
    counts = [f"{t:<19} " for t in ("evaluations to", "the same score", "", *texts)]
    at_end = [f"{t:<26} " for t in ("difference (95 % interval)", "at the end", "", *ends)]
    over_run = ["", "over all evaluations", "", *overs]
    whole = _beside(labels, scores, counts, at_end, over_run)
    if columns is None or max(len(line) for line in whole) < columns:
        return whole
    differences = _beside(labels, at_end, over_run)
    del differences[2]  # the run has no difference to itself
    return [*_beside(labels, scores, counts), "", *differences]


def _beside(*columns: list[str]) -> list[str]:
    """Return the lines of a table from its columns, whose cells have their widths."""
    return ["".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def saved_text(savings: Mapping[str, Saving]) -> str:
    """Return in one sentence how many evaluations were saved; empty without a baseline."""
    others = [(name, s) for name, s in savings.items() if not _equal(s)]
    same = [name for name, s in savings.items() if _equal(s)]
    counts = [
        f"{s.ours}{'' if number else ' evaluations'} instead of {s.theirs} ({name})"
        for number, (name, s) in enumerate(others)
    ]
    parts = [listed(counts)] if counts else []
    if same:
        parts.append(f"as many{'' if counts else ' evaluations'} as {listed(same)}")
    return f"The same score came after {', and after '.join(parts)}." if parts else ""


def _equal(saving: Saving) -> bool:
    """Return whether the run and its baseline needed equally many evaluations."""
    return saving.ours == saving.theirs


def verdict_text(savings: Mapping[str, Saving]) -> str:
    """Return in one sentence what the intervals say of the last scores; empty without one."""
    kinds = {
        "better": "clearly better than {}",
        "worse": "clearly worse than {}",
        "equal": "equal to {}",
        "unclear": "no clear difference to {}",
    }
    parts = []
    for verdict, text in kinds.items():
        names = [name for name, s in savings.items() if s.at_end.verdict == verdict]
        if names:
            parts.append(text.format(listed(names)))
    return _sentence("; ".join(parts))


def along_text(savings: Mapping[str, Saving]) -> str:
    """Return the sentence of :func:`verdict_text` for the mean over all evaluations."""
    ahead = [name for name, s in savings.items() if s.over_run.verdict == "better"]
    behind = [name for name, s in savings.items() if s.over_run.verdict == "worse"]
    parts = [f"clearly ahead of {listed(ahead)}"] if ahead else []
    parts += [f"clearly behind {listed(behind)}"] if behind else []
    rest = [name for name in savings if name not in (*ahead, *behind)]
    parts += [f"no clear difference to {listed(rest)}"] if rest else []
    return _sentence("; ".join(parts))


def next_steps(result: Result, comparing: str = "") -> list[tuple[str, str]]:
    """Return what a reader may want next, each with the command for it."""
    run = result.run_dir
    steps = []
    if failing_text(result.failed_evaluations, round(result.evaluations * result.agents)):
        steps.append(("read the errors", f"cat {run}/agents/*.jsonl"))
    if not result.complete:
        return [*steps, ("continue the run", f"flwr-fbo resume {run}")]
    steps.append(("figures, as one HTML file", f"flwr-fbo report {run}"))
    if result.private:
        steps.append(("what is protected", f"flwr-fbo privacy --statement {run}"))
    if comparing and result.best_score is not None and not result.compared:
        steps.append(("compare with baselines", comparing))
    return steps


def privacy_text(result: Result) -> str:
    """Return the privacy guarantee of the run in one line."""
    return str(result.privacy)


def recommended_text(result: Result) -> str:
    """Return the setting recommended to all agents, and whether it is clearer than noise."""
    if result.recommended is None:
        return ""
    clear = (result.recommendation or {}).get("clear", True)
    doubt = "" if clear else "   (noise alone could have given it)"
    return params_text(result.recommended) + doubt


def _sentence(text: str) -> str:
    """Return the text with a capital and a full stop; empty for an empty text."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _rows(result: Result, comparing: str) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each row below the scores."""
    if result.savings:
        yield "saved", saved_text(result.savings)
        yield "at the end", verdict_text(result.savings)
        yield "on the way", along_text(result.savings)
    if result.recommended is not None:
        yield "recommended", recommended_text(result)
    yield "privacy", privacy_text(result)
    if result.failures:
        made = round(result.evaluations * result.agents)
        most = failing_text(result.failed_evaluations, made)
        note = most or "see the agents' journals"
        yield "failures", f"{result.failures}   ({note})"
        yield from _first_failure(result)
    if "steps" in result.findings:
        yield "steps", steps_text(result)
    yield from absence_rows(result)
    for damage in result.damages:
        yield "damaged", damage
    if result.stopped_early:
        yield "stopped early", result.stopped_early
    yield "files", result.run_dir
    steps = next_steps(result, comparing)
    wide = max(len(purpose) for purpose, _ in steps) + 1
    for number, (purpose, command) in enumerate(steps):
        yield ("" if number else "next"), f"{purpose + ':':<{wide}} {command}"


def _first_failure(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the first failed evaluation as a row; no row without journals or failures."""
    for agent, history in enumerate(result.read_evaluations()):
        for e in history:
            if e.failed:
                yield "first error", f"agent {agent}: {e.failure}   ({params_text(e.params)})"
                return
