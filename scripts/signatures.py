"""Write the arguments of the strategy classes from the settings of their methods.

Every setting is declared once, in the settings class of its method. The strategy classes repeat
them as arguments, so that editors complete them and ``help()`` shows them::

    python scripts/signatures.py            # rewrite flwr_fbo/strategies/*.py
    python scripts/signatures.py --check    # exit with 1 if a file is not up to date
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any, Literal

from flwr_fbo.core.settings import Settings, describe
from flwr_fbo.methods.registry import find_method

FOLDER = Path(__file__).parents[1] / "flwr_fbo" / "strategies"
FILES = ("dp_fts_de", "fts", "baselines", "fed_pne", "ldp", "voting")
LEARNERS = '"tgp", "ata", "moma", "gp-ucb", "uniform"'
#: Stands for a blank at which a docstring must not be broken into lines.
NO_BREAK = "\N{NO-BREAK SPACE}"

#: The settings that users look for first.
FIRST = ("epsilon", "delta", "budget")
#: The arguments that all strategies share: name, type, default, help.
SHARED = [
    ("space", "Space | Mapping[str, Parameter] | None", "None", "the search space"),
    ("num_agents", "int | None", "None", "number of agents; where unset, of connected nodes"),
    ("num_rounds", "int", "20", "rounds after the initial points, for Flower's own loop"),
    ("timeout", "float", "3600.0", "seconds that a round may take, for Flower's own loop"),
    ("seed", "int", "0", "seed of everything but privacy noise"),
    ("run_dir", "Path | str | None", "None", "directory of the run; below ~/.flwr-fbo where unset"),
    ("round_quorum", "float", "1.0", "share of the asked agents whose replies end a round"),
    (
        "answer_within", "float | None", "None",
        "seconds after which an agent replies although its evaluation still runs; None waits",
    ),
    ("node_ids", "Sequence[int]", "()", "the node of each agent by its number, in a deployment"),
    ("callbacks", "Sequence[Callback]", "()", "objects that watch the run"),
]  # fmt: skip


def type_text(kind: Any) -> str:
    """Return a type as source text."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " | ".join(map(type_text, typing.get_args(kind)))
    if typing.get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(_literal, typing.get_args(kind)))}]"
    return "None" if kind is type(None) else str(kind.__name__)


def _literal(value: Any) -> str:
    """Return a value as source text, with double quotes."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def arguments(settings: type[Settings], method: str) -> list[tuple[str, str, str, str]]:
    """Return name, type, default and help of every argument of a strategy class."""
    kinds = typing.get_type_hints(settings)
    helps = {d.key.replace("-", "_"): d for d in describe(settings)}
    own = []
    for f in dataclasses.fields(settings):
        d = helps[f.name]
        rule = d.rule.replace(" ", NO_BREAK)
        text = f"{d.help} ({rule})" if rule else d.help
        own.append((f.name, type_text(kinds[f.name]), _literal(f.default), text))
    own.sort(key=lambda row: row[0] not in FIRST)
    first = []
    if method == "ldp-tgp":
        first = [("learner", f"Literal[{LEARNERS}]", '"tgp"', "how the server learns")]
    return [*first, *SHARED, *own]


def with_arguments(text: str) -> str:
    """Return a module's text with the arguments of each of its classes written anew."""
    parts = re.split(r"(?=^class )", text, flags=re.M)
    return "".join([parts[0], *map(_class_with_arguments, parts[1:])])


def _class_with_arguments(text: str) -> str:
    (method,) = re.findall(r'^    method_name = "(.*)"$', text, flags=re.M)
    given = arguments(find_method(method).settings_class, method)
    documented = "".join(
        f"    {name} : {kind}\n{_wrapped(_sentence(help))}" for name, kind, _, help in given
    )
    text = re.sub(
        r"(    Parameters\n    ----------\n).*?(?=\n    Examples\n)",
        lambda found: found.group(1) + documented,
        text,
        flags=re.S,
    )
    rows = "".join(f"        {name}: {kind} = {default},\n" for name, kind, default, _ in given)
    init = f"    def __init__(\n        self,\n        *,\n{rows}    ) -> None: ...\n"
    return re.sub(
        r"(?<=    @explicit\n)    def __init__\(.*?\) -> None: \.\.\.\n",
        lambda _: init,
        text,
        flags=re.S,
    )


def _sentence(help: str) -> str:
    symbol = help[1:2] in ",_"  # a help text that begins with the paper's symbol keeps its case
    return (help if symbol else help[0].upper() + help[1:]) + "."


def _wrapped(text: str) -> str:
    lines = textwrap.wrap(text, 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines).replace(NO_BREAK, " ") + "\n"


def formatted(text: str) -> str:
    """Return source text as ruff formats it."""
    command = ["ruff", "format", "--stdin-filename", "strategy.py", "-"]
    ruff = [str(Path(sys.executable).with_name("ruff")), *command[1:]]
    done = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    """Rewrite the files, or say which are not up to date."""
    stale = 0
    for name in FILES:
        path = FOLDER / f"{name}.py"
        before = path.read_text()
        after = formatted(with_arguments(before))
        if after == before:
            continue
        stale += 1
        if "--check" in sys.argv:
            print(f"{path.name} is not up to date: run python scripts/signatures.py")
        else:
            path.write_text(after)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
