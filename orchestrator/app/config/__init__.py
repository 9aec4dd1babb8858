"""The configuration of a run: the settings, the origin of each value, and the keys in the environment."""

from orchestrator.app.config.keys import ApiKeys, secret_values
from orchestrator.app.config.settings import (
    LOCAL_FILE,
    Loaded,
    Origin,
    Settings,
    SourceKind,
    load_settings,
    tightened,
)

__all__ = [
    "LOCAL_FILE",
    "ApiKeys",
    "Loaded",
    "Origin",
    "Settings",
    "SourceKind",
    "load_settings",
    "secret_values",
    "tightened",
]
