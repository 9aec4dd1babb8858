"""A search before it runs: what was asked, checked, and which files and lines count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.core.git_names import is_git_name
from orchestrator.engine.environments.globs import PathPattern
from orchestrator.engine.environments.ignored import IgnoreRules

if TYPE_CHECKING:
    from orchestrator.engine.environments.base import GrepOptions
    from orchestrator.engine.environments.confined import ConfinedTree
    from orchestrator.engine.environments.ignored import ReadsFiles

TIME_LIMIT_SECONDS = 20.0
MAX_FILE_BYTES = 50_000_000
MAX_LINE_CHARS = 500


@dataclass(frozen=True, slots=True)
class Search:
    """A checked search: what decides which files and lines count.

    Attributes:
        base: the names from the root to where it begins.
        is_file: the beginning is a file: it is searched whatever the rules say.
        rules: None where ignored files were asked for by name.
        wanted: the file filter, if there is one.
    """

    pattern: str
    options: GrepOptions
    base: tuple[str, ...]
    is_file: bool
    rules: IgnoreRules | None
    wanted: PathPattern | None

    def accepts(self, names: tuple[str, ...]) -> bool:
        """Whether lines of this file may be in the answer."""
        if self.is_file:
            return True
        if any(is_git_name(name) for name in names):
            return False
        if self.wanted is not None and not self._is_wanted(names):
            return False
        return self.rules is None or not self.rules.ignored(names, is_dir=False)

    def _is_wanted(self, names: tuple[str, ...]) -> bool:
        """Filters with folders in them are tried from the root and from the beginning of the search."""
        wanted = self.wanted
        if wanted is None:
            return True
        tried = [wanted.matches(names), wanted.matches(names[len(self.base) :])]
        return all(tried) if wanted.negated else any(tried)


def prepare(tree: ConfinedTree, pattern: str, path: str, options: GrepOptions) -> Search:
    """Check what was asked.

    Raises:
        ToolError: nothing is at the path, it is refused, or the pattern or filter makes no sense.
    """
    check_pattern(pattern)
    found = tree.stat(path)
    if not (found.is_dir or found.is_file):
        raise FileUnreadableError(f"{path} is neither a file nor a folder")
    base = tree.split(path)
    wanted = PathPattern.for_filter(options.glob_filter) if options.glob_filter else None
    return Search(pattern, options, base, found.is_file, rules_for(tree, base), wanted)


def check_pattern(pattern: str) -> None:
    """Refuse what no search can take.

    Raises:
        ToolError: it is empty, has a line break or a NUL character, or is not valid Unicode.
    """
    if not pattern or any(char in "\n\0" or "\ud800" <= char <= "\udfff" for char in pattern):
        raise ToolError(
            "the pattern must be valid text, not empty, and without line breaks and NUL characters"
        )


def rules_for(tree: ReadsFiles, base: tuple[str, ...]) -> IgnoreRules | None:
    """The rules for a search that begins here; none where an ignored folder was named itself."""
    rules = IgnoreRules(tree)
    return None if rules.ignored(base, is_dir=True) else rules


def cut_line(line: str) -> str:
    """The line, or its beginning and how much is missing."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [... {len(line) - MAX_LINE_CHARS} more characters]"


def invalid_pattern(reason: str) -> ToolError:
    """The expression cannot be compiled."""
    return ToolError(f"the pattern is not a valid regular expression: {reason}")


def too_slow() -> ToolError:
    """The time limit passed."""
    return ToolError(f"the search took over {TIME_LIMIT_SECONDS:.0f} seconds: narrow the path or the pattern")
