"""Settings: types and rules, keys as people write them, presets, and what a typo is told."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.core.settings import (
    Described,
    Settings,
    SettingsError,
    above,
    at_least,
    describe,
    kebab,
    setting,
    unknown_keys,
    within,
)


@dataclass(frozen=True)
class Cooling(Settings):
    rate: float = setting(0.5, "share kept per round", within(0, 1, open_low=True))
    start_after: int = setting(3, "rounds before it begins", at_least(0))
    limit: float | None = setting(None, "least temperature", above(0))
    enabled: bool = setting(True, "whether to cool")
    scale: Literal["linear", "log"] = setting("log", "how it falls")
    label: str = setting("", "shown to people")

    def check(self) -> None:
        if self.limit is not None and self.limit > self.rate:
            raise SettingsError(f"`limit` must be <= `rate`, but got {self.limit} > {self.rate}")


def test_defaults_hold_and_settings_cannot_be_changed():
    cooling = Cooling()
    assert (cooling.rate, cooling.limit, cooling.enabled) == (0.5, None, True)
    with pytest.raises(FrozenInstanceError):
        cooling.rate = 0.1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rate": 0.0}, r"`rate` must be in \(0, 1\], but got 0.0"),
        ({"rate": 1.5}, r"`rate` must be in \(0, 1\], but got 1.5"),
        ({"rate": math.nan}, "`rate` must be finite, but got nan"),
        ({"rate": math.inf}, "`rate` must be finite, but got inf"),
        ({"rate": "half"}, "`rate` must be float, but got 'half'"),
        ({"rate": True}, "`rate` must be float, but got True"),
        ({"rate": None}, "`rate` must be float, but got None"),
        ({"start_after": -1}, "`start-after` must be >= 0, but got -1"),
        ({"start_after": 1.0}, "`start-after` must be int, but got 1.0"),
        ({"start_after": True}, "`start-after` must be int, but got True"),
        ({"limit": 0.0}, "`limit` must be > 0, but got 0.0"),
        ({"limit": 0.9}, "`limit` must be <= `rate`, but got 0.9 > 0.5"),
        ({"enabled": 1}, "`enabled` must be bool, but got 1"),
        ({"scale": "cubic"}, r"`scale` must be linear \| log, but got 'cubic'"),
        ({"label": 3}, "`label` must be str, but got 3"),
    ],
)
def test_a_wrong_value_is_refused_with_key_rule_and_value(given, says):
    with pytest.raises(SettingsError, match=says):
        Cooling(**given)


def test_integers_serve_as_floats_and_numpys_numbers_as_pythons():
    cooling = Cooling(rate=1, start_after=np.int64(2), limit=np.float32(0.5))
    assert type(cooling.rate) is float
    assert type(cooling.start_after) is int
    assert type(cooling.limit) is float


def test_text_is_read_as_the_declared_type():
    text = {"rate": "1e-1", "start-after": "7", "limit": "0.05", "enabled": "False", "scale": "log"}
    assert Cooling.from_mapping(text) == Cooling(0.1, 7, 0.05, False, "log")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rate": "fast"}, "`rate` must be float, but got 'fast'"),
        ({"start-after": "2.5"}, "`start-after` must be int, but got '2.5'"),
        ({"enabled": "yes"}, "`enabled` must be bool, but got 'yes'"),
        ({"scale": "Log"}, r"`scale` must be linear \| log, but got 'Log'"),
        ({"rate": "nan"}, "must be finite"),
        ({"strt-after": 1}, "unknown setting `strt-after`; did you mean `start-after`"),
        ({"start_after": 1}, "unknown setting `start_after`; did you mean `start-after`"),
        ({"START-AFTER": 1}, "unknown setting `START-AFTER`; did you mean `start-after`"),
        ({"zzz": 1}, "unknown setting `zzz`; known are enabled, label, limit, rate, scale, start"),
    ],
)
def test_text_that_cannot_be_read_and_unknown_keys_are_refused(given, says):
    with pytest.raises(SettingsError, match=says):
        Cooling.from_mapping(given)


def test_presets_stand_where_nothing_is_given_and_empty_text_gives_nothing():
    preset = {"rate": 0.25, "start-after": 9, "limit": 0.01}
    cooling = Cooling.from_mapping({"rate": 0.75, "start-after": "", "scale": ""}, preset)
    assert cooling == Cooling(rate=0.75, start_after=9, limit=0.01)
    with pytest.raises(SettingsError, match="unknown setting `rte`"):
        Cooling.from_mapping({}, {"rte": 1})


@given(
    st.floats(1e-3, 1),
    st.integers(0, 100),
    st.none() | st.floats(1e-6, 1e-3),
    st.booleans(),
    st.sampled_from(["linear", "log"]),
)
def test_a_mapping_reads_back_also_as_text(rate, start_after, limit, enabled, scale):
    cooling = Cooling(rate, start_after, limit, enabled, scale)
    mapping = cooling.to_mapping()
    assert ("limit" in mapping) == (limit is not None)
    assert Cooling.from_mapping(mapping) == cooling
    assert Cooling.from_mapping({k: str(v) for k, v in mapping.items()}) == cooling


def test_every_setting_is_described_in_order():
    rows = describe(Cooling)
    assert [row.key for row in rows] == list(Cooling.keys())
    assert rows[0] == Described("rate", "float", 0.5, "in (0, 1]", "share kept per round")
    assert rows[2] == Described("limit", "float", None, "> 0", "least temperature")
    assert rows[4].type == "linear | log"


def test_subclasses_add_to_their_bases_settings():
    @dataclass(frozen=True)
    class Slow(Cooling):
        pause: float = setting(1.0, "seconds", above(0))

    assert Slow.keys() == (*Cooling.keys(), "pause")
    with pytest.raises(SettingsError, match="`rate`"):
        Slow(rate=2.0)


def test_small_tools():
    assert kebab("sampling_rate") == "sampling-rate"
    unknown_keys([], [])
    text, holds = within(0, 1, open_high=True)
    assert text == "in [0, 1)"
    assert [holds(v) for v in (0, 0.5, 1)] == [True, True, False]
