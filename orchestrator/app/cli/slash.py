"""The commands that begin with `/` in a conversation: one table, from which help and completion come."""

from __future__ import annotations

import asyncio
import difflib
import os
import shlex
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator.app.cli.chat import Chat
    from orchestrator.app.wiring.chat import ChatProgram
    from orchestrator.app.wiring.chat_cycles import PullDraft
    from orchestrator.bot.chat.conversation import Conversation

_MOST_RESUMABLE = 10
_TITLE_CHARS = 60
_PRIVATE = 0o600
_MOST_FILES = 20
_KEYS = [
    ("@path", "shows the model a file"),
    ("\\ at the end", "goes on in the next line"),
    ("Ctrl+C", "ends a reply"),
    ("Ctrl+D, exit, quit", "leave"),
]


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command: what is typed after its name, what it does in a few words, and what runs."""

    name: str
    arguments: str
    text: str
    run: Callable[[Chat, str], Awaitable[None]]


async def run_command(chat: Chat, typed: str) -> None:
    """Run what was typed.

    Raises:
        ConfigurationError: there is no such command, or what follows it makes no sense.
        PullwrightError: it failed.
    """
    name, _, rest = typed.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "/help tells them all"
        raise ConfigurationError(f"there is no command {name[:60]}: {hint}")
    await command.run(chat, rest.strip())


async def _help(chat: Chat, _rest: str) -> None:
    chat.view.rows([(f"{one.name} {one.arguments}".rstrip(), one.text) for one in COMMANDS.values()] + _KEYS)


async def _memory(chat: Chat, rest: str) -> None:
    from orchestrator.app.cli.arguments import UsageError, memory_help, parse
    from orchestrator.app.cli.memory import act
    from orchestrator.app.wiring.memory import memory_file, open_memory

    words = _words(rest)
    if not words or words == ["help"]:
        chat.view.rows([(f"/memory {what}", text) for what, text in memory_help()])
        return
    try:
        options = parse(["memory", *words])
    except (UsageError, SystemExit) as error:
        raise ConfigurationError(f"/memory: {error}; /memory help tells what there is") from None
    if options.repo:
        raise ConfigurationError("/memory is about what this conversation remembers: leave --repo out")
    program = await chat.program()
    if not memory_file(program.context.home, program.repository).exists():
        chat.view.say("nothing is remembered on this machine")
        return
    out = StringIO()
    opened = program.memory or open_memory(program.context, program.repository, program.redactor)
    try:
        with redirect_stdout(out):
            await act(opened, options, out)
    finally:
        if opened is not program.memory:
            await opened.aclose()
    chat.view.say(out.getvalue().rstrip("\n") or "there is none")


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
        chat.view.say("nothing was said yet")
    elif not await program.conversation.session.compact():
        chat.view.say("the conversation is as short as it can be made")


async def _context(chat: Chat, _rest: str) -> None:
    from orchestrator.app.words import counted

    program = await chat.program()
    if program.conversation is None:
        chat.view.say("nothing was said yet")
        return
    session = program.conversation.session
    tokens, window = session.history.tokens, program.window
    share = f", {tokens / window:.0%} of the {window:,} that the model can read" if window else ""
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
    chat.view.say(f"reasoning effort: {program.effort or 'as the provider has it'}")


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
            f"with the runs before it: {counted(whole.rounds, 'round')}, {amounts(whole.tokens, whole.usd)}"
        )


async def _status(chat: Chat, _rest: str) -> None:
    program = await chat.program()
    run = program.conversation.parts.run if program.conversation else "not begun"
    chat.view.rows(
        [
            ("repository", program.label),
            ("folder", str(program.folder or "a clone, made with the first word")),
            ("model", program.model_name),
            ("may", program.rules),
            ("run", run),
        ]
    )
    await _cost(chat, "")


async def _skill(chat: Chat, rest: str) -> None:
    from orchestrator.app.words import short_line

    program = await chat.program()
    skills = (await program.opened()).parts.skills if rest else await program.skills()
    if not rest:
        rows = [(skill.name, short_line(skill.description)) for skill in skills.all]
        chat.view.rows(rows) if rows else chat.view.say(
            "there is no skill; docs/assistant.md says where they are kept"
        )
        return
    skill = skills.get(rest)
    if skill is None:
        raise ConfigurationError(f"there is no skill {rest[:60]!r}; there are: {skills.names}")
    conversation = await program.opened()
    conversation.give_skill(skill)
    chat.view.say(f"the model gets the skill {skill.name} with your next message")


async def _diff(chat: Chat, _rest: str) -> None:
    program = await chat.program()
    conversation, text = await _begun(program), ""
    if program.draft is not None:
        text = program.draft.diff
    elif conversation is not None:
        text = await asyncio.to_thread(conversation.parts.checkpoints.changed)
    _show_diff(chat, text or "the model has changed no file in this conversation")


async def _begun(program: ChatProgram) -> Conversation | None:
    """The conversation; None where nobody said anything, in an earlier one neither."""
    return await program.opened() if program.begun else program.conversation


async def _undo(chat: Chat, rest: str) -> None:
    await _step(chat, rest, redo=False)


async def _redo(chat: Chat, rest: str) -> None:
    await _step(chat, rest, redo=True)


async def _step(chat: Chat, rest: str, *, redo: bool) -> None:
    """Show what would be changed, and change it if the person wants that."""
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
        chat.view.say(f"{path} was changed by somebody else since, and stays as it is")
    done = "done again" if redo else "taken back"
    chat.view.say(f"{done}: {counted(len(restored.paths), 'file')}")


def _show_diff(chat: Chat, text: str) -> None:
    chat.view.code(text) if text.startswith("diff ") else chat.view.say(text)


async def _save(chat: Chat, rest: str) -> None:
    program = await chat.program()
    if program.conversation is None:
        chat.view.say("nothing was said yet")
        return
    text = program.redactor.redact(program.conversation.as_markdown())
    name = rest or f"chat-{program.conversation.parts.run}.md"
    chat.view.say(f"saved in {_write_new(name, text)}")


def _write_new(name: str, text: str) -> Path:
    """Write a file that was not there, readable by its owner only; where it is."""
    path = Path(name).expanduser()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(f"{path} is there already: name another file") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


async def _resume(chat: Chat, rest: str) -> None:
    from orchestrator.app.words import counted, local_time, short_line
    from orchestrator.bot.chat.conversation import begun_in, conversations

    program = await chat.program()
    if not rest:
        found = conversations(program.context.home, program.label, _MOST_RESUMABLE)
        lines = [
            f"{one.run}  {local_time(one.started)}  {short_line(one.first, _TITLE_CHARS)}" for one in found
        ]
        chat.view.say(
            "\n".join((*lines, "/resume RUN goes on with one")) if lines else "there is none to go on with"
        )
        return
    if program.task is not None:
        raise ConfigurationError("this conversation is about a task: leave it, then chat --resume")
    begun = begun_in(program.context.home, rest)
    await program.end()
    program.begun = begun
    chat.view.say(f"goes on with {begun.run}: {counted(len(begun.turns), 'message')}")


async def _debug(chat: Chat, _rest: str) -> None:
    chat.view.say(
        "the state is shown after each turn" if chat.toggle_debug() else "the state is not shown any more"
    )


async def _typed_alone(chat: Chat, _rest: str) -> None:
    chat.view.say("/paste stands alone on its line; /submit ends what is pasted")


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
            raise ConfigurationError(f"/pr knows no {flag[:60]}: /pr [--all] [--repo REPO] [TITLE]")
    draft = await program.draft_pull(" ".join(words), everything=everything, repository=repository)
    _show_draft(chat, program, draft)
    if await chat.confirm("Propose this?"):
        await _propose(chat, program)


def _show_draft(chat: Chat, program: ChatProgram, draft: PullDraft) -> None:
    """Show what would leave this machine, and where it would go."""
    from orchestrator.app.words import counted
    from orchestrator.core.changes import diff_stat

    stat = diff_stat(draft.diff)
    draft_or_not = ", as a draft" if program.settings.draft or draft.insists else ""
    rows = [
        ("title", program.guards.wording.title(draft.title)),
        ("goes to", f"{draft.where}, branch {draft.branch}{draft_or_not}"),
        (
            "changes",
            f"{counted(len(draft.paths), 'file')}, +{stat.added} -{stat.removed} (/diff shows the lines)",
        ),
        *(("", f"{letter} {path}") for path, letter in draft.paths[:_MOST_FILES]),
    ]
    if len(draft.paths) > _MOST_FILES:
        rows.append(("", f"and {len(draft.paths) - _MOST_FILES} more"))
    if draft.left_out:
        more = len(draft.left_out) - _MOST_FILES
        named = ", ".join(draft.left_out[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")
        rows.append(("left out", f"your own edits in {named} (/pr --all takes them)"))
    if draft.note:
        rows.append(("note", draft.note))
    if draft.insists:
        rows.append(("refused", "it was refused before; now it is proposed as it is, and says so"))
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


COMMANDS: dict[str, SlashCommand] = {
    one.name: one
    for one in (
        SlashCommand("/help", "", "this list", _help),
        SlashCommand("/status", "", "repository, model, what may run, what it cost", _status),
        SlashCommand("/cost", "", "what this conversation has cost", _cost),
        SlashCommand("/context", "", "how much of what the model can read is used", _context),
        SlashCommand("/compact", "", "put a summary in the place of all but the last reply", _compact),
        SlashCommand(
            "/model", "[NAME]", "the model, or another one of the same provider from now on", _model
        ),
        SlashCommand("/effort", "[WORD]", "how much the model thinks: low, medium, high, none", _effort),
        SlashCommand("/diff", "", "what the model has changed here, or what /pr would propose", _diff),
        SlashCommand("/undo", "[yes]", "take back what the model changed last, after a look at it", _undo),
        SlashCommand("/redo", "[yes]", "do again what was taken back last", _redo),
        SlashCommand(
            "/pr",
            "[--all] [TITLE]",
            "propose what was changed as a pull request, after a look at it; --all with your own edits",
            _pr,
        ),
        SlashCommand("/todo", "", "the model's list of what is to be done", _todo),
        SlashCommand("/skill", "[NAME]", "give the model a skill, or list them", _skill),
        SlashCommand("/memory", "ACTION", "what is remembered on this machine; /memory help", _memory),
        SlashCommand("/save", "[FILE]", "write the conversation into a file", _save),
        SlashCommand("/resume", "[RUN]", "go on with an earlier conversation, or list them", _resume),
        SlashCommand("/debug", "", "show the state of the session after each turn, or no longer", _debug),
        SlashCommand("/paste", "", "take many lines as one message, up to /submit", _typed_alone),
    )
}
