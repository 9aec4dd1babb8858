"""A server's own folder: one session at a time has the permanent one, others that run meanwhile get a copy of it.

So no server ever writes where another one does, and this program never opens by its path what a server may have made.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.core.confined import ConfinedFolder, UnsuitableFileError
from orchestrator.core.files import lock_file
from orchestrator.engine.environments.sandbox.visible import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_COPIED_BYTES: Final = 64 << 20
MAX_COPIED_ENTRIES: Final = 10_000


@contextmanager
def own_folder(permanent: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of a server that starts now, and whether it is a copy that is removed at the end.

    Args:
        permanent: the folder that stays; a missing one is created. The lock is beside it, where no server writes.

    Raises:
        OSError: it cannot be created or copied, or it is too large to be copied.
        ToolError: the folder for the copy cannot be created.
    """
    with ExitStack() as stack:
        permanent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ConfinedFolder.made(permanent) as folder:
            try:
                handle = lock_file(permanent.with_name(f"{permanent.name}.lock"))
            except BlockingIOError:
                scratch = Scratch()
                stack.callback(scratch.remove)
                path = Path(scratch.path)
                with ConfinedFolder(path) as copy:
                    _copy(folder, copy)
            else:
                stack.callback(os.close, handle)
                path = folder.path
        yield path, path != folder.path


def _copy(source: ConfinedFolder, target: ConfinedFolder) -> None:
    """Copy folders and regular files; nothing else is followed or opened."""
    left = MAX_COPIED_BYTES
    for number, (path, entry) in enumerate(source.walk()):
        if entry.is_dir:
            target.make_folder(path)
        elif entry.is_file and entry.size <= left and number < MAX_COPIED_ENTRIES:
            content = source.read(path, left)
            left -= len(content)
            target.write(path, content, stat.S_IMODE(entry.mode) & 0o777)
        elif entry.is_file:
            raise UnsuitableFileError(
                errno.EFBIG,
                f"another session uses its folder, which has over {MAX_COPIED_BYTES >> 20} MiB or "
                f"{MAX_COPIED_ENTRIES:,} files and is not copied; end that session first",
            )
