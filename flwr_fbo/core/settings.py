"""Settings: frozen dataclasses that check themselves, and the one way to read them from text.

A strategy, a task or a run states its settings once, as fields made with :func:`setting`::

    @dataclass(frozen=True)
    class Cooling(Settings):
        rate: float = setting(0.5, "share kept per round", above(0))

Python code constructs the class; run-configs and command lines give a mapping from kebab-case
keys to :meth:`Settings.from_mapping`; documentation is generated from :func:`describe`. Names,
types, defaults, rules and help therefore cannot drift apart.
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
    """The value must be greater than ``low``."""
    return f"> {low:g}", lambda v: v > low


def at_least(low: float) -> Rule:
    """The value must be ``low`` or greater."""
    return f">= {low:g}", lambda v: v >= low


def within(low: float, high: float, *, open_low: bool = False, open_high: bool = False) -> Rule:
    """The value must lie in an interval, closed where not said otherwise."""
    text = f"in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"

    def holds(v: float) -> bool:
        return (low < v if open_low else low <= v) and (v < high if open_high else v <= high)

    return text, holds


def setting(default: T, help: str, rule: Rule | None = None) -> T:
    """A field of a :class:`Settings` class: its default, what it does, and what must hold."""
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
    """Base of all settings. Subclasses are frozen dataclasses whose fields are scalars.

    Allowed types are bool, int, float, str, ``Literal`` of strings, and each of these or None.
    """

    def __post_init__(self) -> None:
        for name, kind in _types(type(self)).items():
            value = _checked(kebab(name), getattr(self, name), kind)
            object.__setattr__(self, name, value)
            self._check_rule(name, value)
        self.check()

    def check(self) -> None:
        """Rules that tie several settings together; subclasses raise SettingsError."""

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
        """Settings from kebab-case keys; text is read as the field's type; ``""`` means unset.

        ``presets`` are values that stand where nothing is given explicitly.
        """
        known = _types(cls)
        values: dict[str, Any] = {}
        for source in (presets or {}, given):
            unknown_keys(source, map(kebab, known))
            for key, raw in source.items():
                if raw == "":
                    continue
                name = key.replace("-", "_")
                values[name] = _read(key, raw, known[name])
        return cls(**values)

    def to_mapping(self) -> dict[str, Scalar]:
        """Every setting that is not None, by kebab-case key: what from_mapping reads back."""
        values = {kebab(name): getattr(self, name) for name in _types(type(self))}
        return {key: value for key, value in values.items() if value is not None}

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The kebab-case keys."""
        return tuple(map(kebab, _types(cls)))


def describe(cls: type[Settings]) -> list[Described]:
    """What a person may set, in order of declaration."""
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


def unknown_keys(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first key that is not known, naming the nearest that is."""
    names = sorted(known)
    for key in given:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; known are {', '.join(names)}"
            raise SettingsError(f"unknown setting `{key}`{hint}")


def kebab(name: str) -> str:
    """``sampling_rate`` as people write it: ``sampling-rate``."""
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
    """The value as the declared type (an int serves as a float, numpy's do too), or an error."""
    for option in _alternatives(kind):
        if option is type(None) and value is None:
            return None
        if get_origin(option) is Literal:
            if value in get_args(option):
                return value
        elif option is float and isinstance(value, Real) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise SettingsError(f"`{key}` must be finite, but got {value!r}")
            return float(value)
        elif option is int and isinstance(value, Integral) and not isinstance(value, bool):
            return int(value)  # also numpy's
        elif option is not type(None) and type(value) is option:
            return value
    raise SettingsError(f"`{key}` must be {_type_name(kind)}, but got {value!r}")


def _read(key: str, raw: Any, kind: Any) -> Any:
    """Text from a command line as the declared type; other values unchanged."""
    if not isinstance(raw, str):
        return raw
    for option in _alternatives(kind):
        if option is bool and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        if option in (int, float):
            try:
                return option(raw)
            except ValueError:
                continue
        if option is str or (get_origin(option) is Literal and raw in get_args(option)):
            return raw
    raise SettingsError(f"`{key}` must be {_type_name(kind)}, but got {raw!r}")
