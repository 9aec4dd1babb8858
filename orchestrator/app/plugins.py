"""The table of plug-ins: optional features, each whole in its own folder, and what they add to the program.

A plug-in is a package whose module `plugin` defines `PLUGIN`. The program's own are the folders of
`orchestrator/plugins`; the others are named by `plugins` in the person's own config.toml. What a plug-in adds is
named by text, `.module:attribute` below its package, and imported when it is used.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
    from pathlib import Path

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugins")  # noqa: PTH100, PTH118, PTH120  pathlib takes long to load
"""The folder of the program's own plug-ins."""
_PACKAGE = "orchestrator.plugins"

HOMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "acp": ("acp",),
        "agents": ("--agent",),
        "backtest": ("backtest",),
        "chat": ("ask", "chat"),
        "containers": (),
        "dashboard": ("dashboard",),
        "digest": ("digest",),
        "fleet": ("fleet",),
        "github": ("--github-url", "--github-app-id"),
        "mcp": ("mcp", "--mcp-config", "--mcp-unconfined", "[mcp]"),
        "memory": (
            *("memory", "/memory", "--memory", "--repository-memory"),
            *("--embedding-api-url", "--embedding-dimension", "--embedding-model"),
        ),
        "onboarding": ("init",),
        "redteam": ("redteam",),
        "skills": ("/skill", "--skill", "--disable-skills", "--skill-bytes"),
        "tracing": (),
        "verify_pr": ("--require-evidence", "verify-pr"),
        "web": ("--web",),
        "worker": ("worker",),
    }
)
"""The commands, options, commands of a conversation (`/NAME`) and `[tables]` of the program's own plug-ins, by plug-in.

So a message can name the plug-in that is not there."""


WANTED_BY: Mapping[str, tuple[str, ...]] = MappingProxyType({"assistant": ("memory",)})
"""The program's own plug-ins whose tools a profile is made for, by profile."""


class Point(StrEnum):
    """The places where the program asks the plug-ins. Each says what it gets."""

    ATTACKS = "attacks"
    """A `Path`: the folder of the attacks on the plug-in, which `redteam` plays. Its README says how they are written."""
    FORGE = "forge"
    """The servers of one kind of forge: an `orchestrator.app.wiring.repository.Servers`, asked which repository a
    `--repo` value names that is no folder. The plug-ins that a person added are asked first."""
    FORGE_PROBES = "forge probes"
    """A function `(place, site, context, writes) -> orchestrator.app.doctor.findings.ForgeProbes | None`: what `doctor`
    looks at on the repository's server (`orchestrator.app.wiring.repository.OnServer`); None if it is another plug-in's.
    `writes` is whether requests may be sent that the server refuses for their content."""
    MEMORY = "memory"
    """A function `(context, repository, here) -> orchestrator.app.wiring.memory.SessionMemory`, called once when a run
    or a conversation is built. `repository` is the label of the repository, or empty; `here` is the `OnDisk` folder of
    a person's conversation about no named repository, else None. It may raise `ConfigurationError`."""
    OBSERVERS = "observers"
    """A function `(environ, clock, tell) -> orchestrator.app.wiring.Observer | None`, called once at the start of a
    program that works. `tell` shows a person one line. It raises nothing: what cannot work is told, and is None."""
    PROBES = "probes"
    """A function of a `BuildContext` that returns what `doctor` looks at, as `orchestrator.app.doctor.findings.Group`s."""
    PROFILE = "profile"
    """A function of a run's or a conversation's `Settings` that returns what completes the profile of its sessions, as an
    `orchestrator.bot.cycle.parts.CompleteProfile`; None if it adds nothing. It may raise `ConfigurationError`."""
    READABLE = "readable"
    """A function of `Settings` that returns the paths that commands in a sandbox may read too."""
    SANDBOX = "sandbox"
    """A function of the value of `--sandbox` and a `SandboxOptions` that returns the sandbox which the value names; None
    if it is not the plug-in's. It may raise `SandboxMissingError` and `ConfigurationError`."""
    WORKER = "worker"
    """A function of a run's `BuildContext` and `ChosenModel` that returns what works in place of the model's loop, as a
    `MakeWorker`; None if the settings name nothing of it."""
    TOOLS = "tools"
    """A function of a `BuildContext`, called once when a run or a conversation is built. It returns a function that
    makes the tools of a session from the name of its profile (`orchestrator.engine.tools.base.Tool`), or None for no
    tools. It may raise `ConfigurationError`. A tool says itself whether it is dangerous, and takes the place of a
    profile's own tool of the same name."""
    FOREIGN_TOOLS = "foreign tools"
    """A function `(context, person) -> orchestrator.app.wiring.foreign_tools.ForeignSource | None`, called once when a
    run or a conversation is built. It gives the tools that other programs run, which start and end with a session; None
    if the settings name none. `person` shows their pages and questions to a person
    (`orchestrator.plugins.mcp.elicitation.PersonAtTerminal`); it is None if nobody is there. It may raise
    `ConfigurationError`."""
    SLASH_COMMANDS = "slash commands"
    """A sequence of `SlashCommand`, for conversations (`chat`)."""


