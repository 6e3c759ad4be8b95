"""The test vectors of docs/reference/secure-sum.md, computed again from the RFCs in Python."""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from flwr_fbo.privacy.secure import primitives, shamir
from flwr_fbo.privacy.secure.party import pair_mask, self_mask
from flwr_fbo.privacy.secure.terms import Terms

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "secure-sum.md").read_text()
V = json.loads(PAGE.split("<!-- vectors -->\n```json\n")[1].split("\n```")[0])
NAME = b"flwr-fbo secure sum 1"
D = bytes.fromhex(V["D"])
TERMS = Terms(
    V["run"], V["round"], bytes.fromhex(V["nonce"]), V["N"], V["t"], V["c"], V["d"], V["S"], V["z"]
)


#: The columns and then the diagonals of ChaCha20's state.
QUARTERS = [(i, i + 4, i + 8, i + 12) for i in range(4)]
QUARTERS += [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]


def eight(number: int) -> bytes:
    return number.to_bytes(8, "little")


# -- the RFCs ------------------------------------------------------------------------------------


def x25519(secret: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5: the Montgomery ladder."""
    p, k = 2**255 - 19, int.from_bytes(secret, "little")
    k = k & ~7 & ~(1 << 255) | 1 << 254
    x1 = int.from_bytes(point, "little") & (1 << 255) - 1
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = pow(da + cb, 2, p), x1 * pow(da - cb, 2, p) % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, -1, p) % p).to_bytes(32, "little")


def chacha20(key: bytes, blocks: int, counter: int = 0, nonce: bytes = bytes(12)) -> bytes:
    """RFC 8439, section 2.3: the key stream."""
    out = b""
    for i in range(blocks):
        start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8L", key)]
        start += [counter + i, *struct.unpack("<3L", nonce)]
        s = list(start)
        for _ in range(10):
            for a, b, c, d in QUARTERS:
                for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    s[x] = s[x] + s[y] & 0xFFFFFFFF
                    turned = s[z] ^ s[x]
                    s[z] = (turned << n | turned >> 32 - n) & 0xFFFFFFFF
        out += struct.pack("<16L", *((u + v) & 0xFFFFFFFF for u, v in zip(s, start, strict=True)))
    return out


def poly1305(key: bytes, text: bytes) -> bytes:
    """RFC 8439, section 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(text), 16):
        total = (total + int.from_bytes(text[i : i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return (total + int.from_bytes(key[16:], "little") & 2**128 - 1).to_bytes(16, "little")


def seal(key: bytes, nonce: bytes, plain: bytes, bound: bytes) -> bytes:
    """RFC 8439, section 2.8."""
    stream = chacha20(key, -(-len(plain) // 64), 1, nonce)
    text = bytes(a ^ b for a, b in zip(plain, stream, strict=False))

    def pad(data: bytes) -> bytes:
        return data + bytes(-len(data) % 16)

    tagged = pad(bound) + pad(text) + eight(len(bound)) + eight(len(text))
    return text + poly1305(chacha20(key, 1, 0, nonce)[:32], tagged)


def kdf(secret: bytes, purpose: bytes, length: int) -> bytes:
    """RFC 5869."""
    first = hmac.new(D, secret, hashlib.sha256).digest()
    out, last = b"", b""
    for i in range(1, -(-length // 32) + 1):
        last = hmac.new(first, last + NAME + b" " + purpose + bytes([i]), hashlib.sha256).digest()
        out += last
    return out[:length]


def expand(key: bytes) -> list[int]:
    return list(struct.unpack(f"<{V['d']}Q", chacha20(key, 1)[: 8 * V["d"]]))


# -- the vectors ---------------------------------------------------------------------------------


def test_the_rfcs_in_plain_python_have_their_own_vectors():
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    secret = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    shared = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert x25519(secret, point).hex() == shared  # RFC 7748, section 5.2
    block = chacha20(bytes(range(32)), 1, 1, bytes.fromhex("000000090000004a00000000"))
    assert block[:8].hex() == "10f1e7e4d13b5915"  # RFC 8439, section 2.3.2


def test_the_digest_of_the_terms():
    name = V["run"].encode()
    numbers = [V["round"], V["N"], V["t"], V["c"], V["d"]]
    parts = [NAME, struct.pack("<I", len(name)), name, bytes.fromhex(V["nonce"])]
    parts += [struct.pack("<q", n) for n in numbers] + [struct.pack("<d", V[k]) for k in "Sz"]
    assert hashlib.sha256(b"".join(parts)).digest() == D == TERMS.digest


@pytest.mark.parametrize("u", range(3))
def test_keys_masks_and_masked_vectors(u):
    mine = V["parties"][u]
    base = (9).to_bytes(32, "little")
    for secret, public in (("c", "C"), ("m", "M")):
        assert x25519(bytes.fromhex(mine[secret]), base).hex() == mine[public]
        number = int.from_bytes(bytes.fromhex(mine[secret]), "little")
        assert primitives.public_key(number).hex() == mine[public]
    total = np.array(mine["x"], dtype=np.int64).astype(np.uint64)
    own = expand(kdf(bytes.fromhex(mine["s"]), b"self " + eight(u), 32))
    assert own == mine["self_mask"]
    seed = int.from_bytes(bytes.fromhex(mine["s"]), "little")
    assert self_mask(seed, u, TERMS).tolist() == own
    total = total + np.array(own, dtype=np.uint64)
    for v in range(3):
        if v == u:
            continue
        shared = x25519(bytes.fromhex(mine["m"]), bytes.fromhex(V["parties"][v]["M"]))
        pair = expand(kdf(shared, b"pair " + eight(min(u, v)) + eight(max(u, v)), 32))
        secret, public = int.from_bytes(bytes.fromhex(mine["m"]), "little"), V["parties"][v]["M"]
        assert pair_mask(secret, bytes.fromhex(public), TERMS, u, v).tolist() == pair
        if {u, v} == {0, 1}:
            assert pair == V["pair_mask_01"]
        mask = np.array(pair, dtype=np.uint64)
        total = total + mask if u < v else total - mask
    assert total.tolist() == mine["y"]


def test_the_channel_encrypts_and_confirms():
    mine, theirs = V["parties"][:2]
    key = kdf(x25519(bytes.fromhex(mine["c"]), bytes.fromhex(theirs["C"])), b"channel", 64)
    assert key.hex() == V["K_01"]
    bound = D + eight(0) + eight(1) + bytes([V["t"], 0])
    plain = bytes.fromhex(V["plain_0_to_1"])
    sealed = seal(key[:32], bytes(12), plain, bound)
    assert sealed.hex() == V["sealed_0_to_1"]
    assert primitives.unseal(key[:32], 0, sealed, bound) == plain
    code = hmac.new(key[32:], eight(0) + eight(1) + D + eight(7), hashlib.sha256).digest()[:16]
    assert code.hex() == V["code_0_to_1_for_all"]
    assert primitives.confirmation(key[32:], 0, 1, D + eight(7)) == code


def test_shares_and_the_sum():
    shares = {int(x): y for x, y in V["shares_of_7_by_7_plus_3_x_plus_5_x2"].items()}
    assert shamir.recover(shares, 3) == 7
    # Without the masks, which the server computes from the recovered secrets, the sum is left.
    total = np.zeros(V["d"], dtype=np.uint64)
    for party in V["parties"]:
        total = total + np.array(party["y"], dtype=np.uint64)
        total = total - np.array(party["self_mask"], dtype=np.uint64)
    assert total.astype(np.int64).tolist() == V["sum"]
