"""A server of Git LFS: the batch API beside a git server, and a storage on a host of its own.

The protocol: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md and its page of basic transfers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.loopback import Loopback, LoopbackHandler

MEDIA_TYPE = "application/vnd.git-lfs+json"
GRANT = "grant-" + "4f" * 12
_MEMBERS = {"operation", "transfers", "ref", "objects", "hash_algo"}


@dataclass
class LfsStore:
    """What the batch API is told and what it saw.

    Attributes:
        storage: the address of the storage.
        objects: contents by their id.
        status: answer each batch request with this status and `says`.
        errors: answer with this error about an object, by its id: code and message.
        redirects: answer with a redirect to these addresses, one after another.
        changes: is given each reply of the batch API, and may change it.
        batches: the bodies of the batch requests.
        shown: the header fields of every request, with its method and path.
    """

    storage: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    says: str = ""
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)
    redirects: list[str] = field(default_factory=list)
    changes: Any = None
    verifies: bool = True
    batches: list[dict[str, Any]] = field(default_factory=list)
    shown: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def batch(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Answer a batch request."""
        self.shown.append((f"POST {path}", headers))
        if self.redirects:
            return 307, {"Location": self.redirects.pop(0)}, b""
        asked = json.loads(body)
        problem = _problem(headers, asked)
        if problem or self.status != 200:
            status = 422 if problem else self.status
            return (
                status,
                {"Content-Type": MEDIA_TYPE},
                json.dumps({"message": problem or self.says}).encode(),
            )
        self.batches.append(asked)
        reply: Any = {"transfer": "basic", "objects": [self._object(one, asked) for one in asked["objects"]]}
        if self.changes is not None:
            reply = self.changes(reply)
        content = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        return 200, {"Content-Type": MEDIA_TYPE}, content

    def _object(self, one: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        oid = one["oid"]
        told = {"oid": oid, "size": one["size"]}
        if oid in self.errors:
            code, message = self.errors[oid]
            return {**told, "error": {"code": code, "message": message}}
        header = {"X-Storage-Grant": GRANT}
        if asked["operation"] == "download":
            if oid not in self.objects:
                return {**told, "error": {"code": 404, "message": "Object does not exist"}}
            return {**told, "actions": {"download": {"href": f"{self.storage}/{oid}", "header": header}}}
        if oid in self.objects:
            return told
        verify = {"verify": {"href": f"{self.storage}/verify", "header": header}} if self.verifies else {}
        upload = {"href": f"{self.storage}/{oid}?signature=a%2Fb", "header": header, "expires_in": 600}
        return {**told, "authenticated": True, "actions": {"upload": upload, **verify}}


def _problem(headers: dict[str, str], asked: dict[str, Any]) -> str:
    """Return what the protocol does not allow in a batch request; empty if it is right."""
    if not headers.get("content-type", "").startswith(MEDIA_TYPE) or headers.get("accept") != MEDIA_TYPE:
        return "wrong media type"
    is_known = asked.keys() <= _MEMBERS and asked.get("operation") in {"upload", "download"}
    objects = asked.get("objects", [])
    are_right = all(
        one.keys() == {"oid", "size"} and len(one["oid"]) == 64 and isinstance(one["size"], int)
        for one in objects
    )
    is_basic = "basic" in asked.get("transfers", ["basic"]) and asked.get("hash_algo", "sha256") == "sha256"
    return "" if is_known and objects and are_right and is_basic else "not a batch request"


class LfsStorage(Loopback):
    """The host that takes and gives contents.

    Attributes:
        store: the objects, and what was seen.
        statuses: answer the next uploads with these.
        retry_after: the header of replies that are no success; empty is none.
    """

    def __init__(self, store: LfsStore) -> None:
        super().__init__(_StorageHandler)
        self.store = store
        self.statuses: list[int] = []
        self.retry_after = ""
        store.storage = self.root


class _StorageHandler(LoopbackHandler):
    def do_PUT(self) -> None:  # noqa: N802  the base class calls it so
        storage = self.server.owner
        headers, _, raw = self.posted()
        storage.store.shown.append((f"PUT {self.path.partition('?')[0]}", headers))
        oid = self.path.removeprefix("/").partition("?")[0]
        status = storage.statuses.pop(0) if storage.statuses else 200
        if headers.get("x-storage-grant") != GRANT:
            status = 403
        elif status == 200 and hashlib.sha256(raw).hexdigest() != oid:
            status = 422
        elif status == 200:
            storage.store.objects[oid] = raw
        self._reply(status, b"")

    def do_POST(self) -> None:  # noqa: N802  the base class calls it so
        store = self.server.owner.store
        headers, body, _ = self.posted()
        store.shown.append((f"POST {self.path}", headers))
        is_there = len(store.objects.get(body.get("oid", ""), b"")) == body.get("size")
        self._reply(200 if is_there else 404, b"")

    def do_GET(self) -> None:  # noqa: N802  the base class calls it so
        content = self.server.owner.store.objects.get(self.path.removeprefix("/"))
        self._reply(404 if content is None else 200, content or b"")

    def _reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if status >= 400 and self.server.owner.retry_after:
            self.send_header("Retry-After", self.server.owner.retry_after)
        self.end_headers()
        self.wfile.write(content)
