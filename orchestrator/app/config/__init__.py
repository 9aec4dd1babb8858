"""The options of a run: what there is, where each comes from, and which keys the environment holds."""

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
