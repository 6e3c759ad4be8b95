"""The absences of a run's parties: who is asked again when, and who missed which rounds.

**Growing pauses.** A party that does not reply holds every round until the timeout. So a party
that was silent twice in a row is not asked in the next round, then in the next three, seven, and
at most :data:`LONGEST_PAUSE` rounds. One reply ends the pauses. A party whose node comes back is
asked at once, but until it replies its next silence counts on. If nobody else is left to ask, all
parties are asked. The rule is public, and the same in private runs.

The pauses do not change the accounting of a private run:

- A sample is drawn over all places of the run, taken or not, in every round. A pause changes who
  is asked, and never who is drawn, how often, or with what weight.
- A party that is not asked counts as zero, as an absent party does. A party's data can decide how
  long it computes, and so whether it is silent and is asked later. That changes what this party
  adds, which the sensitivity allows for, and nothing that the other parties add.

**Missed rounds.** A party misses a round if it is asked and sends no reply in time. It also misses
a round in which all parties are asked while it is away or in a pause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

#: The most rounds in a row in which a silent party is not asked.
LONGEST_PAUSE = 15


class Absences:
    """The parties' silences. What a round costs follows from the parties that it asks.

    Parameters
    ----------
    size
        The number of parties in the run.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._silent: dict[int, int] = {}  # requests in a row without a reply, where not 0
        self._pause: dict[int, int] = {}  # rounds in which the party is not asked, where not 0
        #: The rounds that each party missed, as pairs of the first and the last round in a row.
        self.missed: dict[int, list[list[int]]] = {}
        self._expected = self._answered = 0

    @property
    def answered(self) -> float | None:
        """Return the share of the expected replies that came; None before the first round."""
        return self._answered / self._expected if self._expected else None

    def awake(self, present: Sequence[int]) -> Sequence[int]:
        """Return the parties that are in no pause."""
        if not self._pause:
            return present
        return [party for party in present if party not in self._pause]

    def wake(self, parties: Iterable[int]) -> None:
        """End the pauses of parties whose nodes have come back."""
        for party in parties:
            self._pause.pop(party, None)

    def note(
        self, round: int, asked: Collection[int], replied: Collection[int], everybody: bool
    ) -> None:
        """Take in a round that ended with its last reply or at its timeout.

        ``everybody`` says that the round was for all parties. If none of them replied, no party is
        to blame: the server may have been the one that was cut off.
        """
        came = set(replied)
        self._pause = {party: left - 1 for party, left in self._pause.items() if left > 1}
        if replied or not everybody:
            for party in came & self._silent.keys():
                del self._silent[party]
            self._note_silence(party for party in asked if party not in came)
        awaited: Collection[int] = range(self._size) if everybody else set(asked)
        self._expected += len(awaited)
        self._answered += len(replied)
        if len(came) < len(awaited):
            for party in sorted(set(awaited) - came):
                self._add(party, round)

    def _note_silence(self, silent: Iterable[int]) -> None:
        """Count a silence of these parties, and let them pause."""
        for party in silent:
            self._silent[party] = count = self._silent.get(party, 0) + 1
            pause = min(2 ** min(count - 1, 10) - 1, LONGEST_PAUSE)
            if pause:
                self._pause[party] = pause

    def _add(self, party: int, round: int) -> None:
        """Add a round to those that a party missed."""
        spans = self.missed.setdefault(party, [])
        if spans and round - spans[-1][1] in (0, 1):
            spans[-1][1] = round
        else:
            spans.append([round, round])

    def state_dict(self) -> dict[str, Any]:
        """Return the state that :meth:`load_state_dict` loads; a resumed run begins no pause."""
        missed = {str(party): spans for party, spans in self.missed.items()}
        return {"missed": missed, "expected": self._expected, "answered": self._answered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the absences before the run was interrupted."""
        self.missed = {
            int(party): [[int(first), int(last)] for first, last in spans]
            for party, spans in state["missed"].items()
        }
        self._expected, self._answered = int(state["expected"]), int(state["answered"])
