"""What a run guarantees: one typed statement, printed the same way everywhere.

A run writes its statement to ``privacy.json`` before its first message and again at its end. The
``epsilon`` of a statement is that of the whole planned schedule, whether or not the run went that
far: when a run stops may depend on what was released, and a guarantee that shrinks with an early
stop would not be one. What was really spent is said beside it.
"""

from __future__ import annotations

import importlib.metadata
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from flwr_fbo.privacy.calibration import largest_sound_delta

#: Whose data one side of a neighbouring pair lacks.
Unit = Literal["party", "reward", "answer"]
#: Against whom the guarantee holds: ``local`` and ``secure-sum`` include the server.
Trust = Literal["central", "secure-sum", "local", "none"]

#: The deltas at which every statement says epsilon too.
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
#: What no run of this package covers.
NEVER_COVERED = (
    "who takes part, and when and how large messages are",
    "a model, a score or a parameter value that a party publishes itself",
)


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy of one run.

    Parameters
    ----------
    method, agents
        The method, and the number of parties that the run was made for.
    unit
        Whose data are protected: all of a party's, one evaluation (``reward``), or one answer.
    relation
        The two inputs that cannot be told apart, in words.
    trust
        Who must be honest for it: nobody (``local``), or the server (``central``).
    mechanism
        How the noise is made, in words.
    epsilon, delta
        The guarantee of the whole planned schedule, which a reader may rely on.
    spent
        What has been released so far, at the same delta.
    party_epsilon
        What a party as a whole loses over the whole run, where the unit is smaller than a party.
    mu
        The parameter of Gaussian differential privacy, where the mechanism has one.
    epsilon_at
        Epsilon of the whole schedule at other deltas, by the delta as text.
    budget
        The epsilon that was asked for; None where noise was given instead.
    exhausted
        Whether the budget has stopped releases.
    notice
        Why the run is less private than it looks; empty where it is not.
    not_covered
        What the guarantee says nothing about.
    versions
        What computed it.
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

    @property
    def private(self) -> bool:
        """Say whether the guarantee holds: there is one, and nothing takes it back."""
        return self.epsilon is not None and not self.notice.startswith("NOT PRIVATE")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what must be said aloud at the start of the run."""
        found = [self.notice] if self.notice else []
        if self.epsilon is not None and self.delta is not None:
            sound = largest_sound_delta(self.agents)
            if self.delta > sound:
                found.append(
                    f"delta {self.delta:.2g} is above 1/(10 N) = {sound:.2g} for {self.agents} "
                    "parties: a promise that may fail for one of them says little"
                )
        return tuple(found)

    def __str__(self) -> str:
        """Return the statement in one line."""
        if self.epsilon is None or self.delta is None:
            return self.notice or "none: no noise is added to what agents send"
        text = f"epsilon {self.epsilon:.3f} at delta {self.delta:.2e} {_WHOSE[self.unit]}"
        text += f", {_AGAINST[self.trust]}"
        if self.unit != "party" and self.party_epsilon is not None:
            text += f"; epsilon {self.party_epsilon:.4g} {_WHOSE['party']}"
        return (
            "; ".join([text, *self.warnings])
            if self.private
            else (f"{self.notice} (otherwise {text})")
        )

    def to_page(self) -> str:
        """Return the statement as a page of text that can be filed."""
        rows = [
            ("Method", f"{self.method}, {self.agents} parties"),
            ("Guarantee", str(self)),
            ("Protected", _PROTECTED[self.unit] if self.epsilon is not None else "nothing"),
            ("Neighbours", self.relation),
            ("Must be honest", _HONEST[self.trust]),
            ("Mechanism", self.mechanism),
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
                    f"{label:<16} {text}", 90, subsequent_indent=" " * 17, break_on_hyphens=False
                )
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as ``privacy.json`` holds them."""
        plain = {**asdict(self), "not_covered": list(self.not_covered)}
        return {**plain, "private": self.private, "warnings": list(self.warnings)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the statement that :meth:`to_dict` wrote."""
        own = {f.name: content[f.name] for f in fields(cls)}
        return cls(**{**own, "not_covered": tuple(own["not_covered"])})


_PROTECTED = {
    "party": "all data, scores and choices of a party, and whether it replied",
    "reward": "the result of one evaluation",
    "answer": "the reward behind one answer",
}
_HONEST = {
    "central": "the server, which sees the parties' vectors",
    "secure-sum": "a threshold of the parties; the server sees sums only",
    "local": "nobody but the party's own node",
    "none": "everybody who receives a message",
}


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute noise and epsilon."""
    found = {}
    for package in ("flwr-fbo", "dp-accounting", "numpy", "scipy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
