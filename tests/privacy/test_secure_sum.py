"""The secure sum: equal to the plain sum bit for bit, and nothing short of the threshold."""

from __future__ import annotations

import copy
import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.secure import collector as collector_module
from flwr_fbo.privacy.secure import primitives, shamir
from flwr_fbo.privacy.secure.collector import AbandonedError
from flwr_fbo.privacy.secure.graph import COMPLETE, Degree, degree, neighbours
from flwr_fbo.privacy.secure.noise_share import NoiseShare
from flwr_fbo.privacy.secure.party import LEGS, bits_of, members_of
from flwr_fbo.privacy.secure.terms import SecureSumError, Terms, default_threshold

from .secure_harness import Sum, recorded_contributions, terms_of


def vectors_of(parties: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((parties, length))


# ------------------------------------------------------------------ the sum


@st.composite
def sums(draw, least=2, most=7):
    parties = draw(st.integers(least, most))
    length = draw(st.integers(1, 4))
    terms = terms_of(parties, length, colluding=draw(st.integers(0, 1)))
    spare = parties - terms.threshold
    gone = draw(st.lists(st.integers(0, parties - 1), max_size=spare, unique=True))
    drops = {u: draw(st.integers(0, 4)) for u in gone}
    order = draw(st.permutations(range(parties)))
    return Sum(terms, vectors_of(parties, length, draw(st.integers(0, 99))), drops,
               draw(st.integers(0, 10**6)), order)  # fmt: skip


@given(sums())
@settings(max_examples=60, deadline=None)
def test_the_sum_is_that_without_masks_bit_for_bit(one):
    with recorded_contributions() as sent:
        total = one.run()
    survivors = members_of(one.collector.survivors)
    # `sent` holds the contributions of those who answered leg 3, in the order of arrival.
    assert len(sent) == len(survivors) == one.collector.survivor_count
    np.testing.assert_array_equal(total, np.sum(sent, axis=0))
    assert survivors == {u for u in range(one.terms.parties) if one.drops.get(u, 5) > 2}
    assert one.collector.noise().plausible(total, len(survivors))


@given(sums(8, 11), st.sampled_from([Degree(2, 2), Degree(4, 2), Degree(4, 3)]))
@settings(max_examples=40, deadline=None)
def test_a_ring_of_neighbours_gives_the_same_sum_or_none(one, small):
    with (
        mock.patch.object(collector_module, "degree", return_value=small),
        mock.patch.object(collector_module, "neighbours", ring),
        recorded_contributions() as sent,
    ):
        try:
            total = one.run()
        except SecureSumError:  # too few of some party's neighbours are left
            assert one.drops
            return
    np.testing.assert_array_equal(total, np.sum(sent, axis=0))


def ring(members, k, entropy):
    found = neighbours(members, k, entropy)
    assert all(u in found[v] for u in found for v in found[u])
    return found


def test_many_parties_use_a_ring_and_lose_a_third():
    terms = terms_of(130, 3)
    gone = np.random.default_rng(3).permutation(130)[: 130 - terms.threshold]
    one = Sum(terms, vectors_of(130, 3), {int(u): 1 + int(u) % 4 for u in gone})
    with recorded_contributions() as sent:
        total = one.run()
    assert one.collector.degree.neighbours < 60
    np.testing.assert_array_equal(total, np.sum(sent, axis=0))


@pytest.mark.parametrize("leg", range(len(LEGS)))
def test_fewer_survivors_than_the_threshold_open_nothing(leg):
    terms = terms_of(6)
    lost = dict.fromkeys(range(6 - terms.threshold + 1), leg)
    one = Sum(terms, vectors_of(6, 5), lost)
    one.run(leg)
    with pytest.raises(AbandonedError, match=rf"{terms.threshold} of 6 .* leg `{LEGS[leg]}`"):
        one.leg()
    # No share of a secret has been opened, but by those who answered the last leg.
    assert leg == 4 or "open" not in one.transcript
    assert all(len(s) < terms.threshold for s in shares_opened(one).values())


def shares_opened(one: Sum) -> dict[tuple[int, bool], set[int]]:
    """Who has opened a share of which secret: of the self seed (False) or the mask key (True)."""
    found: dict[tuple[int, bool], set[int]] = {}
    survivors = members_of(one.collector.survivors)
    for v, shares in one.transcript.get("open", {}).items():
        for u in shares:
            found.setdefault((u, u not in survivors), set()).add(v)
    return found


def test_a_late_masked_vector_stays_masked_by_its_self_seed():
    # The party's vector comes after the list was made: its mask key is opened, its seed is not.
    one = Sum(terms_of(6), vectors_of(6, 5), {2: 2})
    one.run(2)
    with recorded_contributions() as sent:
        late = one.party(2).masked(one.collector.shares_for(2), one.vectors[2])
        while one.collector.leg < 5:
            total = one.leg()
    opened = shares_opened(one)
    assert (2, True) in opened
    assert (2, False) not in opened
    np.testing.assert_array_equal(total, np.sum(sent[1:], axis=0))
    # What is left of the late vector without its pair masks is still covered by the self mask.
    secret = one.collector._secret(2, one.transcript["open"])
    left = late - pair_masks(one, 2, secret) - sent[0].astype(np.uint64)
    assert not np.any(left == 0)


def pair_masks(one: Sum, u: int, secret: int) -> np.ndarray:
    from flwr_fbo.privacy.secure.party import pair_mask

    keys = one.transcript["keys"]
    total = np.zeros(one.terms.length, dtype=np.uint64)
    for v in range(one.terms.parties):
        if v != u:
            mask = pair_mask(secret, keys[v].mask, one.terms, u, v)
            total = total + mask if u < v else total - mask
    return total


# ------------------------------------------------------------------ one leg, one answer


def test_no_leg_is_answered_twice_and_no_mask_is_made_twice():
    one = Sum(terms_of(4), vectors_of(4, 5))
    for leg in range(len(LEGS)):
        before = {u: copy.deepcopy(s) for u, s in one.states.items()}
        one.leg()
        for u in range(4):
            with pytest.raises(SecureSumError, match="once"):
                replayed(one, u, leg)
        if leg > 0:  # a state from before the leg is what a crash before the write leaves
            assert before[0]["leg"] == leg
    assert all(s["mask"] == s["seed"] == s["channel"] == 0 for s in one.states.values())


def replayed(one: Sum, u: int, leg: int) -> object:
    """The answer to a leg that was asked before."""
    c, party = one.collector, one.party(u)
    match LEGS[leg]:
        case "keys":
            return party.keys()
        case "shares":
            return party.shares(c.neighbour_keys(u), c.degree.recover)
        case "masked":
            return party.masked(c.shares_for(u), one.vectors[u] + 1.0)
        case "confirm":
            return party.confirm(bits_of(range(4), 4))
        case _:
            return party.open(c.codes_for(u))


def test_the_secrets_of_a_mask_are_gone_before_the_masked_vector_leaves():
    one = Sum(terms_of(4), vectors_of(4, 5))
    one.run(2)
    stored = []
    party = one.party(1)
    party._store = stored.append
    party.masked(one.collector.shares_for(1), one.vectors[1])
    assert stored[0]["leg"] == 3
    assert stored[0]["mask"] == stored[0]["seed"] == 0


def test_another_sum_has_other_secrets_and_ends_the_one_before():
    first = Sum(terms_of(4), vectors_of(4, 5))
    first.run(2)
    second = Sum(terms_of(4, nonce=bytes(16)), vectors_of(4, 5))
    second.states, second.entropies = copy.deepcopy(first.states), first.entropies
    second.run(2)
    for u in range(4):
        assert second.states[u]["mask"] != first.states[u]["mask"]
        assert second.states[u]["seed"] != first.states[u]["seed"]
    first.states = second.states
    with pytest.raises(SecureSumError, match="last sum that this party joined"):
        first.leg()
    assert second.run(3) is not None


def test_parties_that_were_told_other_terms_cannot_read_each_others_shares():
    one = Sum(terms_of(4), vectors_of(4, 5))
    other = terms_of(4, sensitivity=1e-3)  # the noise of the others would be far smaller
    real, lie = one.terms, {1: other}
    one.party = lambda u: _party(one, u, lie.get(u, real))  # type: ignore[method-assign]
    one.run(2)
    with pytest.raises(SecureSumError, match="it received other terms"):
        one.leg()


def _party(one: Sum, u: int, terms: Terms):
    from flwr_fbo.privacy.secure.party import Party

    return Party(u, terms, one.states.get(u), lambda s: one.states.__setitem__(u, s),
                 entropy=one.entropies[u])  # fmt: skip


def test_a_server_with_swapped_keys_cannot_pass_the_shares_on():
    one = Sum(terms_of(4), vectors_of(4, 5))
    one.leg()
    mine = primitives.public_key(primitives.new_secret(seeded_entropy(9)))
    swapped = type(one.collector._keys[2])(mine, one.collector._keys[2].mask)
    with mock.patch.dict(one.collector._keys, {2: swapped}):
        one.leg()
    with pytest.raises(SecureSumError, match="keys of that party were swapped"):
        one.party(0).masked(one.collector.shares_for(0), one.vectors[0])


# ------------------------------------------------------------------ the list of survivors


def confirmed(parties: int = 4) -> Sum:
    one = Sum(terms_of(parties), vectors_of(parties, 5))
    one.run(3)
    return one


def test_two_lists_of_survivors_open_nothing():
    # The server tells two parties that party 5 is gone, and the others that it is there.
    one = Sum(terms_of(6), vectors_of(6, 5))
    one.run(3)
    everybody, without = bits_of(range(6), 6), bits_of(range(5), 6)
    shown = {u: without if u < 2 else everybody for u in range(6)}
    codes = {u: one.party(u).confirm(shown[u]) for u in range(6)}
    one.collector.take_codes(codes)
    agree = {u: one.terms.threshold <= (2 if u < 2 else 4) for u in range(6)}
    assert not any(agree[u] for u in range(2))
    for u in range(2):
        with pytest.raises(SecureSumError, match="must have confirmed the list"):
            one.party(u).open(one.collector.codes_for(u))
    # Those who do open, open one of the two secrets only.
    opened = {u: one.party(u).open(one.collector.codes_for(u)) for u in range(2, 6) if agree[u]}
    assert len(opened) in (0, 4)


@given(st.integers(2, 9), st.integers(0, 2), st.data())
@settings(max_examples=60, deadline=None)
def test_no_two_lists_can_both_have_enough_votes(parties, colluding, data):
    colluding = min(colluding, (parties - 1) // 2)
    t = default_threshold(parties, colluding)
    honest = parties - colluding
    votes = data.draw(st.integers(0, honest))
    # Colluding parties vote for both lists, honest ones for one.
    assert not (votes + colluding >= t and honest - votes + colluding >= t)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([0, 1, 2], "3 parties must survive|this one among them"),
        ([1, 2, 3], "this one among them"),
        ([0], "3 parties must survive, but 1 have"),
        ([0, 1, 2, 3, 60], "must be parties of the run"),
    ],
)
def test_a_wrong_list_of_survivors_is_refused(listed, message):
    one = confirmed()
    if listed == [0, 1, 2]:
        one.party(0).confirm(bits_of(listed, 4))  # a list with a party less is possible
        return
    with pytest.raises(SecureSumError, match=message):
        one.party(0).confirm(bits_of(listed, 64))


