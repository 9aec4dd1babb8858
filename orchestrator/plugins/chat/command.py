"""`pullwright chat`: a conversation with the model about this folder, at a terminal or line by line."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.app.cli.arguments import DONE, INTERRUPTED, UsageError, given_settings, refuse_secrets
from orchestrator.app.cli.output import print_lines
from orchestrator.app.plugins import installed
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.core import event_loop
from orchestrator.core.errors import PullwrightError
from orchestrator.core.event_loop import in_abandoned_thread, on_ending_signals
from orchestrator.core.watchdog import interrupts_handled

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine, Iterable, Iterator
    from typing import Any, TypeVar

    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

    from orchestrator.app.wiring import Observers
    from orchestrator.core.events import Event
    from orchestrator.plugins.chat.conversation import ApprovalAnswer
    from orchestrator.plugins.chat.program import ChatProgram
    from orchestrator.plugins.chat.view import ChatView, ServerQuestions
    from orchestrator.plugins.mcp.elicitation import AnswerValue, PersonAtTerminal, ServerQuestion

    Made = TypeVar("Made")

_PROMPT, _MORE, _PASTE = "> ", ". ", "| "
_PASTING, _SUBMIT, _CANCEL = "/paste", "/submit", "/cancel"
_LEAVING = frozenset({"exit", "quit", "/exit", "/quit"})
COMMAND = re.compile(r"/[^\s/]*(?:\s|\Z)")
"""The beginning of a command. It does not match paths such as `/etc/hosts`, which have a second slash."""
_MENTION = re.compile(r"(?<!\S)@(?P<path>[^\s@][^\s]*)")
_MOST_NAMES = 200
_HISTORY = "chat_history"
_PRIVATE = 0o600
_READ_BYTES = 65_536
_KEYS_WITHOUT_TEXT = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
"""Arrows, function keys, and what is typed with Alt."""


class _LeaveError(Exception):
    """The person wants to leave the conversation."""


def chat(options: argparse.Namespace) -> int:
    """Run the conversation until the person leaves, and return the exit status."""
    refuse_contract(options)
    talk = TerminalChat(options)
    try:
        return event_loop.run(talk.run())
    except asyncio.CancelledError:  # a signal came before the first message could be read
        return INTERRUPTED
    finally:
        talk.close_observers()


def refuse_contract(options: argparse.Namespace) -> None:
    """Refuse a contract that is for tasks."""
    if getattr(options, "contract", None) in {"json-plan", "whole-file"}:
        raise UsageError(
            f"--contract {options.contract} is for tasks: a conversation takes native or single-step"
        )


def mentions_in(text: str) -> list[str]:
    """Return the paths that a message mentions by `@`."""
    return [match["path"].rstrip(".,;:!?)") for match in _MENTION.finditer(text)]


class TerminalChat:
    """A conversation with one person at one terminal: reads the input and shows the answers.

    Attributes:
        debug: whether the state of the session is shown after each turn.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.debug: bool = options.debug
        self._options = options
        self._program: asyncio.Future[ChatProgram] | None = None
        self._view: ChatView | None = None
        self._view_lock = threading.Lock()
        self._state_view: Callable[[Event], None] | None = None
        self._observers: Observers | None = None
        self._input: PromptSession[str] | None = None
        self._asking = asyncio.Lock()
        self._working: asyncio.Task[Any] | None = None
        self._typed = StandardInput()
        self._ahead = TypedAhead(self._show_typed)
        self._is_terminal = not options.plain and sys.stdin.isatty() and sys.stdout.isatty()

    @property
    def view(self) -> ChatView:
        """The view for all output. It is created at first use, here or in the thread that builds the program."""
        with self._view_lock:
            if self._view is None:
                from orchestrator.plugins.chat.view import ChatView

                self._view = ChatView.make(plain=not self._is_terminal)
            return self._view

    async def program(self) -> ChatProgram:
        """Return the program, and wait until it is built."""
        if self._program is None:
            self._program = asyncio.ensure_future(asyncio.to_thread(self._build))
        return await asyncio.shield(self._program)

    async def run(self) -> int:
        """Read and answer messages until the person leaves."""
        self._listen_to_signals(cast("asyncio.Task[int]", asyncio.current_task()))
        if self._is_terminal:
            run = self._options.run
            first = f"Pullwright continues run {run}" if run else f"Pullwright in {Path.cwd()}"
            print_lines([first, "/help lists the commands, Ctrl+C stops a reply, Ctrl+D leaves.", ""])
        else:
            await self.program()
        if self._options.run is not None:
            await self._open_task()
        if self._is_terminal and self._program is not None:
            self._introduce(await self.program())
        if self._options.resume and (begun := (await self.program()).begun):
            from orchestrator.plugins.chat.slash import last_words

            self.view.say(f"{last_words(begun.turns)}\n")
        status = DONE
        try:
            with suppress(_LeaveError, EOFError):
                while True:
                    await self._handle(await self._read())
        except asyncio.CancelledError:
            status = INTERRUPTED
        finally:
            await self._leave()
        return status

    def _listen_to_signals(self, main: asyncio.Task[int]) -> None:
        def end() -> None:
            if self._program is not None and self._program.done() and not self._program.exception():
                self._program.result().context.stop.at_once()
            main.cancel()

        on_ending_signals(end)

    def close_observers(self) -> None:
        """Close the observers, so that they complete what is open."""
        if self._observers is not None:
            self._observers.close()

    async def _open_task(self) -> None:
        program = await self.program()
        try:
            with self.view.live:
                await program.opened()
        except BaseException:
            await program.close()
            raise
        if program.task:
            self.view.say(f"{program.task.words}\n")

    async def _handle(self, text: str) -> None:
        """Handle one input: run a command, or send a message to the model."""
        from orchestrator.plugins.chat.slash import run_slash_command

        if not text.strip():
            return
        if text.strip() in _LEAVING:
            raise _LeaveError
        if COMMAND.match(text):
            await self.interruptible(run_slash_command(self, text))
        else:
            await self.interruptible(self.say(text))

    async def say(self, text: str) -> None:
        """Send a message to the model, with the files that it mentions by `@`."""
        program = await self.program()
        if self._is_terminal and (memory := program.memory) and memory.question:
            self.view.say(memory.question)
            await memory.answer(agrees=await self.confirm("Do you want that?"))
        conversation = await program.opened()
        blocks = await conversation.mentioned_files(mentions_in(text), self.view.say)
        end = await program.say("\n\n".join((text, *blocks)))
        if end.limit:
            self.view.say("The reply ended there. Your next message starts a new reply.")

    async def interruptible(self, work: Coroutine[Any, Any, Made]) -> None:
        """Await work that Ctrl+C cancels. Errors are shown, and the conversation continues."""
        with self._ahead.reading() if self._is_terminal else nullcontext(), self.view.live:
            task = self._working = asyncio.ensure_future(work)
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, task.cancel)
            try:
                await task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current and current.cancelling():
                    raise
                self.view.say(
                    "Stopped. The part of the reply that arrived stays in the conversation, marked as cut off."
                )
            except PullwrightError as error:
                self.view.say(f"{PROGRAM}: {error}")
            finally:
                self._working = None
                loop.remove_signal_handler(signal.SIGINT)
                interrupts_handled()

    async def ask(self, tool: str, scope: str, why: str) -> ApprovalAnswer:
        """Ask the person whether a call above the permission level may run. Questions are asked one by one."""
        from orchestrator.core.events import Decision
        from orchestrator.plugins.chat.conversation import ApprovalAnswer

        async with self._asking:
            self.view.ask(tool, scope, why)
            try:
                answer = await self._answer("Run it? [y]es, [a]lways in this session, [n]o or why not: ")
            except (EOFError, KeyboardInterrupt):
                if self._working:
                    self._working.cancel()
                return ApprovalAnswer(Decision.NO)
        word = answer.strip()
        match word.casefold():
            case "y" | "yes":
                return ApprovalAnswer(Decision.ONCE)
            case "a" | "always":
                return ApprovalAnswer(Decision.ALWAYS)
            case "" | "n" | "no":
                return ApprovalAnswer(Decision.NO)
            case _:
                return ApprovalAnswer(Decision.NO, word)

    async def answer_server(self, question: ServerQuestion) -> dict[str, AnswerValue] | None:
        """Ask the person an MCP server's question. Return None if they do not answer."""
        async with self._asking:
            try:
                return await self._questions.ask(question)
            except (EOFError, KeyboardInterrupt):
                if self._working:
                    self._working.cancel()
                return None

    async def confirm(self, question: str) -> bool:
        """Ask the person yes or no.

        Without a terminal, return False and say that the command can be repeated with `yes`.
        """
        if not self._is_terminal:
            self.view.say(f"{question} To agree, type the command again, followed by yes.")
            return False
        self.view.live.pause()
        try:
            return (await self._answer(f"{question} [y]es, [n]o: ")).strip().casefold() in {"y", "yes"}
        except (EOFError, KeyboardInterrupt):
            return False

    # -- reading -------------------------------------------------------------------------------------------------

    async def _read(self) -> str:
        """Read a message: one line, lines joined by backslashes, or the lines between /paste and /submit."""
        line = await self._prompt(_PROMPT)
        if line.strip() == _PASTING:
            return await self._pasted()
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1].removesuffix("\\")
            try:
                lines.append(await self._prompt(_MORE))
            except EOFError:
                break
        return "\n".join(lines)

    async def _pasted(self) -> str:
        lines: list[str] = []
        self.view.say(f"Paste, then type {_SUBMIT} on a line of its own ({_CANCEL} discards the text).")
        while (line := await self._prompt(_PASTE)).strip() not in {_SUBMIT, _CANCEL}:
            lines.append(line)
        return "\n".join(lines) if line.strip() == _SUBMIT else ""

    async def _prompt(self, words: str) -> str:
        """Read a line. Ctrl+C discards the typed text."""
        if not self._is_terminal:
            return await self._typed.line()
        while True:
            begun, is_whole = self._ahead.take()
            try:
                return await self._line(words, begun, is_whole=is_whole)
            except KeyboardInterrupt:
                self.view.say("Ctrl+D or exit leaves.")

    def _show_typed(self, line: str) -> None:
        self.view.live.show_typed(line)

    async def _answer(self, words: str) -> str:
        """Read the answer to a question. It does not go into the history."""
        from prompt_toolkit import PromptSession

        own: PromptSession[str] = PromptSession()
        with self._ahead.aside():
            return await own.prompt_async(words)

    async def _line(self, words: str, begun: str, *, is_whole: bool) -> str:
        """Read a line. What is printed meanwhile stands above it.

        Args:
            begun: what was typed already.
            is_whole: whether that is the line.
        """
        from prompt_toolkit import PromptSession
        from prompt_toolkit.patch_stdout import patch_stdout

        if self._input is None:
            self._input = PromptSession(
                history=self._history(), completer=_completer(), complete_while_typing=False
            )
            self._input.app.after_render += self._load
        with patch_stdout(raw=True):
            return await self._input.prompt_async(words, default=begun, accept_default=is_whole)

    def _load(self, _application: object) -> None:
        """Start to build the program after the prompt was shown. A failure closes the prompt."""
        if self._program is None:
            self._program = asyncio.ensure_future(asyncio.to_thread(self._build))
            self._program.add_done_callback(self._loaded)

    def _loaded(self, future: asyncio.Future[ChatProgram]) -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is None:
            self._introduce(future.result())
        elif self._input and self._input.app.is_running:
            self._input.app.exit(exception=error)

    def _introduce(self, program: ChatProgram) -> None:
        """Tell which model answers, and what it may do."""
        self.view.say(f"The model is {program.model_name} ({program.rules}).\n")

    def _history(self) -> History:
        """Return the input history of all conversations, without secrets. Only the owner can read its file."""
        from prompt_toolkit.history import FileHistory, InMemoryHistory

        from orchestrator.bot.journal.folders import Home

        path = Home.of(os.environ).root / _HISTORY

        class Redacted(FileHistory):
            def store_string(self, string: str) -> None:
                from orchestrator.app.terminal import known_secrets

                with suppress(OSError):  # the conversation goes on if the history cannot be written
                    super().store_string(known_secrets(os.environ).redact(string))

        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _PRIVATE))
        except OSError:
            return InMemoryHistory()
        return Redacted(str(path))

    # -- the program ---------------------------------------------------------------------------------------------

    @property
    def _questions(self) -> ServerQuestions:
        from orchestrator.plugins.chat.view import ServerQuestions

        return ServerQuestions(self.view, self._answer, self._holds_secret)

    def _person(self) -> PersonAtTerminal | None:
        """Return the person for the questions of MCP servers; None if the program has no such servers."""
        if "mcp" not in installed():
            return None
        from orchestrator.plugins.mcp.elicitation import PersonAtTerminal

        return PersonAtTerminal(self._questions.show_page, self.answer_server)

    def _holds_secret(self, text: str) -> bool:
        return self._program is None or self._program.result().context.redactor.holds_secret(text)

    def _build(self) -> ChatProgram:
        from orchestrator.app.wiring import open_observers
        from orchestrator.core.clock import SystemClock
        from orchestrator.core.events import Warned
        from orchestrator.plugins.chat.conversation import begun_in
        from orchestrator.plugins.chat.program import build_chat

        refuse_secrets(self._options)
        self._observers = open_observers(
            os.environ, SystemClock(), lambda problem: self._emit(Warned(problem))
        )
        program = build_chat(
            "chat",
            self._options.repo,
            given_settings(self._options),
            os.environ,
            Path.cwd(),
            self._emit,
            ask=self.ask if self._is_terminal else None,
            person=self._person() if self._is_terminal else None,
            run=self._options.run,
            dry_run=self._options.dry_run,
            observers=self._observers,
        )
        if self._options.resume:
            program.begun = begun_in(program.context.home, self._options.resume, program.label)
        return program

    def _emit(self, event: Event) -> None:
        if self.debug:
            if self._state_view is None:
                from orchestrator.app.cli.show import StateView
                from orchestrator.core.clock import SystemClock

                self._state_view = StateView(self.view, SystemClock(), self.view.live.tell)
            self._state_view(event)
        else:
            self.view(event)

    async def _leave(self) -> None:
        """End the conversation, and print how to resume it."""
        if self._program is None or not self._program.done() or self._program.exception():
            return
        program = self._program.result()
        run = program.conversation.parts.run if program.conversation else None
        lines = await program.close()
        if run and self._is_terminal and not program.task:
            lines.append(f"{PROGRAM} chat --resume {run} continues this conversation.")
        with suppress(OSError):  # the terminal may be gone
            for line in lines:
                self.view.say(line)


