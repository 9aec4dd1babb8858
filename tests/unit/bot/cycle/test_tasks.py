from __future__ import annotations

import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.cycle.tasks import Remark, Task, checklist, from_issue, from_text, slug
from orchestrator.bot.forge.base import Issue
from tests.tables import table

BACKLOG = """# Backlog

- [x] Done already
- [ ] Fix `add()` in calc.py
  It subtracts. See the test.
  - [ ] also for floats

* [ ] Second
1. [ ] Third
- [] no task
-[ ] no task either

```
- [ ] inside a code block
```

- [X] Ticked
  - [ ] Child of a ticked item
"""


def test_a_checklist_gives_its_unticked_items_in_order() -> None:
    assert [task.title for task in checklist("BACKLOG.md", BACKLOG)] == [
        "Fix `add()` in calc.py",
        "Second",
        "Third",
        "Child of a ticked item",
    ]


def test_deeper_lines_belong_to_the_item_above() -> None:
    first = next(checklist("BACKLOG.md", BACKLOG))
    assert "It subtracts." in first.body
    assert "also for floats" in first.body
    assert "Second" not in first.body


def test_code_is_no_item_and_stays_with_the_item_above() -> None:
    text = "- [ ] Fix it\n  ````\n  ```\n  - [ ] inside\n  ````\n````\n```\n- [ ] inside\n````\n- [ ] Next"
    first, second = checklist("TODO.md", text)
    assert first.body == "Fix it\n  ````\n  ```\n  - [ ] inside\n  ````"
    assert second.title == "Next"


def test_an_item_keeps_its_key_when_it_moves_to_another_file_or_line() -> None:
    here = next(checklist("BACKLOG.md", "- [ ] Fix  it"))
    there = list(checklist("TODO.md", "- [ ] other\n\n* [ ] Fix it\n"))[1]
    assert here.key == there.key
    assert here.source != there.source


def test_the_same_text_is_the_same_task_and_another_text_is_not() -> None:
    assert from_text("Fix add()\n") == from_text("Fix add()")
    assert from_text("Fix add()").key != from_text("Fix sub()").key


@table(
    ("title", "expected"),
    [
        ("Fix add() in calc.py", "fix-add-in-calc-py"),
        ("Überprüfe die Größe", "uberprufe-die-groe"),
        ("日本語", "task"),
        ("--upload-pack=evil", "upload-pack-evil"),
        ("..", "task"),
        ("x" * 99, "x" * 40),
    ],
)
def test_a_slug_is_a_harmless_part_of_a_branch_name(title: str, expected: str) -> None:
    assert slug(title) == expected


