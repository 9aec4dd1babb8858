"""What a cycle learns from our pull requests, and recalls later if the forge still confirms it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.propose import notes_in
from orchestrator.bot.cycle.tasks import is_ours, key_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.worker.task_rules import id_of, is_another_person, is_us
from orchestrator.core.errors import ForgeError, WorkspaceError
from orchestrator.core.events import Defence, Guarded, Warned
from orchestrator.core.prompts import fence_after, one_line
from orchestrator.plugins.memory.facts import (
    LIFETIME,
    MOST_CITED,
    MOST_WORDS,
    Fact,
    FactKind,
    RepositoryFacts,
    RepositoryMemory,
)
from orchestrator.plugins.memory.items import (
    ALWAYS_INCLUDED,
    RESULTS,
    Author,
    Importance,
    MemoryType,
    NewItem,
)
from orchestrator.plugins.memory.memory import CANDIDATES, MIRRORED, QUERY_CHARS, shown_block
from orchestrator.plugins.memory.store import MEMORIES, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.forge.base import Feedback, Forge, PullRequest
    from orchestrator.bot.worker.candidates import SeenPulls
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, ToolCallEnded
    from orchestrator.plugins.memory.items import Memory
    from orchestrator.plugins.memory.memory import LongTermMemory

MOST_READ = 3
"""The most ended pull requests whose feedback a cycle reads."""
RECENT = timedelta(days=30)
"""Ended pull requests that were updated longer ago are not read."""
MOST_RECALLED = 12
"""The most facts of the repository that are added to a message."""

_PATH_CHARS = 200


def own_words(body: str) -> str:
    """Return a comment without its quotations, which are other people's words."""
    kept, fence = [], ""
    for line in body.splitlines():
        if fence or not line.lstrip().startswith(">"):
            fence = fence_after(line, fence)
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
        at_reference: returns the remote's ref of the facts, as seen before; None means to ask the remote.
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
    _feedback: dict[int, Sequence[Feedback]] = field(default_factory=dict)
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
        ours = (one for one in seen.pulls if key_of(one.branch) and is_us(one.author, me))
        self._pulls = {pull.number: pull for pull in ours}
        self._feedback = {number: said for number, said in seen.feedback.items() if number in self._pulls}
        self._facts = shared.read(self.at_reference())
        ended = self._unread_ended_pulls()
        for pull in ended:
            if pull.number not in self._feedback:
                self._feedback[pull.number] = self.forge.feedback(pull.number)
        facts = [fact for number in self._feedback for fact in self._facts_from(self._pulls[number])]
        self._store(shared, facts, [pull.number for pull in ended])

    def _store(self, shared: RepositoryMemory, found: Sequence[Fact], looked_at: Sequence[int]) -> None:
        merged = {pull.number for pull in self._pulls.values() if pull.state is PullRequestState.MERGED}

        def change(facts: RepositoryFacts) -> RepositoryFacts:
            known = facts.by_key
            new = [fact for fact in found if not _is_known(fact, known.get(fact.key))]
            after = facts.with_facts(new, (number for number in looked_at if number not in facts.looked_at))
            confirmed = (
                one.confirm() if one.pull in merged and not one.confirmed else one for one in after.facts
            )
            return replace(after, facts=tuple(confirmed))

        if (after := change(self._facts)) == self._facts:
            return
        self._facts = shared.change(change) if self.writes else after.bounded(self.clock.now())

    def _unread_ended_pulls(self) -> list[PullRequest]:
        """Return recently ended pull requests whose feedback no cycle has read since, the newest first."""
        now, known = self.clock.now() + self.forge.ahead(), set(self._facts.looked_at)
        ended = [
            pull
            for pull in self._pulls.values()
            if pull.state is not PullRequestState.OPEN
            and pull.number not in known
            and pull.updated_at is not None
            and now - pull.updated_at < RECENT
        ]
        return sorted(ended, key=lambda pull: pull.number, reverse=True)[:MOST_READ]

    def _facts_from(self, pull: PullRequest) -> Iterator[Fact]:
        """Yield a fact for each remark of a person who may write on a pull request.

        The last remark on a pull request that was closed unmerged counts as the reason.
        """
        remarks = [(one, text) for one in self._feedback[pull.number] if (text := self._own_text(one))]
        for number, (one, text) in enumerate(remarks, 1):
            is_reason = pull.state is PullRequestState.CLOSED and number == len(remarks)
            yield Fact(
                FactKind.CLOSED if is_reason else FactKind.CORRECTION,
                text[:MOST_WORDS],
                one.author,
                pull.number,
                id_of(one),
                one.url[:_PATH_CHARS],
                one.created_at,
                self.clock.now() + LIFETIME,
                one.path[:_PATH_CHARS],
            )

    def _own_text(self, one: Feedback) -> str:
        """Return a remark's own text; empty unless its author is a person who may write."""
        is_person = is_another_person(one.author, self.forge.own_login()) and not is_ours(one.body)
        if not is_person or one.state in {"approved", "dismissed"}:
            return ""
        text = own_words(self.clean(one.body))
        return text if text and self.forge.permission(one.author).may_write else ""

    def notes_in(self, call: ToolCallEnded) -> list[str]:
        """Return the text that an answer of `remember` reports as newly stored: see `CycleMemory`."""
        if call.name != "remember":
            return []
        try:
            said = json.loads(call.output)
            return [str(said["content"])] if said["stored"] is True else []
        except (ValueError, TypeError, KeyError):
            return []

    async def note(self, notes: Sequence[str], pull: PullRequest, cited: Mapping[str, str]) -> None:
        """Store the model's notes: see `CycleMemory`. A failure becomes a warning."""
        if self.shared is None or not self.writes or not notes:
            return
        now, shared = self.clock.now(), self.shared
        facts = [
            Fact(
                FactKind.NOTE,
                text[:MOST_WORDS],
                "",
                pull.number,
                "",
                pull.url[:_PATH_CHARS],
                now,
                now + LIFETIME,
                cited=_cited_by(text, cited),
            )
            for text in notes
        ]
        try:
            await asyncio.to_thread(shared.change, lambda known: known.with_facts(facts))
        except WorkspaceError as error:
            self.emit(Warned(f"the model's notes for later tasks were not stored: {error}"))

    # What is recalled.

    async def recall(
        self, message: str, files: Collection[str], blobs: Callable[[Sequence[str]], Mapping[str, str]]
    ) -> str:
        """Return the memories that are relevant to a message, as Markdown: see `CycleMemory`."""
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
            memory_now = one.memory
            if memory_now.index == REPOSITORY:
                if sum(known.index == REPOSITORY for known in shown) == MOST_RECALLED:
                    continue
                text = await asyncio.to_thread(self._present_text, memory_now, blobs)
                if not text:
                    continue
                memory_now = replace(memory_now, content=text)
            shown.append(memory_now)
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

    def _present_text(self, memory: Memory, blobs: Callable[[Sequence[str]], Mapping[str, str]]) -> str:
        """Return a fact's present text at its citation; empty if the fact does not hold any more.

        The reason is emitted once per fact.
        """
        fact = self._facts.by_key.get(str(memory.metadata.get(MIRRORED, "")))
        if fact is None:
            return ""
        try:
            return self._note_now(fact, blobs) if fact.kind is FactKind.NOTE else self._remark_now(fact)
        except (ForgeError, WorkspaceError) as error:
            return self._refuse(fact, f"its citation cannot be read: {error}")

    def _refuse(self, fact: Fact, why: str, defence: Defence = Defence.MEMORY) -> str:
        """Emit why a fact is not used, once per fact. Return an empty text."""
        if fact.key not in self._reported:
            self._reported.add(fact.key)
            who = f"of {fact.author}" if fact.author else "of a model"
            self.emit(Guarded(defence, f"a remembered {fact.kind} {who} is not used: {why}"))
        return ""

    def _remark_now(self, fact: Fact) -> str:
        pull = self._pulls.get(fact.pull)
        if pull is None:
            return self._refuse(fact, f"#{fact.pull} is no pull request of ours")
        if fact.kind is FactKind.CLOSED and pull.state is not PullRequestState.CLOSED:
            return self._refuse(fact, f"#{fact.pull} is not closed without being merged")
        if fact.pull not in self._feedback:
            self._feedback[fact.pull] = self.forge.feedback(fact.pull)
        one = next((one for one in self._feedback[fact.pull] if id_of(one) == fact.said), None)
        if one is None:
            return self._refuse(fact, f"what it cites on #{fact.pull} is not there")
        if one.author != fact.author:
            return self._refuse(fact, f"what it cites on #{fact.pull} is somebody else's")
        if not self.forge.permission(one.author).may_write:
            return self._refuse(fact, f"{fact.author} may not write any more", Defence.ADMISSION)
        text = self._own_text(one)
        return text[:MOST_WORDS] or self._refuse(fact, f"what it cites on #{fact.pull} was taken back")

    def _note_now(self, fact: Fact, blobs: Callable[[Sequence[str]], Mapping[str, str]]) -> str:
        pull = self._pulls.get(fact.pull)
        if pull is None or pull.state is not PullRequestState.MERGED:
            return ""  # not recalled before the merge, and no reason to warn
        if fact.content not in notes_in(pull.body):
            return self._refuse(fact, f"#{fact.pull}, which is merged, does not say it")
        now = blobs(tuple(fact.cited))
        if changed := sorted(path for path, blob in fact.cited.items() if now.get(path) != blob):
            path = one_line(changed[0], limit=_PATH_CHARS)
            return self._refuse(fact, f"{path} was changed since #{fact.pull}")
        return self.clean(fact.content)


