"""What the `details` of a Google error say: reasons, quotas and waits.

https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto
"""

from __future__ import annotations

from orchestrator.engine.models.wire import dicts, text_of


def read_details(details: object) -> tuple[list[str], str]:
    """The words that tell the kind of error, and how long to wait (`34s`), empty where nothing is asked."""
    listed = dicts(details)
    quotas = [text_of(quota.get("quotaId")) for item in listed for quota in dicts(item.get("violations"))]
    words = [text_of(item.get("reason")) for item in listed] + quotas
    waits = [text_of(item.get("retryDelay")) for item in listed]
    return [word for word in words if word], next(filter(None, waits), "")
