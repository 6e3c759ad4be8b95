"""Nodes run only apps that a key of their owner's choice has signed.

The scripts of examples/deployment are run as docs/how-to/deployment.md says. The apps that must not
run
bring a changed copy of this package, which replaces the node's own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flower.processes import BIN, REPOSITORY, Flower, flower, free_ports

EXAMPLE = REPOSITORY / "examples" / "deployment"
RUN = "task='synthetic' strategy='local-ts' agents=1 rounds=1 timeout=120.0 settings='points=100 "
RUN += "initial-points=1'"
REFUSED = "none of 1 connected nodes runs this app"

pytestmark = [
    pytest.mark.slow(100),
    pytest.mark.skipif(sys.platform == "win32", reason="runs shell scripts"),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="needs openssl and ssh-keygen to make keys",
    ),
]


class Deployment:
    """A SuperLink, a server of signed apps and one node, as the example's scripts start them."""

    def __init__(self, running: Flower) -> None:
        self.running, self.folder = running, running.folder
        self.link, apps, *self.ports = free_ports(5)
        self.python = str(BIN / "python")
        for who in ("auditor", "stranger"):
            running.command(
                "/usr/bin/env", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", who
            )
        running.command(str(EXAMPLE / "keys.sh"), "keys", "127.0.0.1", "2")
        trusted = running.command(self.python, str(EXAMPLE / "apps.py"), "trust", "auditor.pub")
        (self.folder / "keys" / "trusted.yaml").write_text(trusted)
        running.start(
            self.python, str(EXAMPLE / "apps.py"), "serve", "apps", str(apps), port=apps
        )  # fmt: skip
        running.start(
            "/usr/bin/env", f"FLWR_SUPERGRID_API_URL=http://127.0.0.1:{apps}", "RAN=at-the-server",
            str(EXAMPLE / "superlink.sh"), "keys", str(self.link), "127.0.0.1", port=self.link,
        )  # fmt: skip
        running.connect("dep", self.link, f'root-certificates = "{self.folder}/keys/ca.crt"')
        keys = [f"keys/node-{n}.key.pub" for n in range(2)]
        running.command(str(EXAMPLE / "register.sh"), "dep", *keys)

    def node(self, party: int, *variables: str) -> subprocess.Popen[bytes]:
        return self.running.start(
            "/usr/bin/env", f"RAN=at-node-{party}", *variables, str(EXAMPLE / "supernode.sh"),
            "keys", f"127.0.0.1:{self.link}", str(party), "2", str(self.ports.pop()),
        )  # fmt: skip

    def build(self, app: Path) -> Path:
        """The bundle of an app."""
        before = set(self.folder.glob("*.fab"))
        self.running.command("flwr", "build", "--app", str(app))
        (made,) = set(self.folder.glob("*.fab")) - before
        return made

    def sign(self, key: str, fab: Path) -> None:
        said = self.running.command(
            self.python, str(EXAMPLE / "apps.py"), "sign", "apps", key, str(fab)
        )
        assert "is signed: @together/tuning==" in said

    def run(self, app: str) -> str:
        """What `flwr run` of an app prints."""
        return self.running.command(
            "flwr", "run", app, "dep", "--stream", "--run-config", RUN, timeout=400
        )

    def ran(self, where: str) -> bool:
        return (self.folder / where).exists()


def changed_app(folder: Path, version: str) -> Path:
    """An app with a copy of this package that says where it runs."""
    app = folder / f"app-{version.replace('.', '-')}"
    shutil.copytree(EXAMPLE / "app", app)
    ignore = shutil.ignore_patterns("__pycache__", "papers")
    shutil.copytree(REPOSITORY / "flwr_fbo", app / "flwr_fbo", ignore=ignore)
    shutil.copytree(REPOSITORY / "flwr_fbo/tasks/papers", app / "flwr_fbo/tasks/papers")
    module = app / "flwr_fbo" / "methods" / "owner.py"  # an owner's limits
    where = f"Path({str(folder)!r}, os.environ['RAN'])"
    module.write_text(module.read_text() + f"\n\nimport os\n\n{where}.touch()\n")
    config = app / "pyproject.toml"
    text = config.read_text().replace('version = "1.0.0"', f'version = "{version}"')
    config.write_text(text.replace('["app.py"]', '["app.py", "flwr_fbo/**/*.py"]'))
    return app


