from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.bot.git.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.git.clone import Clone

FILES: dict[str, str | bytes] = {
    "README.md": "# Example\n",
    "src/app.py": "import os\nfrom json import loads\n",
    "src/é ü.txt": "odd\n",
    "tests/test_app.py": "import requests\n",
    "win.bat": b"echo\r\nx\n",
    ".gitattributes": "*.bat text eol=crlf\n*.enc filter=evil\nhidden.txt export-ignore\n",
    "secret.enc": "plain\n",
    "hidden.txt": "kept\n",
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Clone]:
    source = make_source(tmp_path / "source", FILES)
    (source / "inside").symlink_to("src/app.py")
    (source / "folder").symlink_to("src")
    (source / "out").symlink_to("/etc/passwd")
    (source / "src/up").symlink_to("../../../x")
    (source / "by-way").symlink_to("folder/../../y")
    (source / "run.sh").write_text("true\n")
    (source / "run.sh").chmod(0o755)
    git(source, "add", ".")
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(source, "commit", "-qm", "more")
    with clone(source, tmp_path / "runs") as made:
        yield made


def exported(of: Clone, tree: str, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    of.trees.export(tree, folder)
    return {
        os.path.relpath(os.path.join(at, name), folder): (  # noqa: PTH118  names
            b"-> " + os.fsencode(path.readlink())
            if (path := Path(at, name)).is_symlink()
            else path.read_bytes()
        )
        for at, folders, names in os.walk(folder)
        for name in (*names, *(one for one in folders if Path(at, one).is_symlink()))
    }


def test_an_exported_tree_is_what_a_checkout_has_but_for_links_out(opened: Clone, tmp_path: Path) -> None:
    files = exported(opened, opened.base_commit, tmp_path / "out")
    assert files == {
        **{path: text.encode() if isinstance(text, str) else text for path, text in FILES.items()},
        "win.bat": b"echo\r\nx\r\n",
        "run.sh": b"true\n",
        "inside": b"-> src/app.py",
        "folder": b"-> src",
    }
    assert os.access(tmp_path / "out/run.sh", os.X_OK)
    assert list((tmp_path / "out/module").iterdir()) == []


def test_what_is_exported_does_not_touch_the_clones_files_or_index(opened: Clone, tmp_path: Path) -> None:
    write(opened.tree, {"README.md": "changed\n"})
    before = opened.changed_paths()
    exported(opened, opened.base_commit, tmp_path / "out")
    opened.trees.mixed(
        opened.base_commit, opened.changed_tree({"README.md"}, include_commands=False), {"README.md"}
    )
    assert opened.changed_paths() == before == {"README.md"}
    assert (opened.tree / "README.md").read_text() == "changed\n"


def test_the_files_that_import_a_module(opened: Clone) -> None:
    base = opened.base_commit
    assert opened.trees.importing(base, "requests") == ["tests/test_app.py"]
    assert opened.trees.importing(base, "json") == ["src/app.py"]
    assert opened.trees.importing(base, "o") == []


def test_a_file_in_the_place_of_a_folder_can_be_taken_back(opened: Clone, tmp_path: Path) -> None:
    (opened.tree / "tests/test_app.py").unlink()
    (opened.tree / "tests").rmdir()
    write(opened.tree, {"tests": "a file\n", "src/app.py": "new\n"})
    tree = opened.changed_tree({"tests", "tests/test_app.py", "src/app.py"}, include_commands=False)
    kept = opened.trees.mixed(tree, opened.base_commit, {"tests", "tests/test_app.py"})
    files = exported(opened, kept, tmp_path / "out")
    assert files["tests/test_app.py"] == b"import requests\n"
    assert files["src/app.py"] == b"new\n"
    assert opened.trees.mixed(tree, opened.base_commit, {"tests/test_app.py"}) == kept


def test_other_content_in_some_files(opened: Clone, tmp_path: Path) -> None:
    base = opened.base_commit
    before = exported(opened, base, tmp_path / "before")
    tree = opened.trees.replaced(base, {"src/é ü.txt": b"other\r\n", "run.sh": b"false\n"})
    assert exported(opened, tree, tmp_path / "after") == {
        **before,
        "src/é ü.txt": b"other\r\n",
        "run.sh": b"false\n",
    }
    assert os.access(tmp_path / "after/run.sh", os.X_OK)
    assert opened.trees.replaced(tree, {}) == tree


_NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "é", "x y"])
_TREES = st.dictionaries(_NAMES, st.sampled_from(["1", "2"]), max_size=6)


@given(_TREES, _TREES, st.sets(_NAMES))
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_a_mixed_tree_has_each_path_from_one_of_both(
    opened: Clone, first: dict[str, str], second: dict[str, str], paths: set[str]
) -> None:
    trees = [_written(opened, files) for files in (first, second)]
    expected = {path: text for path, text in first.items() if path not in paths}
    expected |= {path: text for path, text in second.items() if path in paths}
    assert opened.trees.mixed(trees[0], trees[1], paths) == _written(opened, expected)


def _written(of: Clone, files: dict[str, str]) -> str:
    """The tree of these files, made by plain git."""
    host = of.folder / "host.git"
    with TemporaryDirectory(dir=of.folder) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_INDEX_FILE", str(Path(folder, "index")))
        tree = Path(folder, "tree")
        tree.mkdir()
        write(tree, files)
        git(host, f"--work-tree={tree}", "add", "--all", "--force", ".")
        return git(host, "write-tree")
