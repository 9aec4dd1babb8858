"""What a cycle learns from our pull requests, and recalls later if the forge still confirms it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.repository_memory import (
    LIFETIME,
    MOST_CITED,
    MOST_WORDS,
    Fact,
    FactKind,
    RepositoryFacts,
    RepositoryMemory,
)
from orchestrator.bot.cycle.propose import notes_in
from orchestrator.bot.cycle.tasks import is_ours, key_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.worker.task_rules import is_somebody_elses, is_us
from orchestrator.core.errors import ForgeError, WorkspaceError
from orchestrator.core.events import Defence, Guarded, Warned
from orchestrator.core.fence import one_line
from orchestrator.engine.memory.items import (
    ALWAYS_INCLUDED,
    RESULTS,
    Author,
    Importance,
    MemoryType,
    NewItem,
)
from orchestrator.engine.memory.memory import CANDIDATES, MIRRORED, QUERY_CHARS, shown_block
from orchestrator.engine.memory.store import MEMORIES, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.forge.base import Feedback, Forge, PullRequest
    from orchestrator.bot.worker.candidates import SeenPulls
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.engine.memory.items import Memory
    from orchestrator.engine.memory.memory import LongTermMemory

MOST_READ = 3
"""The most ended pull requests whose feedback a cycle reads."""
RECENT = timedelta(days=30)
"""Ended pull requests that were updated longer ago are not read."""
MOST_RECALLED = 12
"""The most facts of the repository that are added to a message."""

_PATH_CHARS = 200
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def own_words(body: str) -> str:
    """Return a comment without its quotations, which are other people's words."""
    kept, fence = [], ""
    for line in body.splitlines():
        if not fence and line.lstrip().startswith(">"):
            continue
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""
        kept.append(line)
    return "\n".join(kept).strip()


