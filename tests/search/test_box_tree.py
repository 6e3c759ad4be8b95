"""The partition: every node's children cover it exactly, whatever the space."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Float, Int, Parameter, Space
from flwr_fbo.search.box_tree import BoxTree, Nodes, Order

floats = st.sampled_from([Float(0.0, 1.0), Float(-3.0, 5.0), Float(1e-4, 10.0, log=True)])
integers = st.one_of(
    st.integers(1, 40).map(lambda n: Int(0, n)),
    st.integers(2, 3000).map(lambda n: Int(1, n, log=True)),
    st.integers(1, 9).map(lambda n: Int(10, 10 + 7 * n, step=7)),
    st.integers(1, 9).map(lambda n: Int(5, 5 + 20 * n, step=20, log=True)),
)
categories = st.integers(1, 7).map(lambda n: Categorical([f"c{i}" for i in range(n)]))


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    kinds: list[Parameter] = draw(
        st.lists(st.one_of(floats, integers, categories), min_size=1, max_size=4)
    )
    space = Space({f"p{i}": kind for i, kind in enumerate(kinds)})
    if draw(st.integers(0, 4)):
        return space
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    points = np.unique(space.snap(rng.random((draw(st.integers(1, 30)), len(kinds)))), axis=0)
    return Space(space.parameters, points)


@st.composite
def partitions(draw: st.DrawFn) -> BoxTree:
    order: Order = draw(st.sampled_from(["random", "round-robin"]))
    return BoxTree(draw(spaces()), draw(st.integers(2, 4)), order, draw(st.integers(0, 2**63)))


def grown(partition: BoxTree, depth: int, most: int = 200) -> Nodes:
    nodes = partition.root()
    while nodes.depth < depth and len(nodes) <= most:
        nodes, _ = partition.children(nodes)
    return nodes


def inside(space: Space, nodes: Nodes, points: Array) -> np.ndarray:
    """Which points lie in which nodes: (K, n)."""
    return np.stack(
        [space.inside(points, a, b) for a, b in zip(nodes.low, nodes.high, strict=True)]
    )


@given(partitions(), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_children_cover_their_parent_exactly(partition: BoxTree, depth: int) -> None:
    parents = grown(partition, depth)
    children, parent = partition.children(parents)
    assert children.depth == parents.depth + 1
    for p in range(len(parents)):
        rows = np.flatnonzero(parent == p)
        low, high = children.low[rows], children.high[rows]
        assert 1 <= len(rows) <= partition.arity
        np.testing.assert_array_equal(low[0], parents.low[p])
        np.testing.assert_array_equal(high[-1], parents.high[p])
        changed = np.flatnonzero((low != parents.low[p]).any(0) | (high != parents.high[p]).any(0))
        assert len(changed) <= 1  # one dimension is cut, and the pieces join without a gap
        for d in changed:
            np.testing.assert_array_equal(high[:-1, d], low[1:, d])
            assert np.all(low[:, d] < high[:, d])


@given(partitions(), st.integers(0, 6), st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_every_point_lies_in_exactly_one_node_of_a_depth(
    partition: BoxTree, depth: int, seed: int
) -> None:
    nodes = grown(partition, depth)
    points = partition.space.sample(200, np.random.default_rng(seed))
    np.testing.assert_array_equal(inside(partition.space, nodes, points).sum(axis=0), 1)


@given(partitions(), st.integers(0, 6), st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_the_points_pulled_are_points_of_the_space_inside_their_node(
    partition: BoxTree, depth: int, seed: int
) -> None:
    nodes = grown(partition, depth)
    for points in (partition.centres(nodes), partition.draw(nodes, np.random.default_rng(seed))):
        assert inside(partition.space, nodes, points)[np.diag_indices(len(nodes))].all()
        np.testing.assert_allclose(partition.space.snap(points), points, atol=1e-12)


@given(partitions(), st.integers(0, 6))
@settings(max_examples=80, deadline=None)
def test_a_node_is_found_again_by_its_name(partition: BoxTree, depth: int) -> None:
    nodes = grown(partition, depth)
    assert len(set(nodes.index)) == len(nodes)
    assert all(1 <= i <= partition.arity**nodes.depth for i in nodes.index)
    last = len(nodes) // 2
    found = partition.node(nodes.depth, nodes.index[last])
    np.testing.assert_array_equal(found.low[0], nodes.low[last])
    np.testing.assert_array_equal(found.high[0], nodes.high[last])
    assert found.key[0] == nodes.key[last]


@pytest.mark.parametrize("arity", [2, 3, 5])
def test_real_parameters_are_cut_into_equal_parts_with_the_papers_indices(arity: int) -> None:
    partition = BoxTree(Space({"x": Float(0.0, 1.0)}), arity)
    children, parent = partition.children(partition.children(partition.root())[0])
    width = arity**-2
    np.testing.assert_allclose(children.low[:, 0], np.arange(arity**2) * width, atol=1e-15)
    np.testing.assert_allclose(children.high - children.low, width, atol=1e-15)
    for i, p in zip(children.index, parent + 1, strict=True):
        assert i in {arity * p - j for j in range(arity)}  # (h + 1, k i - j)


def test_integers_are_cut_between_values_until_each_stands_alone() -> None:
    partition = BoxTree(Space({"n": Int(1, 5)}), 2)
    nodes, cuts = partition.root(), []
    for _ in range(3):
        nodes, _ = partition.children(nodes)
        cuts.append(nodes.high[:-1, 0].tolist())
    # Five cells of .2 each. Half of [0, 1] is .5, as far from .4 as from .6: the lower is taken.
    np.testing.assert_allclose(cuts[0], [0.4])
    np.testing.assert_allclose(cuts[1], [0.2, 0.4, 0.6])
    np.testing.assert_allclose(cuts[2], [0.2, 0.4, 0.6, 0.8])
    assert sorted(partition.space.from_unit(c)["n"] for c in partition.centres(nodes)) == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip


def test_a_node_that_cannot_be_split_goes_on_as_itself() -> None:
    partition = BoxTree(Space({"n": Int(1, 2)}), 2)
    nodes = grown(partition, 1)
    again, parent = partition.children(nodes)
    assert again.index == (1, 3)
    np.testing.assert_array_equal(parent, [0, 1])
    np.testing.assert_array_equal(again.low, nodes.low)
    narrow = grown(BoxTree(Space({"x": Float(0.0, 1.0)}), 2), 0)
    partition = BoxTree(Space({"x": Float(0.0, 1.0)}), 2)
    for _ in range(70):  # past the end of floating point, and of 64-bit indices
        narrow = partition.children(narrow)[0].take(np.array([-1]))
    assert narrow.depth == 70
    assert 0 < narrow.high[0, 0] - narrow.low[0, 0] <= 2.0**-44


def test_categories_are_settled_before_numbers_are_cut() -> None:
    space = Space({"x": Float(0.0, 1.0), "c": Categorical(list("abcd"))})
    partition = BoxTree(space, 2, seed=7)
    nodes = grown(partition, 2)
    assert [space.from_unit(c)["c"] for c in partition.centres(nodes)] == list("abcd")
    np.testing.assert_array_equal(nodes.high[:, 0] - nodes.low[:, 0], 1.0)
    deeper, _ = partition.children(nodes)
    np.testing.assert_array_equal(deeper.high[:, 0] - deeper.low[:, 0], 0.5)


def test_dimensions_in_turn() -> None:
    space = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    nodes = grown(BoxTree(space, 2, "round-robin"), 3)
    np.testing.assert_allclose(nodes.high - nodes.low, np.tile([0.25, 0.5], (8, 1)))


def test_random_dimensions_are_fair_shared_and_different_for_every_seed() -> None:
    space = Space({f"x{i}": Float(0.0, 1.0) for i in range(3)})
    nodes = grown(BoxTree(space, 2, seed=1), 12, most=5000)
    parents = grown(BoxTree(space, 2, seed=1), 11, most=5000)
    cut = (BoxTree(space, 2, seed=1).children(parents)[0].low[1::2] != parents.low).argmax(1)
    share = np.bincount(cut, minlength=3) / len(cut)
    # 2048 fair draws: each share has deviation sqrt(2/9/2048) = .0104; five of them are .052.
    np.testing.assert_allclose(share, 1 / 3, atol=0.052)
    same = grown(BoxTree(space, 2, seed=1), 12, most=5000)
    np.testing.assert_array_equal(same.low, nodes.low)
    other = grown(BoxTree(space, 2, seed=2), 12, most=5000)
    assert not np.array_equal(other.low, nodes.low)


def test_finite_spaces_are_cut_between_their_points() -> None:
    points = np.array([[0.1], [0.11], [0.12], [0.9]])
    partition = BoxTree(Space({"x": Float(0.0, 1.0)}, points), 2)
    nodes = grown(partition, 1)
    np.testing.assert_allclose(nodes.high[0], [(0.12 + 0.9) / 2])
    np.testing.assert_allclose(partition.centres(grown(partition, 3))[:, 0], points[:, 0])


@pytest.mark.parametrize(("depth", "index"), [(-1, 1), (2, 0), (2, 5)])
def test_names_outside_the_tree_are_refused(depth: int, index: int) -> None:
    partition = BoxTree(Space({"x": Float(0.0, 1.0)}), 2)
    with pytest.raises(ValueError, match=rf"depth={depth}, index={index}"):
        partition.node(depth, index)


def test_names_of_nodes_that_have_too_few_values_are_refused() -> None:
    partition = BoxTree(Space({"n": Int(1, 2)}), 2)
    with pytest.raises(ValueError, match="no node"):
        partition.node(2, 2)
    with pytest.raises(ValueError, match="`arity` must be >= 2, but got 1"):
        BoxTree(Space({"n": Int(1, 2)}), 1)
