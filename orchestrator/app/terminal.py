"""The terminal's border: all text of this process on standard output and standard error is redacted here.

One process has one terminal. Argparse, rich, warnings, tracebacks and our own code all write to `sys.stdout` and
`sys.stderr`, so these two are replaced once for the whole process, and so is what it knows as secret. Everything
else gets its `Redactor` passed in.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orchestrator.engine.policy.secrets import Redactor

_CONTEXT_CHARS = 256
"""The number of shown characters that are searched again with the next ones, as a secret may be in both."""
# ECMA-48: control sequences. They may stand between the characters of a secret, and are no part of it.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|[\x00-\x08\x0b\x0c\x0e-\x1f]"
)
CLOSED = frozenset({errno.EIO, errno.EPIPE})
"""A terminal that was closed, and a pipe without a reader. On standard output the latter is an error, as `head` wants it."""
_LAYOUT = re.compile(rf"[\r\n]|{_CONTROL.pattern}")


class _Known:
    """What this process knows as secret. It is loaded at the first use, because that takes a while."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._redactor: Redactor | None = None

    def __call__(self) -> Redactor:
        if self._redactor is None:
            from orchestrator.engine.models.keys import secret_values
            from orchestrator.engine.policy.secrets import Redactor

            self._redactor = Redactor(secret_values(self._environ))
        return self._redactor


_process: _Known | None = None


def redact_terminal() -> Callable[[], None]:
    """Redact from now on what is written to standard output and standard error, and return what ends that."""
    global _process
    if isinstance(sys.stdout, RedactedOutput):
        return lambda: None
    before, _process = (sys.stdout, sys.stderr), _Known(dict(os.environ))
    out = RedactedOutput(sys.stdout, _process)
    err = RedactedOutput(sys.stderr, _process, gone=CLOSED)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)

    def end() -> None:
        global _process
        (sys.stdout, sys.stderr), _process = before, None
        for stream in (out, err):
            with suppress(OSError, ValueError):  # its reader may have closed it
                stream.flush()

    return end


def known_secrets(environ: Mapping[str, str]) -> Redactor:
    """Return what knows the secrets of an environment: the one of this process, if its terminal is redacted.

    Who learns another secret tells it (`Redactor.learn`) before that secret can be used.
    """
    if _process is None:
        return _Known(environ)()
    from orchestrator.engine.models.keys import secret_values

    redactor = _process()
    redactor.learn(secret_values(environ))
    return redactor


def print_fixed(text: str) -> None:
    """Print a text that is written in the program, such as its help, without loading what finds secrets.

    No part of the text may come from outside: from arguments, the environment, files or servers.
    """
    out = sys.stdout
    if isinstance(out, RedactedOutput):
        out.write_fixed(text)
    else:
        out.write(text)


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON on standard output, at once."""
    standard_output().write_json(value, indent)


def standard_output() -> RedactedOutput:
    """Return standard output, redacted, also for who writes there while `sys.stdout` is something else."""
    out = sys.stdout
    return out if isinstance(out, RedactedOutput) else RedactedOutput(out, _Known(os.environ))


class RedactedOutput:
    """A text stream that redacts everything before it is written to another one.

    A secret is found in several writes too: text is held back until the end of a line or a flush, and searched
    together with the text before it. Line breaks and control sequences stay, so that a layout stays whole.

    Args:
        stream: the stream to write to.
        redactor: returns what finds the secrets; it is called late, because that takes a while to load.
        gone: the errors after which nobody reads any more. The program goes on and saves its work, so what
            follows is dropped.
    """

    def __init__(
        self,
        stream: TextIO,
        redactor: Callable[[], Redactor],
        *,
        gone: frozenset[int] = frozenset({errno.EIO}),
    ) -> None:
        self._stream = stream
        self._gone = gone
        self._redactor = redactor
        self._shown = ""
        self._held: list[str] = []
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Write a text, at the latest when its line ends."""
        with self._lock:
            self._held.append(text)
            if "\n" in text:
                self._release()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def write_json(self, value: Any, indent: int | None = None) -> None:
        """Write a value as JSON in one line, or indented. Its texts are redacted before they are encoded.

        No terminal and no CI system takes any of it for a command (see `orchestrator.app.words.clean`).
        """
        from orchestrator.app.words import as_json_text

        clean = as_json_text(self._redactor().redact_value(value), indent=indent)
        with self._lock:
            self._release()
            self._put(f"{clean}\n")
            self._put(flush=True)
            self._shown = ""

    def write_fixed(self, text: str) -> None:
        """Write a text that is written in the program (see `print_fixed`)."""
        with self._lock:
            self._release()
            self._put(text)
            self._shown = ""

    def flush(self) -> None:
        """Write what was held back."""
        with self._lock:
            self._release()
            self._put(flush=True)

    @property
    def buffer(self) -> _Bytes:
        """What takes bytes, for code that encodes its text itself."""
        return _Bytes(self)

    def __getattr__(self, name: str) -> Any:
        if name == "detach":  # it would hand out the stream
            raise AttributeError(name)
        return getattr(self._stream, name)

    def _release(self) -> None:
        new = "".join(self._held)
        if not new:
            return
        self._held = []
        shown, self._shown = self._shown, (self._shown + new)[-_CONTEXT_CHARS:]
        self._put(redacted_after(shown, new, self._redactor()))

    def _put(self, text: str = "", *, flush: bool = False) -> None:
        try:
            self._stream.write(text)
            if flush:
                self._stream.flush()
        except OSError as error:
            if error.errno not in self._gone:
                raise
            # The stream keeps what it could not write, and tries again with the next text.
            nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)


class _Bytes:
    """The binary side of a `RedactedOutput`."""

    def __init__(self, output: RedactedOutput) -> None:
        self._output = output

    def write(self, data: bytes) -> int:
        """Write encoded text."""
        self._output.write(data.decode(self._output.encoding or "utf-8", "replace"))
        return len(data)

    def flush(self) -> None:
        """Write what was held back."""
        self._output.flush()


def redacted_after(shown: str, text: str, redactor: Redactor) -> str:
    """Return a text for a terminal, redacted, where a secret may begin in the text that was shown before it.

    Line breaks and control sequences inside a secret stay.
    """
    from orchestrator.core.redaction import REPLACEMENT

    whole = shown + text
    # The parts between the control sequences, each with its place.
    parts: list[tuple[str, int]] = []
    at = 0
    for match in _CONTROL.finditer(whole):
        parts.append((whole[at : match.start()], at))
        at = match.end()
    parts.append((whole[at:], at))
    plain = "".join(part for part, _ in parts)
    spans = redactor.spans_of_text(plain)
    if not spans:
        return text
    places = [start + offset for part, start in parts for offset in range(len(part))]
    found: list[str] = []
    position = len(shown)
    for first, last in spans:
        start, end = max(places[first], position), places[last - 1] + 1
        if end > position:
            found += whole[position:start], REPLACEMENT, *_LAYOUT.findall(whole, start, end)
            position = end
    return "".join([*found, whole[position:]])
