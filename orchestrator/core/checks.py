"""Refuses what a host program passes in and what cannot work, in one line that names the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from types import UnionType


def check_kind(name: str, value: object, kind: type | UnionType, what: str) -> None:
    """Refuse a value of another kind.

    Args:
        kind: what it must be an instance of.
        what: the same in words, such as `a SessionConfig`.

    Raises:
        ConfigurationError: it is of another kind. Texts are not repeated: one may be a key.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name} must be {what}, not {_in_words(value)}")


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False: a text such as `"no"` would count as a yes.

    Raises:
        ConfigurationError: it is neither.
    """
    check_kind(name, value, bool, "True or False")


def check_methods(name: str, value: object, methods: tuple[str, ...], what: str) -> None:
    """Refuse an object without one of these methods, and a class in place of its object.

    Raises:
        ConfigurationError: one is missing.
    """
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing or isinstance(value, type):
        has_not = f"; it has no {missing[0]}()" if missing else ""
        raise ConfigurationError(f"{name} must be {what}, not {_in_words(value)}{has_not}")


def check_callable(name: str, value: object) -> None:
    """Refuse what cannot be called.

    Raises:
        ConfigurationError: it cannot.
    """
    if not callable(value):
        raise ConfigurationError(f"{name} must be a function, not {_in_words(value)}")


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _in_words(value: object) -> str:
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