def test_a_party_that_sent_no_shares_is_no_survivor():
    one = Sum(terms_of(4), vectors_of(4, 5), {3: 1})
    one.run(3)
    with pytest.raises(SecureSumError, match="sent its shares"):
        one.party(0).confirm(bits_of(range(4), 4))


# ------------------------------------------------------------------ what the server can learn


def unit_masks(keys: dict[bytes, int]):
    """An expansion whose result for each new key is the next unit vector."""

    def expand(key: bytes, length: int) -> np.ndarray:
        place = keys.setdefault(key, len(keys))
        word = np.zeros(length, dtype=np.uint64)
        word[place] = 1
        return word

    return expand


def mask_matrix(one: Sum) -> tuple[np.ndarray, dict[bytes, int]]:
    """Which masks are in whose message, (survivors, masks): the parties' own code, masks apart."""
    keys: dict[bytes, int] = {}
    nothing = mock.patch.object(
        NoiseShare, "contribution", lambda self, v, e: np.zeros(len(v), dtype=np.int64)
    )
    with mock.patch.object(primitives, "expand", unit_masks(keys)), nothing:
        one.run(3)
        rows = np.array([m.astype(np.int64) for m in one.transcript["masked"].values()])
    return rows[:, : len(keys)], keys


@pytest.mark.parametrize("drops", [{}, {1: 2}, {0: 2, 4: 2}, {3: 0}, {2: 1, 5: 2}])
@pytest.mark.parametrize("small", [None, Degree(4, 2)])
def test_only_the_whole_sum_is_free_of_masks(drops, small):
    # Treat masks whose keys the server does not have as independent unknowns.
    parties = 9
    terms = terms_of(parties, 80)
    one = Sum(terms, np.zeros((parties, 80)), drops)
    with mock.patch.object(collector_module, "degree", lambda *a: small or degree(*a)):
        matrix, keys = mask_matrix(one)
        survivors = list(one.transcript["masked"])
        # 1. Before anything is opened no combination of messages is free of masks.
        assert np.linalg.matrix_rank(matrix) == len(survivors)
        # 2. The server is given what the open leg reveals.
        known = set(keys)
        with mock.patch.object(primitives, "expand", spy_keys(known_keys := set())):
            one.run(2)
        unknown = [place for key, place in keys.items() if key not in known_keys]
        assert known_keys <= known
        rest = matrix[:, unknown]
        # The combinations c with c' rest = 0 are the multiples of (1, ..., 1).
        assert np.linalg.matrix_rank(rest) == len(survivors) - 1
        np.testing.assert_array_equal(np.ones(len(survivors)) @ rest, 0)


