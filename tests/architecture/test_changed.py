"""The tests of what a developer changed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.changed import changed_files
from tests.changed import tests_of as found_tests

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "orchestrator/bot/policy/words.py": "",
    "orchestrator/core/clock.py": "",
    "tests/unit/bot/policy/test_words.py": "",
    "tests/unit/bot/git/test_clone.py": "from orchestrator.core.clock import Clock\n",
    "docs/page.md": "",
}


def test_changed_and_new_files_have_their_tests(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *words], cwd=tmp_path, check=True
        )

    def change(name: str, text: str = "") -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FILES.get(name, "") + text)

    def found() -> list[str]:
        return found_tests(tmp_path, changed_files(tmp_path, "main"))

    for name in FILES:
        change(name)
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    assert found() == []
    change("docs/page.md", "more")
    assert found() == []
    change("orchestrator/bot/policy/words.py", "x = 1\n")
    assert found() == ["tests/unit/bot/policy/test_words.py"]
    git("checkout", "-qb", "topic")
    git("commit", "-qam", "what the branch has")
    change("orchestrator/core/clock.py", "x = 1\n")
    change("tests/unit/bot/cycle/test_new.py")
    assert found() == [
        "tests/unit/bot/cycle/test_new.py",
        "tests/unit/bot/git/test_clone.py",
        "tests/unit/bot/policy/test_words.py",
    ]
    (tmp_path / "tests/unit/bot/cycle/test_new.py").unlink()
    assert "tests/unit/bot/cycle/test_new.py" not in found()
