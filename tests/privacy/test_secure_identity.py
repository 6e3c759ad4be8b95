"""Signed keys: who is accepted, and what a server that swaps keys runs into."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.secure import primitives
from flwr_fbo.privacy.secure.identity import SIGNED, Identity, verify
from flwr_fbo.privacy.secure.party import Party, PublicKeys
from flwr_fbo.privacy.secure.terms import SecureSumError

from .secure_harness import Sum, terms_of

CURVES = [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()]


def identities(count: int) -> list[Identity]:
    return [Identity(ed25519.Ed25519PrivateKey.generate()) for _ in range(count)]


def pinned_sum(parties: int = 4) -> tuple[Sum, list[Identity]]:
    known = identities(parties)
    pins = frozenset(i.fingerprint for i in known)
    options = {u: {"identity": known[u], "pinned": pins} for u in range(parties)}
    return Sum(terms_of(parties), np.zeros((parties, 5)), options=options), known


def test_parties_that_know_each_other_open_their_sum_with_one_lost():
    one, _ = pinned_sum()
    one.drops = {2: 2}
    assert one.run() is not None


@pytest.mark.parametrize("leg", ["channel", "mask"])
def test_a_server_that_swaps_a_key_is_refused(leg):
    one, _ = pinned_sum()
    one.leg()
    mine = primitives.public_key(primitives.new_secret(seeded_entropy(77_777)))
    theirs = one.collector._keys[2]
    one.collector._keys[2] = PublicKeys(
        mine if leg == "channel" else theirs.channel,
        mine if leg == "mask" else theirs.mask,
        theirs.signed,
    )
    with pytest.raises(SecureSumError, match=r"signature .* must be valid"):
        one.party(0).shares(one.collector.neighbour_keys(0), one.collector.degree.recover)


def test_a_party_of_the_servers_own_is_refused():
    one, _ = pinned_sum()
    one.options[2]["identity"] = identities(1)[0]  # signed, but nobody has pinned it
    one.leg()
    with pytest.raises(SecureSumError, match=r"not pinned .* may have swapped keys"):
        one.party(0).shares(one.collector.neighbour_keys(0), one.collector.degree.recover)


def test_one_identity_cannot_stand_for_two_parties():
    one, known = pinned_sum()
    one.options[2]["identity"] = known[3]
    one.leg()
    with pytest.raises(SecureSumError, match="one identity belongs to two"):
        one.party(0).shares(one.collector.neighbour_keys(0), one.collector.degree.recover)


def test_unsigned_keys_are_refused_by_a_party_that_pins():
    one, _ = pinned_sum()
    one.options[1] = {}
    one.leg()
    with pytest.raises(SecureSumError, match="must be signed, but are not"):
        one.party(0).shares(one.collector.neighbour_keys(0), one.collector.degree.recover)


def test_keys_of_another_sum_are_refused():
    one, _ = pinned_sum()
    one.leg()
    other, _ = pinned_sum()
    other.options = one.options
    other.terms = terms_of(4, nonce=bytes(16))
    other.leg()
    one.collector._keys[2] = other.transcript["keys"][2]
    with pytest.raises(SecureSumError, match=r"signature .* must be valid"):
        one.party(0).shares(one.collector.neighbour_keys(0), one.collector.degree.recover)


def test_a_party_that_pins_accepts_no_small_neighbourhood():
    one, _ = pinned_sum()
    one.leg()
    some = dict(list(one.collector.neighbour_keys(0).items())[:1])
    with pytest.raises(SecureSumError, match="needs 3 neighbours or more"):
        one.party(0).shares(some, 2)


def test_a_party_that_pins_must_have_an_identity():
    with pytest.raises(SecureSumError, match="must have one of its own"):
        Party(0, terms_of(4), pinned=frozenset({"SHA256:x"}))


@pytest.mark.parametrize("curve", CURVES, ids=lambda c: c.name)
def test_every_curve_of_a_supernode_signs(curve, tmp_path):
    key = ec.generate_private_key(curve)
    path = tmp_path / "key.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    identity = Identity.load(path)
    if curve.name == "secp521r1":  # ssh keys of that size do not fit into the field
        with pytest.raises(SecureSumError, match="does not fit"):
            identity.sign(b"x")
        return
    signed = identity.sign(b"content")
    assert len(signed) == SIGNED
    assert verify(signed, b"content") == identity.fingerprint
    with pytest.raises(SecureSumError, match="must be valid"):
        verify(signed, b"other")


def test_a_file_without_a_usable_key_is_refused(tmp_path):
    with pytest.raises(SecureSumError, match="cannot be read"):
        Identity.load(tmp_path / "none")


@pytest.mark.parametrize("signed", [b"", bytes(SIGNED), b"\xff" * SIGNED, b"\x05\x05" + bytes(254)])
def test_damaged_signatures_are_refused(signed):
    with pytest.raises(SecureSumError):
        verify(signed, b"content")
