"""The options of a run: what there is, where each comes from, and which keys the environment holds."""

from orchestrator.config.keys import ApiKeys, secret_values
from orchestrator.config.settings import Settings
from orchestrator.config.sources import Kind, Loaded, Origin, key_refusal, load, may_send_key

__all__ = [
    "ApiKeys",
    "Kind",
    "Loaded",
    "Origin",
    "Settings",
    "key_refusal",
    "load",
    "may_send_key",
    "secret_values",
]
