"""The commands of a conversation that begin with `/`, in one table for help and completion."""

from __future__ import annotations

import asyncio
import difflib
import shlex
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from orchestrator.app.cli.output import write_new_file
from orchestrator.app.plugins import Point, SlashCommand, absence_of, added
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.session.history import Turn
    from orchestrator.plugins.chat.conversation import Conversation
    from orchestrator.plugins.chat.cycles import PullDraft
    from orchestrator.plugins.chat.program import ChatProgram

_MOST_RESUMABLE = 10
_TITLE_CHARS = 60
_MOST_FILES = 20
_MOST_SHOWN_LINES = 40
_MOST_PAST_LINES = 12
LEAVING = ("/exit", "/quit")
_KEYS = [
    ("@path", "shows the model a file"),
    ("\\ at the end", "continues on the next line"),
    ("Ctrl+C", "stops a reply"),
    ("Ctrl+D, exit, quit", "leave"),
]


class CommandView(Protocol):
    """Shows a person what a command prints."""

    def say(self, text: str, /) -> object:
        """Print lines."""

    def rows(self, rows: Sequence[tuple[str, str]], /) -> object:
        """Print two columns."""

    def code(self, diff: str, /) -> object:
        """Print a diff."""


class Chat(Protocol):
    """What the commands use of a conversation, at a terminal (`orchestrator.plugins.chat.command.TerminalChat`) or in an editor.

    Attributes:
        debug: whether the state of the session is shown after each turn.
    """

    debug: bool

    @property
    def view(self) -> CommandView:
        """What shows the output."""

    async def program(self) -> ChatProgram:
        """Return the program of the conversation."""

    async def confirm(self, question: str, /) -> bool:
        """Ask the person yes or no."""


async def run_slash_command(chat: Chat, typed: str) -> None:
    """Run the typed command.

    Raises:
        ConfigurationError: there is no such command, or its arguments are not valid.
        PullwrightError: the command failed.
    """
    name, _, rest = typed.strip().partition(" ")
    command = slash_commands().get(name)
    if command is None and (absent := absence_of(name)):
        raise ConfigurationError(absent)
    if command is None:
        near = difflib.get_close_matches(name, [*slash_commands(), *LEAVING], n=1)
        hint = f"did you mean {near[0]}?" if near else "/help lists them all"
        raise ConfigurationError(f"there is no command {name[:60]}: {hint}")
    await command.run(chat, rest.strip())


async def _help(chat: Chat, _rest: str) -> None:
    chat.view.rows(
        [(f"{one.name} {one.arguments}".rstrip(), one.text) for one in slash_commands().values()] + _KEYS
    )


async def _todo(chat: Chat, _rest: str) -> None:
    from orchestrator.core.todos import done_in_words, todo_checklist

    program = await chat.program()
    known = program.conversation or program.begun
    items = known.todos.items if known else ()
    chat.view.say(
        "\n".join((done_in_words(items), *todo_checklist(items))) if items else "the model has no list"
    )


async def _compact(chat: Chat, _rest: str) -> None:
    program = await chat.program()
    if program.conversation is None:
        chat.view.say("the conversation has no message yet")
    elif not await program.conversation.session.compact():
        chat.view.say("the conversation cannot be made shorter")


async def _context(chat: Chat, _rest: str) -> None:
    from orchestrator.app.words import counted

    program = await chat.program()
    if program.conversation is None:
        chat.view.say("the conversation has no message yet")
        return
    session = program.conversation.session
    tokens, window = session.history.tokens, program.window
    share = f", {tokens / window:.0%} of the {window:,} of the context window" if window else ""
    chat.view.say(f"{counted(len(session.history.turns), 'message')}, about {tokens:,} tokens{share}")


async def _model(chat: Chat, rest: str) -> None:
    program = await chat.program()
    if rest:
        await program.change_model(rest)
    chat.view.say(f"the model is {program.model_name}")


async def _effort(chat: Chat, rest: str) -> None:
    from orchestrator.app.config.settings import Origin, SourceKind, check_value

    program = await chat.program()
    if rest:
        check_value("reasoning_effort", rest, Origin(SourceKind.FLAG, "/effort"))
        session = (await program.opened()).session
        session.reasoning_effort = None if rest == "none" else rest
    chat.view.say(f"reasoning effort: {program.effort or 'the default of the provider'}")


async def _cost(chat: Chat, _rest: str) -> None:
    from orchestrator.app.words import amounts, counted

    conversation = (await chat.program()).conversation
    if conversation is None:
        chat.view.say("nothing was spent yet")
        return
    spent, whole = conversation.spent, conversation.spent_in_all
    chat.view.say(f"{counted(spent.rounds, 'round')}, {amounts(spent.tokens, spent.usd)}")
    if whole.rounds != spent.rounds:
        chat.view.say(
            f"with its earlier runs: {counted(whole.rounds, 'round')}, {amounts(whole.tokens, whole.usd)}"
        )