@given(st.text())
def test_every_title_gives_a_valid_slug(title: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", slug(title))


@given(st.text().filter(str.strip))
def test_every_text_is_a_task_with_a_title_of_one_line(text: str) -> None:
    task = from_text(text)
    assert task.branch.startswith(task.branch_prefix)
    assert "\n" not in task.title
    assert len(task.title) <= 120


def test_no_tasks_branches_are_mistaken_for_anothers() -> None:
    one, twelve = (Task(f"issue-{number}", "Fix it", "", "issue", number) for number in (1, 12))
    assert not twelve.branch.startswith(one.branch_prefix)


def issue(number: int, title: str, body: str = "") -> Issue:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    return Issue(number, title, body, True, (), "ada", "https://example.com/1", made)


def test_an_issue_is_a_task_with_what_was_said_about_it() -> None:
    said = (Remark("ada", "Floats too.", trusted=True), Remark("bob", "Why?", trusted=False))
    task = from_issue(issue(7, " Fix\n it ", "Now."), said)
    assert (task.key, task.title, task.body, task.number) == ("issue-7", "Fix it", "Now.", 7)
    assert task.remarks == said
    assert from_issue(issue(7, "Fix it")).remarks == ()


def test_the_title_of_an_issue_is_in_the_branch_and_not_in_the_key() -> None:
    old, new = from_issue(issue(7, "Fix it")), from_issue(issue(7, " \u200b "))
    assert old.key == new.key
    assert old.branch == "pullwright/issue-7-fix-it"
    assert new.branch.startswith(old.branch_prefix)


def titles(text: str) -> list[str]:
    return [task.title for task in checklist("TODO.md", text)]


def test_equal_items_at_two_places_are_two_tasks() -> None:
    text = "# Parser\n- [ ] Add tests\n# Printer\n- [ ] Add tests\n- [ ] Add tests\n"
    first, second, third = checklist("TODO.md", text)
    assert len({first.key, second.key, third.key}) == 3
    again = [task.key for task in checklist("TODO.md", text.replace("[ ]", "[x]", 1))]
    assert again == [second.key, third.key]


def test_an_item_that_is_there_once_keeps_its_key_wherever_it_stands() -> None:
    (one,) = checklist("TODO.md", "- [ ] Fix it\n")
    (moved,) = checklist("TODO.md", "# Soon\n\ntext\n\n## Next\n- [ ] Fix it\n")
    assert one.key == moved.key == "item-" + one.key[-8:]


NO_TASKS = (
    "# Done\n- [ ] old\n",
    "# Plan\n## Won't do\n- [ ] never\n### Because\n- [ ] of that\n",
    "## ✅ Completed\n- [ ] old\n",
    "## **Out of scope**\n- [ ] never\n",
    "- [ ] ~~Fix it~~\n",
    "- [ ] ~~Fix it~~.\n",
    "- [ ] ✅ Fix it\n",
    "- [ ] Fix it (done)\n",
    "- [ ] DONE: fix it\n",
    "- [x] Fix it\n",
    "Done\n====\n\n- [ ] old\n",
    "Out of scope\n---\n- [ ] never\n\nSome words.\n\n- [ ] not either\n",
    "## Done in v1.2\n- [ ] old\n",
    "## Completed tasks (2024)\n- [ ] old\n",
    "## Won't do (for now)\n- [ ] never\n",
    "## Icebox\n- [ ] a\n## Someday/Maybe\n- [ ] b\n### On hold\n- [ ] c\n",
    "Some code:\n\n    - [ ] a\n\n## More\n\t- [ ] b\n",
    "## Recently fixed bugs\n- [ ] old\n",
    "**Done**\n\n- [ ] old\n",
    "**Rejected ideas:**\n- [ ] never\n",
    "Done:\n- [ ] old\n- [ ] older\n",
    "- Done:\n  - [ ] old\n    - [ ] its part\n",
    "- [ ] ~~Fix it~~ (see #4)\n",
    "- [ ] ~~Fix it~~ \u2014 done in 1.2\n",
    "- [ ] <del>Fix it</del>\n",
    "- [ ] Fix it \u2713\n",
    "- [ ] \u2611 Fix it\n",
    "- [ ] Fix it (done in #12)\n",
    "- [ ] [wontfix] Fix it\n",
    "- [ ] Fix it (won't do).\n",
    "- [ ] \u274c Fix it\n",
)
TASKS = {
    "Done\n====\n\n- [ ] old\n\nNext\n----\n- [ ] new\n": ["new"],
    "Done\n====\n\n- [ ] old\n\n## Next\n- [ ] new\n": ["new"],
    "**Done**\n- [ ] old\n\n**Next**\n- [ ] new\n": ["new"],
    "Done:\n- [ ] old\n\nAnd these are open\n- [ ] new\n": ["new"],
    "- Done\n  - [ ] old\n- Next\n  - [ ] new\n": ["new"],
    "# Definition of done\n- [ ] new\n": ["new"],
    "# Done when\n- [ ] new\n": ["new"],
    "- [ ] ~~Use a list~~ use a table\n": ["~~Use a list~~ use a table"],
    "- [ ] Say when it is done (and how)\n": ["Say when it is done (and how)"],
    "- [ ] Let the reader of the settings accept each encoding, such as\n  UTF-16 with its mark\n": [
        "Let the reader of the settings accept each encoding, such as UTF-16 with its mark"
    ],
    "# Done\n- [ ] old\n# Next\n- [ ] new\n": ["new"],
    "# Done\n## Soon\n- [ ] old\n": [],
    "# What is done when a file is missing\n- [ ] Say it\n": ["Say it"],
    "- [ ] Strike ~~this~~ out of the text\n": ["Strike ~~this~~ out of the text"],
    "- [ ] Write what is done: a list\n": ["Write what is done: a list"],
    "- [ ] Let the parser accept an empty file, and\n  tell what it lacks\n": [
        "Let the parser accept an empty file, and tell what it lacks"
    ],
    "- [ ] Let the parser accept an empty file and\ntell what it lacks\n\nA paragraph.\n": [
        "Let the parser accept an empty file and tell what it lacks"
    ],
    "- [ ] Fix it\n  It fails on Mondays.\n": ["Fix it"],
    "- [x] Old\n  - [ ] New part\n": ["New part"],
    "- [ ] One\n  - [ ] its part\n- [ ] Two\n": ["One", "Two"],
    "```\n# Done\n```\n- [ ] new\n": ["new"],
}


def test_what_is_done_or_not_wanted_is_no_task() -> None:
    assert [text for text in NO_TASKS if titles(text)] == []
    assert {text: titles(text) for text in TASKS} == TASKS


def test_a_byte_order_mark_hides_no_item_and_a_tag_ends_its_words() -> None:
    found = list(checklist("TODO.md", "\ufeff- [ ] a\n</details>\n\n- [x] b\n    - [ ] c\n"))
    assert [task.title for task in found] == ["a", "c"]


@table(
    "text, titles",
    [
        ("Text.\n\n    - [ ] code\n", []),
        ("Text.\n\n\t- [ ] code\n", []),
        ("- plain\n    - [ ] inner\n", ["inner"]),
        ("- [x] done\n    - [ ] open\n", ["open"]),
        ("- plain\n\n# Title\n\n    - [ ] code\n", []),
        ("- [ ] last", ["last"]),
        ("  - [ ] two blanks\n", ["two blanks"]),
        ("    - [ ] code\n- [ ] task\n", ["task"]),
    ],
)
def test_indented_code_is_no_task_and_an_inner_item_is_one(text: str, titles: list[str]) -> None:
    assert [task.title for task in checklist("TODO.md", text)] == titles
