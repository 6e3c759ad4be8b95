"""Agents keep their numbers and their owners, whatever nodes do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from flwr_fbo.strategies import roster as roster_module
from flwr_fbo.strategies.roster import UNUSED_SECONDS, Roster
from flwr_fbo.wire import Claim


def claims(*named: tuple[int, str], secret: str | None = None) -> dict[int, Claim]:
    """Claims by node; each name has a secret of its own unless one is given."""
    return {node: Claim(name, (secret or f"secret of {name}").ljust(32)) for node, name in named}


def admitted(size: int, *named: tuple[int, str], used: bool = True) -> Roster:
    roster = Roster(size)
    assert roster.admit(claims(*named)) == []
    for agent in roster.present if used else []:
        roster.note_use(agent)
    return roster


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(roster_module.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, now[0] + seconds)


def test_numbers_follow_partitions_not_nodes() -> None:
    roster = admitted(12, *((900 - i, str(i)) for i in range(12)))
    assert [roster.node(n) for n in range(12)] == [900 - i for i in range(12)]
    assert roster.present == list(range(12))


def test_numbers_follow_partitions_whoever_comes_first() -> None:
    roster = Roster(3)
    for node, name in ((7, "2"), (8, "0"), (9, "1")):
        assert roster.admit(claims((node, name))) == []
    assert [roster.node(n) for n in range(3)] == [8, 9, 7]


def test_names_that_are_no_number_of_a_place_take_the_first_free_one() -> None:
    roster = admitted(4, (5, "²"), (6, "77"), (7, "b"), (8, "0"))
    assert [roster.node(n) for n in range(4)] == [8, 6, 7, 5]


def test_an_agent_comes_back_as_another_node_with_its_secret() -> None:
    roster = admitted(2, (5, "a"), (6, "b"))
    roster.forget_absent([6])
    assert roster.present == [1]
    assert roster.admit(claims((7, "a"))) == []
    assert roster.node(0) == 7


def test_an_agent_comes_back_from_its_node_without_its_secret() -> None:
    """The same node is the same key; an owner who lost the journal has another secret then."""
    roster = admitted(2, (5, "a"), (6, "b"))
    roster.forget_absent([])
    assert roster.admit(claims((5, "a"), secret="new")) == []
    roster.forget_absent([])
    assert roster.admit(claims((7, "a"), secret="new")) == []
    roster.forget_absent([])
    (refusal,) = roster.admit(claims((8, "a")))
    assert "another owner's" in refusal


@pytest.mark.parametrize("owner_is_there", [True, False])
def test_nobody_else_takes_an_agents_place(owner_is_there: bool) -> None:
    roster = admitted(2, (5, "0"), (6, "1"))
    roster.forget_absent([5, 6, 7] if owner_is_there else [5, 7])
    (refusal,) = roster.admit(claims((7, "1"), secret="a guess"))
    assert refusal == (
        "node 7 is refused: agent 1 is another owner's: this node is not the one that registered "
        "the agent, and does not have its owner's secret"
    )
    assert "a guess" not in refusal
    roster.forget_absent([5, 6, 7])
    if not owner_is_there:
        assert roster.admit(claims((6, "1"))) == []
    assert roster.node(1) == 6


def test_an_owner_who_was_never_asked_yet_and_is_briefly_away_is_not_locked_out(
    clock: Callable[[float], None],
) -> None:
    roster = admitted(2, (5, "0"), (6, "1"), used=False)
    roster.forget_absent([5])
    clock(UNUSED_SECONDS - 1)
    roster.forget_absent([5])
    (refusal,) = roster.admit(claims((5, "1"), secret="secret of 0"))
    assert "another owner's" in refusal
    assert roster.node(0) == 5  # it keeps its own place
    assert roster.admit(claims((6, "1"))) == []


def test_the_node_of_one_agent_cannot_be_a_second_one() -> None:
    """Party 0's key with partition-id=1, where party 1 has not come yet."""
    roster = admitted(3, (5, "0"))
    for name in ("1", "2", "7"):
        (refusal,) = roster.admit(claims((5, name), secret="secret of 0"))
        assert refusal == (
            "node 5 is refused: it is the node of agent 0, and a node cannot be two agents"
        )
    assert roster.names == ["0"]
    assert roster.admit(claims((5, "0"), (6, "1"), (7, "2"))) == []


