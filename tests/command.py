"""The command ``flwr-fbo``, and other code, in a process of its own that imports nothing again.

One process of each test worker imports what a simulation needs, and forks a child for each command.
The child has the arguments, the directory and the variables that it is given, files for its output,
and nothing of the test's process. Importing takes 1.4 s of CPU time, and a small run 0.1 s. Tests
of the imports themselves, and a few of everything, start a new interpreter: ``fresh=True``.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RUN = "from flwr_fbo.cli.main import main; main()"
# -P: like the installed command, Python does not look for modules where one is by itself.
PYTHON = [sys.executable, "-P", "-c"]
#: Seconds until a command counts as stuck, far above what a busy machine needs.
LONGEST = 600.0

#: Forks a child for each line of its input, and writes the child's exit status as a line.
TEMPLATE = """
import gc, json, os, sys
import flwr_fbo.cli.main, flwr_fbo.simulation.simulate, flwr_fbo.report
import flwr_fbo.methods.thompson.sampler, flwr_fbo.strategies.server_app, sklearn.svm
gc.freeze()  # a child does not collect what it never made
for line in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        continue
    given = json.loads(line)
    for number, (name, flags) in enumerate([
        (os.devnull, os.O_RDONLY), (given["out"], os.O_WRONLY), (given["err"], os.O_WRONLY),
    ]):
        opened = os.open(name, flags)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    sys.argv[1:] = given["arguments"]
    break
else:
    sys.exit()
exec(given["code"])
"""

_templates: dict[int, subprocess.Popen[str]] = {}


def flwr_fbo(*arguments: str, cwd: Path, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, and return its exit code and what it printed."""
    return (_new_python if fresh else forked_python)(RUN, *arguments, cwd=cwd)


def run_json(cwd: Path, task: str, *arguments: str) -> dict[str, Any]:
    """Run a simulation in process with the command, and return its result."""
    done = flwr_fbo("run", task, *arguments, "--engine", "inline", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def forked_python(
    code: str, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, as `python -c` does, without importing anything again."""
    if not hasattr(os, "fork"):
        return _new_python(code, *arguments, cwd=cwd)
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        given = {"code": code, "arguments": arguments, "cwd": str(cwd or Path.cwd())}
        ended = _forked({**given, "env": dict(os.environ), "out": out.name, "err": err.name})
        return subprocess.CompletedProcess(["python", *arguments], ended, out.read(), err.read())


def _new_python(
    code: str, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter."""
    return subprocess.run(
        [*PYTHON, code, *arguments], capture_output=True, text=True, cwd=cwd, timeout=LONGEST
    )


def _forked(given: dict[str, object]) -> int:
    """Have the template fork a command, and return the command's exit code."""
    template = _template()
    assert template.stdin is not None
    assert template.stdout is not None
    template.stdin.write(json.dumps(given) + "\n")
    template.stdin.flush()
    ready, _, _ = select.select([template.stdout], [], [], LONGEST)
    line = template.stdout.readline() if ready else ""
    if not line:
        _end(template)
        raise TimeoutError(f"the command must end in {LONGEST:g} s: {given['arguments']}")
    return int(line)


def _template() -> subprocess.Popen[str]:
    """Return the process that this process has for its commands."""
    here = os.getpid()  # a fork of a test's process has no template
    if here not in _templates or _templates[here].poll() is not None:
        _templates[here] = subprocess.Popen(
            [*PYTHON, TEMPLATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
        atexit.register(_end, _templates[here])
    return _templates[here]


def _end(template: subprocess.Popen[str]) -> None:
    """End the template, and a command that is stuck."""
    if template.pid != os.getpid() and template.poll() is None:
        os.killpg(template.pid, signal.SIGKILL)
        template.wait()
