"""Keys of parties are those that ssh-keygen writes and that Flower reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flwr_fbo.core.keys import (
    KeyFileError,
    fingerprint,
    public_text,
    read_private_key,
    read_public_key,
    sign,
    verify,
)

KINDS = [("ecdsa", "384"), ("ecdsa", "256"), ("ed25519", "256")]
needs_ssh = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")


def made(path: Path, kind: str = "ecdsa", bits: str = "384", passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-b", bits, "-N", passphrase, "-C", "a party"]
    subprocess.run([*command, "-f", str(path)], check=True)
    return path


@needs_ssh
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_a_signature_is_by_one_key_and_for_one_message(
    tmp_path: Path, kind: str, bits: str
) -> None:
    private = read_private_key(made(tmp_path / "key", kind, bits))
    other = read_private_key(made(tmp_path / "other", kind, bits))
    public = read_public_key((tmp_path / "key.pub").read_text())
    signature = sign(private, b"message")
    assert verify(public, b"message", signature)
    assert not verify(public, b"massage", signature)
    assert not verify(public, b"message", sign(other, b"message"))
    assert not verify(public, b"message", b"")


@needs_ssh
@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_texts_and_fingerprints_are_those_of_ssh_keygen(
    tmp_path: Path, kind: str, bits: str
) -> None:
    private = read_private_key(made(tmp_path / "key", kind, bits))
    line = (tmp_path / "key.pub").read_text()
    assert public_text(private) == public_text(read_public_key(line)) == line.rsplit(" a ", 1)[0]
    command = ["ssh-keygen", "-l", "-f", str(tmp_path / "key.pub")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert fingerprint(private) == said.split()[1]


@needs_ssh
def test_a_key_in_pem_format_is_the_same_key(tmp_path: Path) -> None:
    key = read_private_key(made(tmp_path / "key"))
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "", "-m", "PEM", "-f", str(tmp_path / "key")],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert b"OPENSSH" not in (tmp_path / "key").read_bytes()
    assert public_text(read_private_key(tmp_path / "key")) == public_text(key)


@needs_ssh
def test_what_is_no_key_is_refused_without_being_quoted(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="without passphrase"):
        read_private_key(made(tmp_path / "locked", passphrase="secret"))
    with pytest.raises(KeyFileError, match="must hold an ECDSA or Ed25519 key"):
        read_private_key(made(tmp_path / "rsa", "rsa", "2048"))
    with pytest.raises(KeyFileError, match="must be ECDSA or Ed25519"):
        read_public_key((tmp_path / "rsa.pub").read_text())
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_private_key(tmp_path / "none")
    (tmp_path / "text").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nhush\n")
    with pytest.raises(KeyFileError) as caught:
        read_private_key(tmp_path / "text")
    assert "hush" not in str(caught.value)
    with pytest.raises(KeyFileError, match="must be a line such as"):
        read_public_key("nonsense")