def spy_keys(seen: set[bytes]):
    real = primitives.expand

    def expand(key: bytes, length: int) -> np.ndarray:
        seen.add(key)
        return real(key, length)

    return expand


@given(st.integers(2, 6), st.data())
@settings(max_examples=40, deadline=None)
def test_fewer_shares_than_the_threshold_fit_every_secret(threshold, data):
    secret, other = (data.draw(st.integers(0, shamir.PRIME - 1)) for _ in range(2))
    points = list(range(1, 8))
    shares = dict(zip(points, shamir.share(secret, threshold, points, seeded_entropy(4)),
                      strict=True))  # fmt: skip
    kept = data.draw(st.permutations(points))[: threshold - 1]
    # There is a polynomial of the same degree through these shares and any other secret: its
    # value at one more point, and from there on the other secret.
    new = next(x for x in points if x not in kept)
    fitting = {x: shares[x] for x in kept} | {new: completes(kept, shares, new, other)}
    assert shamir.recover(fitting, threshold) == other
    with pytest.raises(SecureSumError, match=f"needs {threshold} shares"):
        shamir.recover({x: shares[x] for x in kept}, threshold)


def completes(kept, shares, new, secret):
    """The value at ``new`` of the polynomial through the kept shares and (0, secret)."""
    known = {0: secret} | {x: shares[x] for x in kept}
    total = 0
    for x, y in known.items():
        up = math.prod(new - z for z in known if z != x)
        down = math.prod(x - z for z in known if z != x)
        total += y * up * pow(down, -1, shamir.PRIME)
    return total % shamir.PRIME


