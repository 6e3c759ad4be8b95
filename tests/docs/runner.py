"""Run blocks in order, in this directory: ``python runner.py BLOCKS.json``.

The test of all blocks copies this file beside a page's files and starts it with the Python of the
fresh environment, so it imports nothing but the standard library. All Python blocks of a page share
one module; shell blocks are run by bash and stop at the first command that fails.
"""

import json
import re
import subprocess
import sys
import types
from pathlib import Path


def main() -> None:
    """Run all blocks; end with 1, and say which line failed, at the first that fails."""
    page = types.ModuleType("page")  # where the page's classes say that they are
    sys.modules["page"] = page
    for block in json.loads(Path(sys.argv[1]).read_text()):
        print(f"--- line {block['line']}", flush=True)
        if block["language"] == "sh":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", block["text"]])
            if done.returncode:
                sys.exit(f"line {block['line']}: ended with {done.returncode}")
            continue
        named = re.match(r"# ([\w/-]+\.py)\n", block["text"])
        if named:
            path = Path(named[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"])
            if len(path.parts) > 1:  # a file of an app, which only the app can import
                continue
        exec(compile(block["text"], f"line {block['line']}", "exec"), vars(page))


if __name__ == "__main__":
    main()
