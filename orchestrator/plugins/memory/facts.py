"""Facts that people taught about a repository, on `refs/pullwright/memory`, shared by all machines.

Everyone with push access can write there. So a fact is only a pointer: its text is read again from the place
that it cites, each time it is used.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError

from orchestrator.bot.coordination.records import MEMORY
from orchestrator.bot.git.hostgit import printable_line
from orchestrator.core.checks import first_problem
from orchestrator.core.errors import PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from orchestrator.bot.coordination.records import Records, RemoteRecord
    from orchestrator.core.clock import Clock

PAGE = "facts.json"
MOST_FACTS = 300
MOST_WORDS = 1_000
"""Most characters of one fact."""
MOST_BYTES = 1 << 20
"""Most bytes of all facts together."""
MOST_LOOKED_AT = 1_000
MOST_FORGOTTEN = 1_000
MOST_CITED = 20
LIFETIME = timedelta(days=90)
"""Lifetime of a fact that no merged pull request has confirmed."""

_VERSION = 1
_MOST_LOOKS = 20
_DIGITS = 16


class FactKind(StrEnum):
    """The kinds of facts."""

    CORRECTION = "correction"
    """A comment on our pull request by somebody with write permission."""
    CLOSED = "closed"
    """The last comment of such a person on our pull request that was closed without being merged."""
    NOTE = "note"
    """A note of a model that a pull request contains. It counts once that is merged."""


_Words = Annotated[str, Field(min_length=1, max_length=MOST_WORDS)]
_Login = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
_Path = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
_Said = Annotated[str, Field(pattern=r"^(?:(?:review|line|comment)-[0-9]{1,20})?$")]
_Blob = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
_Number = Annotated[int, Field(ge=1, le=10**10)]
_Moment = Annotated[
    AwareDatetime, Field(ge=datetime(2020, 1, 1, tzinfo=UTC), le=datetime(9000, 1, 1, tzinfo=UTC))
]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, with its sources.

    Attributes:
        content: the text when the fact was stored, without secrets.
        author: a person's login; empty for a note.
        pull: the pull request of the source.
        said: the cited comment of the pull request, as `kind-id`; empty for a note.
        path: the file that the text is about; empty if it names none.
        cited: for a note: files, each with its blob in the pull request.
        confirmed: whether the pull request is merged. Then the fact does not expire.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    kind: FactKind
    content: _Words
    author: _Login | Literal[""]
    pull: _Number
    said: _Said
    url: _Path
    created_at: _Moment
    expires_at: _Moment | None = None
    path: _Path = ""
    cited: Annotated[dict[_Path, _Blob], Field(max_length=MOST_CITED)] = field(default_factory=dict)
    confirmed: bool = False
    importance: Literal["critical", "high", "normal", "low"] = "normal"

    @property
    def key(self) -> str:
        """Identifies a fact by text and place, whichever machine stored it."""
        text = f"{self.pull}\0{self.said or self.content}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]

    def is_expired(self, now: datetime) -> bool:
        """Return whether the fact has expired."""
        return self.expires_at is not None and now > self.expires_at

    def confirm(self) -> Fact:
        """Return the fact as confirmed by the merge of its pull request."""
        return replace(self, confirmed=True, expires_at=None)


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """All facts about a repository.

    Attributes:
        looked_at: closed or merged pull requests whose comments were read.
        forgotten: keys of facts that a person removed: they are not learned again.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    version: Annotated[int, Field(ge=_VERSION, le=_VERSION)] = _VERSION
    facts: Annotated[tuple[Fact, ...], Field(max_length=MOST_FACTS)] = ()
    looked_at: Annotated[tuple[_Number, ...], Field(max_length=MOST_LOOKED_AT)] = ()
    forgotten: Annotated[tuple[_Key, ...], Field(max_length=MOST_FORGOTTEN)] = ()

    @property
    def by_key(self) -> dict[str, Fact]:
        """The facts by their keys."""
        return {fact.key: fact for fact in self.facts}

    def with_facts(self, fresh: Iterable[Fact], looked_at: Iterable[int] = ()) -> RepositoryFacts:
        """Add facts. Of two with one key the later one stays, confirmed if either is."""
        known = self.by_key
        gone = set(self.forgotten)
        for fact in fresh:
            if fact.key in gone:
                continue
            before = known.get(fact.key)
            if before is not None:
                fact = replace(fact, created_at=before.created_at, importance=before.importance)  # noqa: PLW2901
                fact = fact.confirm() if before.confirmed else fact  # noqa: PLW2901
            known[fact.key] = fact
        return replace(self, facts=tuple(known.values()), looked_at=(*self.looked_at, *looked_at))

    def without(self, keys: Collection[str]) -> RepositoryFacts:
        """Remove facts, which are not learned again."""
        gone = [fact.key for fact in self.facts if fact.key in keys]
        kept = tuple(fact for fact in self.facts if fact.key not in keys)
        return replace(self, facts=kept, forgotten=(*self.forgotten, *gone))

    def bounded(self, now: datetime) -> RepositoryFacts:
        """Remove expired facts, and keep as many as fit: confirmed and important ones first, then the newest."""
        living = [fact for fact in self.facts if not fact.is_expired(now) and _is_fit(fact)]
        living.sort(
            key=lambda fact: (fact.confirmed, _WEIGHTS[fact.importance], fact.created_at), reverse=True
        )
        kept: list[Fact] = []
        room = MOST_BYTES - 20 * (MOST_LOOKED_AT + MOST_FORGOTTEN)
        for fact in living[:MOST_FACTS]:
            room -= len(json.dumps(_fields(fact))) + 2
            if room >= 0:
                kept.append(fact)
        kept.sort(key=lambda fact: (fact.created_at, fact.key))
        return replace(
            self,
            facts=tuple(kept),
            looked_at=tuple(sorted(set(self.looked_at))[-MOST_LOOKED_AT:]),
            forgotten=tuple(dict.fromkeys(self.forgotten))[-MOST_FORGOTTEN:],
        )


