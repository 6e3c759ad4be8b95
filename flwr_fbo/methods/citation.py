"""The citation of this software, and of the paper behind a method."""

from __future__ import annotations

from flwr_fbo import __version__
from flwr_fbo.methods.registry import find_method, method_names


def citation(strategy: str = "") -> str:
    """Return the BibTeX entry of this software, and that of the paper behind a strategy.

    Parameters
    ----------
    strategy : str
        The name of a strategy, such as ``"dp-fts-de"``; empty for the software alone. A baseline
        has no paper.

    Returns
    -------
    str
        One or two BibTeX entries.

    Examples
    --------
    >>> print(citation("fts").splitlines()[0])
    @software{flwr_fbo,
    """
    software = (
        "@software{flwr_fbo,\n"
        "  title   = {flwr-fbo: federated {B}ayesian optimisation with real privacy, "
        "as a {F}lower plugin},\n"
        f"  version = {{{__version__}}}\n"
        "}"
    )
    paper = find_method(strategy).bibtex if strategy in method_names() else ""
    return "\n\n".join([software, *([paper] if paper else [])])
