"""Which profiles there are, and how one is made by its name.

A profile is a prompt, `prompts/profiles/NAME.md`, with the planner's tools. Where it has others, a module NAME beside
this one makes it, by a function of that name that takes the arguments of `planner`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from orchestrator.core.prompts import prompts_folder
from orchestrator.engine import tools
from orchestrator.engine.profiles.planner import planner

if TYPE_CHECKING:
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.tools.base import Tool


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
    modules = [
        import_module(f"{tools.__name__}.{module.name}") for module in pkgutil.iter_modules(tools.__path__)
    ]
    return tuple(
        getattr(module, module.__name__.rpartition(".")[2])()
        for module in modules
        if profile in getattr(module, "PROFILES", ())
    )