async def _status(chat: Chat, _rest: str) -> None:
    program = await chat.program()
    run = program.conversation.parts.run if program.conversation else "not started"
    chat.view.rows(
        [
            ("repository", program.label),
            ("folder", str(program.folder or "a clone, made with the first message")),
            ("model", program.model_name),
            ("may", program.rules),
            ("run", run),
        ]
    )
    await _cost(chat, "")


async def _diff(chat: Chat, _rest: str) -> None:
    program = await chat.program()
    conversation, text = await _begun(program), ""
    if program.draft is not None:
        text = program.draft.change.diff
    elif conversation is not None:
        text = await asyncio.to_thread(conversation.parts.checkpoints.changed)
    _show_diff(chat, text or "the model has changed no file in this conversation")


async def _begun(program: ChatProgram) -> Conversation | None:
    """Return the conversation, opened if it is resumed; None if nothing was said yet."""
    return await program.opened() if program.begun else program.conversation


async def _undo_or_redo(chat: Chat, rest: str, *, redo: bool) -> None:
    """Show the changes of an undo or redo, and make them if the person agrees."""
    from orchestrator.app.words import counted

    conversation = await _begun(await chat.program())
    if conversation is None:
        chat.view.say("the model has changed no file in this conversation")
        return
    checkpoints = conversation.parts.checkpoints
    preview = await asyncio.to_thread(checkpoints.preview, redo=redo)
    if preview and rest != "yes":
        _show_diff(chat, preview)
        if not await chat.confirm("Change these files?"):
            return
    restored = await asyncio.to_thread(checkpoints.redo if redo else checkpoints.undo)
    conversation.files_changed(restored.paths)
    for path in restored.kept:
        chat.view.say(f"{path} was changed since by somebody else, and is left as it is")
    done = "redone" if redo else "undone"
    chat.view.say(f"{done}: {counted(len(restored.paths), 'file')}")


def _show_diff(chat: Chat, text: str) -> None:
    chat.view.code(text) if text.startswith("diff ") else chat.view.say(text)


async def _save(chat: Chat, rest: str) -> None:
    program = await chat.program()
    if program.conversation is None:
        chat.view.say("the conversation has no message yet")
        return
    text = program.conversation.as_markdown()
    name = rest or f"chat-{program.conversation.parts.run}.md"
    chat.view.say(f"saved in {write_new_file(name, text)}")


async def _resume(chat: Chat, rest: str) -> None:
    from orchestrator.app.words import counted, local_time, short_line
    from orchestrator.plugins.chat.conversation import begun_in, conversations

    program = await chat.program()
    if not rest:
        found = conversations(program.context.home, program.label, _MOST_RESUMABLE)
        lines = [
            f"{one.id}  {local_time(one.started)}  {short_line(one.said, _TITLE_CHARS)}"
            for one in found
            if one.started is not None
        ]
        chat.view.say(
            "\n".join((*lines, "/resume RUN continues one"))
            if lines
            else "there is no conversation to continue"
        )
        return
    if program.task is not None:
        raise ConfigurationError("this conversation is about a task: leave it, then type chat --resume RUN")
    begun = begun_in(program.context.home, rest, program.label)
    await program.end()
    program.begun = begun
    chat.view.say(f"continues {begun.run}: {counted(len(begun.turns), 'message')}")
    chat.view.say(last_words(begun.turns))


def last_words(turns: Sequence[Turn]) -> str:
    """Return the last message of the person and the last reply, each at its beginning; empty if there are none."""
    from orchestrator.engine.session.history import FROM_USER, TurnKind

    said = next((turn.said for turn in reversed(turns) if turn.kind in FROM_USER and turn.said.strip()), "")
    answered = next(
        (
            turn.content
            for turn in reversed(turns)
            if turn.kind is TurnKind.ASSISTANT and turn.content.strip()
        ),
        "",
    )
    return "\n\n".join(filter(None, (said and f"> {_beginning(said)}", answered and _beginning(answered))))


def _beginning(text: str) -> str:
    lines = text.strip().splitlines()
    more = "\n[...]" if len(lines) > _MOST_PAST_LINES else ""
    return "\n".join(lines[:_MOST_PAST_LINES]) + more


async def _new(chat: Chat, _rest: str) -> None:
    program = await chat.program()
    if program.task is not None:
        raise ConfigurationError("this conversation is about a task: leave it, then type chat")
    ended = program.conversation.parts.run if program.conversation else ""
    await program.end()
    back = f"; /resume {ended} goes back" if ended else ""
    chat.view.say(f"a new conversation begins with your next message{back}")


async def _debug(chat: Chat, _rest: str) -> None:
    chat.debug = not chat.debug
    chat.view.say("the state is shown after each turn" if chat.debug else "the state is no longer shown")