@given(st.integers(1, 6), st.integers(0, shamir.PRIME - 1), st.permutations(range(1, 9)))
@settings(max_examples=40, deadline=None)
def test_any_shares_of_the_threshold_recover_the_secret(threshold, secret, points):
    shares = shamir.share(secret, threshold, points, seeded_entropy(1))
    some = dict(itertools.islice(zip(points, shares, strict=True), threshold))
    assert shamir.recover(some, threshold) == secret


def test_a_share_that_is_given_twice_counts_once():
    with pytest.raises(SecureSumError, match="must differ"):
        shamir.share(5, 2, [1, 1, 2], seeded_entropy(0))
    one = Sum(terms_of(6), vectors_of(6, 5))
    one.run(4)
    opened = {u: one.party(u).open(one.collector.codes_for(u)) for u in range(6)}
    # No two parties hold the same share of a secret.
    assert all(len({shares[u] for shares in opened.values()}) == 6 for u in range(6))
    # Party 5 repeats the share of party 4 as its own: the secret is another one, and the sum that
    # comes out is one that no honest parties could have made.
    right = one.collector._secret(0, opened)
    opened[5] = opened[5] | {0: opened[4][0]}
    few = {u: opened[u] for u in (0, 3, 4, 5)}
    assert one.collector._secret(0, few) != right
    total = one.collector.take_opened(few)
    assert not one.collector.noise().plausible(total, 6)