def test_a_node_that_took_no_part_yet_corrects_its_number() -> None:
    roster = admitted(2, (5, "1"), used=False)
    assert roster.admit(claims((5, "0"), (6, "1"))) == []
    assert [roster.node(n) for n in (0, 1)] == [5, 6]


def test_places_that_were_never_used_are_freed(clock: Callable[[float], None]) -> None:
    roster = Roster(3)
    roster.admit(claims((4, "0")))
    roster.note_use(0)
    for node, name in ((5, "1"), (6, "2")):  # nodes that come, take a place, and go
        roster.admit(claims((node, name), secret="a stranger"))
        roster.forget_absent([4])
    (refusal,) = roster.admit(claims((7, "8")))
    assert (
        refusal == "node 7 is refused: the run is for 3 agents, and all of them have their places"
    )
    roster.forget_absent([])
    clock(UNUSED_SECONDS)
    roster.forget_absent([])
    assert roster.names == ["0"]  # used once, and its own for the whole run
    assert roster.admit(claims((7, "1"), (8, "2"))) == []
    assert roster.size == 3


def test_a_place_whose_node_is_there_is_not_freed(clock: Callable[[float], None]) -> None:
    roster = admitted(2, (5, "0"), (6, "1"), used=False)
    for seconds, online in ((90.0, [5]), (90.0, [5, 6]), (90.0, [5]), (90.0, [5, 6])):
        roster.forget_absent(online)
        clock(seconds)
    roster.forget_absent([5, 6])
    assert roster.names == ["0", "1"]


def test_two_nodes_cannot_be_one_agent() -> None:
    roster = Roster(2)
    (refusal,) = roster.admit(claims((5, "0"), (6, "0")))
    assert "another node already speaks for agent 0" in refusal
    assert roster.present == [0]


def test_no_more_agents_than_were_planned_for() -> None:
    roster = Roster(1)
    (refusal,) = roster.admit(claims((5, "0"), (6, "1")))
    assert "the run is for 1 agents, and all of them have their places" in refusal


def test_names_and_owners_survive_a_stored_state() -> None:
    first = admitted(3, (5, "0"), (6, "1"))
    stored = json.dumps(first.state_dict())
    assert "secret" not in stored
    again = Roster(3)
    again.load_state_dict(json.loads(stored))
    assert again.present == []
    (refusal,) = again.admit(claims((9, "1"), secret="a stranger"))
    assert "another owner's" in refusal
    (refusal,) = again.admit(claims((5, "2"), secret="secret of 0"))
    assert "it is the node of agent 0" in refusal
    assert again.admit(claims((1, "1"), (2, "2"), (3, "0"))) == []
    assert [again.node(n) for n in (0, 1, 2)] == [3, 1, 2]


def test_a_dropped_node_must_register_again() -> None:
    roster = admitted(1, (5, "0"))
    roster.drop(5)
    assert not roster.known(5)
    assert roster.agent(5) == -1


def test_the_operator_may_fix_the_node_of_each_agent() -> None:
    roster = Roster(2, node_ids=[5, 6])
    early = roster.admit(claims((5, "1")))  # before its owner has ever come
    assert early == ["node 5 is refused: the node of agent 1 is 6"]
    for name in ("2", "x"):
        assert f"`node-ids` has no node for agent {name}" in roster.admit(claims((7, name)))[0]
    assert roster.admit(claims((5, "0"), (6, "1"))) == []
    assert roster.present == [0, 1]


def test_what_a_claim_prints_holds_no_secret() -> None:
    assert "hush" not in repr(Claim("0", "hush"))
