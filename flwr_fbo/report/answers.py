"""The first screen of a report: did it help, how much, how private, and what now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from flwr_fbo.report.runs import Run
from flwr_fbo.runs.comparison import Saving
from flwr_fbo.runs.result import Result
from flwr_fbo.runs.summary import along_text, next_steps, verdict_text
from flwr_fbo.runs.texts import params_text

#: The baselines that the first screen speaks of, the first that a run has.
PREFERRED = ("alone", "local-ts", "tpe", "random")

#: Longest setting in large letters; a longer one is a sentence.
MOST_LETTERS = 48


@dataclass(frozen=True)
class Answer:
    """A question that every reader has, its answer in large letters, and a sentence about it."""

    question: str
    answer: str
    words: str


def answers(run: Run) -> list[Answer]:
    """Return the four answers of a finished run."""
    r = run.result
    if r is None:
        closed = f"{len(run.rounds)} rounds are closed."
        return [Answer("Did it help?", "Not finished", f"This run is not finished: {closed}")]
    return [_helped(r), _how_much(r), _how_private(r), _what_now(r)]


def answers_html(run: Run) -> str:
    """Return the answers as cards."""
    cards = "".join(
        f"<article><h3>{escape(a.question)}</h3><b>{escape(a.answer)}</b>"
        f"<p>{escape(a.words)}</p></article>"
        for a in answers(run)
    )
    return f'<div class="answers">{cards}</div>'


def main_baseline(savings: Mapping[str, Saving]) -> str | None:
    """Return the main baseline: the agent alone, if the run was compared with it."""
    for name in (*PREFERRED, *savings):
        if name in savings:
            return name
    return None


def _helped(r: Result) -> Answer:
    """Return whether the federation helped, in the words of the intervals."""
    question, name = "Did it help?", main_baseline(r.savings)
    if r.best_score is None:
        return Answer(
            question, "Each party knows", "Scores stay in the agents' journals, on their machines."
        )
    if name is None:
        return Answer(
            question, "Not compared", "Run again with --compare alone,random to find out."
        )
    s = r.savings[name]
    if s.at_end.verdict == "worse" and s.ours >= s.theirs:
        return Answer(question, "No", f"At the end, clearly worse than {name}.")
    better = "better" in (s.at_end.verdict, s.over_run.verdict)
    if better and s.ours < s.theirs:
        words = f"The score of {name} came after {s.ours} evaluations instead of {s.theirs}."
        return Answer(question, "Yes", words)
    words = f"The same score took {s.ours} evaluations, and {s.theirs} with {name}. "
    return Answer(question, "Not clear", words + "The difference may be chance.")


def _how_much(r: Result) -> Answer:
    """Return the score, and what the intervals say of the difference."""
    if r.best_score is None:
        return Answer("How much?", "-", f"{r.agents} agents took part in {r.rounds} rounds.")
    name = main_baseline(r.savings)
    if name is None:
        words = f"mean best {r.metric} after {r.evaluations:g} evaluations of each agent."
        return Answer("How much?", f"{r.best_score:.4f}", words)
    s = r.savings[name]
    fewer, clear = s.theirs - s.ours, "better" in (s.at_end.verdict, s.over_run.verdict)
    head = f"{s.at_end.mean:+.3f} {r.metric}"
    if fewer > 0 and clear:  # what may be chance is not claimed in large letters
        head = f"{fewer} of {s.theirs} evaluations saved"
    words = f"Mean best {r.metric} {r.best_score:.4f}; difference to {name} at the end {s.at_end}."
    return Answer("How much?", head, words)


def _how_private(r: Result) -> Answer:
    """Return epsilon, and what it protects."""
    if r.epsilon is None or not r.private:
        return Answer("How private?", "Not private", f"{r.privacy}.")
    where = (
        "if the server is honest" if r.privacy.trust == "central" else "whatever the server does"
    )
    words = f"For each party, over the whole run, {where}; delta {r.delta:.0e}."
    return Answer("How private?", f"epsilon {r.epsilon:.3g}", words)


def _what_now(r: Result) -> Answer:
    """Return the setting to use, or the command to type."""
    if not r.complete:
        reason = r.stopped_early or "agents made fewer evaluations than planned"
        return Answer("What now?", "Continue", f"Incomplete: {reason}. {next_steps(r)[0][1]}")
    own = "Each agent keeps its own best setting."
    if r.recommended is None:
        return Answer("What now?", "Use each agent's own", f"{own} See the table of agents.")
    clear = (r.recommendation or {}).get("clear", True)
    doubt = "" if clear else " Noise alone could have given it."
    params, words = (
        params_text(r.recommended),
        "Recommended to all, and to parties that join later.",
    )
    if len(params) > MOST_LETTERS:
        params, words = "One setting for all", f"{words} It is {params}."
    return Answer("What now?", params, f"{words}{doubt} {own}")


def comparison_html(r: Result) -> str:
    """Return the table of the baselines and what the intervals say; empty without baselines."""
    if not r.compared:
        return ""
    header = ("", f"mean best {r.metric}", "evaluations to the same score",
              "difference at the end", "difference over all evaluations")  # fmt: skip
    rows = [(r.strategy, _score(r), "", "", "")]
    for name, other in r.compared.items():
        s = r.savings.get(name)
        row = ("", "", "") if s is None else (s.text, str(s.at_end), str(s.over_run))
        rows.append((name, _score(other), *row))
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table class="figures"><tr>{head}</tr>{body}</table></div>'
        f"<p>At the end: {escape(verdict_text(r.savings))} Over all evaluations: "
        f"{escape(along_text(r.savings))} Differences are means over the agents, with 95 % "
        "intervals in brackets.</p>"
    )


def _score(r: Result) -> str:
    return "-" if r.best_score is None else f"{r.best_score:.4f}"
