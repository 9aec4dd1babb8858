"""The defences of the program by name, and the event by which each says that it did something."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Defence(StrEnum):
    """What stands between other people's words, a model, and the outside."""

    ADMISSION = "admission"
    """Who may cause work, asked from the forge's permission interface."""
    HIDDEN_TEXT = "hidden-text"
    """What a person would not see is not shown to the model either."""
    MARKERS = "markers"
    """Other people's words stand between markers that they cannot close."""
    INSTRUCTIONS = "instructions"
    """A repository's instructions and settings count from the default branch, and only tighten."""
    LEVEL = "level"
    """What the permission level does not grant does not run."""
    COMMANDS = "commands"
    """Commands are parsed; what no rule grants, or what is never granted, does not run."""
    SANDBOX = "sandbox"
    """Commands see the clone and the programs, nothing else, and change only the clone."""
    NETWORK = "network"
    """Commands reach named hosts only; web tools reach public addresses only."""
    PATHS = "paths"
    """Tools stay inside the clone, outside every `.git`, and follow no link."""
    HOST_GIT = "host-git"
    """Git of the host runs nothing that the clone or the model configured."""
    SECRETS = "secrets"
    """Known values and what looks like a credential do not leave."""
    WORDING = "wording"
    """Titles, bodies and comments notify, command and load nothing."""
    PROTECTED_PATHS = "protected-paths"
    """Changes to files that steer machines and agents wait for a person."""
    CHANGE_SIZE = "change-size"
    """A change has at most so many files, lines and bytes."""
    TEST_INTEGRITY = "test-integrity"
    """The host runs the tests as they were; tests that are gone or skipped are named."""
    LIMITS = "limits"
    """Rounds, tokens, money and minutes have an end."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A defence stopped or changed something.

    Attributes:
        message: one line: what was stopped, and what would allow it if anything.
        details: places and texts, one line each; may be empty.
    """

    defence: Defence
    message: str
    details: tuple[str, ...] = ()