@pytest.mark.parametrize("world", [0.0, 1.0])
def test_what_the_server_is_sent_is_uniform_whatever_the_vector(world):
    # 60 sums of 3 parties, with a vector of zeros or as long as allowed: 60 * 3 * 40 words and
    # the encrypted shares. Chi-square of the bytes at each place, 255 degrees of freedom; six
    # standard deviations are sqrt(2 * 255) * 6 above.
    masked, sealed = [], []
    for seed in range(60):
        vectors = np.zeros((3, 40))
        vectors[0] = world * 1.5 / math.sqrt(40)
        one = Sum(terms_of(3, 40), vectors, seed=seed)
        one.run(3)
        masked += list(one.transcript["masked"].values())
        sealed += [b for m in one.transcript["shares"].values() for b in m.values()]
    for data in (np.array(masked), np.frombuffer(b"".join(sealed), dtype=np.uint8)):
        for place in range(data.itemsize):
            column = data.view(np.uint8).reshape(-1, data.itemsize)[:, place]
            counts = np.bincount(column, minlength=256)
            expected = column.size / 256
            chi = float(((counts - expected) ** 2 / expected).sum())
            assert abs(chi - 255) < 6 * math.sqrt(2 * 255)
    # Successive sums and different places are uncorrelated: 7,200 products of uniform numbers.
    flat = np.array(masked).astype(np.float64) / 2.0**64 - 0.5
    for left, right in ((flat[:-1], flat[1:]), (flat[:, :-1], flat[:, 1:])):
        correlation = 12 * float((left * right).mean())
        assert abs(correlation) < 6 / math.sqrt(left.size)


def test_no_message_short_of_the_threshold_tells_two_vectors_apart():
    # The same secrets and two vectors: every message but the masked vector of that party is the
    # same, bit for bit; and the masked vector is one that the other vector makes with other masks.
    views = []
    for length in (0.0, 1.0):
        vectors = np.zeros((4, 6))
        vectors[2, 0] = length
        one = Sum(terms_of(4, 6), vectors, seed=5)
        one.run(4)
        views.append(one.transcript)
    for leg in ("keys", "shares", "confirm"):
        assert views[0][leg] == views[1][leg]
    for u in (0, 1, 3):
        np.testing.assert_array_equal(views[0]["masked"][u], views[1]["masked"][u])
    assert not np.array_equal(views[0]["masked"][2], views[1]["masked"][2])


# ------------------------------------------------------------------ noise


@pytest.mark.parametrize("parties", [3, 4, 10, 30])
def test_any_honest_survivors_have_the_noise_that_is_charged(parties):
    terms = terms_of(parties)
    share = NoiseShare.of(terms)
    honest = terms.threshold - terms.colluding
    charged = terms.noise_multiplier * terms.sensitivity
    assert share.deviation(honest) >= charged
    assert share.deviation(honest) < charged * (1 + 1e-7)
    assert share.excess(parties) == pytest.approx(math.sqrt(parties / honest))
    # The noise that is really drawn, after as many drop out as may: 4 standard errors.
    entropy, count = seeded_entropy(8), 4000
    drawn = sum(share.contribution(np.zeros(count), entropy) for _ in range(honest))
    found = float(np.std(drawn * share.lattice.step))
    assert found == pytest.approx(charged, rel=4 / math.sqrt(2 * count))


def test_a_contribution_is_clipped_by_the_party_itself():
    terms = terms_of(4)
    share = NoiseShare.of(terms)
    with mock.patch("flwr_fbo.privacy.noise.draw_rounded", lambda d, s, n, e: np.zeros(n, int)):
        clipped = share.contribution(np.full(5, 1e6), seeded_entropy(0))
    assert np.linalg.norm(clipped * share.lattice.step) <= terms.sensitivity


