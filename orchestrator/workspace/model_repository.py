"""The repository inside the work tree: a history for the model's commands to look at.

Nothing is ever read back from it. What commands change in the files is committed from the files.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.workspace.base import Identity

_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[user]
\tname = {name}
\temail = {email}
"""


def create_model_repository(host: Path, tree: Path, branch: str, commit: str, identity: Identity) -> None:
    """Make `tree/.git` with the history of the clone, and without any remote, URL or credential."""
    own = tree / ".git"
    own.mkdir()
    # Copies and not hard links: the model may write into its own files, and ours must stay as they are.
    shutil.copytree(host / "objects", own / "objects")
    for name in ("index", "shallow"):
        if (host / name).exists():
            shutil.copyfile(host / name, own / name)
    reference = own / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True)
    reference.write_text(f"{commit}\n", "ascii")
    (own / "HEAD").write_bytes(os.fsencode(f"ref: refs/heads/{branch}\n"))
    sha256 = len(commit) > 40  # noqa: PLR2004  digits of a SHA-1
    text = _CONFIGURATION.format(
        version=1 if sha256 else 0, name=_quoted(identity.name), email=_quoted(identity.email)
    )
    (own / "config").write_text(text + ("[extensions]\n\tobjectformat = sha256\n" if sha256 else ""), "utf-8")


def _quoted(text: str) -> str:
    """A value in git's configuration syntax."""
    plain = "".join(letter for letter in text if letter.isprintable())
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
