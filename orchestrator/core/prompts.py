"""Text that a model reads: the Markdown files of `prompts/`, and markers that untrusted text cannot close."""

from __future__ import annotations

import functools
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import jinja2

_PACKAGE = Path(__file__).resolve().parent.parent
_RUN_OF_BACKTICKS = re.compile(r"`{3,}")
_SHORTEST = 3
_LONGEST_PATH_CHARS = 300
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}(?=[^`]*$)|~{3,})(?P<rest>.*)", re.DOTALL)
"""A line that may open or close a code block. https://spec.commonmark.org/0.31.2/#fenced-code-blocks"""


def prompts_folder() -> Path:
    """Return the folder of the prompts: inside an installed package, or beside it in a source tree."""
    installed = _PACKAGE / "_prompts"
    return installed if installed.is_dir() else _PACKAGE.parent / "prompts"


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(prompts_folder()),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  the reader is a model, not a browser
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def render(name: str, /, **values: Any) -> str:
    """Render the template `prompts/<name>.md`.

    Raises:
        ConfigurationError: the file does not exist, or a variable that it uses was not given.
    """
    import jinja2

    try:
        return _environment().get_template(f"{name}.md").render(values).strip()
    except jinja2.TemplateError as error:
        message = f"prompt {name}.md cannot be used: {error}"
        raise ConfigurationError(message) from error


def fenced(text: str, language: str = "") -> str:
    """Return the text as a Markdown code block whose fence is longer than any run of backticks in it.

    CRLF becomes LF, and a missing line feed at the end is added: the block shows lines, whatever ends them in
    the file. `language` follows the opening fence.
    """
    lines = text.replace("\r\n", "\n")
    longest = max((len(run) for run in _RUN_OF_BACKTICKS.findall(lines)), default=_SHORTEST - 1)
    fence = "`" * (longest + 1)
    end = "" if not lines or lines.endswith("\n") else "\n"
    return f"{fence}{language}\n{lines}{end}{fence}"


def fence_after(line: str, fence: str) -> str:
    """Return the fence of the code block that is open after a line of Markdown; empty outside of blocks.

    A line is outside of blocks if this is empty before it and after it. Lists and quotations are not known: a
    line in one of them is given without its indentation or mark.

    Args:
        fence: the fence that was open before the line.
    """
    mark = _FENCE.match(line)
    if mark is None:
        return fence
    if not fence:
        return mark["fence"]
    return "" if mark["fence"].startswith(fence) and not mark["rest"].strip(" \t\r\n") else fence


def fenced_unless_blank(text: str) -> str:
    """Return the text as `fenced` does; an empty text if it is blank."""
    return fenced(text) if text.strip() else ""


def one_line(text: str, *, limit: int, keep: str = "") -> str:
    r"""Return the text as one line of at most `limit` characters, with invisible characters escaped.

    Bytes of a file name that are not UTF-8 (surrogates, as `os.fsdecode` makes them) become `\xNN`, a
    backtick becomes `\x60`, so that the line can stand between backticks. Characters of `keep` are not
    escaped.
    """
    if len(text) <= limit and text.isascii() and text.isprintable() and "`" not in text:
        return text
    line = "".join(c if c in keep else _visible(c) for c in text[: limit + 1])
    return cut(line, limit)


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text; an ellipsis shows that some are missing."""
    return text if len(text) <= limit else f"{text[: max(limit - 1, 0)].rstrip()}…"


def decomposed(text: str, form: Literal["NFD", "NFKD"]) -> str:
    """Return the decomposed form of a text, with the marks of each letter in the order of the text.

    The order that Unicode asks for takes quadratic time for a long row of marks.
    """
    return "".join(unicodedata.normalize(form, letter) for letter in text)


def shown_path(path: str) -> str:
    """Return the path on one line, with invisible characters escaped. Ordinary paths stay as they are."""
    return one_line(path, limit=_LONGEST_PATH_CHARS)


def _visible(character: str) -> str:
    if character == "`":
        return "\\x60"
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  the range in which PEP 383 keeps bytes
        code -= 0xDC00
    if code <= 0xFF:  # noqa: PLR2004  fits two digits
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  fits four digits