class SlashCommand(NamedTuple):
    """A command of a conversation.

    Attributes:
        name: with its `/`.
        arguments: what may follow, for the help.
        text: the description in one line.
        run: runs the command. It takes the conversation, `orchestrator.plugins.chat.slash.Chat`, and what follows
            the name. It may raise each `PullwrightError`, whose text the person sees.
    """

    name: str
    arguments: str
    text: str
    run: Callable[[Any, str], Awaitable[None]]


class CommandEntry(NamedTuple):
    """A command of the program.

    Attributes:
        text: the description in one line.
        group: the group of the help page: "start", "watch", "steer" or "check".
        add_flags: adds the command's flags to its parser.
        run: the function that runs the command, as `module:function`. It takes the parsed arguments, and returns the
            exit status. A module that begins with a dot is below the plug-in's package.
        has_many_flags: whether the flags are too many for a usage line.
        examples: examples for the help, without the program's name.
        lists_actions: whether the command prints its help if nothing else is typed.
    """

    text: str
    group: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: str
    has_many_flags: bool = False
    examples: tuple[str, ...] = ()
    lists_actions: bool = False


class Plugin(NamedTuple):
    """What a plug-in adds, as values.

    Attributes:
        name: the name of its folder.
        text: what it is for, in one line.
        options: the class of its options, in the form of `orchestrator.app.options.Options`, as `.module:Class`.
        tables: the tables of the person's own config.toml that it reads itself.
        adds: what it gives at each place that asks, as `.module:attribute`.
        needs: the other plug-ins without which it does not work.
        uses: the other plug-ins that it imports where they are there.
        extra: the extra of the distribution that its libraries come with.
    """

    name: str
    text: str
    commands: Mapping[str, CommandEntry] = MappingProxyType({})
    options: str = ""
    tables: tuple[str, ...] = ()
    adds: Mapping[Point, str] = MappingProxyType({})
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    extra: str = ""


class InstalledPlugin(NamedTuple):
    """A plug-in with the package that it was found in."""

    plugin: Plugin
    package: str
    folder: str

    def load(self, reference: str) -> Any:
        """Import what a reference names."""
        return load(self.absolute(reference))

    def absolute(self, reference: str) -> str:
        """Return a reference with the package that it is below."""
        return f"{self.package}{reference}" if reference.startswith(".") else reference

    def lines(self) -> int:
        """Return the number of lines of its Python files."""
        from pathlib import Path

        return sum(file.read_bytes().count(b"\n") for file in Path(self.folder).rglob("*.py"))


def load(reference: str) -> Any:
    """Import what an absolute reference names, `module:attribute`."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def installed() -> dict[str, InstalledPlugin]:
    """Return the plug-ins by name: the program's own, then those that were added."""
    return {name: _own(name) for name in own_names()}


@functools.cache
def own_names() -> tuple[str, ...]:
    """Return the names of the program's own plug-ins that are there, sorted."""
    try:
        names = os.listdir(FOLDER)  # noqa: PTH208  pathlib takes long to load
    except FileNotFoundError:
        return ()
    return tuple(sorted(name for name in names if os.access(f"{FOLDER}/{name}/plugin.py", os.R_OK)))


