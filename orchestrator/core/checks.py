"""Validates arguments that a host program passes in, with one-line errors that name the argument.

Each function raises a `ConfigurationError` if the value is not as it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from types import UnionType

    from pydantic import ValidationError


def check_kind(name: str, value: object, kind: type | UnionType, what: str) -> None:
    """Raise an error if a value is not an instance of a type.

    The message omits the value of a text, which may be a key.

    Args:
        kind: the expected type.
        what: the expected type in words, such as `a SessionConfig`.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name} must be {what}, not {_in_words(value)}")


def check_flag(name: str, value: object) -> None:
    """Raise an error if a value is not a `bool`. A text such as `"no"` would count as true."""
    check_kind(name, value, bool, "True or False")


def check_methods(name: str, value: object, methods: tuple[str, ...], what: str) -> None:
    """Raise an error if an object lacks one of these methods, or is a class instead of an instance."""
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing or isinstance(value, type):
        has_not = f"; it has no {missing[0]}()" if missing else ""
        raise ConfigurationError(f"{name} must be {what}, not {_in_words(value)}{has_not}")


def check_callable(name: str, value: object) -> None:
    """Raise an error if a value cannot be called."""
    if not callable(value):
        raise ConfigurationError(f"{name} must be a function, not {_in_words(value)}")


def check_number(name: str, value: object, least: int, *, whole: bool = True) -> None:
    """Raise an error if a value is not a number of at least `least`; if it is `whole`, only an `int` is one."""
    # `not >=` also rejects NaN.
    if not (is_whole(value) or (isinstance(value, float) and not whole)) or not value >= least:
        number = "a whole number of" if whole else "a number,"
        raise ConfigurationError(f"{name} must be {number} {least} or more, not {value!r}")


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an `int` and not a `bool`."""
    return isinstance(value, int) and not isinstance(value, bool)


def _in_words(value: object) -> str:
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def first_problem(error: ValidationError, whole: str = "") -> str:
    """Return the first problem that pydantic found, after its place; `whole` names the place of the outermost value."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or whole
    return f"{where}: {first['msg']}" if where else first["msg"]