def _is_known(fact: Fact, known: Fact | None) -> bool:
    """Return whether an equal fact is stored already; the state of its pull request is not compared."""
    parts = (fact.kind, fact.content, fact.path)
    return known is not None and (known.kind, known.content, known.path) == parts


def _cited_by(text: str, cited: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a text names; all of them if it names none; at most `MOST_CITED`."""
    named = {path: blob for path, blob in cited.items() if path in text or path.rpartition("/")[2] in text}
    return dict(sorted((named or cited).items())[:MOST_CITED])


def as_items(facts: Iterable[Fact]) -> dict[str, NewItem]:
    """Return facts as items of the memory's index, by the facts' keys."""
    return {fact.key: _as_item(fact) for fact in facts}


def _as_item(fact: Fact) -> NewItem:
    importance = Importance(fact.importance)
    if fact.confirmed and importance is Importance.NORMAL:
        importance = Importance.HIGH
    reason = _REASONS[fact.kind]
    citation = {"said": fact.said} if fact.said else {"blobs": fact.cited}
    metadata: dict[str, Any] = {
        "reason": f"{reason}; the pull request is merged" if fact.confirmed else reason,
        "url": fact.url,
        "citation": {"pull": fact.pull, **citation},
        "path": fact.path,
        "by": fact.author or "a model",
        "confirmed": fact.confirmed,
    }
    return NewItem(
        fact.content,
        fact.created_at,
        MemoryType.CORRECTION if fact.kind is FactKind.CORRECTION else MemoryType.FACT,
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
