"""What holds for many figures and differs from the papers, or is not printed there.

What concerns one figure is its ``note``. The page lists both.
"""

from __future__ import annotations

#: Which figures (Markdown), and what differs.
EXCEPTIONS: tuple[tuple[str, str], ...] = (
    ("all", "the number of seeds, beside each figure"),
    (
        "DP-FTS-DE on data, FTS on data",
        "not printed, and as in the authors' released code: beta_t = 1; the hyperparameters of an "
        "agent's own model are learned again every five observations; scores are not standardised",
    ),
    (
        "landmine, all papers",
        "the AUC is that of the decision function; the released code takes Platt's probabilities, "
        "which score the same point differently at each call. The halves are stratified",
    ),
    (
        "activity, DP-FTS-DE and FTS",
        "not printed: 20 epochs; the step of the L2 penalty is implicit, as explicit steps diverge "
        "in half of the printed box",
    ),
    (
        "DP-FTS-DE Figs. 2, 4 to 7 and 12a",
        "from the 21st seed on, the agents of a federation are computed together "
        "(`benchmarks/reproduce/batch.py`), with the exact prior where the package draws 256 "
        "random features; a test compares the two",
    ),
    (
        "LDP-BO Fig. 2",
        "neither epsilon nor T is printed: epsilon = 1 and T = 20,000 where private, T = 2,000 "
        "where not. The Matern kernel of the appendix is not run",
    ),
    (
        "Fed-PNE on data",
        "pulls of one point by one client are one training, as the score is deterministic. Regret "
        "is counted from 1, as in the paper; on MNIST it is that of the clients' own accuracies, "
        "the paper's is of a pooled test set",
    ),
)
