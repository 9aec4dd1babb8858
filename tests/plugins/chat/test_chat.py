"""`pullwright ask` and `pullwright chat`: one session behind two doors, line by line and at a real terminal."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli.arguments import DONE, FAILED, LIMIT, USAGE
from orchestrator.app.plugins import own_names
from orchestrator.plugins.chat.command import TerminalChat
from orchestrator.plugins.chat.slash import slash_commands
from tests.doubles.model_server import MODEL, ModelServer, Step, calls, fail, reply
from tests.doubles.terminal import Terminal
from tests.scenarios.stage import CALC, FIXED, Done, Stage, add_commit, git

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.plugins.chat.view import ChatView

EDIT = calls(("file_delta", {}))
FIX = calls(("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}), text="I mend it.")
LIST = ("run_shell_command", {"command": "touch made.txt; ls"})
SHELL = calls(LIST)

Talk = Any


@pytest.fixture
def at(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(repository)
    return repository


@pytest.fixture
def talk(stage: Stage, at: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Both doors, with the tools of the profile `chat`."""

    def run(*argv: str, lines: str = "") -> Done:
        assert at.is_dir()
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat"]
        return stage.command(argv[0], *model, *argv[1:])

    return run


def flags(model: ModelServer) -> list[str]:
    return ["--model", f"openai-chat:{MODEL}", "--api-url", model.url, "--profile", "chat"]


def test_ask_prints_the_answer_on_standard_output_and_all_else_on_standard_error(
    stage: Stage, talk: Talk
) -> None:
    stage.script(calls(("read_file", {"path": "calc.py"})), reply("It **subtracts**."))
    done = talk("ask", "What does add do?")
    assert (done.code, done.out) == (DONE, "It **subtracts**.\n")
    assert "read_file calc.py" in done.err
    assert "It **subtracts**" not in done.err


def test_ask_as_json_has_the_answer_and_what_it_cost(stage: Stage, talk: Talk) -> None:
    stage.script(reply("Yes."))
    result = talk("ask", "--json", "Is it?").result
    assert (result["answer"], result["outcome"], result["rounds"]) == ("Yes.", "answered", 1)
    assert result["usage"]["total_tokens"] > 0


def test_ask_reads_standard_input_and_goes_on_with_a_conversation(stage: Stage, talk: Talk) -> None:
    stage.script(reply("Blue."), reply("I said blue."))
    first = talk("ask", "--json", "-", lines="Which colour?\n").result
    second = talk("ask", "--json", "--resume", first["run"], "What did you say?").result
    assert second["answer"] == "I said blue."
    assert [one["content"] for one in stage.asked(1) if one["role"] == "assistant"] == ["Blue."]


