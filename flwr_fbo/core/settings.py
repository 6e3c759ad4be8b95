"""Settings: frozen dataclasses that check themselves, and how they are read from text.

A method, a task or a run declares its settings once, as fields made with :func:`setting`::

    @dataclass(frozen=True)
    class Cooling(Settings):
        rate: float = setting(0.5, "share kept per round", above(0))

Python code constructs the class. Run-configs and command lines call
:meth:`Settings.from_mapping` with kebab-case keys. Documentation is generated from
:func:`describe`. Names, types, defaults, rules and help therefore cannot disagree.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, Self, TypeAlias, TypeVar, Union, get_args, get_origin

T = TypeVar("T")
Scalar: TypeAlias = bool | int | float | str
Rule: TypeAlias = tuple[str, Callable[[Any], bool]]


class SettingsError(ValueError):
    """A setting is unknown or breaks its rule; the message names key, rule and value."""


def above(low: float) -> Rule:
    """Return the rule that a value must be greater than ``low``."""
    return f"> {low:g}", lambda v: v > low


def at_least(low: float) -> Rule:
    """Return the rule that a value must be ``low`` or greater."""
    return f">= {low:g}", lambda v: v >= low


def within(low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> Rule:
    """Return the rule that a value must lie in an interval, closed unless an end is open."""
    text = f"in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"

    def holds(v: float) -> bool:
        return (low < v if open_low else low <= v) and (v < high if open_high else v <= high)

    return text, holds


def setting(default: T, help: str, rule: Rule | None = None) -> T:
    """Return a field of a :class:`Settings` class, with its default, help and rule."""
    return dataclasses.field(default=default, metadata={"help": help, "rule": rule})


@dataclass(frozen=True)
class Described:
    """One setting as documentation and command lines show it."""

    key: str
    type: str
    default: Scalar | None
    rule: str
    help: str


@dataclass(frozen=True)
class Settings:
    """The base class of all settings: subclasses are frozen dataclasses of scalar fields.

    Allowed types are bool, int, float, str, ``Literal`` of strings, and each of these or None.
    """

    def __post_init__(self) -> None:
        for name, kind in _types(type(self)).items():
            value = _checked(kebab(name), getattr(self, name), kind)
            object.__setattr__(self, name, value)
            self._check_rule(name, value)
        self.check()

    def check(self) -> None:
        """Raise SettingsError where several settings contradict each other; for subclasses."""

    def _check_rule(self, name: str, value: Any) -> None:
        rule = _field(type(self), name).metadata.get("rule")
        if rule is None or value is None:
            return
        text, holds = rule
        if not holds(value):
            raise SettingsError(f"`{kebab(name)}` must be {text}, but got {value!r}")

    @classmethod
    def from_mapping(
        cls, given: Mapping[str, Any], presets: Mapping[str, Any] | None = None
    ) -> Self:
        """Return settings from kebab-case keys, with text read as each field's type.

        ``""`` means unset. ``presets`` hold the values of settings that are not given.
        """
        known = _types(cls)
        values: dict[str, Any] = {}
        for source in (presets or {}, given):  # what is given overwrites the presets
            unknown_keys(source, map(kebab, known))
            for key, raw in source.items():
                if raw == "":
                    continue
                name = key.replace("-", "_")
                values[name] = _read(key, raw, known[name])
        return cls(**values)

    def to_mapping(self) -> dict[str, Scalar]:
        """Return all settings that are not None, by kebab-case key; from_mapping reads them."""
        values = {kebab(name): getattr(self, name) for name in _types(type(self))}
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the kebab-case keys, in order of declaration."""
        return tuple(map(kebab, _types(cls)))


def describe(cls: type[Settings]) -> list[Described]:
    """Return a description of every setting, in order of declaration."""
    rows = []
    for name, kind in _types(cls).items():
        meta = _field(cls, name).metadata
        rule = meta.get("rule")
        rows.append(
            Described(
                key=kebab(name),
                type=_type_name(kind),
                default=getattr(cls, name),
                rule=rule[0] if rule else "",
                help=meta.get("help", ""),
            )
        )
    return rows


def unknown_keys(given: Iterable[str], known: Iterable[str], what: str = "setting") -> None:
    """Raise SettingsError for the first unknown key, naming the nearest known key."""
    names = sorted(known)
    for key in given:
        if key not in names:
            in_small = {name.lower(): name for name in names}
            near = difflib.get_close_matches(str(key).lower(), in_small, n=1)
            hint = f"; known are {', '.join(names)}"
            hint = f"; did you mean `{in_small[near[0]]}`?" if near else hint
            raise SettingsError(f"unknown {what} `{key}`{hint}")


def kebab(name: str) -> str:
    """Return a field's name as the key of a setting: ``sampling-rate`` for sampling_rate."""
    return name.replace("_", "-")


def _field(cls: type[Settings], name: str) -> dataclasses.Field[Any]:
    return cls.__dataclass_fields__[name]


_known_types: dict[type[Settings], dict[str, Any]] = {}


def _types(cls: type[Settings]) -> dict[str, Any]:
    if cls not in _known_types:  # resolving annotations is slow, and agents do it every round
        hints = typing.get_type_hints(cls)
        _known_types[cls] = {f.name: hints[f.name] for f in dataclasses.fields(cls)}
    return _known_types[cls]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _type_name(kind: Any) -> str:
    names: list[str] = []
    for option in _alternatives(kind):
        if get_origin(option) is Literal:
            names.extend(map(str, get_args(option)))
        elif option is not type(None):
            names.append(option.__name__)
    return " | ".join(names)


def _checked(key: str, value: Any, kind: Any) -> Any:
    """Return the value as the declared type, or raise SettingsError.

    An int is accepted as a float, and numpy's numbers are accepted as Python's.
    """
    # bool is a subclass of int, and must be accepted only where it is declared.
    for option in _alternatives(kind):
        if option is type(None) and value is None:
            return None
        if get_origin(option) is Literal:
            if value in get_args(option):
                return value
        elif option is float and isinstance(value, Real) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:  # an int that no float can hold
                raise SettingsError(f"`{key}` must be at most 1e308 in size") from None
            if not math.isfinite(number):
                raise SettingsError(f"`{key}` must be finite, but got {value!r}")
            return number
        elif option is int and isinstance(value, Integral) and not isinstance(value, bool):
            return int(value)  # also numpy's
        elif option is not type(None) and type(value) is option:
            return value
    raise SettingsError(f"`{key}` must be {_type_name(kind)}, but got {value!r}")


def _read(key: str, raw: Any, kind: Any) -> Any:
    """Return text from a command line as the declared type, and other values unchanged."""
    if not isinstance(raw, str):
        return raw
    for option in _alternatives(kind):
        if option is bool and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        if option in (int, float):
            try:
                return option(raw)
            except ValueError:
                continue  # another alternative may fit, such as a Literal
        if option is str or (get_origin(option) is Literal and raw in get_args(option)):
            return raw
    raise SettingsError(f"`{key}` must be {_type_name(kind)}, but got {raw!r}")
