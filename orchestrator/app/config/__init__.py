"""The configuration of a run: the settings, the origin of each value, and the keys in the environment.

This module has the place of the person's own file, for commands that load no settings. What a person wrote and cannot
be used raises a `ConfigurationError`, in one line that names the place: a file that cannot be read, is over 1,000,000
bytes or not in its form, an unknown key, a value that is not allowed.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST_BYTES = 1_000_000
CONFIG_VARIABLE = "PULLWRIGHT_CONFIG"
PLUGINS = "plugins"
"""The list of other people's plug-ins in the person's own file."""


def user_file(environ: Mapping[str, str]) -> Path:
    """Return the person's file: `PULLWRIGHT_CONFIG`, or `config.toml` in the platform's config folder."""
    from pathlib import Path

    return Path(_user_file(environ))


def _user_file(environ: Mapping[str, str]) -> str:
    named = environ.get(CONFIG_VARIABLE)
    return os.path.expanduser(named) if named else f"{_user_folder(environ)}/config.toml"  # noqa: PTH111  pathlib takes long to load


def user_folder(environ: Mapping[str, str]) -> Path:
    """Return the platform's folder for the person's configuration, as `platformdirs` has it."""
    from pathlib import Path

    return Path(_user_folder(environ))


def _user_folder(environ: Mapping[str, str]) -> str:
    if sys.platform == "darwin":
        parent = os.path.expanduser("~/Library/Application Support")  # noqa: PTH111  pathlib takes long to load
    else:
        parent = environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")  # noqa: PTH111  the same
    return f"{parent}/pullwright"


def add_named_plugins(environ: Mapping[str, str]) -> None:
    """Add the plug-ins that the person's own file names, before the options are read.

    A file that cannot be read is left to those who need it: they say what is wrong with it.
    """
    path = _user_file(environ)
    try:
        status = os.stat(path)  # noqa: PTH116  pathlib takes long to load
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
            return
        with open(path, "rb") as file:  # noqa: PTH123  the same
            content = file.read()
    except OSError:
        return
    if PLUGINS.encode() not in content:
        return
    import tomllib

    from orchestrator.app.plugins import add_plugins
    from orchestrator.core.errors import ConfigurationError

    named_by = user_file(environ)
    try:
        places = tomllib.loads(content.decode("utf-8-sig")).get(PLUGINS, [])
    except ValueError:
        return
    if not isinstance(places, list) or not all(isinstance(place, str) and place.strip() for place in places):
        raise ConfigurationError(
            f'{PLUGINS} in {named_by} must be a list of folders, such as "/home/me/weather", or names of packages'
        )
    add_plugins(places, named_by)
