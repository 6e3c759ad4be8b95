"""``privacy.json``: what a run guarantees, and how many charges the statement knows of."""

from __future__ import annotations

from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory

NAME = "privacy.json"


def write_statement(directory: RunDirectory, statement: PrivacyStatement, charges: int) -> None:
    """Write the statement of a run, which knows of this number of charges."""
    directory.write_json(NAME, statement.to_dict(), {"charges": charges})


def read_statement(directory: RunDirectory) -> PrivacyStatement:
    """Return the statement of a run; raise RunDirectoryError for one that is out of date.

    The ledger may hold charges that an old copy of the statement does not know of.
    """
    path = directory.root / NAME
    content, known = directory.read_json(NAME), directory.read_names(NAME).get("charges")
    try:
        statement = PrivacyStatement.from_dict(content)
        stated = float(statement.spent or 0.0)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise RunDirectoryError(f"{path} holds no privacy statement: {error!r}") from None
    if isinstance(known, int) and _charges(directory) > known:
        raise RunDirectoryError(
            f"{path} knows of {known} charges, but {directory.ledger.name} holds "
            f"{_charges(directory)}: it is an old copy, or the run was killed at a release. Resume "
            "the run, or read the statement in result.json"
        )
    spent = _spent_by_the_result(directory)
    if spent > stated:
        raise RunDirectoryError(
            f"{path} says that {stated:g} was spent, but result.json says {spent:g}: "
            "it is an old copy. Restore it from a backup, or read the statement in result.json"
        )
    return statement


def _spent_by_the_result(directory: RunDirectory) -> float:
    """Return the epsilon that the result says was spent; 0 without a result that is up to date."""
    if not (directory.root / "result.json").exists():
        return 0.0
    try:
        content = directory.read_json("result.json")
        current = directory.is_current("result.json")
        return float(content["privacy"]["spent"] or 0.0) if current else 0.0
    except (RunDirectoryError, KeyError, TypeError, ValueError, OverflowError):
        return 0.0


def _charges(directory: RunDirectory) -> int:
    """Return how many charges the ledger holds; their hashes are checked by the run itself."""
    try:
        return max(0, directory.ledger.read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0
