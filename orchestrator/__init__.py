"""Pullwright: takes a task from a backlog, changes the repository, and opens a pull request.

Its agent loop is a library::

    from orchestrator import LocalEnvironment, Session, anthropic_profile

    session = Session(profile=anthropic_profile(model="claude-sonnet-4-5"), environment=LocalEnvironment("."))
    async for event in session.submit("Fix the failing test in tests/test_api.py"):
        print(event.kind)
    await session.close()

Every argument is checked: an unknown keyword raises `TypeError`, and an invalid value raises
`ConfigurationError` with one line that names the argument. A name's module is imported when the name is first
used, so that `import` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.core.errors import ConfigurationError, PullwrightError
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.core.version import __version__
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.environments.commands import EnvPolicy
    from orchestrator.engine.environments.local import LocalEnvironment
    from orchestrator.engine.environments.wrappers import LoggingEnvironment, ReadOnlyEnvironment
    from orchestrator.engine.profiles.library import (
        anthropic_profile,
        assistant_profile,
        explorer_profile,
        gemini_profile,
        minimal_profile,
        openai_profile,
    )
    from orchestrator.engine.session.config import CompactionPolicy, Host, SessionConfig
    from orchestrator.engine.session.event_bus import EventKind, SessionEvent
    from orchestrator.engine.session.gate import safe_mode
    from orchestrator.engine.session.session import Session
    from orchestrator.engine.tools.base import Ends, Failed, Ok, Tool, ToolContext
    from orchestrator.plugins.web.client import HttpWeb as HttpWeb

_MODULES = {
    "Session": "engine.session.session",
    "SessionConfig": "engine.session.config",
    "CompactionPolicy": "engine.session.config",
    "Host": "engine.session.config",
    "safe_mode": "engine.session.gate",
    "openai_profile": "engine.profiles.library",
    "anthropic_profile": "engine.profiles.library",
    "gemini_profile": "engine.profiles.library",
    "minimal_profile": "engine.profiles.library",
    "assistant_profile": "engine.profiles.library",
    "explorer_profile": "engine.profiles.library",
    "SessionEvent": "engine.session.event_bus",
    "EventKind": "engine.session.event_bus",
    "EnvPolicy": "engine.environments.commands",
    "ExecutionEnvironment": "engine.environments.base",
    "LocalEnvironment": "engine.environments.local",
    "LoggingEnvironment": "engine.environments.wrappers",
    "ReadOnlyEnvironment": "engine.environments.wrappers",
    "Tool": "engine.tools.base",
    "ToolContext": "engine.tools.base",
    "Ok": "engine.tools.base",
    "ToolDefinition": "core.messages",
    "ConfigurationError": "core.errors",
    "PullwrightError": "core.errors",
    "__version__": "core.version",
    "Failed": "engine.tools.base",
    "Ends": "engine.tools.base",
    "HttpWeb": "plugins.web.client",
}

__all__ = [
    "CompactionPolicy",
    "ConfigurationError",
    "Ends",
    "EnvPolicy",
    "EventKind",
    "ExecutionEnvironment",
    "Failed",
    "Host",
    "LocalEnvironment",
    "LoggingEnvironment",
    "Ok",
    "PullwrightError",
    "ReadOnlyEnvironment",
    "Session",
    "SessionConfig",
    "SessionEvent",
    "Tool",
    "ToolContext",
    "ToolDefinition",
    "__version__",
    "anthropic_profile",
    "assistant_profile",
    "explorer_profile",
    "gemini_profile",
    "minimal_profile",
    "openai_profile",
    "safe_mode",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if not TYPE_CHECKING:  # type checkers use the imports above, and report misspelt names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = f"{__name__}.{_MODULES[name]}"
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            area, plugin, _ = _MODULES[name].split(".", 2)
            if area != "plugins" or not module.startswith(f"{error.name}."):
                raise
            raise ImportError(
                f"{name} belongs to the plug-in {plugin}, whose folder orchestrator/plugins/{plugin} is not there",
                name=name,
            ) from None
