"""The repository inside the work tree, which belongs to the model's commands: they may change all of it.

This program never runs git on it. What commands change in the files is committed from the files; the messages
of their commits are asked for by a command that runs where theirs do, and are a text like any other of theirs.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.base import Identity

# Commands have no terminal, so an editor (`git commit --amend`, `git revert`) takes the message as it is.
# Outside of a sandbox git reads the user's configuration, too: what it says of keys and of LFS is not for a
# commit that is only a draft, and for a clone that has pointers only.
_CONFIGURATION = """[core]
\trepositoryformatversion = {version}
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
\teditor = true
\tpager = cat
[gc]
\tauto = 0
[maintenance]
\tauto = false
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
[filter "lfs"]
\tclean =
\tsmudge =
\tprocess =
\trequired = false
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
