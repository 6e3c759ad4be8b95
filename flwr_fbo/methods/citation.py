"""How to cite the software, and the paper behind a strategy."""

from __future__ import annotations

from flwr_fbo import __version__

_FTS = """@inproceedings{dai2020fts,
  title     = {Federated {B}ayesian Optimization via {T}hompson Sampling},
  author    = {Dai, Zhongxiang and Low, Bryan Kian Hsiang and Jaillet, Patrick},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {33},
  year      = {2020}
}"""
_DP_FTS_DE = """@inproceedings{dai2021dpftsde,
  title     = {Differentially Private Federated {B}ayesian Optimization with Distributed
               Exploration},
  author    = {Dai, Zhongxiang and Low, Bryan Kian Hsiang and Jaillet, Patrick},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {34},
  year      = {2021}
}"""
_FED_PNE = """@inproceedings{li2024fedpne,
  title     = {Federated {X}-Armed Bandit},
  author    = {Li, Wenjie and Song, Qifan and Honorio, Jean and Lin, Guang},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {38},
  year      = {2024}
}"""
_LDP_BO = """@inproceedings{zhou2021ldpbo,
  title     = {Local Differential Privacy for {B}ayesian Optimization},
  author    = {Zhou, Xingyu and Tan, Jian},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  volume    = {35},
  year      = {2021}
}"""

#: The paper behind each strategy; those for comparison have none here.
PAPERS = {
    "dp-fts-de": _DP_FTS_DE,
    "fts": _FTS,
    "fed-pne": _FED_PNE,
    "ldp-ata": _LDP_BO,
    "ldp-tgp": _LDP_BO,
    "ldp-moma": _LDP_BO,
}


def citation(strategy: str = "") -> str:
    """BibTeX of this software, and of the paper behind a strategy where one is named."""
    software = (
        "@software{flwr_fbo,\n"
        "  title   = {flwr-fbo: federated {B}ayesian optimisation with real privacy, "
        "as a {F}lower plugin},\n"
        f"  version = {{{__version__}}}\n"
        "}"
    )
    return "\n\n".join([software, *([PAPERS[strategy]] if strategy in PAPERS else [])])