class StandardInput:
    """Reads lines of standard input without `sys.stdin`, whose lock would hold up the end of the process."""

    def __init__(self) -> None:
        self._rest = b""

    async def line(self) -> str:
        """Return the next line without its end.

        Raises:
            EOFError: there is none.
        """
        while b"\n" not in self._rest:
            data = await in_abandoned_thread(_read_input)
            if not data:
                break
            self._rest += data
        line, end, self._rest = self._rest.partition(b"\n")
        if not line and not end:
            raise EOFError
        return line.decode(sys.stdin.encoding or "utf-8", "replace").removesuffix("\r")


def _read_input() -> bytes:
    try:
        handle = sys.stdin.fileno()
    except io.UnsupportedOperation:  # text in memory, which nobody waits for
        return sys.stdin.read().encode(sys.stdin.encoding or "utf-8", "surrogateescape")
    return os.read(handle, _READ_BYTES)


class TypedAhead:
    """What the person types during a reply: the view shows it, and the next prompt begins with it.

    Ctrl+C ends the reply and keeps it. It answers no question that comes meanwhile.

    Args:
        show: shows the line that is being typed.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._text, self._leaves, self._reads = "", False, False
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read keys while the block runs. The terminal echoes none, so that the status is not disturbed."""
        import termios

        handle = sys.stdin.fileno()
        before = termios.tcgetattr(handle)
        single = [*before]
        single[3] = single[3] & ~(termios.ECHO | termios.ICANON) | termios.NOFLSH
        termios.tcsetattr(handle, termios.TCSADRAIN, single)
        self._start()
        try:
            yield
        finally:
            self._stop()
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(handle, termios.TCSADRAIN, before)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the keyboard to a question while the block runs."""
        reads = self._reads
        if reads:
            self._stop()
        try:
            yield
        finally:
            if reads:
                self._start()

    def take(self) -> tuple[str, bool]:
        """Return the first line that was typed, and whether Enter was pressed.

        Raises:
            EOFError: nothing but Ctrl+D was pressed.
        """
        line, is_whole, self._text = self._text.partition("\n")
        leaves, self._leaves = self._leaves and not (line or is_whole), False
        if leaves:
            raise EOFError
        return line, bool(is_whole)

    def _start(self) -> None:
        self._reads = True
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def _stop(self) -> None:
        self._reads = False
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        self._show("")

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), _READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._stop()
            return
        for key in _KEYS_WITHOUT_TEXT.sub("", self._decoder.decode(data)):
            self._press(key)
        self._show(self._text.rpartition("\n")[2])

    def _press(self, key: str) -> None:
        *above, line = self._text.split("\n")
        match key:
            case "\x7f" | "\b":
                line = line[:-1]
            case "\x15":  # Ctrl+U
                line = ""
            case "\x17":  # Ctrl+W
                line = line.rstrip().rpartition(" ")[0]
            case "\x04":  # Ctrl+D
                self._leaves = not self._text
            case "\r" | "\n":
                line += "\n"
            case _ if key.isprintable():
                line += key
            case _:
                pass
        self._text = "\n".join((*above, line))


def _completer() -> Completer:
    from prompt_toolkit.completion import Completer, Completion

    from orchestrator.plugins.chat.slash import slash_commands

    class Words(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            del complete_event
            text: str = document.text_before_cursor
            if text.startswith("/") and " " not in text:
                for command in slash_commands().values():
                    if command.name.startswith(text):
                        yield Completion(command.name, -len(text), display_meta=command.text)
            elif match := re.search(r"(?<!\S)@([^\s@]*)$", text):
                for path in _paths(Path.cwd(), match[1]):
                    yield Completion(path, -len(match[1]))

    return Words()


def _paths(folder: Path, begun: str) -> Iterable[str]:
    """Return the files and folders whose paths begin with `begun`. Hidden ones need a leading dot."""
    from orchestrator.core.confined import ConfinedFolder

    above, _, name = begun.rpartition("/")
    found: list[str] = []
    with suppress(OSError), ConfinedFolder(folder) as opened:
        for entry in opened.entries(above):
            if (
                entry.name.startswith(name)
                and entry.name != ".git"
                and (name.startswith(".") or not entry.name.startswith("."))
            ):
                prefix = f"{above}/" if above else ""
                found.append(f"{prefix}{entry.name}{'/' if entry.is_dir else ''}")
    return sorted(found)[:_MOST_NAMES]