@dataclass(slots=True)
class Lessons:
    """The memory of one cycle: the repository's facts, and this machine's own memory.

    Attributes:
        shared: the facts that all machines share; None if they are switched off.
        memory: opens this machine's memory of the repository.
        recalls_own: whether this machine's own memories are recalled too.
        recalls_documents: whether pieces of indexed documents are recalled too.
        seen: returns what the search for a task has read.
        at_reference: returns the refs that were seen on the remote for the facts; None means to ask the
            remote.
        clean: returns a comment as people see it, without secrets.
        writes: whether facts may be stored.
    """

    shared: RepositoryMemory | None
    memory: Callable[[], LongTermMemory]
    recalls_own: bool
    recalls_documents: bool
    forge: Forge
    seen: Callable[[], SeenPulls]
    at_reference: Callable[[], Mapping[str, str] | None]
    clean: Callable[[str], str]
    clock: Clock
    emit: Emit
    writes: bool
    _facts: RepositoryFacts = field(default_factory=RepositoryFacts)
    _pulls: dict[int, PullRequest] = field(default_factory=dict)
    _said: dict[int, Sequence[Feedback]] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)

    # What is learned.

    async def learn(self) -> None:
        """Read the facts, and store what our pull requests have taught since. Errors of forge and git become a warning."""
        if self.shared is None:
            return
        try:
            await asyncio.to_thread(self._learn, self.shared)
        except (ForgeError, WorkspaceError) as error:
            self.emit(Warned(f"nothing was learned from pull requests: {error}"))

    def _learn(self, shared: RepositoryMemory) -> None:
        seen = self.seen()
        me = self.forge.own_login()
        ours = (one for one in seen.pulls if key_of(one.branch) is not None and is_us(one.author, me))
        self._pulls = {pull.number: pull for pull in ours}
        self._said = {number: said for number, said in seen.said.items() if number in self._pulls}
        self._facts = shared.read(self.at_reference())
        over = self._not_looked_at()
        for pull in over:
            if pull.number not in self._said:
                self._said[pull.number] = self.forge.feedback(pull.number)
        fresh = [fact for number in self._said for fact in self._taught_by(self._pulls[number])]
        self._store(shared, fresh, [pull.number for pull in over])

    def _store(self, shared: RepositoryMemory, fresh: Sequence[Fact], looked_at: Sequence[int]) -> None:
        merged = {pull.number for pull in self._pulls.values() if pull.state is PullRequestState.MERGED}

        def change(facts: RepositoryFacts) -> RepositoryFacts:
            known = facts.by_key
            new = [fact for fact in fresh if not _is_known(fact, known.get(fact.key))]
            after = facts.with_facts(new, (number for number in looked_at if number not in facts.looked_at))
            confirmed = (
                one.confirm() if one.pull in merged and not one.confirmed else one for one in after.facts
            )
            return replace(after, facts=tuple(confirmed))

        if (after := change(self._facts)) == self._facts:
            return
        self._facts = shared.change(change) if self.writes else after.bounded(self.clock.now())

    def _not_looked_at(self) -> list[PullRequest]:
        """Return recently ended pull requests whose feedback no cycle has read since, the newest first."""
        now, known = self.clock.now(), set(self._facts.looked_at)
        over = [
            pull
            for pull in self._pulls.values()
            if pull.state is not PullRequestState.OPEN
            and pull.number not in known
            and pull.updated_at is not None
            and now - pull.updated_at < RECENT
        ]
        return sorted(over, key=lambda pull: pull.number, reverse=True)[:MOST_READ]

    def _taught_by(self, pull: PullRequest) -> Iterator[Fact]:
        """Yield a fact for each remark of a person who may write on a pull request.

        The last remark on a pull request that was closed unmerged counts as the reason.
        """
        taught = [(one, words) for one in self._said[pull.number] if (words := self._words(one))]
        for at, (one, words) in enumerate(taught, 1):
            is_reason = pull.state is PullRequestState.CLOSED and at == len(taught)
            yield Fact(
                FactKind.CLOSED if is_reason else FactKind.CORRECTION,
                words[:MOST_WORDS],
                one.author,
                pull.number,
                _name(one),
                one.url[:_PATH_CHARS],
                one.created_at,
                self.clock.now() + LIFETIME,
                one.path[:_PATH_CHARS],
            )

    def _words(self, one: Feedback) -> str:
        """Return the text that a remark teaches; empty unless its author is a person who may write."""
        is_person = is_somebody_elses(one.author, self.forge.own_login()) and not is_ours(one.body)
        if not is_person or one.state in {"approved", "dismissed"}:
            return ""
        words = own_words(self.clean(one.body))
        return words if words and self.forge.permission(one.author).may_write else ""

    async def note(self, notes: Sequence[str], pull: PullRequest, cited: Mapping[str, str]) -> None:
        """Store the model's notes, which its pull request shows too. A failure becomes a warning.

        A note is recalled only after the pull request is merged.

        Args:
            cited: files that the notes may be about, each with its blob in the pull request.
        """
        if self.shared is None or not self.writes or not notes:
            return
        now, shared = self.clock.now(), self.shared
        facts = [
            Fact(
                FactKind.NOTE,
                words[:MOST_WORDS],
                "",
                pull.number,
                "",
                pull.url[:_PATH_CHARS],
                now,
                now + LIFETIME,
                cited=_cited_by(words, cited),
            )
            for words in notes
        ]
        try:
            await asyncio.to_thread(shared.change, lambda known: known.with_facts(facts))
        except WorkspaceError as error:
            self.emit(Warned(f"the model's notes for later tasks were not stored: {error}"))

    # What is recalled.

    async def recall(
        self, message: str, files: Collection[str], blobs: Callable[[Sequence[str]], Mapping[str, str]]
    ) -> str:
        """Return the memories that are relevant to a message, as Markdown; empty if there are none.

        Args:
            files: the files that the task is about.
            blobs: returns the blobs of files on the base; files that do not exist are left out.

        Raises:
            MemoryStoreError: this machine's file cannot be used.
            ModelError: there is no vector for a new fact.
        """
        indices = [*([REPOSITORY] if self._facts.facts else []), *([MEMORIES] if self.recalls_own else [])]
        if not indices:
            return ""
        memory = self.memory()
        await memory.mirror(as_items(self._facts.facts))
        about = self._about(await asyncio.to_thread(memory.store.listed, REPOSITORY), message, files)
        found = await memory.recall(message[:QUERY_CHARS], CANDIDATES, indices, about)
        shown: list[Memory] = []
        others = 0
        for one in found.memories:
            is_forced = one.memory.type in ALWAYS_INCLUDED
            if not is_forced and others == RESULTS:
                continue
            now = one.memory
            if now.index == REPOSITORY:
                if sum(known.index == REPOSITORY for known in shown) == MOST_RECALLED:
                    continue
                words = await asyncio.to_thread(self._as_it_is_now, now, blobs)
                if not words:
                    continue
                now = replace(now, content=words)
            shown.append(now)
            others += not is_forced
        memory.mark_as_known(shown)
        documents = await memory.document_block(message) if self.recalls_documents else ""
        return "\n\n".join(filter(None, (shown_block(shown), documents)))

    def _about(self, memories: Iterable[Memory], message: str, files: Collection[str]) -> list[int]:
        """Return the ids of at most `CANDIDATES` facts about files of the task or files that the message names."""
        found = []
        for memory in memories:
            path = str(memory.metadata.get("path", ""))
            if path and (path in files or path in message or path.rpartition("/")[2] in message):
                found.append(memory.id)
        return found[:CANDIDATES]

    def _as_it_is_now(self, memory: Memory, blobs: Callable[[Sequence[str]], Mapping[str, str]]) -> str:
        """Return a fact's present text at its citation; empty if the fact does not hold any more.

        The reason is emitted once per fact.
        """
        fact = self._facts.by_key.get(str(memory.metadata.get(MIRRORED, "")))
        if fact is None:
            return ""
        try:
            words = self._noted(fact, blobs) if fact.kind is FactKind.NOTE else self._said_now(fact)
        except (ForgeError, WorkspaceError) as error:
            words = _Words(why_not=f"its citation cannot be read: {error}")
        if words.why_not and fact.key not in self._reported:
            self._reported.add(fact.key)
            who = f"of {fact.author}" if fact.author else "of a model"
            said = f"a remembered {fact.kind} {who} is not used: {words.why_not}"
            self.emit(Guarded(words.defence, said))
        return words.text

    def _said_now(self, fact: Fact) -> _Words:
        pull = self._pulls.get(fact.pull)
        if pull is None:
            return _Words(why_not=f"#{fact.pull} is no pull request of ours")
        if fact.kind is FactKind.CLOSED and pull.state is not PullRequestState.CLOSED:
            return _Words(why_not=f"#{fact.pull} is not closed without being merged")
        if fact.pull not in self._said:
            self._said[fact.pull] = self.forge.feedback(fact.pull)
        one = next((one for one in self._said[fact.pull] if _name(one) == fact.said), None)
        if one is None:
            return _Words(why_not=f"what it cites on #{fact.pull} is not there")
        if one.author != fact.author:
            return _Words(why_not=f"what it cites on #{fact.pull} is somebody else's")
        if not self.forge.permission(one.author).may_write:
            return _Words(why_not=f"{fact.author} may not write any more", defence=Defence.ADMISSION)
        words = self._words(one)
        taken_back = "" if words else f"what it cites on #{fact.pull} was taken back"
        return _Words(words[:MOST_WORDS], taken_back)

    def _noted(self, fact: Fact, blobs: Callable[[Sequence[str]], Mapping[str, str]]) -> _Words:
        pull = self._pulls.get(fact.pull)
        if pull is None or pull.state is not PullRequestState.MERGED:
            return _Words()  # not recalled before the merge, and no reason to warn
        if fact.content not in notes_in(pull.body):
            return _Words(why_not=f"#{fact.pull}, which is merged, does not say it")
        now = blobs(tuple(fact.cited))
        if changed := sorted(path for path, blob in fact.cited.items() if now.get(path) != blob):
            path = one_line(changed[0], limit=_PATH_CHARS)
            return _Words(why_not=f"{path} was changed since #{fact.pull}")
        return _Words(self.clean(fact.content))


