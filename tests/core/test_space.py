"""Spaces: values to coordinates and back, boxes, embeddings, JSON, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flwr_fbo.core.space import Categorical, Float, Int, Space, SpaceError, values_in

# ------------------------------------------------------------------ random spaces


def floats() -> st.SearchStrategy[Float]:
    def make(low: float, ratio: float, log: bool) -> Float:
        return Float(low, low * ratio, log) if log else Float(low - ratio, low + ratio)

    return st.builds(make, st.floats(1e-6, 1e6), st.floats(1.01, 1e4), st.booleans())


def integers() -> st.SearchStrategy[Int]:
    def make(low: int, step: int, steps: int, log: bool) -> Int:
        return Int(low if log else low - 500, (low if log else low - 500) + step * steps, log, step)

    return st.builds(
        make, st.integers(1, 1000), st.integers(1, 7), st.integers(1, 10**6), st.booleans()
    )


SCALARS = (
    st.text(max_size=5) | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False)
)


def categories() -> st.SearchStrategy[Categorical]:
    finite = SCALARS.filter(lambda v: not isinstance(v, float) or math.isfinite(v))
    different = st.lists(finite, min_size=1, max_size=6, unique_by=lambda v: (type(v).__name__, v))
    return different.map(Categorical)


def spaces() -> st.SearchStrategy[Space]:
    parameter = floats() | integers() | categories()
    return st.dictionaries(st.text("abcxyz_", min_size=1, max_size=4), parameter, min_size=1,
                           max_size=4).map(Space)  # fmt: skip


def same(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b


# ------------------------------------------------------------------ round trips


@given(spaces(), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_values_survive_the_way_to_the_cube_and_back(space, seed):
    rng = np.random.default_rng(seed)
    for unit in space.sample(3, rng):
        params = space.from_unit(unit)
        space.check(params)
        back = space.to_unit(params)
        again = space.from_unit(back)
        for name, parameter in space.parameters.items():
            if isinstance(parameter, Float):
                # A coordinate has an error of a few 2^-53; a value's error is that times the
                # range, or on a log scale that times the log range, relatively.
                spread = (
                    params[name] * math.log(parameter.high / parameter.low)
                    if parameter.log
                    else parameter.high - parameter.low
                )
                scale = max(abs(parameter.low), abs(parameter.high))
                slack = 2**-48 * (spread + (params[name] if parameter.log else scale))
                assert again[name] == pytest.approx(params[name], rel=0, abs=slack)
            else:
                assert same(again[name], params[name])
        discrete = [not isinstance(p, Float) for p in space.parameters.values()]
        assert np.array_equal(back[discrete], unit[discrete])  # samples are representatives


@given(integers() | categories(), st.data())
@settings(max_examples=200, deadline=None)
def test_every_discrete_value_owns_a_cell_around_its_coordinate(parameter, data):
    index = data.draw(st.integers(0, parameter.size - 1))
    unit = float(parameter.unit(np.array([index]))[0])
    assert 0 < unit < 1
    assert parameter.index(np.array([unit])) == [index]
    value = parameter.from_unit(unit)
    parameter.check(value)
    assert parameter.to_unit(value) == unit


@given(spaces(), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_snapping_is_idempotent_and_keeps_the_meaning(space, seed):
    units = np.random.default_rng(seed).random((5, space.dimension))
    snapped = space.snap(units)
    assert np.array_equal(space.snap(snapped), snapped)
    for before, after in zip(units, snapped, strict=True):
        a, b = space.from_unit(before), space.from_unit(after)
        assert all(same(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    "parameter",
    [
        Int(1, 2**40, log=True),
        Int(0, 2**40 - 1),
        Int(-(10**18), -(10**18) + 7 * 10**6, step=7),
        Int(5, 5 + 3 * 10**6, log=True, step=3),
    ],
)
def test_large_integers_stay_exact(parameter):
    rng = np.random.default_rng(0)
    ends = np.array([0, 1, 2, parameter.size - 2, parameter.size - 1])
    index = np.concatenate([ends, rng.integers(0, parameter.size, 2000)])
    assert np.array_equal(parameter.index(parameter.unit(index)), index)
    for value in (parameter.low, parameter.low + parameter.step, parameter.high):
        assert parameter.from_unit(parameter.to_unit(value)) == value


def test_ends_are_met_exactly():
    assert Float(1e-3, 1e3, log=True).from_unit(0.0) == 1e-3
    assert Float(1e-3, 1e3, log=True).from_unit(1.0) == 1e3
    assert Float(-0.1, 0.3).from_unit(1.0) == 0.3
    assert Int(3, 9).from_unit(0.0) == 3
    assert Int(3, 9).from_unit(1.0) == 9


def test_scales_by_hand():
    assert Float(1e-2, 1e2, log=True).to_unit(1.0) == pytest.approx(0.5, abs=1e-15)
    assert Float(-1.0, 3.0).to_unit(0.0) == 0.25
    assert Int(0, 3).unit(np.arange(4)).tolist() == [0.125, 0.375, 0.625, 0.875]
    # log cells end at geometric means: 1 | sqrt2 | 2, 4: ends sqrt(1/2) and 4 sqrt(4/3)
    thrice = Int(1, 4, log=True)
    first, last = math.log(math.sqrt(0.5)), math.log(4 * math.sqrt(4 / 3))
    expected = [(math.log(v) - first) / (last - first) for v in (1, 2, 3, 4)]
    np.testing.assert_allclose(thrice.unit(np.arange(4)), expected, rtol=1e-14)
    edge = (math.log(math.sqrt(2)) - first) / (last - first)
    assert thrice.index(np.array([edge - 1e-9, edge + 1e-9])).tolist() == [0, 1]
    assert Categorical(["a", "b"]).to_unit("b") == 0.75


# ------------------------------------------------------------------ embedding


def test_categories_become_corners_one_unit_apart():
    space = Space({"x": Float(0, 1), "kind": Categorical(["a", "b", "c"]), "n": Int(1, 4)})
    rows = np.array([space.to_unit({"x": 0.3, "kind": k, "n": 2}) for k in "abc"])
    embedded = space.embed(rows)
    assert embedded.shape == (3, space.embedding_dimension) == (3, 5)
    apart = np.linalg.norm(embedded[:, None] - embedded[None], axis=-1)
    np.testing.assert_allclose(apart, 1.0 - np.eye(3), atol=1e-15)


@given(spaces(), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_embedded_distance_is_euclid_plus_one_for_each_differing_category(space, seed):
    a, b = space.sample(2, np.random.default_rng(seed))
    expected = sum(
        float(u != v) if isinstance(p, Categorical) else (u - v) ** 2
        for p, u, v in zip(space.parameters.values(), a, b, strict=True)
    )
    e, f = space.embed(np.array([a, b]))
    assert ((e - f) ** 2).sum() == pytest.approx(expected, abs=1e-12)


# ------------------------------------------------------------------ boxes


@given(spaces(), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_samples_of_a_box_lie_in_it_and_are_points_of_the_space(space, seed):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.random((2, space.dimension)), axis=0)
    high[rng.random(space.dimension) < 0.3] = 1.0
    for p, a, b in zip(space.parameters.values(), low, high, strict=True):
        if not isinstance(p, Float):
            first, last = values_in(p, a, b)
            assume(first <= last)
    units = space.sample(20, rng, low, high)
    assert units.shape == (20, space.dimension)
    assert space.inside(units, low, high).all()
    assert np.array_equal(space.snap(units), units)


@given(integers() | categories(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_values_in_a_box_are_those_whose_coordinates_are(parameter, a, b):
    assume(parameter.size <= 1000)
    low, high = min(a, b), max(a, b)
    first, last = values_in(parameter, low, high)
    units = parameter.unit(np.arange(parameter.size))
    inside = np.flatnonzero((units >= low) & ((units < high) | (high >= 1.0)))
    assert inside.tolist() == list(range(first, last + 1))


def test_values_of_a_box_are_equally_likely_however_it_cuts_their_cells():
    # [0.5, 1] cuts the cell of 2 in half. Uniform on {2, 3}: 3 standard deviations of a
    # proportion of 4,000 draws are 3 * 0.5 / sqrt(4000) = 0.024.
    space = Space({"n": Int(1, 3), "c": Categorical(["a", "b", "c"])})
    units = space.sample(4000, np.random.default_rng(3), 0.5, 1.0)
    for column in range(2):
        values, counts = np.unique(units[:, column], return_counts=True)
        np.testing.assert_allclose(values, [0.5, 5 / 6])
        np.testing.assert_allclose(counts / 4000, 0.5, atol=0.024)


def test_log_integers_are_drawn_evenly_by_their_cells():
    # P(1) in Int(1, 4, log) is the length of its cell, log(2) / log(8 / sqrt(3) sqrt(2))
    parameter = Int(1, 4, log=True)
    units = Space({"n": parameter}).sample(4000, np.random.default_rng(4))
    share = np.mean(parameter.index(units[:, 0]) == 0)
    cell = math.log(2) / (math.log(4 * math.sqrt(4 / 3)) - math.log(math.sqrt(0.5)))
    assert share == pytest.approx(cell, abs=3 * math.sqrt(cell * (1 - cell) / 4000))


def test_a_box_without_values_is_refused():
    space = Space({"n": Int(1, 2)})
    with pytest.raises(SpaceError, match=r"'n' has no value in \[0.3, 0.7\]"):
        space.sample(1, np.random.default_rng(0), 0.3, 0.7)


# ------------------------------------------------------------------ finite spaces


def test_a_finite_space_is_its_points():
    parameters = {"C": Float(1e-2, 1e2, log=True), "kernel": Categorical(["rbf", "poly"])}
    listed = [{"C": c, "kernel": k} for c in (0.01, 1.0, 100.0) for k in ("rbf", "poly")]
    space = Space.finite(parameters, listed)
    assert space.points.shape == (6, 2)
    assert not space.points.flags.writeable
    for unit, params in zip(space.points, listed, strict=True):
        assert space.from_unit(unit)["kernel"] == params["kernel"]
        assert space.from_unit(unit)["C"] == pytest.approx(params["C"], rel=1e-14)
    drawn = space.sample(200, np.random.default_rng(0))
    assert {tuple(u) for u in drawn} == {tuple(u) for u in space.points}
    # a category is never traded for a nearer number
    snapped = space.snap(np.array([[0.26, 0.75], [0.2, 0.2]]))
    np.testing.assert_allclose(snapped, [[0.5, 0.75], [0.0, 0.25]], atol=1e-15)


def test_sampling_a_finite_space_respects_boxes():
    space = Space({"x": Float(0, 1)}, np.linspace(0, 1, 11)[:, None])
    drawn = space.sample(300, np.random.default_rng(0), 0.2, 0.5)
    assert sorted({round(float(u), 9) for u in drawn[:, 0]}) == [0.2, 0.3, 0.4]
    upper = space.sample(300, np.random.default_rng(0), 0.5, 1.0)
    assert upper.max() == 1.0
    with pytest.raises(SpaceError, match="no point of the finite space lies in"):
        space.sample(1, np.random.default_rng(0), 0.21, 0.22)


# ------------------------------------------------------------------ JSON and equality


@given(spaces(), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_json_gives_an_equal_space(space, finite, seed):
    if finite:
        space = Space(space.parameters, space.sample(4, np.random.default_rng(seed)))
    text = space.to_json()
    again = Space.from_json(text)
    assert again == space
    assert hash(again) == hash(space)
    assert again.to_json() == text
    if finite:
        assert np.array_equal(again.points, space.points)


def test_numpy_scalars_are_taken_and_written_as_plain_ones():
    space = Space(
        {
            "a": Float(np.float32(0.5), np.int64(2)),
            "b": Int(np.int64(1), np.int32(9), step=np.int8(2)),
            "c": Categorical([np.str_("x"), np.int64(3), np.float64(0.5), np.bool_(True)]),
        }
    )
    plain = Space(
        {"a": Float(0.5, 2.0), "b": Int(1, 9, step=2), "c": Categorical(["x", 3, 0.5, True])}
    )
    assert Space.from_json(space.to_json()) == space == plain
    unit = space.to_unit({"a": np.float32(1.0), "b": np.int64(3), "c": np.str_("x")})
    assert space.from_unit(unit) == {"a": 1.0, "b": 3, "c": "x"}


def test_spaces_differ_by_order_kind_bounds_choices_and_points():
    a, b = Float(0, 1), Int(1, 2)
    base = Space({"a": a, "b": b})
    assert base == Space({"a": a, "b": b})
    for other in (
        Space({"b": b, "a": a}),
        Space({"a": a}),
        Space({"a": Float(0, 2), "b": b}),
        Space({"a": Float(0.5, 1, log=True), "b": b}),
        Space({"a": a, "b": b}, np.array([[0.5, 0.25]])),
    ):
        assert base != other
    assert Space({"c": Categorical([1])}) != Space({"c": Categorical([True])})
    assert Space({"c": Categorical(["a", "b"])}) != Space({"c": Categorical(["b", "a"])})
    assert base != "a space"


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Float(2, 1), r"`low < high` must hold, but got \(low=2.0, high=1.0\)"),
        (lambda: Float(1, 1), "`low < high`"),
        (lambda: Float(0, 1, log=True), "`low > 0` must hold on a log scale, but got low=0.0"),
        (lambda: Float("0", 1), "`low` must be a number, but got '0'"),
        (lambda: Float(True, 2), "`low` must be a number, but got True"),
        (lambda: Float(0, math.inf), "`high` must be finite, but got inf"),
        (lambda: Float(math.nan, 1), "`low` must be finite, but got nan"),
        (lambda: Float(0, 10**400), "`high` must be finite"),
        (lambda: Float(-1e308, 1e308), "`high - low` must be finite"),
        (lambda: Float(1, 2, log="yes"), "`log` must be True or False, but got 'yes'"),
        (lambda: Int(1.5, 3), "`low` must be an integer, but got 1.5"),
        (lambda: Int(1, True), "`high` must be an integer, but got True"),
        (lambda: Int(3, 3), r"`low < high` must hold, but got \(low=3, high=3\)"),
        (lambda: Int(0, 10, step=3), r"must divide `high - low`, but got .*step=3"),
        (lambda: Int(0, 10, step=0), "`step >= 1`"),
        (lambda: Int(0, 10, log=True), "`low >= 1` must hold on a log scale, but got low=0"),
        (lambda: Int(0, 2**41), r"at most 2\^40 values .*high=2199023255552"),
        (lambda: Int(2**41, 2**41 + 1, log=True), r"`high <= 2\^40`"),
        (lambda: Categorical([]), "at least one value"),
        (lambda: Categorical("abc"), "must be a sequence of values, but got 'abc'"),
        (lambda: Categorical([1, 1]), r"`choices` must differ .*, but got \(1, 1\)"),
        (lambda: Categorical([[1]]), r"must be str, bool, int, float or None, but got \[1\]"),
        (lambda: Categorical([math.inf]), "must be finite, but got inf"),
        (lambda: Space({}), "at least one parameter"),
        (lambda: Space({"": Float(0, 1)}), "non-empty string, but got ''"),
        (lambda: Space({3: Float(0, 1)}), "non-empty string, but got 3"),
        (lambda: Space({"x": (0, 1)}), r"'x' must be a Float.*, but got \(0, 1\)"),
        (lambda: Space({"x": Float(0, 1)}, np.zeros((3, 2))), r"shape \(n, 1\).*\(3, 2\)"),
        (lambda: Space({"x": Float(0, 1)}, np.zeros((0, 1))), r"n >= 1, but got \(0, 1\)"),
        (lambda: Space({"x": Float(0, 1)}, np.array([[1.5]])), "must lie in the unit cube"),
        (lambda: Space({"x": Float(0, 1)}, np.array([[np.nan]])), "must lie in the unit cube"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_refused_with_rule_and_value(make, says):
    with pytest.raises(SpaceError, match=says):
        make()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"x": 2.0, "n": 3, "c": "a"}, r"parameter 'x': .*got 2.0 for \(low=0.0, high=1.0\)"),
        ({"x": "1", "n": 3, "c": "a"}, "parameter 'x': a number is needed, but got '1'"),
        ({"x": True, "n": 3, "c": "a"}, "parameter 'x': a number is needed, but got True"),
        ({"x": math.nan, "n": 3, "c": "a"}, "parameter 'x': .*got nan"),
        ({"x": 0.5, "n": 2, "c": "a"}, "parameter 'n': .*one of low, low \\+ step.*got 2"),
        ({"x": 0.5, "n": 3.0, "c": "a"}, "parameter 'n': an integer is needed, but got 3.0"),
        ({"x": 0.5, "n": 3, "c": 1}, r"parameter 'c': .*one of \('a', True\), but got 1"),
        ({"x": 0.5, "n": 3}, r"exactly \['c', 'n', 'x'\], but got \['n', 'x'\]"),
        ({"x": 0.5, "n": 3, "c": "a", "z": 0}, "exactly"),
    ],
)
def test_values_that_are_not_the_spaces_are_refused_by_name(params, says):
    space = Space({"x": Float(0, 1), "n": Int(1, 9, step=2), "c": Categorical(["a", True])})
    with pytest.raises(SpaceError, match=says):
        space.to_unit(params)


def test_points_of_the_wrong_shape_or_place_are_refused():
    space = Space({"x": Float(0, 1), "y": Float(0, 1)})
    with pytest.raises(SpaceError, match=r"shape \(2,\), but got \(3,\)"):
        space.from_unit(np.zeros(3))
    with pytest.raises(SpaceError, match=r"unit cube, but got \[0.5, 1.5\]"):
        space.from_unit(np.array([0.5, 1.5]))
    with pytest.raises(SpaceError, match="unit cube"):
        space.from_unit(np.array([0.5, np.nan]))


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"parameters": {"x": {"low": 0, "high": 1}}, "points": None},
        {"parameters": {"x": {"type": "complex"}}, "points": None},
        {"parameters": {"x": {"type": "float", "low": 0, "up": 1}}, "points": None},
        {"parameters": ["x"], "points": None},
    ],
)
def test_invalid_descriptions_are_refused(description):
    with pytest.raises(SpaceError, match="not the description of a space"):
        Space.from_json(json.dumps(description))
