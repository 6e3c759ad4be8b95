"""Agents keep their numbers whatever nodes do."""

from __future__ import annotations

from flwr_fbo.strategies.roster import Roster


def test_numbers_follow_partitions_not_nodes() -> None:
    roster = Roster(12)
    assert roster.admit({900 - i: str(i) for i in range(12)}) == []
    assert [roster.node(n) for n in range(12)] == [900 - i for i in range(12)]
    assert roster.present == list(range(12))


def test_an_agent_comes_back_as_another_node() -> None:
    roster = Roster(2)
    roster.admit({5: "a", 6: "b"})
    roster.forget_absent([6])
    assert roster.present == [1]
    assert roster.admit({7: "a"}) == []
    assert roster.node(0) == 7


def test_two_nodes_cannot_be_one_agent() -> None:
    roster = Roster(2)
    (refusal,) = roster.admit({5: "0", 6: "0"})
    assert "another node already speaks for agent 0" in refusal
    assert roster.present == [0]


def test_no_more_agents_than_were_planned_for() -> None:
    roster = Roster(1)
    (refusal,) = roster.admit({5: "0", 6: "1"})
    assert "the run is for 1 agents, and all are registered" in refusal


def test_names_survive_nodes_do_not() -> None:
    roster = Roster(3)
    roster.admit({5: "0", 6: "1"})
    again = Roster(3)
    again.load_state_dict(roster.state_dict())
    assert again.present == []
    again.admit({1: "1", 2: "2", 3: "0"})
    assert [again.node(n) for n in (0, 1, 2)] == [3, 1, 2]


def test_a_dropped_node_must_register_again() -> None:
    roster = Roster(1)
    roster.admit({5: "0"})
    roster.drop(5)
    assert not roster.known(5)
    assert roster.agent(5) == -1
