"""A text in another encoding than UTF-8 is read, searched, edited and written in its own, or left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import FileUnreadableError, ToolError
from orchestrator.engine.tools.base import Ok, ToolContext
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import overwrite_text, read_file, write_file
from orchestrator.engine.tools.patches import apply_patch, apply_unified_patch
from orchestrator.engine.tools.search import grep
from orchestrator.engine.tools.textfile import declared_encoding

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
    "iso-2022-jp": JAPANESE.encode("iso2022_jp"),
    "utf-16": b"\xff\xfe" + RUSSIAN.encode("utf-16-le"),
    "utf-16-be": b"\xfe\xff" + RUSSIAN.encode("utf-16-be"),
}
V4A = """*** Begin Patch
*** Update File: a.txt
@@
-{0}total = 1{1}
+{0}total = 2{1}
*** End Patch"""
UNIFIED = "--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-total = 1\n+total = 2\n"
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


async def test_a_file_of_utf_32_is_left_as_it_is(context: ToolContext, tmp_path: Path) -> None:
    data = "\ufefftotal = 1\n".encode("utf-32-le")
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(FileUnreadableError, match="UTF-32 text"):
        await ran(edit_file, context, path="a.txt", old_text="1", new_text="2")
    assert (tmp_path / "a.txt").read_bytes() == data


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
async def test_a_second_byte_order_mark_stays(context: ToolContext, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeff\ufeffx\ntotal = 1\n".encode(encoding))
    await ran(edit_file, context, path="a.txt", old_text="total = 1", new_text="total = 2")
    assert (tmp_path / "a.txt").read_bytes() == "\ufeff\ufeffx\ntotal = 2\n".encode(encoding)


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


# What the project itself names.

GREEK = "# Αθήνα\ntotal = 1\n"
CODE = "# hello\ntotal = 1\n"
EDITORCONFIG = "root = true\n[*]\nindent_style = tab\n[*.{txt,md}]\ncharset = {}\n"
ATTRIBUTES = "# comment\n*.md text\na.* text working-tree-encoding={} eol=lf\n"

DECLARED = [
    (".editorconfig", EDITORCONFIG.replace("{}", "utf-16le"), "utf-16-le", RUSSIAN),
    (".editorconfig", EDITORCONFIG.replace("{}", "utf-16be"), "utf-16-be", RUSSIAN),
    (".editorconfig", EDITORCONFIG.replace("{}", "Latin1"), "latin-1", "# é\ntotal = 1\n"),
    (".editorconfig", EDITORCONFIG.replace("{}", "latin1"), "cp1252", "# “é”\ntotal = 1\n"),
    (".gitattributes", ATTRIBUTES.format("UTF-16LE"), "utf-16-le", CODE),
    (".gitattributes", ATTRIBUTES.format("UTF-16BE"), "utf-16-be", RUSSIAN),
    (".gitattributes", ATTRIBUTES.format("windows-1251"), "cp1251", RUSSIAN),
    (".gitattributes", ATTRIBUTES.format("ISO-8859-7"), "iso-8859-7", GREEK),
    (".gitattributes", ATTRIBUTES.format("SHIFT-JIS"), "cp932", "// テ\ntotal = 1\n"),
]


@pytest.mark.parametrize(("rules", "content", "encoding", "text"), DECLARED)
async def test_an_encoding_that_the_project_names_is_sure(  # noqa: PLR0913, PLR0917  a row of the table
    context: ToolContext, tmp_path: Path, rules: str, content: str, encoding: str, text: str
) -> None:
    (tmp_path / rules).write_text(content)
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    found = await ran(read_file, context, path="a.txt")
    assert text.splitlines()[0] in found.output
    steps = [
        (edit_file, {"path": "a.txt", "old_text": "total = 1", "new_text": "total = 2"}),
        (apply_patch, {"patch": V4A.format("", "").replace("= 2", "= 3").replace("= 1", "= 2")}),
        (apply_unified_patch, {"patch": UNIFIED.replace("= 2", "= 4").replace("= 1", "= 3")}),
        (write_file, {"path": "a.txt", "content": text.replace("= 1", "= 5")}),
    ]
    for number, (tool, arguments) in enumerate(steps, 2):
        outcome = await ran(tool, context, **arguments)
        assert isinstance(outcome, Ok), outcome
        assert path.read_bytes() == text.replace("= 1", f"= {number}").encode(encoding), tool
    lines = await ran(grep, context, pattern="total = [0-9]", path=".")
    assert "a.txt:2" in lines.output
    word = text.splitlines()[0].removeprefix("# ").removeprefix("// ")
    assert "a.txt:1" in (await ran(grep, context, pattern=word, path=".")).output


@pytest.mark.parametrize("tool", [write_file, apply_patch, apply_unified_patch])
async def test_a_new_file_has_the_encoding_that_the_project_names(
    context: ToolContext, tmp_path: Path, tool: Any
) -> None:
    rules = "*.be working-tree-encoding=UTF-16BE\n*.marked working-tree-encoding=UTF-16\n*.not -working-tree-encoding\n"
    (tmp_path / ".gitattributes").write_text(rules)
    (tmp_path / ".editorconfig").write_text(
        "[*]\ncharset=latin1\n[*.bom]\ncharset = utf-8-bom\n[u]\ncharset=unset\n"
    )
    wanted = {
        "x.be": "é\n".encode("utf-16-be"),
        "x.marked": b"\xff\xfe" + "é\n".encode("utf-16-le"),
        "x.bom": b"\xef\xbb\xbf\xc3\xa9\n",
        "x.not": b"\xe9\n",
        "u": b"\xc3\xa9\n",
    }
    for name, data in wanted.items():
        patches = {
            write_file: {"path": name, "content": "é\n"},
            apply_patch: {"patch": f"*** Begin Patch\n*** Add File: {name}\n+é\n*** End Patch"},
            apply_unified_patch: {"patch": f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+é\n"},
        }
        assert isinstance(await ran(tool, context, **patches[tool]), Ok)
        assert (tmp_path / name).read_bytes() == data, name


@pytest.mark.parametrize(
    "data",
    [
        "é = 1\n".encode(),
        b"\x89PNG\r\n\x1a\n\x00\x01",
        b"\x1f\x8b\x08\x01\x02",
        b"a\x00b\x00c",
        RUSSIAN.encode("utf-16-be"),
    ],
    ids=["UTF-8 after all", "an image", "compressed", "an odd number of bytes", "the other order of bytes"],
)
@pytest.mark.parametrize("charset", ["latin1", "utf-16le"])
async def test_bytes_that_contradict_the_name_are_read_as_without_it(
    context: ToolContext, tmp_path: Path, data: bytes, charset: str
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    before = await _shown(context)
    (tmp_path / ".editorconfig").write_text(f"[*]\ncharset = {charset}\n")
    assert await _shown(context) == before


async def _shown(context: ToolContext) -> str:
    try:
        return str(await ran(read_file, context, path="a.txt"))
    except ToolError as error:
        return str(error)


async def test_what_the_named_encoding_lacks_is_refused(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / ".editorconfig").write_text("[*.txt]\ncharset = latin1\n")
    (tmp_path / "a.txt").write_text(CODE)
    with pytest.raises(ToolError, match=r"written in latin-1, which does not have '€'"):
        await ran(edit_file, context, path="a.txt", old_text="hello", new_text="€")
    await ran(edit_file, context, path="a.txt", old_text="hello", new_text="é")
    assert (tmp_path / "a.txt").read_bytes() == CODE.replace("hello", "é").encode("latin-1")


@pytest.mark.parametrize(
    ("files", "path", "wanted"),
    [
        ({".editorconfig": "[*.c]\ncharset=latin1"}, "deep/er/a.c", "latin-1"),
        ({".editorconfig": "[*.c]\ncharset=latin1"}, "a.h", None),
        ({".editorconfig": "[/src/*.c]\ncharset=latin1"}, "src/a.c", "latin-1"),
        ({".editorconfig": "[/src/*.c]\ncharset=latin1"}, "src/b/a.c", None),
        ({".editorconfig": "[src/**.c]\ncharset=latin1"}, "src/a.c", "latin-1"),
        ({".editorconfig": "[src/**.c]\ncharset=latin1"}, "src/b/c/a.c", "latin-1"),
        ({".editorconfig": "[{Makefile,*.mk}]\ncharset=latin1"}, "x/Makefile", "latin-1"),
        ({".editorconfig": "[f{1..3}.c]\ncharset=latin1"}, "f2.c", "latin-1"),
        ({".editorconfig": "[f{1..3}.c]\ncharset=latin1"}, "f4.c", None),
        ({".editorconfig": "[*]\ncharset=latin1\n[*.c]\ncharset=utf-8"}, "a.c", "utf-8"),
        ({".editorconfig": "[*]\ncharset=latin1", "s/.editorconfig": "root=true\n"}, "s/a.c", None),
        (
            {".editorconfig": "[*]\ncharset=latin1", "s/.editorconfig": "[*]\nindent_size=2"},
            "s/a.c",
            "latin-1",
        ),
        ({".editorconfig": "[*]\ncharset=latin1", "s/.editorconfig": "[*]\ncharset=unset"}, "s/a.c", None),
        ({".editorconfig": "; [*]\n# x\n[*]\nCharset = LATIN1"}, "a.c", "latin-1"),
        ({".editorconfig": "[*]\ncharset=hex"}, "a.c", None),
        ({".gitattributes": "*.c working-tree-encoding=CP1252"}, "x/a.c", "cp1252"),
        ({".gitattributes": "/a.c working-tree-encoding=CP1252"}, "x/a.c", None),
        ({".gitattributes": '"a b.c" working-tree-encoding=CP1252'}, "a b.c", "cp1252"),
        ({".gitattributes": "*.c working-tree-encoding=CP1252\na.c -working-tree-encoding"}, "a.c", None),
        ({".gitattributes": "s/ working-tree-encoding=CP1252"}, "s/a.c", None),
        ({".gitattributes": "s/** working-tree-encoding=CP1252"}, "s/t/a.c", "cp1252"),
        (
            {
                ".gitattributes": "* working-tree-encoding=CP1252",
                "s/.gitattributes": "*.c working-tree-encoding=EUC-JP",
            },
            "s/a.c",
            "euc_jp",
        ),
        ({".gitattributes": "* working-tree-encoding=unicode_escape"}, "a.c", None),
        (
            {".gitattributes": "*.c working-tree-encoding=EUC-JP", ".editorconfig": "[*]\ncharset=latin1"},
            "a.c",
            "euc_jp",
        ),
    ],
)
async def test_which_encoding_is_named(
    context: ToolContext, tmp_path: Path, files: dict[str, str], path: str, wanted: str | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    found = await declared_encoding(context, path)
    assert (found and found.name) == wanted