def test_a_sum_that_no_honest_parties_could_make_is_not_plausible():
    terms = terms_of(4, 50)
    share = NoiseShare.of(terms)
    entropy = seeded_entropy(2)
    longest = np.zeros(50)
    longest[0] = terms.sensitivity
    honest = sum(share.contribution(longest, entropy) for _ in range(4))
    assert share.plausible(honest, 4)
    liar = honest.copy()
    liar[0] += int(100 * share.lattice.units * math.sqrt(4))
    assert not share.plausible(liar, 4)


# ------------------------------------------------------------------ the graph


@pytest.mark.parametrize("parties", [101, 300, 1000, 10_000])
def test_degrees_keep_their_bounds_and_grow_like_a_logarithm(parties):
    t = default_threshold(parties, 1)
    found = degree(parties, t, 1)
    assert found.neighbours < 20 * math.log(parties)
    assert 3 * found.recover > found.neighbours + 1
    # A, B and C by hand, with exact integers.
    k, recover, out = found.neighbours, found.recover, parties - t + 1
    broken = math.prod(Fraction(out - i, parties - i) for i in range(k // 2))
    assert parties * broken <= 2.0**-40
    ways = math.comb(parties - 1, k)
    few = sum(math.comb(t - 1, j) * math.comb(parties - t, k - j) for j in range(recover - 1))
    assert parties * Fraction(few, ways) <= 2.0**-20
    known = sum(math.comb(1, j) * math.comb(parties - 2, k - j) for j in range(recover, 2))
    assert parties * Fraction(known, ways) <= 2.0**-40


def test_a_random_ring_stays_connected_and_recoverable_when_a_third_is_lost():
    parties = 200
    t = default_threshold(parties, 1)
    found = degree(parties, t, 1)
    rng = np.random.default_rng(0)
    for trial in range(20):
        near = neighbours(range(parties), found.neighbours, seeded_entropy(trial))
        assert all(len(v) == found.neighbours for v in near.values())
        alive = set(rng.permutation(parties)[:t].tolist())
        assert all(len(alive & {u, *near[u]}) >= found.recover for u in range(parties))
        reached, todo = {min(alive)}, [min(alive)]
        while todo:
            new = set(near[todo.pop()]) & alive - reached
            reached |= new
            todo += new
        assert reached == alive


def test_small_sums_have_a_complete_graph():
    assert degree(COMPLETE, 67, 1) == Degree(COMPLETE - 1, 67)
    assert neighbours([4, 7, 9], 2, seeded_entropy(0)) == {4: (7, 9), 7: (4, 9), 9: (4, 7)}


# ------------------------------------------------------------------ terms


@pytest.mark.parametrize(
    ("parties", "threshold", "colluding", "message"),
    [
        (1, 1, 0, "`parties` of a secure sum must be in"),
        (4, 5, 1, "`colluding < threshold <= parties`"),
        (4, 1, 1, "`colluding < threshold <= parties`"),
        (10, 5, 1, "`2 \\* threshold > parties \\+ colluding`"),
    ],
)
def test_thresholds_that_protect_nobody_are_refused(parties, threshold, colluding, message):
    with pytest.raises(PrivacyError, match=message):
        terms_of(parties, threshold=threshold, colluding=colluding)


def test_the_default_threshold_is_two_thirds_or_what_one_sum_needs():
    assert [default_threshold(n, 1) for n in (2, 3, 4, 5, 6, 10, 30, 31, 100, 1000)] == [
        2, 3, 3, 4, 4, 7, 20, 21, 67, 667,
    ]  # fmt: skip


def test_every_term_changes_the_digest():
    base = terms_of(6)
    changed = [
        {"run": "other"}, {"release": 4}, {"nonce": bytes(16)}, {"length": 6}, {"threshold": 5},
        {"colluding": 0, "threshold": 5}, {"sensitivity": 2.0}, {"noise_multiplier": 1.0},
    ]  # fmt: skip
    digests = {base.digest} | {terms_of(6, **c).digest for c in changed}
    assert len(digests) == 9


def test_lists_of_survivors_are_read_as_they_were_written():
    for members in ([], [0], [63, 64], [1, 127, 128]):
        assert members_of(bits_of(members, 130)) == set(members)
        assert len(bits_of(members, 130)) % 8 == 0
