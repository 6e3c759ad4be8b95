"""The federations of the suite, in the order of its pages."""

from __future__ import annotations

from benchmarks.suite.federation import Federation
from benchmarks.suite.federations.hartmann import HARTMANN
from benchmarks.suite.federations.hpobench import HPOBENCH
from benchmarks.suite.federations.landmine import LANDMINE
from benchmarks.suite.federations.pipeline import PIPELINE
from benchmarks.suite.federations.yahpo import LCBENCH, RPART, RPART_60

FEDERATIONS: tuple[Federation, ...] = (
    LCBENCH, RPART_60, RPART, HPOBENCH, PIPELINE, LANDMINE, HARTMANN,
)  # fmt: skip
