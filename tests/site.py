"""Build the site of the documentation: the README as its first page, the pages of `docs/`, nothing from elsewhere.

python -m tests.site FOLDER

It needs what `docs/requirements.lock` names. Links that lead nowhere end it with an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(\]\()(?!https?://|#)([^)#]+)")
_LANGUAGES = {".yml": "yaml", ".toml": "toml", ".py": "python"}


def stage(folder: Path) -> None:
    """Copy the pages, the README as `index.md`, and each file of the repository that a page links to.

    A file that is no page becomes one, with its text as code.
    """
    pages = folder / "docs"
    shutil.copytree(DOCS, pages)
    shutil.copy(DOCS / "zensical.toml", folder)
    (pages / "zensical.toml").unlink()
    sources = {pages / path.name: path for path in DOCS.glob("*.md")} | {
        pages / "index.md": ROOT / "README.md"
    }
    waiting = [*sources.items(), (pages / "CHANGELOG.md", ROOT / "CHANGELOG.md")]
    for page, source in waiting:
        text = source.read_text(encoding="utf-8")
        page.write_text(_LINK.sub(partial(_moved, source, pages), text), encoding="utf-8")


def _moved(source: Path, pages: Path, found: re.Match[str]) -> str:
    """A link as it is on the site, where all pages stand in one folder."""
    target = (source.parent / found[2]).resolve()
    if target.is_relative_to(DOCS):
        return f"{found[1]}{target.relative_to(DOCS)}"
    if target == ROOT / "README.md":
        return f"{found[1]}index.md"
    if target.suffix != ".md" and target.is_file():
        name = f"{target.name.replace('.', '-').lower()}.md"
        code = f"```{_LANGUAGES.get(target.suffix, '')}\n{target.read_text(encoding='utf-8')}```\n"
        (pages / name).write_text(f"# {target.relative_to(ROOT)}\n\n{code}", encoding="utf-8")
        return f"{found[1]}{name}"
    return f"{found[1]}{target.name}"


def build(into: Path) -> None:
    """Build the site.

    Raises:
        subprocess.CalledProcessError: a link leads nowhere, or the configuration is wrong; what, was printed.
    """
    with tempfile.TemporaryDirectory(prefix="pullwright-site-") as name:
        folder = Path(name)
        stage(folder)
        program = Path(sys.executable).with_name("zensical")
        subprocess.run([program, "build", "--clean", "--strict"], cwd=folder, check=True)
        shutil.copytree(folder / "site", into, dirs_exist_ok=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
