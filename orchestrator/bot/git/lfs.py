"""Git LFS: contents are given to the server of the repository, so that a commit has pointers in their place.

The protocol: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md, with the transfer `basic`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from orchestrator.bot.git.hostgit import printable_line
from orchestrator.core import event_loop
from orchestrator.core.addresses import ServerPlace, holds_credential, server_of
from orchestrator.core.errors import PushRefusedError, RemoteRateLimitError, RemoteUnavailableError
from orchestrator.core.http_client import Answer, FailureKind, ask_server, asked_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
    from typing import TypeVar

    from orchestrator.bot.git.objects import TreeEntry
    from orchestrator.bot.git.remote import Remote

    Result = TypeVar("Result")

_MEDIA_TYPE = "application/vnd.git-lfs+json"
_MOST_OBJECTS = 100
"""Of one request, as git-lfs itself asks. A change with more new contents is refused."""
_MOST_REPLY_BYTES = 2_000_000
_MOST_WORDS_CHARACTERS = 200
_MOST_REDIRECTS = 3
_ASKING_SECONDS = 60.0
_SLOWEST_BYTES_A_SECOND = 50_000
_CONNECT_SECONDS = 15.0
_SILENT_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 900.0
_LOOK_SECONDS = 0.2
_PIECE_BYTES = 65_536
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEMPORARY = frozenset({429, 500, 502, 503, 504})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,8000}")
_OURS = frozenset({"host", "content-length", "connection", "transfer-encoding"})
_DOING = "cannot store files in Git LFS"
_BY_HAND = "add the file by hand, with git lfs"


def why_refused(reason: str) -> str:
    """Return why a file that belongs into Git LFS is refused, in words for people and models."""
    return f"its content belongs into Git LFS, {reason}: {_BY_HAND}"


EDITED_POINTER = (
    "it is a pointer of Git LFS, and the content that it would stand for is not known: write the file's whole new "
    "content in its place, or leave it as it was"
)


@dataclass(frozen=True, slots=True)
class LfsFile:
    """A file whose content belongs into Git LFS.

    Attributes:
        content: the entry of the content, as it is in the working tree.
        pointer: the entry that is committed in its place.
        oid: SHA-256 of the content, by which servers know it.
        size: of the content, in bytes.
        is_known: whether the pointer is committed already.
    """

    content: TreeEntry
    pointer: TreeEntry
    oid: str
    size: int
    is_known: bool


class _RefusedError(Exception):
    """The server, or a rule of ours, does not let the contents in. The message is a part of a sentence."""


@dataclass(frozen=True, slots=True)
class _Action:
    """A request that the server asks for: where, and with which header fields."""

    href: str
    header: Mapping[str, str]
    is_authenticated: bool


class LfsServer:
    """The LFS server of a remote. Each method asks it anew, and must not be called in an event loop's thread.

    Args:
        configured: returns the address that the base commit's `.lfsconfig` names; empty if it names none.

    Raises:
        RemoteUnavailableError: it did not answer, in every method.
        RemoteRefusedError: the forge gives no credential any more.
    """

    def __init__(self, remote: Remote, configured: Callable[[], str]) -> None:
        self._remote, self._configured = remote, configured
        self._accepted: set[str] = set()

    def why_not(self, files: Collection[LfsFile]) -> str | None:
        """Return why the server does not take these contents, as a part of a sentence; None if it does."""
        asked = [file for file in files if file.oid not in self._accepted]
        if not asked:
            return None
        try:
            self._run(self._batch(asked, ""), _ASKING_SECONDS)
        except _RefusedError as error:
            return str(error)
        self._accepted |= {file.oid for file in asked}
        return None

    def upload(self, files: Collection[LfsFile], read: Callable[[LfsFile], bytes], branch: str) -> None:
        """Give contents to the server, those that it does not have.

        Args:
            read: returns the content of a file.
            branch: the branch that will have the pointers.

        Raises:
            PushRefusedError: the server does not take one of them.
        """
        try:
            wanted = self._run(self._batch(files, f"refs/heads/{branch}"), _ASKING_SECONDS)
            for file in {file.oid: file for file in files}.values():
                seconds = _ASKING_SECONDS + file.size / _SLOWEST_BYTES_A_SECOND
                self._run(self._transfer(file, wanted.get(file.oid, {}), read), seconds)
        except _RefusedError as error:
            self._accepted.clear()
            raise PushRefusedError(f"{_DOING}: {error}", may_differ=True, said=f"Git LFS: {error}") from None

    def _run(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        return event_loop.run(self._watched(work, seconds))

    async def _watched(self, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
        """Wait for the work until the time is over, or the run is to end."""
        task = asyncio.ensure_future(work)
        try:
            for _ in range(int(seconds / _LOOK_SECONDS)):
                done, _ = await asyncio.wait([task], timeout=_LOOK_SECONDS)
                if done:
                    return task.result()
                if self._remote.cancelled():
                    raise RemoteUnavailableError(f"{_DOING}: interrupted")
            raise RemoteUnavailableError(
                f"{_DOING}: {self._host} did not end its answer within {seconds:.0f} s"
            )
        finally:
            task.cancel()
            await asyncio.wait([task])

    @property
    def _host(self) -> str:
        return self._remote.authority

    def _address(self) -> tuple[str, ServerPlace]:
        """Return the server's address. Only the host that git contacts is one: a repository's file names no other."""
        if self._remote.scheme == "file":
            raise _RefusedError("and a repository on this machine has no server for it")
        own = server_of(self._remote.url)
        if own is None:
            raise _RefusedError("whose server is asked over http or https only, and not over ssh")
        configured = self._configured().strip()
        if not configured:
            plain = self._remote.url.rstrip("/")
            return f"{plain if plain.endswith('.git') else f'{plain}.git'}/info/lfs", own
        if holds_credential(configured) or server_of(configured) != own:
            raise _RefusedError(
                f"and .lfsconfig names another server than {own}, which does not get the token"
            )
        return configured.rstrip("/"), own

    def _authorization(self) -> dict[str, str]:
        credential = self._remote.current_credential()
        if credential is None:
            return {}
        pair = f"{credential.username}:{credential.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}

    async def _batch(self, files: Collection[LfsFile], reference: str) -> dict[str, dict[str, _Action]]:
        """Ask the server what to do with these contents. Return its actions by content; none for what it has."""
        address, own = self._address()
        sizes = {file.oid: file.size for file in files}
        if len(sizes) > _MOST_OBJECTS:
            raise _RefusedError(f"which gets at most {_MOST_OBJECTS} new files of one change")
        body: dict[str, Any] = {
            "operation": "upload",
            "transfers": ["basic"],
            "objects": [{"oid": oid, "size": size} for oid, size in sizes.items()],
            "hash_algo": "sha256",
        }
        if reference:
            body["ref"] = {"name": reference}
        header = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **self._authorization()}
        url, content = f"{address}/objects/batch", json.dumps(body).encode()
        said = await self._send("POST", url, header, content)
        for _ in range(_MOST_REDIRECTS):
            if said.status not in _REDIRECTS:
                break
            url = urljoin(url, said.headers.get("location", ""))
            if server_of(url) != own:
                raise _RefusedError(
                    "whose server sends the request on to another one, which does not get the token"
                )
            said = await self._send("POST", url, header, content)
        self._check(said)
        return _actions(said.body, sizes, own)

    async def _transfer(
        self, file: LfsFile, actions: Mapping[str, _Action], read: Callable[[LfsFile], bytes]
    ) -> None:
        """Upload one content, and let the server verify it, as far as the server asks for it."""
        if (action := actions.get("upload")) is None:
            return
        header = self._header_of(action, {"Content-Type": "application/octet-stream"})
        content = await event_loop.in_thread(read, file)
        self._check(await self._send("PUT", action.href, header, content))
        if (action := actions.get("verify")) is None:
            return
        header = self._header_of(action, {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE})
        body = json.dumps({"oid": file.oid, "size": file.size}).encode()
        self._check(await self._send("POST", action.href, header, body))

    def _header_of(self, action: _Action, header: Mapping[str, str]) -> dict[str, str]:
        """Return the header of a request: what the server asks for, and our credential only to the forge's own host."""
        asked = {name.lower() for name in action.header}
        wanted = {name: value for name, value in header.items() if name.lower() not in asked} | dict(
            action.header
        )
        is_own = server_of(action.href) == server_of(self._remote.url)
        if is_own and "authorization" not in asked and not action.is_authenticated:
            wanted |= self._authorization()
        return wanted

    async def _send(self, method: str, url: str, header: Mapping[str, str], content: bytes) -> Answer:
        """Send a request. A body that is too large is no answer of this protocol, and is not read on."""
        fields = {**header, "Content-Length": str(len(content))}
        answer = await ask_server(
            method,
            url,
            fields,
            _pieces(content),
            most_bytes=_MOST_REPLY_BYTES,
            silent_seconds=_SILENT_SECONDS,
            connect_seconds=_CONNECT_SECONDS,
        )
        if isinstance(answer, Answer):
            return answer
        if answer.kind is FailureKind.ADDRESS:
            raise _RefusedError("whose server names an address that is none")
        raise RemoteUnavailableError(
            f"{_DOING}: no answer from {server_of(url) or self._host} ({answer.name})"
        )

    def _check(self, said: Answer) -> None:
        """Raise the error of a reply that is not a success."""
        status = said.status
        if 200 <= status < 300:  # noqa: PLR2004  every success of HTTP
            return
        words = self._words(said.body)
        if status in _TEMPORARY:
            told = f"{_DOING}: {self._host} answered {status}{words}"
            asked = asked_seconds(said.headers)
            if asked is None:
                raise RemoteUnavailableError(told)
            raise RemoteRateLimitError(told, seconds=min(asked, _LONGEST_WAIT_SECONDS))
        raise _RefusedError(f"and the server does not take it ({status}{words})")

    def _words(self, said: bytes) -> str:
        """Return a server's own words after a colon, without the credential; empty if there are none."""
        try:
            message = json.loads(said).get("message")
        except (ValueError, AttributeError, RecursionError):
            return ""
        if not isinstance(message, str) or not message.strip():
            return ""
        credential = self._remote.current_credential()
        plain = message if credential is None else credential.redact(message)
        return f": {_line(plain)}"


