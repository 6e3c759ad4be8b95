"""The privacy statement: the guarantee of a run in one form, for files, logs and people.

A run writes its statement to ``privacy.json`` before its first message and again at its end. The
``epsilon`` of a statement is that of the whole planned schedule, even if the run stopped early. The
time of the stop may depend on the releases, so a smaller epsilon after an early stop would not be a
guarantee. ``spent`` is the epsilon of the releases that were made.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, Self

from flwr_fbo.privacy.calibration import largest_sound_delta

#: What two neighbouring inputs differ in: all data of a party, one evaluation, or one reply.
Unit = Literal["party", "reward", "answer"]
#: Who must be trusted: with ``local`` and ``secure-sum`` not even the server.
Trust = Literal["central", "secure-sum", "local", "none"]

#: The most letters in a line of the page, which the narrowest usual terminal shows.
PAGE = 79
#: The deltas at which every statement gives epsilon, beside its own delta.
DELTAS = (1e-5, 1e-6, 1e-8)

_WHOSE = {
    "party": "for each party, over the whole run",
    "reward": "for one single evaluation of a party",
    "answer": "for one single answer of a party",
}
_AGAINST = {
    "central": "if the server is honest",
    "secure-sum": "against the server too, which sees sums only",
    "local": "against the server too",
    "none": "",
}
#: What the guarantee of no run covers.
NEVER_COVERED = (
    "who takes part, and when and how large messages are",
    "a model, a score or a parameter value that a party publishes itself",
    "an app whose code differs from flwr-fbo's: nodes that run unsigned apps run whatever the "
    "submitter sends, and the limits of their owners bind honest code only",
)


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy guarantee of one run.

    Parameters
    ----------
    method, agents
        The name of the method, and the number of parties in the run.
    unit
        What is protected: all data of a party, one evaluation (``reward``), or one reply
        (``answer``).
    relation
        The neighbouring relation in words: which two inputs an observer cannot distinguish.
    trust
        Who must be honest: the server (``central``), enough parties (``secure-sum``), or nobody
        else (``local``).
    mechanism
        The mechanism that makes the noise, in words.
    epsilon, delta
        The guarantee of the whole planned schedule; None without a guarantee.
    spent
        The epsilon of the releases so far, at the same delta.
    party_epsilon
        The epsilon for all data of a party over the whole run, where the unit is smaller.
    mu
        The parameter of Gaussian differential privacy, where the mechanism has one.
    epsilon_at
        The epsilon of the whole schedule at other deltas, by the delta as text.
    budget
        The epsilon in the settings; None where the settings give the noise instead.
    exhausted
        Whether the budget has stopped releases.
    notice
        Why the run is less private than its numbers suggest; empty if it is not.
    not_covered
        What the guarantee does not cover.
    versions
        The versions of the packages that computed the guarantee.
    secure_sum
        With ``secure-sum``: the threshold, the colluding parties that the noise allows for, the
        neighbours of a party, and how much more noise there is where nobody drops out.

    Examples
    --------
    >>> print(PrivacyStatement("dp-fts-de", 30, trust="central", epsilon=5.0, delta=1e-5))
    epsilon 5.000 at delta 1.00e-05 for each party, over the whole run, if the server is honest
    """

    method: str
    agents: int
    unit: Unit = "party"
    relation: str = ""
    trust: Trust = "none"
    mechanism: str = ""
    epsilon: float | None = None
    delta: float | None = None
    spent: float | None = None
    party_epsilon: float | None = None
    mu: float | None = None
    epsilon_at: Mapping[str, float] = field(default_factory=dict)
    budget: float | None = None
    exhausted: bool = False
    notice: str = ""
    not_covered: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    secure_sum: Mapping[str, Any] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Return whether the run has a guarantee that no notice takes back."""
        return self.epsilon is not None and not self.notice.startswith("NOT PRIVATE")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings that a run shows at its start."""
        warnings = [self.notice] if self.notice else []
        if self.epsilon is not None and self.delta is not None:
            sound = largest_sound_delta(self.agents)
            if self.delta > sound:
                warnings.append(
                    f"delta {self.delta:.2g} is above 1/(10 N) = {sound:.2g} for {self.agents} "
                    "parties: a guarantee that may fail for one party says little"
                )
        return tuple(warnings)

    def __str__(self) -> str:
        """Return the statement as one line."""
        if self.epsilon is None or self.delta is None:
            return self.notice or "none: no noise is added to what agents send"
        text = f"epsilon {self.epsilon:.3f} at delta {self.delta:.2e} {_WHOSE[self.unit]}"
        text += f", {_AGAINST[self.trust]}"
        if self.unit != "party" and self.party_epsilon is not None:
            text += f"; epsilon {self.party_epsilon:.4g} {_WHOSE['party']}"
        if not self.private:
            return f"{self.notice} (otherwise {text})"
        return "; ".join([text, *self.warnings])

    def to_page(self) -> str:
        """Return the statement as a page of text."""
        rows = [
            ("Method", f"{self.method}, {self.agents} parties"),
            ("Guarantee", str(self)),
            ("Protected", _PROTECTED[self.unit] if self.epsilon is not None else "nothing"),
            ("Neighbours", self.relation),
            ("Must be honest", _HONEST[self.trust]),
            ("Mechanism", self.mechanism),
            ("Secure sum", self._secure_text()),
            ("Released so far", "" if self.spent is None else f"epsilon {self.spent:.3f}"),
            ("A whole party", "" if self.party_epsilon is None else
             f"epsilon {self.party_epsilon:.4g} over the whole run"),
            ("At other deltas", ", ".join(f"{e:.3f} at {d}" for d, e in self.epsilon_at.items())),
            ("Gaussian mu", "" if self.mu is None else f"{self.mu:.4g}"),
            ("Warnings", "; ".join(self.warnings)),
            ("Not covered", "; ".join(self.not_covered)),
            ("Computed by", ", ".join(f"{k} {v}" for k, v in self.versions.items())),
        ]  # fmt: skip
        lines = ["Privacy statement", "=================", ""]
        for label, text in rows:
            if text:
                lines += textwrap.wrap(
                    f"{label:<16} {text}", PAGE, subsequent_indent=" " * 17, break_on_hyphens=False
                )
        return "\n".join(lines) + "\n"

    def _secure_text(self) -> str:
        """Return the facts about secure sums as a sentence."""
        s = self.secure_sum
        if not s:
            return ""
        return (
            f"{s['threshold']} of {self.agents} parties must answer, {s['colluding']} may collude "
            f"with the server, {s['neighbours']} neighbours each, {s['excess_noise']:.3g} times "
            f"the noise if nobody drops out; the server sees {s['server_sees']}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as JSON values, as ``privacy.json`` holds them."""
        plain = {**asdict(self), "not_covered": list(self.not_covered)}
        return {**plain, "private": self.private, "warnings": list(self.warnings)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the statement that :meth:`to_dict` wrote."""
        # Statements of earlier versions know nothing of secure sums.
        own = {f.name: content[f.name] for f in fields(cls) if f.name in content}
        return cls(**{**own, "not_covered": tuple(own["not_covered"])})


_PROTECTED = {
    "party": "all data, scores and choices of a party",
    "reward": "the result of one evaluation",
    "answer": "the reward behind one answer",
}
_HONEST = {
    "central": "the server, which sees the parties' vectors",
    "secure-sum": "a threshold of the parties; the server sees sums only",
    "local": "only the party's own node",
    "none": "everybody who receives a message",
}


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute noise and epsilon."""
    return dict(_versions())


@cache  # reading the metadata takes milliseconds, and every round has a statement
def _versions() -> dict[str, str]:
    installed = {}
    for package in ("flwr-fbo", "dp-accounting", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed
