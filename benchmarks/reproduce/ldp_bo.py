"""Figure of "Local Differential Privacy for Bayesian Optimization".

Fig. 2, six panels. The paper prints neither epsilon nor T for it: epsilon = 1 and T = 20,000 where
private (2,000 where not). The paper's parameters are "order-wise similar to those recommended by
the theorems", which is ``constants=orders``. Each panel is run again with our practical constants,
which are our own finding and not the paper's.
"""

from __future__ import annotations

from typing import Any

from .checks import below, least
from .figures import Figure, Run, Size, SizeName

PANELS: dict[str, tuple[str, str, bool]] = {
    "a": ("se", "synthetic", True),
    "b": ("light", "light sensors", True),
    "c": ("stocks", "stocks", True),
    "d": ("se", "synthetic, Student's t noise", False),
    "e": ("light", "light sensors", False),
    "f": ("stocks", "stocks", False),
}


def curve(letter: str, learner: str, **changed: Any) -> Run:
    """One learner on the problem of a panel."""
    problem, _, private = PANELS[letter]
    settings = {
        "problem": problem, "plays": 20_000 if private else 2_000, "constants": "orders",
        "law": "uniform" if private else "student-t",
        **({"epsilon": 1.0} if private else {}),
    }  # fmt: skip
    name = ("ldp-" if private else "") + learner.lower()
    return Run("learner", {**settings, "learner": name, **changed})


def panel(letter: str, constants: str) -> Figure:
    """Three learners on one problem, with one set of constants."""
    problem, name, private = PANELS[letter]
    curves = {label: curve(letter, label, constants=constants) for label in ("MoMA", "TGP", "ATA")}
    ours = constants == "practical"
    sizes: dict[SizeName, Size] = {
        "quick": Size(3, {"plays": 500}),
        "medium": Size(10),
        "full": Size(30),
    }
    return Figure(
        f"ldp-bo-own-2{letter}" if ours else f"ldp-bo-2{letter}",
        f"LDP-BO Fig. 2{letter}" + ", our constants" * ours,
        f"{name}, {'private' if private else 'not private'}: MoMA has the least regret",
        curves, [least("MoMA", ["TGP", "ATA"]), below("MoMA", "TGP"), below("MoMA", "ATA")],
        sizes, measure="end", unit="regret over uniform play's",
        note=f"constants: {constants}"
        + ("" if problem == "se" else "; in units of the largest mean"),
    )  # fmt: skip


FIGURES = [panel(letter, constants) for constants in ("orders", "practical") for letter in PANELS]
