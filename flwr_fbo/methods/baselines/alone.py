"""The agent of DP-FTS-DE without the others: its settings, for the baseline ``alone``.

The server is that of local Thompson sampling, which sends no shared function. The agent is that of
``dp-fts-de``, with the same model, acquisition and initial points. A difference between a run and
this baseline is therefore what the parties gain from one another, and nothing else.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.settings import ThompsonSettings


def _fields() -> list[tuple[str, Any, Any]]:
    """Return the fields of an agent's settings, with the defaults of DP-FTS-DE."""
    names = [f.name for f in dataclasses.fields(ThompsonSettings)]
    types = typing.get_type_hints(DPFTSDESettings)
    declared = {f.name: f for f in dataclasses.fields(DPFTSDESettings)}
    # Copies: a field belongs to the class that it was declared in.
    return [
        (
            name,
            types[name],
            dataclasses.field(default=declared[name].default, metadata=declared[name].metadata),
        )
        for name in names
    ]


#: Made from the declarations of DP-FTS-DE, so that the two can never differ.
AloneSettings = dataclasses.make_dataclass(
    "AloneSettings",
    _fields(),
    bases=(ThompsonSettings,),
    frozen=True,
    namespace={"__module__": __name__, "__doc__": "Settings of an agent of DP-FTS-DE, alone."},
)
