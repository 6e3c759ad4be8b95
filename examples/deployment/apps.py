"""Sign apps, and serve signed apps to a SuperLink.

    python apps.py sign APPS KEY APP.fab   adds an app and its signature to the folder APPS
    python apps.py trust KEY.pub ...       prints the trusted.yaml of a party that trusts these keys
    python apps.py serve APPS [PORT]       serves the folder on loopback

A SuperLink takes signatures only from Flower's Hub: `flwr run @PUBLISHER/NAME==VERSION` makes the
SuperLink ask the Hub for the app and its signatures, and both go to the nodes. An app that is
submitted from a folder (`flwr run FOLDER`) never has a signature. `serve` answers that one question
of a SuperLink which is started with FLWR_SUPERGRID_API_URL=http://127.0.0.1:PORT.

Nobody needs to trust the server: a node checks the signature of the bytes that it received with a
key that its own party chose.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import time
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flwr_fbo.core.keys import fingerprint, public_text, read_private_key, read_public_key, sign

#: Flower signs the time of the signature as 8 bytes, and then the SHA-256 hash of the bundle.
TIME_BYTES = 8


def metadata(fab: Path) -> tuple[str, str]:
    """Return the name, such as @together/tuning, and the version of a bundle."""
    with zipfile.ZipFile(fab) as bundle:
        config = tomllib.loads(bundle.read("pyproject.toml").decode())
    project = config["project"]
    return f"@{config['tool']['flwr']['app']['publisher']}/{project['name']}", project["version"]


def sign_app(folder: Path, key_file: Path, fab: Path) -> Path:
    """Copy a bundle into a folder and write its signature beside it; return the bundle's path."""
    key = read_private_key(key_file)
    public = public_text(key)
    if not public.startswith("ssh-ed25519 "):
        raise SystemExit(f"{key_file} must be an Ed25519 key (ssh-keygen -t ed25519)")
    content, now = fab.read_bytes(), int(time.time())
    signed = now.to_bytes(TIME_BYTES, "big") + hashlib.sha256(content).digest()
    signature = base64.urlsafe_b64encode(sign(key, signed)).rstrip(b"=").decode()
    app, version = metadata(fab)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / fab.name
    copy.write_bytes(content)
    entry = {"public_key_id": fingerprint(key), "signature": signature, "signed_at": now}
    record = {"app": app, "version": version, "verifications": [entry]}
    copy.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    return copy


def trusted_entities(public_keys: list[str]) -> str:
    """Return the YAML text by which a node trusts these keys: a fingerprint and a key a line."""
    keys = [read_public_key(text) for text in public_keys]
    return "".join(f'"{fingerprint(key)}": "{public_text(key)}"\n' for key in keys)


class Apps(BaseHTTPRequestHandler):
    """Answer what a SuperLink asks Flower's Hub: where is this app, and who has signed it."""

    folder: Path

    def do_POST(self) -> None:
        """Answer the question of `flwr run @PUBLISHER/NAME==VERSION`."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/hub/fetch-fab":
            return self.reply(404, {"detail": "not found"})
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            known = json.loads(path.read_text())
            if known["app"] == asked["app_id"] and asked["app_version"] in (None, known["version"]):
                address = f"http://{self.headers['Host']}/{path.with_suffix('.fab').name}"
                return self.reply(
                    200, {"fab_url": address, "verifications": known["verifications"]}
                )
        return self.reply(404, {"detail": "no such app or version"})

    def do_GET(self) -> None:
        """Send the bytes of a bundle."""
        fab = self.folder / Path(self.path).name
        if fab.suffix == ".fab" and fab.is_file():
            return self.reply(200, fab.read_bytes())
        return self.reply(404, {"detail": "not found"})

    def reply(self, code: int, content: dict[str, Any] | bytes) -> None:
        """Send one answer."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve(folder: Path, port: int) -> None:
    """Serve the apps of a folder on loopback until the process is ended."""
    handler = type("AppsOfFolder", (Apps,), {"folder": folder})
    print(f"apps of {folder} at http://127.0.0.1:{port}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), handler).serve_forever()


def main(arguments: list[str]) -> None:
    """Run one command."""
    match arguments:
        case ["sign", folder, key, fab]:
            copy = sign_app(Path(folder), Path(key), Path(fab))
            print(f"{copy.name} is signed: {'=='.join(metadata(copy))}")
        case ["trust", *keys] if keys:
            print(trusted_entities([Path(key).read_text() for key in keys]), end="")
        case ["serve", folder, *port] if len(port) < 2:
            serve(Path(folder), int(port[0]) if port else 8080)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
