"""How a setting is declared, parsed, formatted and documented.

A group of settings is a frozen dataclass, and a setting is one of its fields, declared once:

    segment_bytes: int = setting("segment.bytes", INT, 1 << 30, at_least(14), doc="...")

The name with dots is what users write, the attribute is what code reads. Text is parsed once, at
the edge; `check` in `__post_init__` refuses an impossible value however the object came about.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from siltstone.errors import ConfigError, UnknownSettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
C = TypeVar("C", bound="DataclassInstance")

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

_METADATA_KEY: Final = "setting"

# Python would also take underscores, other scripts' digits and the word "infinity".
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type of setting, between text and value."""

    name: str  # as Kafka calls it
    allowed: str  # completes "must be ..."
    parse: Callable[[str], T]  # raises ValueError
    format: Callable[[T], str]


@dataclass(frozen=True, slots=True)
class Bound(Generic[T_contra]):
    """Which values of its kind a setting takes."""

    allowed: str  # completes "must be ..."
    admits: Callable[[T_contra], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T]):
    """One setting: what it is called, what it takes, what it is for."""

    name: str
    attribute: str
    kind: Kind[T]
    default: T
    bound: Bound[T] | None
    doc: str
    synonyms: tuple[str, ...]
    """Broker settings that give the default for all topics, the strongest first."""

    @property
    def allowed(self) -> str:
        """What the setting takes, as the end of "must be ..."."""
        if self.bound is None:
            return self.kind.allowed
        return f"{self.kind.allowed}, {self.bound.allowed}"

    def parse(self, text: str) -> T:
        """Parse and check a value as a user writes it."""
        try:
            value = self.kind.parse(text.strip())
        except ValueError:
            raise ConfigError(self.name, text, f"must be {self.allowed}") from None
        self.check(value)
        return value

    def check(self, value: T) -> None:
        """Raise ConfigError if the value is out of bounds."""
        if self.bound is not None and not self.bound.admits(value):
            raise ConfigError(self.name, self.kind.format(value), f"must be {self.bound.allowed}")

    def format(self, value: T) -> str:
        """Write a value so that `parse` gives it back."""
        return self.kind.format(value)


def setting(
    name: str,
    kind: Kind[T],
    default: T,
    bound: Bound[T] | None = None,
    *,
    doc: str,
    synonyms: tuple[str, ...] = (),
) -> T:
    """Declare a field of a dataclass as a setting."""
    declared = Setting(
        name=name,
        attribute=name.replace(".", "_"),
        kind=kind,
        default=default,
        bound=bound,
        doc=doc,
        synonyms=synonyms,
    )
    # Typed as the value, like dataclasses.field itself: the dataclass turns it into one.
    return dataclasses.field(default=default, metadata={_METADATA_KEY: declared})


def settings_of(config_type: "type[DataclassInstance]") -> Mapping[str, Setting[Any]]:
    """Return the settings that a dataclass declares, by name, in order of declaration."""
    return {
        declared.name: declared
        for field in dataclasses.fields(config_type)
        if (declared := field.metadata.get(_METADATA_KEY)) is not None
    }


def check_settings(config: "DataclassInstance") -> None:
    """Raise ConfigError for the first value out of bounds."""
    for declared in settings_of(type(config)).values():
        declared.check(getattr(config, declared.attribute))


def parse_settings(defaults: C, overrides: Mapping[str, str]) -> C:
    """Return `defaults` with the overrides, which carry the names and values that users write."""
    known = settings_of(type(defaults))
    changes = {}
    for name, text in overrides.items():
        declared = known.get(name)
        if declared is None:
            raise UnknownSettingError(name, known)
        changes[declared.attribute] = declared.parse(text)
    return dataclasses.replace(defaults, **changes) if changes else defaults


def format_settings(config: "DataclassInstance") -> dict[str, str]:
    """Return every setting as text, so that `parse_settings` gives back an equal object."""
    return {
        name: declared.format(getattr(config, declared.attribute))
        for name, declared in settings_of(type(config)).items()
    }


def markdown_table(settings: Iterable[Setting[Any]]) -> str:
    """Describe settings as a table for the documentation."""
    lines = [
        "| name | type | default | allowed | broker setting | what it does |",
        "|---|---|---|---|---|---|",
    ]
    for declared in settings:
        default = declared.format(declared.default)
        cells = (
            f"`{declared.name}`",
            declared.kind.name,
            f"`{default}`" if default else "",
            (declared.bound or declared.kind).allowed,
            ", ".join(f"`{synonym}`" for synonym in declared.synonyms),
            declared.doc,
        )
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def at_least(minimum: float) -> Bound[float]:
    """Admit `minimum` and everything above."""
    return Bound(f"at least {minimum}", lambda value: value >= minimum)


def between(minimum: float, maximum: float) -> Bound[float]:
    """Admit everything from `minimum` to `maximum`, both included."""
    return Bound(f"{minimum} to {maximum}", lambda value: minimum <= value <= maximum)


def choice(options: Mapping[str, T]) -> Kind[T]:
    """One of a few words, each of which stands for a value."""
    words = {value: word for word, value in options.items()}

    def parse(text: str) -> T:
        if text not in options:
            raise ValueError(text)
        return options[text]

    return Kind("string", f"one of {', '.join(options)}", parse, words.__getitem__)


def list_of(options: Mapping[str, T]) -> Kind[frozenset[T]]:
    """Any number of a few words, with commas between; no word means the empty set."""
    words = {value: word for word, value in options.items()}

    def parse(text: str) -> frozenset[T]:
        found = [word.strip() for word in text.split(",")] if text else []
        if len(set(found)) != len(found) or not set(found) <= options.keys():
            raise ValueError(text)
        return frozenset(options[word] for word in found)

    def format_sorted(values: frozenset[T]) -> str:
        return ",".join(sorted(words[value] for value in values))

    allowed = f"a list of {', '.join(options)}, with commas, each at most once"
    return Kind("list", allowed, parse, format_sorted)


def _parse_whole_number(text: str, limit: int) -> int:
    if _WHOLE_NUMBER.fullmatch(text) is None or not -limit - 1 <= (number := int(text)) <= limit:
        raise ValueError(text)
    return number


def _parse_number(text: str) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _parse_boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError(text)


INT: Final[Kind[int]] = Kind(
    "int", "a 32-bit integer", lambda text: _parse_whole_number(text, MAX_INT), str
)
LONG: Final[Kind[int]] = Kind(
    "long", "a 64-bit integer", lambda text: _parse_whole_number(text, MAX_LONG), str
)
DOUBLE: Final[Kind[float]] = Kind("double", "a number", _parse_number, repr)
BOOLEAN: Final[Kind[bool]] = Kind(
    "boolean", "true or false", _parse_boolean, lambda value: "true" if value else "false"
)