def test_the_last_conversation_is_the_last_one_about_this_folder(
    stage: Stage, talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.script(reply("Blue."), reply("Red."), reply("I said blue."))
    talk("ask", "Which colour?")
    here, other = Path.cwd(), tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    refused = talk("ask", "--resume", "last", "And here?")
    assert refused.code != DONE
    assert f"there is no conversation about {other}" in refused.err
    talk("ask", "Which colour here?")
    monkeypatch.chdir(here)
    assert talk("ask", "--resume", "last", "What did you say?").out == "I said blue.\n"
    assert [one["content"] for one in stage.asked(2) if one["role"] == "assistant"] == ["Blue."]


@pytest.mark.parametrize(
    ("argv", "steps", "code"),
    [
        (["--max-rounds", "1"], [FIX, FIX], LIMIT),
        ([], [fail(401)], FAILED),
        (["--contract", "nonsense"], [], USAGE),
        (["--resume", "20200101-000000-aaaaaaa"], [], FAILED),
    ],
    ids=["limit", "key", "option", "run"],
)
def test_ask_has_the_exit_status_of_run(
    stage: Stage, talk: Talk, argv: list[str], steps: list[Step], code: int
) -> None:
    stage.script(*steps)
    done = talk("ask", *argv, "Do it")
    assert done.code == code
    assert done.out == ""


def test_nothing_to_ask_is_bad_usage(talk: Talk) -> None:
    assert talk("ask", "-", lines=" \n").code == USAGE
    assert talk("ask", "").code == USAGE


def test_nobody_is_asked_without_a_terminal_and_the_model_hears_which_rule_is_missing(
    stage: Stage, talk: Talk, at: Path
) -> None:
    stage.script(SHELL, reply("I cannot."))
    assert talk("ask", "--allow-command", "pytest *", "Run it").code == DONE
    assert "granted by no rule" in stage.told(1)
    assert not (at / "made.txt").exists()


def test_lines_are_a_conversation_with_one_journal(stage: Stage, talk: Talk, at: Path) -> None:
    stage.script(FIX, reply("It adds now."), reply("You are welcome."))
    done = talk("chat", lines="Mend\\\nadd()\n/paste\nThank\nyou\n/submit\n/cost\nexit\n")
    assert (done.code, (at / "calc.py").read_text()) == (DONE, FIXED)
    assert "It adds now." in done.out
    assert "3 rounds" in done.out
    users = [one["content"] for one in stage.asked(2) if one["role"] == "user"]
    assert [text.split("\n# ")[0] for text in users] == ["Mend\nadd()", "Thank\nyou"]
    kinds = [one["type"] for one in stage.events() if "type" in one]
    assert (kinds[0], kinds[-1], kinds.count("SessionStarted")) == ("CycleStarted", "CycleEnded", 1)


def test_a_conversation_is_taken_up_with_its_cost_and_its_list(stage: Stage, talk: Talk) -> None:
    add = calls(("todo_add", {"content": "look at calc.py"}))
    stage.script(add, reply("Noted."))
    talk("chat", "--profile", "assistant", lines="Remember to look\n")
    run = stage.command("show", "--list", "--json").results[0]["run"]
    stage.script(reply("At calc.py."))
    done = talk("chat", "--resume", run, lines="/todo\nWhat is to be done?\n/todo\n/cost\n")
    assert "look at calc.py" in done.out
    assert "with its earlier runs: 3 rounds" in done.out
    assert stage.asked(2)[1]["content"].startswith("Remember to look")


def test_resume_lists_the_conversations_about_this_folder(stage: Stage, talk: Talk, at: Path) -> None:
    stage.script(reply("Hello."), reply("Again."))
    talk("chat", lines="The first word\n")
    run = stage.command("show", "--list", "--json").results[0]["run"]
    done = talk("chat", lines=f"/resume\n/resume {run[:18]}\nGo on\n/save said.md\n")
    assert (at / "said.md").read_text().count("## You") == 2
    assert f"{run}  " in done.out
    assert "The first word" in done.out
    assert [one["content"] for one in stage.asked(1) if one["role"] == "assistant"] == ["Hello."]


def test_an_error_of_the_model_ends_the_reply_and_not_the_conversation(stage: Stage, talk: Talk) -> None:
    stage.script(reply("One."), fail(401), reply("Three."))
    done = talk("chat", lines="first\nsecond\nthird\n")
    assert (done.code, "Three." in done.out) == (DONE, True)
    said = [one["content"] for one in stage.asked(2) if one["role"] != "system"]
    assert [text.split("\n# ")[0] for text in said] == ["first", "One.", "second", "third"]


def test_a_mentioned_file_is_shown_to_the_model(stage: Stage, talk: Talk, at: Path) -> None:
    (at / "hidden").symlink_to("/etc/passwd")
    stage.script(reply("It subtracts."))
    done = talk("chat", lines="Explain @calc.py, @missing.py and @hidden\n")
    assert CALC in stage.told()
    assert "root:" not in stage.told()
    assert "@missing.py is not shown to the model" in done.out
    assert "@hidden is not shown to the model" in done.out


def test_a_command_answers_everything_that_is_typed(stage: Stage, talk: Talk, at: Path) -> None:
    stage.script(reply("Hi."))
    typed = ["/help", "/status", "/context", "/todo", "/effort", "/model", "/memory", "/memory list"]
    typed += [
        "/memory nonsense",
        "/nonsense",
        "/hepl",
        "/compact",
        "/save",
        "/resume",
        "/effort low",
        "/paste x",
    ]
    typed += ["Hello", "/context", "/compact", "/save talk.md", "/save talk.md", "/memory 'x"]
    done = talk("chat", lines="".join(f"{line}\n" for line in typed))
    assert done.code == DONE
    assert "Traceback" not in done.err
    for words in (
        "/resume [RUN]",
        "the conversation has no message yet",
        "there is no command /nonsense",
        "did you mean /help?",
        "reasoning effort: low",
        "talk.md exists already",
        "No closing quotation",
    ):
        assert words in done.out, words
    assert (at / "talk.md").read_text() == "## You\n\nHello\n\n## Pullwright\n\nHi.\n"


def test_with_submit_only_a_call_of_it_is_the_answer(stage: Stage, talk: Talk) -> None:
    """The command line of the one-step agent: words alone are no end, and one call is made a step."""
    two = calls(("read_file", {"file_path": "calc.py"}), ("submit", {"answer": "too early"}))
    stage.script(reply("I think it subtracts."), two, calls(("submit", {"answer": "It subtracts."})))
    done = talk("ask", "--profile", "minimal", "--submit", "What does add do?")
    assert (done.code, done.out) == (DONE, "It subtracts.\n")
    assert len(stage.model.requests) == 3


def test_each_word_that_leaves_does(stage: Stage, talk: Talk) -> None:
    for word in ("exit", "quit", " /exit ", "/quit"):
        assert talk("chat", lines=f"{word}\nHello\n").code == DONE
    assert not stage.model.requests


def test_each_command_about_memory_works_in_a_conversation(stage: Stage, talk: Talk) -> None:
    """The rows of the assistant's specification, section 2.1.2."""
    known = ("add() must work on Decimal numbers", "Releases are made on Mondays")
    stage.script(calls(*(("remember", {"content": text}) for text in known)), reply("Noted."))
    rows = [
        ("/memory help", "/memory list [INDEX]"),
        ("/memory list", "Releases are made on Mondays"),
        ("/memory search Decimal", "add() must work on Decimal numbers"),
        ("/memory edit 1 importance critical", "general, critical"),
        ("/memory edit 2 content Releases are Anna's on Mondays", "Releases are Anna's on Mondays"),
        ("/memory search Anna's releases", "Releases are Anna's on Mondays"),
        ('/memory add --type instruction Don\'t say "please"', 'Don\'t say "please"'),
        ("/memory show 1", "importance: critical"),
        ("/memory indices", "long_term_memory: 3 items"),
        ("/memory stats", "by type: instruction 1, general 2"),
        ("/memory show 9", "there is no memory 9"),
    ]
    lines = "".join(f"{typed}\n" for typed, _ in rows)
    memory = ("--memory", "--profile", "assistant", "--embedding-model", "letters")
    out = talk("chat", *memory, lines=f"Remember both\n{lines}").out
    place = 0
    for typed, words in rows:
        place = out.find(words, place)
        assert place >= 0, f"{typed}: {out}"


HEADINGS = ("Goal", "Progress and decisions", "Constraints", "Remaining", "Critical data")
SUMMARY = "\n".join(f"## {name}\nThe person counts." for name in HEADINGS)


def test_a_conversation_is_made_shorter_by_a_summary(stage: Stage, talk: Talk) -> None:
    long = "word " * 400
    numbers = ("one", "two", "three", "four")
    stage.script(*(reply(f"{number} {long}") for number in numbers), reply(SUMMARY), reply("five"))
    typed = "".join(f"say {number}\n" for number in numbers)
    done = talk("chat", lines=f"{typed}/context\n/compact\n/context\nWhat comes next?\n/save said.md\n")
    before, after = re.findall(r"(\d+) messages, about ([\d,]+) tokens", done.out)
    assert int(after[1].replace(",", "")) < int(before[1].replace(",", "")) * 0.7
    told = json.dumps(stage.asked(5))
    assert "The person counts." in told
    assert "one word" not in told
    assert "four word" in told
    assert "five" in done.out
    assert any(one.get("type") == "Compacted" for one in stage.events())


def test_where_no_summary_can_be_had_the_conversation_stays(stage: Stage, talk: Talk) -> None:
    long = "word " * 2_000
    stage.script(
        reply("Hi."), reply(f"one {long}"), reply("two"), reply("no headings"), reply("none"), reply("Yes.")
    )
    done = talk("chat", lines="Hello\n/compact\nMore\nOn\n/compact\nStill there?\n")
    assert done.out.count("the conversation cannot be made shorter") == 2
    assert "the conversation could not be summarized" in done.err
    assert "one word" in json.dumps(stage.asked(5))


def test_another_model_and_effort_hold_from_the_next_message_on(stage: Stage, talk: Talk) -> None:
    stage.script(reply("One."), reply("Two."))
    typed = "First\n/model other-model\n/effort high\n/model\n/effort\nSecond\n/effort Very hard\n/status\n"
    done = talk("chat", lines=typed)
    bodies = [one.body for one in stage.model.requests]
    assert [one["model"] for one in bodies] == [MODEL, "other-model"]
    assert [one.get("reasoning_effort") for one in bodies] == [None, "high"]
    assert done.out.count("the model is openai-chat:other-model") == 2
    assert "/effort = 'Very hard': must be one word in small letters" in done.out


def test_prepared_replies_have_no_other_model(stage: Stage, talk: Talk) -> None:
    stage.script(reply("Blue."))
    run = talk("ask", "--json", "Which colour?").result["run"]
    done = talk("chat", "--model", f"replay:{run}", lines="/model other\n")
    assert "no other model can give them" in done.out


def test_the_state_is_shown_after_each_turn_while_it_is_wanted(stage: Stage, talk: Talk) -> None:
    stage.script(reply("One."), reply("Two."), reply("Three."))
    done = talk("chat", lines="first\n/debug\nsecond\n/debug\nthird\n")
    assert done.err.count("tool events: 0") == 1
    assert "the state is shown after each turn" in done.out
    assert "the state is no longer shown" in done.out


def test_a_conversation_is_kept_in_a_file_by_its_owner_alone(stage: Stage, talk: Talk, at: Path) -> None:
    stage.script(reply("Hi."))
    done = talk("chat", lines="/save\nHello\n/save\n/save none/x.md\n")
    [kept] = at.glob("chat-*.md")
    assert kept.read_text() == "## You\n\nHello\n\n## Pullwright\n\nHi.\n"
    assert kept.stat().st_mode & 0o077 == 0
    assert "none/x.md cannot be written: No such file or directory" in done.out


def test_what_tools_changed_goes_back_and_forth_the_shells_too(stage: Stage, talk: Talk, at: Path) -> None:
    shell = calls(("run_shell_command", {"command": "rm README.md; echo made > made.txt"}))
    stage.script(FIX, shell, reply("Done."), reply("I see."))
    typed = "Mend\n/diff\n/undo\n/undo yes\n/diff\n/redo yes\n/undo yes\n/undo\nWhy?\n"
    done = talk("chat", "--permission", "dangerous", "--sandbox", "off", lines=typed)
    assert "+    return a + b" in done.out
    assert "followed by yes" in done.out
    assert done.out.count("undone: 3 files") == 2
    assert "redone: 3 files" in done.out
    assert "the model has changed no file" in done.out
    assert (at / "calc.py").read_text() == CALC
    assert ((at / "README.md").exists(), (at / "made.txt").exists()) == (True, False)
    assert git(at, "status", "--porcelain") == ""
    assert "calc.py" in str(stage.asked(3)[-1]["content"]) + str(stage.asked(3)[-2]["content"])


def test_what_was_changed_is_taken_back_after_the_conversation_was_taken_up(
    stage: Stage, talk: Talk, at: Path
) -> None:
    stage.script(FIX, reply("It adds now."), reply("Hello."))
    talk("chat", lines="Mend add()\n")
    talk("chat", lines="Another conversation\n")
    done = talk("chat", "--resume", "last", lines="/undo yes\n")
    assert "has changed no file" in done.out, "of another conversation"
    run = stage.command("show", "--list", "--json").results[-1]["run"]
    done = talk("chat", "--resume", run, lines="/diff\n/undo yes\n/redo yes\n/undo yes\n")
    assert done.out.count("undone: 1 file") == 2
    assert (at / "calc.py").read_text() == CALC


def test_a_persons_own_edit_is_not_taken_back(stage: Stage, terminal: Talk, at: Path) -> None:
    stage.script(FIX, reply("It adds now."))
    with terminal() as person:
        person.wait_for("leaves.")
        person.type("Mend add()")
        person.wait_for("It adds now.")
        (at / "calc.py").write_text("mine\n")
        person.type("/undo yes")
        person.wait_for("changed since by somebody else")
        person.type("exit")
        assert person.end() == DONE
    assert (at / "calc.py").read_text() == "mine\n"


@pytest.mark.skipif("skills" not in own_names(), reason="the plug-in skills is not there")
def test_a_skill_goes_with_the_next_message_once(stage: Stage, talk: Talk, at: Path) -> None:
    skill = "---\nname: greet\ndescription: How to greet.\n---\nSay ahoy.\n"
    add_commit(at, {".agents/skills/greet/SKILL.md": skill}, "A skill")
    long = "---\nname: long\ndescription: How to say much.\n---\n" + "much " * 1_000
    add_commit(at, {".agents/skills/long/SKILL.md": long}, "A long skill")
    stage.script(calls(("use_skill", {"name": "long"})), reply("Ahoy."))
    typed = "/skill\n/skill greet\n/skill greet\n/skill none\nHello\n/skill\n/skill long\n"
    done = talk("chat", lines=typed)
    before, _, after = done.out.partition("Ahoy.")
    assert re.search(r"^greet +How to greet\.$", before, re.MULTILINE)
    assert re.search(r"^greet \(loaded\) +How to greet\.$", after, re.MULTILINE)
    assert re.search(r"^long \(loaded\) +How to say much\.$", after, re.MULTILINE), "read by the model itself"
    assert "has the skill long already" in after
    assert "has the skill greet already" in done.out
    assert "there is no skill 'none'" in done.out
    assert str(stage.asked(0)).count("Say ahoy.") == 1


def test_a_new_conversation_begins_and_an_old_one_shows_where_it_was(stage: Stage, talk: Talk) -> None:
    stage.script(reply("Blue."), reply("I know of no colour."), reply("Blue, as I said."))
    done = talk("chat", lines="Which colour?\n/new\nWhich was it?\n/exitt\n/clear\n")
    assert "/exitt: did you mean /exit?" in done.out
    assert "Which colour?" not in str(stage.asked(1)), "of the first conversation"
    back = re.search(r"/resume (\S+) goes back", done.out)
    assert back is not None
    done = talk("chat", "--resume", back[1], lines="And now?\n")
    assert "> Which colour?\n\nBlue.\n" in done.out
    done = talk("chat", lines=f"/resume {back[1]}\n")
    assert "> Which colour?\n\nBlue.\n" in done.out


@pytest.mark.skipif("skills" not in own_names(), reason="the plug-in skills is not there")
def test_a_person_is_told_that_a_skill_is_cut(stage: Stage, talk: Talk, at: Path) -> None:
    long = "---\nname: long\ndescription: How to say much.\n---\n" + "much " * 1_000
    add_commit(at, {".agents/skills/long/SKILL.md": long}, "A long skill")
    done = talk("chat", "--skill-bytes", "4096", lines="/skill long\n")
    assert "the skill long is cut: 4,096 of its " in done.out
    assert not stage.model.requests


def test_there_is_one_view_whichever_thread_asks_first() -> None:
    for _ in range(20):
        chat = TerminalChat(Namespace(debug=False, plain=True))
        begin = threading.Barrier(4)

        def look(chat: TerminalChat = chat, begin: threading.Barrier = begin) -> ChatView:
            begin.wait()
            return chat.view

        with ThreadPoolExecutor(4) as threads:
            views = [one.result() for one in [threads.submit(look) for _ in range(4)]]
        assert len({id(view) for view in views}) == 1


def test_a_path_is_said_and_no_command(stage: Stage, talk: Talk) -> None:
    stage.script(reply("A file."))
    assert "A file." in talk("chat", lines="/etc/hosts is what?\n").out


def test_a_key_on_the_command_line_is_refused(talk: Talk) -> None:
    for door in (["ask", "x"], ["chat"]):
        done = talk(*door, "--model", "ghp_" + "a1B2" * 9)
        assert done.code == USAGE
        assert "never from the command line" in done.err


def test_plans_are_for_tasks(talk: Talk) -> None:
    done = talk("chat", "--contract", "json-plan")
    assert done.code == USAGE
    assert "native or single-step" in done.err


def test_a_clone_is_worked_on_and_what_is_changed_there_is_kept(
    stage: Stage, talk: Talk, at: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage.script(FIX, reply("It adds now."))
    done = talk("chat", "--repo", str(at), lines="Mend add()\n")
    assert (at / "calc.py").read_text() == CALC
    (patch,) = (stage.home / "runs").glob("*/*.patch")
    assert str(patch) in done.out
    git(at, "apply", str(patch))
    assert (at / "calc.py").read_text() == FIXED


# -- at a terminal ---------------------------------------------------------------------------------------------------


@pytest.fixture
def terminal(stage: Stage, at: Path) -> Callable[..., Terminal]:
    def start(*argv: str, **how: Any) -> Terminal:
        environ = {"PULLWRIGHT_HOME": str(stage.home)}
        return Terminal("chat", *flags(stage.model), *argv, folder=at, environ=environ, **how)

    return start


AFTER_THE_PROMPT = {
    *("apscheduler", "git", "github", "httpx2", "jinja2", "jsonschema", "markdown_it", "mcp"),
    *("pydantic", "requests", "rich", "sqlite3", "starlette"),
    *("orchestrator.app.config.settings", "orchestrator.app.wiring", "orchestrator.bot.cycle"),
    *("orchestrator.engine.session", "orchestrator.engine.models.wire", "orchestrator.engine.tools"),
}
"""What takes long to load: a person types meanwhile. What redacts the first lines comes before them."""


IMPORTED = re.compile(r"import time:[ \d|]*\| +([\w.]+)")
"""A line about an import. What draws the prompt may stand before it and behind it."""


def test_what_is_heavy_is_loaded_behind_the_prompt(
    stage: Stage, terminal: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    stage.script(reply("Here."))
    with terminal(new_interpreter=True) as person:
        before = set(IMPORTED.findall(person.wait_for("\n>")))
        assert "prompt_toolkit" in before
        person.type("Hello")
        after = set(IMPORTED.findall(person.wait_for("Here.")))
    assert sorted(before & AFTER_THE_PROMPT) == []
    assert {"jinja2", "rich", "orchestrator.app.wiring", "orchestrator.engine.session"} <= after
    assert [
        name for name in before | after if name.startswith("opentelemetry")
    ] == []  # nobody asked for traces


def test_tab_completes_commands_and_paths(stage: Stage, terminal: Talk, at: Path) -> None:
    (at / "deep").mkdir()
    (at / "deep" / "notes.txt").write_text("the notes\n")
    stage.script(reply("Read."))
    with terminal() as person:
        person.wait_for("leaves.")
        person.press("/stat\t")
        person.wait_for("us")
        person.press("\r")
        person.wait_for("not started")
        person.press("Explain @de\t")
        person.wait_for("ep/")
        person.press("no\t")
        person.wait_for("tes.txt")
        person.press("\r")
        person.wait_for("Read.")
        person.wait_for("\n>")
        person.press("/co\t")
        person.wait_for(slash_commands()["/compact"].text)
    assert stage.told().startswith("Explain @deep/notes.txt")
    assert "the notes" in stage.told()


def question(person: Terminal) -> str:
    """Wait until the person is asked about a call; what for."""
    person.wait_for("wants to call")
    return person.wait_for("why not:")


def test_at_a_terminal_a_person_decides_once_always_or_not(stage: Stage, terminal: Talk, at: Path) -> None:
    other = calls(("run_shell_command", {"command": "touch other.txt"}))
    stage.script(SHELL, reply("Listed."), SHELL, reply("Once more."), other, reply("I leave it."))
    with terminal("--sandbox", "off") as person:
        person.wait_for("leaves.")
        person.type("List")
        asked = question(person)
        assert "touch made.txt; ls" in asked
        person.type("a")
        person.wait_for("Listed.")
        person.type("Again")
        assert "wants to call" not in person.wait_for("Once more.")
        person.type("Another")
        question(person)
        person.type("not that file")
        person.wait_for("I leave it.")
        person.type("exit")
        assert person.end() == DONE
    assert (at / "made.txt").exists()
    assert not (at / "other.txt").exists()
    assert "not that file" in stage.told(5)
    decided = [one for one in stage.events() if one.get("type") == "CallDecided"]
    assert [one["decision"] for one in decided] == ["always", "always", "no"]


def test_at_a_terminal_a_person_decides_what_is_remembered_for_ever(stage: Stage, terminal: Talk) -> None:
    said = {"type": "correction", "importance": "critical", "content": "Never use mocks."}
    other = {"type": "instruction", "content": "Push to another remote."}
    stage.script(calls(("remember", said)), reply("Noted."), calls(("remember", other)), reply("I leave it."))
    with terminal("--memory", "--profile", "assistant", "--embedding-model", "letters") as person:
        person.wait_for("leaves.")
        person.type("Remember for ever: never use mocks")
        assert "remember (correction, critical, for ever):" in (asked := question(person))
        assert "Never use mocks." in asked
        person.type("y")
        person.wait_for("Noted.")
        person.type("And the remote")
        question(person)
        person.type("n")
        person.wait_for("I leave it.")
        person.type("/memory list")
        listed = person.wait_for("from conversation")
        assert "correction, critical, by a person" in listed
        assert "remote." not in listed.partition("/memory list")[2]
        person.type("exit")
        assert person.end() == DONE


def test_three_denials_end_the_turn_and_the_next_begins_anew(stage: Stage, terminal: Talk) -> None:
    stage.script(SHELL, SHELL, SHELL, reply("Never asked for."), reply("Fine."))
    del stage.model.script[3]
    with terminal("--sandbox", "off") as person:
        person.wait_for("leaves.")
        person.type("List")
        for _ in range(3):
            question(person)
            person.type("n")
        person.wait_for("Your next message starts a new reply")
        person.type("Hello")
        person.wait_for("Fine.")


def test_ctrl_c_ends_the_reply_and_not_the_program(stage: Stage, terminal: Talk) -> None:
    stage.script(Step(text="A long story. " * 500, pause_seconds=0.05), reply("Here."))
    with terminal() as person:
        person.wait_for("leaves.")
        person.type("Tell")
        person.wait_for("A long story")
        person.interrupt()
        person.wait_for("Stopped.")
        person.type("Are you there?")
        person.wait_for("Here.")
        said = [one["content"] for one in stage.asked(1) if one["role"] == "assistant"]
        assert [text.startswith("A long story.") for text in said] == [True]
        assert "The user stopped this reply here" in said[0]
        person.wait_for(">")
        person.press("\x03")
        person.wait_for("Ctrl+D or exit leaves")
        person.wait_for(">")
        person.press("\x04")
        assert "chat --resume" in person.wait_for("continues this conversation")
        assert person.end() == DONE


def test_what_is_typed_during_a_reply_is_shown_and_kept_for_the_next_prompt(
    stage: Stage, terminal: Talk
) -> None:
    stage.script(Step(text="A long story. " * 500, pause_seconds=0.05), reply("First."), reply("Second."))
    with terminal() as person:
        assert f"The model is openai-chat:{MODEL}" in person.wait_for("needs more")
        person.type("Tell")
        person.wait_for("A long story")
        person.press("What is 1x\x7f + 1")
        person.wait_for("> What is 1 + 1")
        person.interrupt()
        person.wait_for("Stopped.")
        person.wait_for("What is 1 + 1")
        person.type("?")
        person.wait_for("First.")
    assert stage.asked(1)[-1]["content"].startswith("What is 1 + 1?")


def test_the_output_of_a_command_that_succeeds_is_shown(stage: Stage, terminal: Talk) -> None:
    words = {"command": "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; done"}
    stage.script(calls(("run_shell_command", words)), reply("Done."))
    with terminal() as person:
        person.wait_for("leaves.")
        person.type("List")
        person.wait_for("why not:")
        person.type("y")
        shown = person.wait_for("Done.")
    assert "    line 12" in shown
    assert "lines before" in shown
    assert "    line 1\n" not in shown.replace("\r", "")


def test_a_terminal_that_is_closed_ends_the_journal(stage: Stage, terminal: Talk) -> None:
    stage.script(reply("Here."))
    with terminal() as person:
        person.wait_for("leaves.")
        person.type("Hello")
        person.wait_for("Here.")
        person.hang_up()
        person.end()
    assert stage.events()[-1]["type"] == "CycleEnded"


def test_a_wrong_configuration_ends_at_the_prompt_in_one_line(terminal: Talk) -> None:
    with terminal("--max-rounds", "none") as person:
        person.wait_for("--max-rounds = 'none'")
        assert person.end() == USAGE


def test_what_is_pasted_is_one_message_and_the_history_keeps_no_secret(stage: Stage, terminal: Talk) -> None:
    secret = "ghp_" + "a1B2" * 9
    stage.script(reply("Read."))
    with terminal() as person:
        person.wait_for("leaves.")
        person.press(f"\x1b[200~first\nsecond {secret}\x1b[201~")
        person.press("\r")
        person.wait_for("Read.")
    assert stage.told().startswith("first\nsecond")
    kept = stage.home / "chat_history"
    assert secret not in kept.read_text()
    assert "first" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_journal_of_a_conversation_is_shown_and_replayed(stage: Stage, talk: Talk) -> None:
    stage.script(reply("Blue."))
    run = talk("ask", "--json", "Which colour?").result["run"]
    assert "Which colour?" in stage.command("show", "--list").out
    assert "Which colour?" in stage.command("show", run).out
    again = stage.command("ask", "--model", f"replay:{run}", "--json", "Which colour?")
    assert json.loads(again.out)["answer"] == "Blue."


def test_ctrl_c_ends_the_commands_of_the_reply_and_answers_its_call(
    stage: Stage, terminal: Talk, at: Path
) -> None:
    sleeper = calls(("run_shell_command", {"command": "echo $$ > pid; seq -f 'be''gun %g' 99; sleep 1000"}))
    stage.script(sleeper, reply("Here."))
    with terminal("--permission", "dangerous", "--sandbox", "off") as person:
        person.wait_for("leaves.")
        person.type("Sleep")
        person.wait_for("begun")
        person.interrupt()
        person.wait_for("Stopped.")
        pid = int((at / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        person.type("/undo yes")
        person.wait_for("undone: 1 file")
        person.type("Go on")
        person.wait_for("Here.")
    results = [one["content"] for one in stage.asked(1) if one["role"] == "tool"]
    assert len(results) == 1, "every vendor wants an answer to each call"
    assert not (at / "pid").exists()


def test_a_granted_command_runs_without_anybody_to_ask(stage: Stage, talk: Talk, at: Path) -> None:
    stage.script(calls(("run_shell_command", {"command": "touch made.txt"})), reply("Done."))
    flags = ("--allow-command", "touch made.txt", "--sandbox", "off")
    assert talk("ask", *flags, "Make it").out == "Done.\n"
    assert (at / "made.txt").exists()
