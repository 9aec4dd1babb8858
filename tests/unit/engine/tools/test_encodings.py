"""A text in another encoding than UTF-8 is read, searched, edited and written in its own, or left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.engine.tools.base import Ok, ToolContext
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import overwrite_text, read_file, write_file
from orchestrator.engine.tools.patches import apply_patch
from orchestrator.engine.tools.search import grep

if TYPE_CHECKING:
    from pathlib import Path

FRENCH = "# Les élèves à l'été\r\ntotal = 1\r\n"
JAPANESE = "// これはテストです。\nint total = 1;\n"
CHINESE = "// 这是一个测试,用来计算所有的总和\nint total = 1;\n"
RUSSIAN = "# Привет, мир: проверка\ntotal = 1\n"
FILES = {
    "cp1252": FRENCH.encode("cp1252"),
    "latin-1": FRENCH.encode("latin-1"),
    "cp932": JAPANESE.encode("cp932"),
    "gbk": CHINESE.encode("gbk"),
    "utf-16": b"\xff\xfe" + RUSSIAN.encode("utf-16-le"),
    "utf-16-be": b"\xfe\xff" + RUSSIAN.encode("utf-16-be"),
}
V4A = """*** Begin Patch
*** Update File: a.txt
@@
-{0}total = 1{1}
+{0}total = 2{1}
*** End Patch"""
AGAIN = """*** Begin Patch
*** Delete File: a.txt
*** Add File: a.txt
+{}
*** End Patch"""


@pytest.fixture(params=FILES)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    (tmp_path / "a.txt").write_bytes(FILES[request.param])
    return FILES[request.param]


def changed(data: bytes) -> bytes:
    """The same with one other digit, and with every other byte as it was."""
    at = data.rindex(b"1")
    return data[:at] + b"2" + data[at + 1 :]


async def ran(tool: Any, context: ToolContext, **arguments: Any) -> Any:
    return await tool().execute(arguments, context)


async def test_it_is_read(context: ToolContext, data: bytes) -> None:
    found = await ran(read_file, context, path="a.txt")
    assert isinstance(found, Ok)
    first = {"#": "élèves" if b"\xe9" in data else "Привет", "/": "这是" if b"\xd5\xe2" in data else "これは"}
    assert first[found.output.split("| ", 1)[1][0]] in found.output


async def test_an_edit_keeps_every_other_byte(context: ToolContext, data: bytes, tmp_path: Path) -> None:
    await ran(read_file, context, path="a.txt")
    outcome = await ran(edit_file, context, path="a.txt", old_text="total = 1", new_text="total = 2")
    assert isinstance(outcome, Ok)
    assert (tmp_path / "a.txt").read_bytes() == changed(data)


async def test_a_patch_keeps_every_other_byte(context: ToolContext, data: bytes, tmp_path: Path) -> None:
    code = ("int ", ";") if b"int" in data else ("", "")
    await ran(read_file, context, path="a.txt")
    outcome = await ran(apply_patch, context, patch=V4A.format(*code))
    assert isinstance(outcome, Ok), outcome
    assert (tmp_path / "a.txt").read_bytes() == changed(data)


async def test_a_file_that_is_written_anew_keeps_its_encoding(
    context: ToolContext, data: bytes, tmp_path: Path
) -> None:
    text = FRENCH if b"\xe9" in data and b"\0" not in data else RUSSIAN if b"\0" in data else JAPANESE
    text = CHINESE if data == FILES["gbk"] else text
    await ran(read_file, context, path="a.txt")
    outcome = await ran(write_file, context, path="a.txt", content=text.replace("1", "2").replace("\r", ""))
    assert isinstance(outcome, Ok), outcome
    assert (tmp_path / "a.txt").read_bytes() == changed(data)


async def test_what_the_encoding_lacks_is_refused(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(FILES["cp1252"])
    with pytest.raises(ToolError, match=r"written in cp1252, which does not have 'д' \(U\+0434\)"):
        await ran(edit_file, context, path="a.txt", old_text="total = 1", new_text="д = 1")
    assert (tmp_path / "a.txt").read_bytes() == FILES["cp1252"]


@pytest.mark.parametrize("name", ["cp1252", "cp932", "gbk", "utf-16"])
async def test_it_is_found_by_its_words(context: ToolContext, tmp_path: Path, name: str) -> None:
    word = {"cp1252": "élèves", "cp932": "テスト", "gbk": "测试", "utf-16": "мир"}[name]
    (tmp_path / "a.txt").write_bytes(FILES[name])
    found = await ran(grep, context, pattern=word, path=".")
    assert isinstance(found, Ok)
    assert word in found.output


async def test_a_patch_that_deletes_and_adds_keeps_the_encoding(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(FILES["cp1252"])
    outcome = await ran(apply_patch, context, patch=AGAIN.format("# été"))
    assert isinstance(outcome, Ok), outcome
    assert (tmp_path / "a.txt").read_bytes() == "# été\r\n".encode("cp1252")


DOUBTFUL = RUSSIAN.encode("cp1251")


async def test_nothing_gets_round_the_refusal_of_a_doubtful_one(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(DOUBTFUL)
    context.ledger.shown.add("a.txt")
    calls: list[tuple[Any, dict[str, str]]] = [
        (read_file, {"path": "a.txt"}),
        (edit_file, {"path": "a.txt", "old_text": "total = 1", "new_text": "total = 2"}),
        (write_file, {"path": "a.txt", "content": "total = 2\n"}),
        (apply_patch, {"patch": V4A.format("", "")}),
        (apply_patch, {"patch": AGAIN.format("total = 2")}),
    ]
    for tool, arguments in calls:
        with pytest.raises(FileUnreadableError, match="its encoding is not sure: no tool reads or writes it"):
            await ran(tool, context, **arguments)
    with pytest.raises(FileUnreadableError, match="its encoding is not sure"):
        await overwrite_text(context, "a.txt", "total = 2\n")
    assert (tmp_path / "a.txt").read_bytes() == DOUBTFUL


async def test_nor_do_two_patches(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(DOUBTFUL)
    await ran(apply_patch, context, patch="*** Begin Patch\n*** Delete File: a.txt\n*** End Patch")
    with pytest.raises(FileUnreadableError, match="its encoding is not sure"):
        await ran(write_file, context, path="a.txt", content="total = 2\n")