_WEIGHTS: Mapping[str, int] = {"low": 0, "normal": 1, "high": 2, "critical": 3}
_FORM: TypeAdapter[RepositoryFacts] = TypeAdapter(RepositoryFacts)
_FACT_FORM: TypeAdapter[Fact] = TypeAdapter(Fact)


def _is_fit(fact: Fact) -> bool:
    """Return whether a fact can be read back once it is written."""
    try:
        _FACT_FORM.validate_json(json.dumps(_fields(fact)))
    except ValidationError:
        return False
    return True


class RepositoryMemory:
    """Reads and changes the facts of one repository. It blocks: call it in a thread.

    A change is applied to the present facts, and again if another machine was faster. So no change is lost. A ref
    with other content raises a `WorkspaceError`; a `RemoteUnavailableError` means that no answer came after several
    attempts: a change may have arrived all the same.

    Args:
        nonce: creates a globally unique text.
    """

    def __init__(self, records: Records, clock: Clock, nonce: Callable[[], str]) -> None:
        self._records = records
        self._clock = clock
        self._nonce = nonce

    def read(self, seen: Mapping[str, str] | None = None) -> RepositoryFacts:
        """Return the facts that are not expired.

        Args:
            seen: the remote's `MEMORY` ref as last seen; None reads it.
        """
        return self._look(seen)[1]

    def change(
        self, change: Callable[[RepositoryFacts], RepositoryFacts], *, forgets: bool = False
    ) -> RepositoryFacts:
        """Change the facts, and return the result.

        Args:
            forgets: whether removed facts are also removed from the history of the ref.
        """
        for _ in range(_MOST_LOOKS):
            commit, facts = self._look()
            after = change(facts).bounded(self._clock.now())
            if after == facts:
                return after
            fields = {**asdict(after), "facts": [_fields(fact) for fact in after.facts]}
            text = json.dumps(fields, indent=0)
            message = f"pullwright: what people taught\n\n{self._nonce()}\n"
            parent = None if forgets else commit
            made = self._records.commit(message, parent, {PAGE: text.encode()})
            if self._swap(commit, made):
                return after
        raise PushRejectedError(f"{MEMORY} changes faster than it can be read")

    def _swap(self, old: str | None, new: str) -> bool:
        try:
            return self._records.swap(MEMORY, old, new)
        except PushRejectedError as error:
            if old is None or "non-fast-forward" not in str(error):
                raise
        # This server refuses a commit that does not follow the old one. If somebody else writes in between, the
        # change is made again.
        return self._records.delete(MEMORY, old) and self._records.swap(MEMORY, None, new)

    def _look(self, seen: Mapping[str, str] | None = None) -> tuple[str | None, RepositoryFacts]:
        """Return the present commit and its facts. An unreadable commit may have been replaced, and is read again."""
        found = self._records.list(MEMORY) if seen is None else seen
        for _ in range(_MOST_LOOKS):
            try:
                return self._read(found)
            except WorkspaceError:
                now = self._records.list(MEMORY)
                if now == found:
                    raise
                found = now
        raise PushRejectedError(f"{MEMORY} changes faster than it can be read")

    def _read(self, found: Mapping[str, str]) -> tuple[str | None, RepositoryFacts]:
        record = self._records.read_all(found, pages=True, most_bytes=2 * MOST_BYTES).get(MEMORY)
        if record is None:
            return None, RepositoryFacts()
        facts = self._parsed(record)
        living = tuple(fact for fact in facts.facts if not fact.is_expired(self._clock.now()))
        return record.commit, replace(facts, facts=living)

    def _parsed(self, record: RemoteRecord) -> RepositoryFacts:
        page = record.pages.get(PAGE)
        fault = record.fault
        if fault is None and page is None:
            fault = f"it has no {PAGE}"
        elif page is not None and len(page) > MOST_BYTES:
            fault = f"it is larger than {MOST_BYTES:,} bytes"
        elif page is not None:
            try:
                facts = _FORM.validate_json(page)
            except ValidationError as error:
                fault = first_problem(error, PAGE)
            else:
                return replace(facts, facts=tuple(facts.by_key.values()))
        shown = self._records.remote.shown
        raise WorkspaceError(
            f"the memory of {shown} is not used, because it cannot be read ({printable_line(str(fault))}); "
            f"to begin a new one: git push {shown} :{MEMORY}"
        )


def _fields(fact: Fact) -> dict[str, Any]:
    """Encode a fact as JSON, without empty fields."""
    fields = asdict(fact)
    for name in ("created_at", "expires_at"):
        moment = fields[name]
        fields[name] = moment and moment.astimezone(UTC).isoformat()
    return {name: value for name, value in fields.items() if value not in ("", {}) or name in _NEEDED}


_NEEDED = frozenset({"author", "said", "url"})
