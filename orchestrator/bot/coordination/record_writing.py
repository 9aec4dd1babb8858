"""Makes the commits that are records: in a scratch directory of ours, not yet on the remote."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.loose import write_object, write_tree
from orchestrator.bot.git.failures import printable
from orchestrator.bot.git.names import is_commit_id
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.coordination.scratch import IdKind

_DOING = "cannot write a record"
_PAGE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WHO = "Pullwright <pullwright@invalid>"


def write_record(  # noqa: PLR0913, PLR0917  one commit, fact by fact
    objects: Path, ids: IdKind, message: str, parent: str | None, pages: Mapping[str, bytes], now: datetime
) -> str:
    """Make a commit, and return its id.

    Args:
        objects: where it is written.
        ids: what ids it has.
        message: see `Records.commit`, as for `parent` and `pages`.
        parent: the commit before it.
        pages: the files of its tree.
        now: dates it.

    Raises:
        WorkspaceError: a name is no page's, the parent is no commit's id, or there is no space.
    """
    if parent is not None and not is_commit_id(parent):
        refusal = f"{_DOING}: {printable(parent)!r} is not a commit id"
        raise WorkspaceError(refusal)
    for name in pages:
        if not _PAGE.fullmatch(name):
            refusal = f"{printable(name)!r} cannot be the name of a page"
            raise WorkspaceError(refusal)
    blobs = {name: write_object(objects, "blob", page, ids, doing=_DOING) for name, page in pages.items()}
    lines = [f"tree {write_tree(objects, blobs, ids, doing=_DOING)}"]
    lines += [f"parent {parent}"] if parent is not None else []
    moment = f"{max(int(now.timestamp()), 0)} +0000"
    lines += [f"author {_WHO} {moment}", f"committer {_WHO} {moment}", "", message.rstrip("\n"), ""]
    return write_object(objects, "commit", "\n".join(lines).encode("utf-8", "replace"), ids, doing=_DOING)
