"""Which profiles there are, and how one is made by its name.

A profile is a prompt, `prompts/profiles/NAME.md`, with the planner's tools. Where it has others, a module NAME beside
this one makes it, by a function of that name that takes the arguments of `planner`.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.prompts import prompts_folder
from orchestrator.engine import tools
from orchestrator.engine.profiles.planner import planner

if TYPE_CHECKING:
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.tools.base import Tool

_HAS_PROFILES = re.compile(r"^PROFILES\b", re.MULTILINE)


def profile_names() -> tuple[str, ...]:
    """The names of all profiles."""
    return tuple(sorted(path.stem for path in (prompts_folder() / "profiles").glob("*.md")))


def make_profile(
    name: str, *, web: tuple[Tool, ...] = (), custom: tuple[Tool, ...] = (), dangerous: bool
) -> Profile:
    """Make a profile, one of `profile_names()`, with the tools that name it in their own files.

    Args:
        name: the profile's name.
        web: the web tools as this profile names them; none if the session has no web.
        custom: tools of the host, after the others; of two with one name the host's is taken.
        dangerous: whether the model is shown dangerous tools.
    """
    more = (*web, *_added_tools(name))
    if find_spec(f"{__package__}.{name}") is None:
        return planner(web=more, custom=custom, dangerous=dangerous, name=name)
    make = getattr(import_module(f"{__package__}.{name}"), name)
    made: Profile = make(web=more, custom=custom, dangerous=dangerous)
    return made


def _added_tools(profile: str) -> tuple[Tool, ...]:
    """The tools of all modules in `tools` whose `PROFILES` name this profile, in the order of the modules' names.

    Such a module is called like its tool, and has a function of that name that makes it.
    """
    modules = {name: import_module(f"{tools.__name__}.{name}") for name in _naming_profiles()}
    return tuple(getattr(module, name)() for name, module in modules.items() if profile in module.PROFILES)


@cache
def _naming_profiles() -> tuple[str, ...]:
    """The modules in `tools` that have `PROFILES`, by their text: to import all of them would slow each start."""
    paths = sorted(path for folder in tools.__path__ for path in Path(folder).glob("*.py"))
    return tuple(path.stem for path in paths if _HAS_PROFILES.search(path.read_text("utf-8")))