def _line(text: str) -> str:
    return printable_line(" ".join(text.split()))[:_MOST_WORDS_CHARACTERS]


def _actions(said: bytes, sizes: Mapping[str, int], own: ServerPlace) -> dict[str, dict[str, _Action]]:
    """Read the reply of a batch request."""
    try:
        reply = json.loads(said)
        is_known = reply.get("transfer") in {None, "basic"}
        listed = {one["oid"]: one for one in reply["objects"]}
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        raise _RefusedError("whose server gives an answer that is none of its protocol") from None
    if not is_known:
        raise _RefusedError("whose server takes other transfers only than basic ones")
    found: dict[str, dict[str, _Action]] = {}
    for oid in sizes:
        one = listed.get(oid)
        if not isinstance(one, dict):
            raise _RefusedError("whose server does not answer about each file")
        if (error := one.get("error")) is not None:
            code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else ("", "")
            raise _RefusedError(f"and the server does not take it ({_line(f'{code}: {message}')})")
        actions = one.get("actions") or {}
        if not isinstance(actions, dict):
            raise _RefusedError("whose server gives an answer that is none of its protocol")
        is_authenticated = one.get("authenticated") is True
        found[oid] = {
            name: _action(actions[name], own, is_authenticated=is_authenticated)
            for name in ("upload", "verify")
            if actions.get(name) is not None
        }
    return found


def _action(told: Any, own: ServerPlace, *, is_authenticated: bool) -> _Action:
    """Read one action. Its address may be of any server, but without TLS only if the forge itself has none."""
    href, header = (told.get("href"), told.get("header") or {}) if isinstance(told, dict) else (None, {})
    place = server_of(href) if isinstance(href, str) else None
    if (
        not isinstance(href, str)
        or place is None
        or not isinstance(header, dict)
        or (place.scheme == "http" and own.scheme == "https")
    ):
        raise _RefusedError("whose server names an address that is not used")
    fields: dict[str, str] = {}
    for name, value in header.items():
        if (
            not isinstance(value, str)
            or not _HEADER_NAME.fullmatch(name)
            or not _HEADER_VALUE.fullmatch(value)
        ):
            raise _RefusedError("whose server asks for a header field that is none")
        if name.lower() not in _OURS:
            fields[name] = value
    return _Action(href, fields, is_authenticated)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]