@dataclass(frozen=True, slots=True)
class _Words:
    """The text of a fact, or why there is none."""

    text: str = ""
    why_not: str = ""
    defence: Defence = Defence.MEMORY


def _is_known(fact: Fact, known: Fact | None) -> bool:
    """Return whether an equal fact is stored already; the state of its pull request is not compared."""
    return known is not None and (known.kind, known.content, known.path) == (
        fact.kind,
        fact.content,
        fact.path,
    )


def _cited_by(words: str, cited: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a text names; all of them if it names none; at most `MOST_CITED`."""
    named = {path: blob for path, blob in cited.items() if path in words or path.rpartition("/")[2] in words}
    return dict(sorted((named or cited).items())[:MOST_CITED])


def _name(one: Feedback) -> str:
    return f"{one.kind}-{one.id}"


_TYPES: Mapping[FactKind, MemoryType] = {
    FactKind.CORRECTION: MemoryType.CORRECTION,
    FactKind.CLOSED: MemoryType.FACT,
    FactKind.NOTE: MemoryType.FACT,
}


def as_items(facts: Iterable[Fact]) -> dict[str, NewItem]:
    """Return facts as items of the memory's index, by the facts' keys."""
    return {fact.key: _as_item(fact) for fact in facts}


def _as_item(fact: Fact) -> NewItem:
    importance = Importance(fact.importance)
    if fact.confirmed and importance is Importance.NORMAL:
        importance = Importance.HIGH
    metadata: dict[str, Any] = {
        "reason": _reason(fact),
        "url": fact.url,
        "citation": {"pull": fact.pull, "said": fact.said}
        if fact.said
        else {"pull": fact.pull, "blobs": fact.cited},
        "path": fact.path,
        "by": fact.author or "a model",
        "confirmed": fact.confirmed,
    }
    return NewItem(
        fact.content,
        fact.created_at,
        _TYPES[fact.kind],
        _origin(fact),
        importance,
        Author.PERSON if fact.author else Author.MODEL,
        fact.expires_at,
        metadata,
    )


def _origin(fact: Fact) -> str:
    """Return where a fact comes from, for the model and for people. Other people's words stand in code spans."""
    about = f" about `{one_line(fact.path, limit=_PATH_CHARS)}`" if fact.path else ""
    match fact.kind:
        case FactKind.CORRECTION:
            return f"said by `{fact.author}` on pull request #{fact.pull}{about}"
        case FactKind.CLOSED:
            end = "which was closed without being merged"
            return f"the last words of `{fact.author}`{about} on pull request #{fact.pull}, {end}"
        case FactKind.NOTE:
            return f"written in pull request #{fact.pull}{', which is merged' if fact.confirmed else ''}"


_REASONS: Mapping[FactKind, str] = {
    FactKind.CORRECTION: "somebody who may write said it about a pull request of ours",
    FactKind.CLOSED: "the pull request was closed without being merged",
    FactKind.NOTE: "a model wrote it, and the pull request shows it",
}


def _reason(fact: Fact) -> str:
    why = _REASONS[fact.kind]
    return f"{why}; the pull request is merged" if fact.confirmed else why