async def _paste(chat: Chat, _rest: str) -> None:
    chat.view.say("/paste has to be alone on its line; /submit ends the pasted text")


async def _pr(chat: Chat, rest: str) -> None:
    program = await chat.program()
    if rest == "yes":
        await _propose(chat, program)
        return
    words = _words(rest)
    everything, repository = False, None
    while words and words[0].startswith("--"):
        flag = words.pop(0)
        if flag == "--all":
            everything = True
        elif flag == "--repo" and words:
            repository = words.pop(0)
        else:
            raise ConfigurationError(f"/pr has no flag {flag[:60]}: /pr [--all] [--repo REPO] [TITLE]")
    draft = await program.draft_pull(" ".join(words), everything=everything, repository=repository)
    _show_draft(chat, program, draft)
    if await chat.confirm("Propose this?"):
        await _propose(chat, program)


def _show_draft(chat: Chat, program: ChatProgram, draft: PullDraft) -> None:
    from orchestrator.app.words import counted
    from orchestrator.core.changes import diff_stat

    change = draft.change
    stat = diff_stat(change.diff)
    is_short = change.diff.count("\n") <= _MOST_SHOWN_LINES
    more = "" if is_short else "; answer no, then /diff shows the lines and /pr yes proposes them"
    draft_or_not = ", as a draft" if program.settings.draft or draft.insists else ""
    rows = [
        ("title", program.guards.wording.title(draft.title)),
        ("goes to", f"{draft.where}, branch {draft.branch}{draft_or_not}"),
        ("changes", f"{counted(len(change.paths), 'file')}, +{stat.added} -{stat.removed}{more}"),
        *(("", f"{letter} {path}") for path, letter in change.paths[:_MOST_FILES]),
    ]
    if len(change.paths) > _MOST_FILES:
        rows.append(("", f"and {len(change.paths) - _MOST_FILES} more"))
    if change.left_out:
        others = len(change.left_out) - _MOST_FILES
        named = ", ".join(change.left_out[:_MOST_FILES]) + (f" and {others} more" if others > 0 else "")
        rows.append(("left out", f"your own edits in {named} (/pr --all includes them)"))
    if draft.note:
        rows.append(("note", draft.note))
    if draft.insists:
        rows.append(("refused", "it was refused before; now it is proposed unchanged, and its text says so"))
    if is_short:
        chat.view.code(change.diff)
    chat.view.rows(rows)


async def _propose(chat: Chat, program: ChatProgram) -> None:
    from orchestrator.app.cli.run import result_lines

    draft = program.draft
    result = await program.propose()
    if draft is not None:
        dry_run = result.outcome == "planned"
        chat.view.say("\n".join(result_lines(result, draft.commands, dry_run=dry_run)))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"{text[:60]}: {error}") from None


_OWN = (
    SlashCommand("/help", "", "print this list", _help),
    SlashCommand("/status", "", "show repository, model, permission, run and cost", _status),
    SlashCommand("/cost", "", "show the cost of this conversation", _cost),
    SlashCommand("/context", "", "show how much of the context window is used", _context),
    SlashCommand("/compact", "", "replace all but the last reply by a summary", _compact),
    SlashCommand("/model", "[NAME]", "show the model, or change to another one of the same provider", _model),
    SlashCommand("/effort", "[WORD]", "show or set the reasoning effort: low, medium, high, none", _effort),
    SlashCommand("/diff", "", "show the model's changes, or what /pr would propose", _diff),
    SlashCommand(
        "/undo", "[yes]", "show and undo the model's last change", partial(_undo_or_redo, redo=False)
    ),
    SlashCommand("/redo", "[yes]", "show and redo the last undone change", partial(_undo_or_redo, redo=True)),
    SlashCommand(
        "/pr",
        "[--all] [TITLE]",
        "show the changes and propose them as a pull request; --all includes your own edits",
        _pr,
    ),
    SlashCommand("/todo", "", "show the model's to-do list", _todo),
    SlashCommand("/save", "[FILE]", "write the conversation into a file", _save),
    SlashCommand("/new", "", "begin a new conversation; changed files stay", _new),
    SlashCommand("/clear", "", "the same as /new", _new),
    SlashCommand("/resume", "[RUN]", "continue an earlier conversation, or list them", _resume),
    SlashCommand("/debug", "", "turn the display of the session's state on or off", _debug),
    SlashCommand("/paste", "", "read several lines as one message, up to /submit", _paste),
)


@cache
def slash_commands() -> Mapping[str, SlashCommand]:
    """Return all commands by name, in the order of the help: the conversation's own, then those of other plug-ins."""
    return {one.name: one for one in (*_OWN, *(one for more in added(Point.SLASH_COMMANDS) for one in more))}