def _own(name: str) -> InstalledPlugin:
    package = f"{_PACKAGE}.{name}"
    return InstalledPlugin(importlib.import_module(f"{package}.plugin").PLUGIN, package, f"{FOLDER}/{name}")


def added(point: Point) -> Iterator[Any]:
    """Return what the plug-ins give at a place, in the order of their names. It is imported only now."""
    for one in installed().values():
        if point in one.plugin.adds:
            yield one.load(one.plugin.adds[point])


def absence_of(name: str) -> str:
    """Return what to say about a command, option or `[table]` of a plug-in that is not there; empty if it is none's."""
    home = next((home for home, names in HOMES.items() if name in names), None)
    return "" if home is None or home in own_names() else absence_words(name, home)


def absence_words(what: str, home: str) -> str:
    """Return what to say about what belongs to a plug-in that is not there."""
    return f"{what} belongs to the plug-in {home}, whose folder orchestrator/plugins/{home} is not there"


def lacks_of(profile: str) -> list[str]:
    """Return what to say about the plug-ins whose tools a profile is made for and that are not there, a line each."""
    return [
        f"the profile {profile} works without the plug-in {name}, whose folder orchestrator/plugins/{name} is not there"
        for name in WANTED_BY.get(profile, ())
        if name not in own_names()
    ]


# Plug-ins of other people.


def add_plugins(places: Collection[str], named_by: Path) -> None:
    """Add plug-ins that are not the program's own, before the options are read.

    Args:
        places: for each, the path of its folder, or the name of a package that can be imported.
        named_by: the file that names them, for messages.

    Raises:
        ConfigurationError: one cannot be loaded, needs another that is not there, or has the name or a command of
            another plug-in.
    """
    for place in places:
        try:
            one = _from_folder(place) if os.sep in place else _from_package(place)
        except Exception as error:
            raise ConfigurationError(
                f"the plug-in {place} cannot be loaded ({type(error).__name__}: {error}): mend it, or remove it "
                f"from plugins in {named_by}"
            ) from error
        _check(one, place, named_by)
        installed()[one.plugin.name] = one


def _from_folder(place: str) -> InstalledPlugin:
    """Load a plug-in from its folder, as a package of its own name."""
    import importlib.machinery
    import importlib.util
    from pathlib import Path

    folder = Path(place).expanduser().resolve()
    package = f"pullwright_plugin_{folder.name}"
    if package not in sys.modules:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is no folder")
        start = folder / "__init__.py"
        if start.is_file():
            spec = importlib.util.spec_from_file_location(
                package, start, submodule_search_locations=[str(folder)]
            )
        else:
            spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
            spec.submodule_search_locations = [str(folder)]
        if spec is None:
            raise ImportError(f"{start} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        if spec.loader is not None:
            spec.loader.exec_module(module)
    return InstalledPlugin(_checked(importlib.import_module(f"{package}.plugin")), package, str(folder))


def _from_package(package: str) -> InstalledPlugin:
    module = importlib.import_module(f"{package}.plugin")
    return InstalledPlugin(_checked(module), package, (module.__file__ or "").rpartition("/")[0])


def _checked(module: Any) -> Plugin:
    if not isinstance(module.PLUGIN, Plugin):
        raise TypeError("PLUGIN is no orchestrator.app.plugins.Plugin")
    return module.PLUGIN


def _check(new: InstalledPlugin, place: str, named_by: Path) -> None:
    """Refuse a plug-in that takes a name which another has, or needs one that is not there."""
    for name, present in installed().items():
        if present.package == new.package:
            continue
        taken = {name, *present.plugin.commands} & {new.plugin.name, *new.plugin.commands}
        if taken:
            raise ConfigurationError(
                f"the plug-in {place} in {named_by} has the name {min(taken)}, which the plug-in {name} has too"
            )
    if missing := [name for name in new.plugin.needs if name not in installed()]:
        raise ConfigurationError(f"the plug-in {place} in {named_by} needs the plug-in {missing[0]}")
