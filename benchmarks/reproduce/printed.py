"""What the papers print of each claim: their words, and the least difference that these can mean.

The papers print charts, and next to no numbers of what the charts show. The text is at hand, the
charts are not. So the least difference that a claim can mean follows from its words, and from one
axis that the authors released:

- "faster", "better", "outperforms", "smallest": a twentieth (:data:`SEEN`) of the curve that is
  said to be behind. Less is not seen in a printed chart whose axis begins near zero.
- "significantly", "considerably", "evident": a tenth (:data:`STRONG`).
- Landmine, DP-FTS-DE Figs. 3 and 11: the authors' notebook draws Fig. 3d between 1 - AUC = 0.23
  and 0.25, so that a tenth (0.023) would be more than the whole axis. A quarter of the axis, 0.005,
  is taken.

The numbers were written down before the seeds of this page were added. A reader who would take
another number finds the interval beside each check, and can take it.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Shares of the mean of the curve that is claimed to be behind.
SEEN, STRONG = 0.05, 0.10


@dataclass(frozen=True)
class Effect:
    """The least difference that a claim means, and the words that say so.

    ``share`` is of the mean of the curve that is claimed to be behind; ``units`` replaces it where
    an axis is known.
    """

    source: str
    share: float = SEEN
    units: float | None = None

    def of(self, reference: float) -> float:
        """Return the least difference from a curve with this mean."""
        return self.share * abs(reference) if self.units is None else self.units

    @property
    def text(self) -> str:
        """Return the effect and its source, for a page."""
        if self.units is not None:
            return f"at least {self.units:g}; {self.source}"
        return f"at least {100 * self.share:g} % of the other curve; {self.source}"


_AXIS = "the axis of Fig. 3d in the authors' notebook `analyze.ipynb` spans 0.23 to 0.25"
#: By the name of a figure, or what it begins with; the longest that fits counts.
EFFECTS: dict[str, Effect] = {
    "dp-fts-de-2a": Effect(
        'Sec. 5.1: "FTS converges faster than standard TS", FTS-DE "further improves the '
        'performance of FTS considerably"', STRONG),
    "dp-fts-de-2b": Effect('Sec. 5.1: "S = 11, which delivers the best performance"'),
    "dp-fts-de-2c": Effect('Sec. 5.1: "a larger q (smaller z) leads to a better utility"'),
    "dp-fts-de-2d": Effect('Sec. 5.1: "a larger q (smaller z) leads to a better utility"'),
    "dp-fts-de-3a": Effect(
        f'Sec. 5.2: "significantly outperforms standard TS in all settings"; {_AXIS}', units=0.005),
    "dp-fts-de-3d": Effect(
        f'Sec. 5.2: "DP-FTS-DE and FTS-DE converge faster than TS"; {_AXIS}', units=0.005),
    "dp-fts-de-3-losses": Effect("the authors' notebook `analyze.ipynb`"),
    "dp-fts-de-3b": Effect('Sec. 5.2: "significantly outperforms standard TS in all settings"',
                           STRONG),
    "dp-fts-de-3e": Effect('Sec. 5.2: "DP-FTS-DE and FTS-DE converge faster than TS"'),
    "dp-fts-de-3c": Effect('Sec. 5.2: "significantly outperforms standard TS in all settings"',
                           STRONG),
    "dp-fts-de-3f": Effect('Sec. 5.2: "DP-FTS-DE and FTS-DE converge faster than TS"'),
    "dp-fts-de-4": Effect(
        'App. B.1.2: "still yields a significantly better utility than DP-FTS"', STRONG),
    "dp-fts-de-5": Effect('App. B.1.2: "significantly worse than our FTS-DE algorithm"', STRONG),
    "dp-fts-de-6": Effect('App. B.1.2: "a smaller value of P ... may deteriorate the performance"'),
    "dp-fts-de-7a": Effect('App. B.1.2: "FTS-DE is still able to outperform TS"'),
    "dp-fts-de-7b": Effect(
        'App. B.1.2: "performs worse than standard TS"; "comparable with standard TS"'),
    "dp-fts-de-8": Effect('App. B.2.2: "still achieves a better utility"'),
    "dp-fts-de-9": Effect('App. B.2.3: "robustness ... against the choice of the weights"'),
    "dp-fts-de-10": Effect(
        'App. B.2.3: "robustness ... against the choice of ... the number P of sub-regions"'),
    "dp-fts-de-11": Effect(
        f'App. B.2.4: "slightly better privacy losses ... with comparable utilities"; {_AXIS}',
        units=0.005),
    "dp-fts-de-12": Effect('App. B.2.5: "adaptive weights ... lead to better performances"'),
    "own-": Effect("our own question, and our own twentieth"),
    "own-c": Effect(f"our own question; {_AXIS}", units=0.005),
    "fts-1a": Effect('Sec. 5.1: "FTS is able to perform better than TS"'),
    "fts-1b": Effect('Sec. 5.1: "increasing M leads to evident improvement"', STRONG),
    "fts-1c": Effect(
        'Sec. 5.1: "the performances of FTS are still comparable to that of standard TS"'),
    "fts-2": Effect('Sec. 5.2: "FTS outperforms both RGPE and TAF"'),
    "fts-3": Effect('Sec. 5.2: "FTS achieves the fastest convergence among all methods"'),
    "fts-4": Effect('App. D.2.1: "FTS outperforms standard TS in both settings"'),
    **{f"fts-{n}": Effect(
        'App. D.2.3: "FTS performs better than TS for some agents, and comparably with TS for '
        'other agents"') for n in (5, 6, 7)},
    "ldp-bo": Effect('Results: MoMA-GP-UCB "tends to empirically outperform the other two"'),
    "fed-pne-2": Effect('Sec. 4: "Fed-PNE has the smallest cumulative regret"'),
    "fed-pne-3": Effect('App. E.1.3: "The curves correspond nicely to our description of the '
                        'dilemma"'),
    "fed-pne-4": Effect(
        'App. E.1.6: "the cumulative regret of BO ... is not comparable with that of Fed-PNE"'),
    "fed-pne-5": Effect('App. E.2, the functions\' formulas'),
    "fed-pne-6": Effect(
        'App. E.3: "larger number of clients improves the average cumulative regret"'),
    "fed-pne-7": Effect('App. E.4: "logarithmic with respect to T"'),
    "fed-pne-8": Effect('App. E.5: "similar conclusions as in Section 4"'),
}  # fmt: skip
#: For a figure that is of no paper.
DEFAULT = Effect("our own rule")


def effect_of(name: str) -> Effect:
    """Return what is printed of a figure's claim."""
    fitting = [key for key in EFFECTS if name.startswith(key)]
    return EFFECTS[max(fitting, key=len)] if fitting else DEFAULT
