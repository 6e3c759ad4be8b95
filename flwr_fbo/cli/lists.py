"""The commands ``flwr-fbo tasks``, ``data`` and ``strategies``, which list what there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flwr_fbo.cli.common import FAILED, in_terminal, user_errors
from flwr_fbo.core.settings import describe

if TYPE_CHECKING:
    from flwr_fbo.methods.method import Method
    from flwr_fbo.tasks.papers.data import Source


def tasks(
    data_dir: Annotated[
        str, typer.Option(help="Directory to look for data sets in, as well as the usual ones.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List all tasks: the parameters, the data set, and whether the data are on this machine.

    Example: flwr-fbo tasks --json
    """
    with user_errors():
        from flwr_fbo.tasks.listing import catalogue

        rows = catalogue(data_dir)
        if as_json:
            print(json.dumps(rows))
            return
        for row in rows:
            print(_task_text(row))


def _task_text(row: Mapping[str, Any]) -> str:
    """Return a task as text for people."""
    if row["problem"]:
        return f"{row['name']:<15} cannot be imported\n{'':<15} {row['problem']}"
    here = "data present" if row["present"] else "data missing"
    made = ", can be generated" if row["generated"] else ""
    state, source = (here + made, f"; {row['data']}") if row["data"] else ("needs no data", "")
    tuned = ", ".join(row["space"]["parameters"])
    uses = in_terminal(f"{'':<15} tunes {tuned}{source}", 16)
    return f"{row['name']:<15} {row['metric']:<12} {state}\n{uses}"


def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of data sets or of tasks; where unset, all data sets."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Directory to look for data sets in, as well as the usual ones."),
    ] = None,
    verify: Annotated[bool, typer.Option(help="Compare the files with their checksums.")] = False,
    fetch: Annotated[
        bool, typer.Option(help="Download missing data sets, after a question for each.")
    ] = False,
    yes: Annotated[bool, typer.Option(help="Agree to all downloads and their terms.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the data sets of the built-in tasks: where each is, or how to get it.

    NAMES are names of data sets, or of tasks that need one; without names, all data sets are
    listed. Exits with 1 when a named data set is missing, or a checksum is wrong.

    Example: flwr-fbo data landmine --fetch --verify
    """
    with user_errors():
        from flwr_fbo.tasks.listing import users_of_data
        from flwr_fbo.tasks.papers.data.store import sources_named, status

        users = users_of_data()
        source_of = {task: source for source, needed in users.items() for task in needed}
        wanted = [name if name in users else source_of.get(name, name) for name in names or []]
        sources = sources_named(wanted)
        # Downloads come first, so that the list shows what is there after them.
        for source in sources if fetch else ():
            _fetch(source, data_dir, yes)
        rows = [
            {**status(source, data_dir, verify), "tasks": users.get(source.name, [])}
            for source in sources
        ]
        print(json.dumps(rows) if as_json else "\n".join(map(_data_text, rows)))
        wrong = any("WRONG" in (row["checksums"] or {}).values() for row in rows)
        if wrong or (names and not all(row["present"] for row in rows)):
            raise typer.Exit(FAILED)


def _fetch(source: Source, data_dir: Path | None, agreed: bool) -> None:
    """Download a missing data set, if its publisher offers a download and the user agrees."""
    from flwr_fbo.tasks.papers.data.store import fetch, find_data, terms

    if find_data(source, data_dir) is not None or not source.accepted:
        return
    if not source.remotes:
        typer.echo(f"{source.name}: must be fetched by hand from {source.homepage}", err=True)
        return
    typer.echo(terms(source), err=True)
    if agreed or typer.confirm(f"Download {source.name}?", err=True):
        fetch(source, data_dir)


def _data_text(row: Mapping[str, Any]) -> str:
    """Return a data set as text for people."""
    indent = " " * 10
    lines = [f"{row['name']:<9} {'here' if row['present'] else 'MISSING':<8} {row['title']}"]
    if row["path"]:
        lines.append(f"{indent}{row['path']}")
    for name, verdict in (row["checksums"] or {}).items():
        shown = "none is known" if verdict == "unknown" else verdict
        lines.append(f"{indent}checksum of {name}: {shown}")
    if not row["present"]:
        lines.append(f"{indent}wanted: {' or '.join(row['accepted'])}")
        lines.append(
            f"{indent}in a directory named by --data-dir or FLWR_FBO_DATA, or {row['cache']}"
        )
        how = f"flwr-fbo data {row['name']} --fetch" if row["urls"] else f"see {row['homepage']}"
        lines.append(f"{indent}to get it: {how}")
    lines.append(f"{indent}licence: {row['licence']}")
    if row["tasks"]:
        lines.append(f"{indent}for the tasks {', '.join(row['tasks'])}")
    return "\n".join(lines)


def strategies(
    names: Annotated[
        list[str] | None, typer.Argument(help="Strategies to show with all their settings.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the strategies, or all settings of the named strategies.

    NAMES are names of strategies; without names, each strategy is one line.

    Example: flwr-fbo strategies dp-fts-de
    """
    with user_errors():
        from flwr_fbo.methods.registry import find_method, method_names

        chosen = [find_method(name) for name in names or method_names()]
        if as_json:
            print(json.dumps({method.name: _method_entry(method) for method in chosen}))
        elif names:
            print("\n".join(map(_method_text, chosen)))
        else:
            width = max(len(method.name) for method in chosen)
            for method in chosen:
                print(in_terminal(f"{method.name:<{width}}  {method.summary}", width + 2))
            print("\nflwr-fbo strategies NAME lists the settings of a strategy.")


def _method_entry(method: Method) -> dict[str, Any]:
    """Return a method and its settings as JSON values."""
    settings = [asdict(described) for described in describe(method.settings_class)]
    return {"help": method.summary, "settings": settings}


def _method_text(method: Method) -> str:
    """Return a method and its settings as text for people."""
    lines = [in_terminal(f"{method.name}: {method.summary}", 4)]
    for d in describe(method.settings_class):
        rule = f" {d.rule}" if d.rule else ""
        default = "unset" if d.default is None else d.default
        lines.append(in_terminal(f"    {d.key:<20} {d.help}  [{d.type}{rule}; {default}]", 25))
    return "\n".join(lines)