def test_a_node_runs_signed_apps_only(tmp_path: Path) -> None:
    with flower(tmp_path, quick=True) as running:
        d = Deployment(running)
        d.sign("auditor", d.build(EXAMPLE / "app"))
        (record,) = (tmp_path / "apps").glob("*.json")
        d.sign("stranger", d.build(changed_app(tmp_path, "2.0.0")))
        tampered = d.build(changed_app(tmp_path, "3.0.0"))
        shutil.copy(tampered, tmp_path / "apps")
        forged = json.loads(record.read_text()) | {"version": "3.0.0"}  # the auditor's signature
        (tmp_path / "apps" / tampered.with_suffix(".json").name).write_text(json.dumps(forged))

        node = d.node(0)
        for app in (
            str(tmp_path / "app-2-0-0"),
            "@together/tuning==2.0.0",
            "@together/tuning==3.0.0",
        ):
            assert REFUSED in d.run(app), app
            assert running.status("dep").startswith("finished:failed")
        said = running.log(node)
        assert "App verification is not supported" in said  # from a folder: without a signature
        assert said.count("the provided trusted entities could not verify the FAB") >= 2
        assert d.ran("at-the-server")  # the SuperLink runs what is submitted,
        assert not d.ran("at-node-0")  # and the node does not

        output = d.run("@together/tuning==1.0.0")
        assert running.status("dep").startswith("finished:completed"), output
        assert "round 1/1  replies 1/1" in output
        assert not d.ran("at-node-0")


def test_the_page_as_it_stands(tmp_path: Path) -> None:
    """What a newcomer of docs/how-to/deployment.md types, with other addresses, few rounds."""
    link, apps, *ports = free_ports(5)
    pages = ("how-to/deployment.md", "reference/deployment.md")
    text = "".join((REPOSITORY / "docs" / page).read_text() for page in pages)
    for said, here in (
        ("superlink.example.org", "127.0.0.1"), ("8000", str(link)), ("8080", str(apps)),
        ("rounds=20", "rounds=2"), ("/path/to/keys", f"{tmp_path}/keys"),
    ):  # fmt: skip
        text = text.replace(said, here)
    blocks = re.findall(r"^```(?:sh|toml)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    keys, sign, trust, serve, superlink, toml, register, node, run, *with_settings = blocks
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    with flower(tmp_path, quick=True) as running:
        running.variables["FLWR_SUPERGRID_API_URL"] = f"http://127.0.0.1:{apps}"
        for block in (keys, sign, trust):
            running.shell(block)
        assert (tmp_path / "review" / "app.py").read_text() == (EXAMPLE / "app/app.py").read_text()
        running.start("/usr/bin/env", "bash", "-ec", f"exec {serve}", port=apps)
        running.start("/usr/bin/env", "bash", "-ec", f"exec {superlink}", port=link)
        (tmp_path / "home" / "config.toml").write_text(toml)
        assert re.fullmatch(r"node-ids='\d+,\d+,\d+'", running.shell(register).splitlines()[-1])
        for party, port in enumerate(ports):
            mine = node.strip().replace(" 0 3", f" {party} 3 {port}")
            assert all(block.startswith(node.strip()) for block in with_settings)
            running.start("/usr/bin/env", "bash", "-ec", f"exec {mine}")
        output = running.shell(run, timeout=600)
        assert "round 2/2  replies 3/3" in output
        assert running.status("together").startswith("finished:completed")
        assert (tmp_path / "fbo" / "runs" / "spring" / "privacy.json").exists()


def test_a_node_without_trusted_keys_says_what_that_means(tmp_path: Path) -> None:
    """It starts only if its owner allows every app, and then an app's own package runs there."""
    with flower(tmp_path, quick=True) as running:
        d = Deployment(running)
        (tmp_path / "keys" / "trusted.yaml").unlink()
        refused = d.node(1)
        assert refused.wait(600) == 1
        assert "trusted.yaml is missing" in running.log(refused)
        allowed = d.node(1, "UNSIGNED_APPS=1")
        assert "round 1/1  replies 1/1" in d.run(str(changed_app(tmp_path, "2.0.0")))
        assert "runs every app that is submitted" in running.log(allowed)
        assert d.ran("at-node-1")
