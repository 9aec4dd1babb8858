from __future__ import annotations

import re

from orchestrator.app.config.settings import Settings
from orchestrator.app.forms import MOST_COMMAND_CHARS
from orchestrator.app.options import Reach, all_options, choices, kind


def test_the_kind_of_an_option_is_that_of_its_field() -> None:
    for key in all_options():
        annotation = str(Settings.model_fields[key].annotation)
        one = next(
            (one for one in (tuple, bool, int, float) if re.search(rf"\b{one.__name__}\b", annotation)), str
        )
        assert kind(key) is one, key


def test_of_choices_that_a_repository_may_tighten_the_strictest_is_first() -> None:
    tightened = {
        key: choices(key)
        for key in all_options()
        if all_options()[key].reach is Reach.TIGHTEN and choices(key)
    }
    expected: dict[str, tuple[object, ...]] = {
        "permission": ("read-only", "safe", "dangerous"),
        "comments": ("none", "writers", "quoted"),
        "draft": (True, False),
        "require_tests": (True, False),
        "disable_skills": (True, False),
        "require_evidence": ("all", "bots", "none"),
    }
    # A plug-in's option is not there without it.
    assert tightened == {key: values for key, values in expected.items() if key in all_options()}


def test_the_length_of_a_command_is_the_one_in_its_description() -> None:
    for key in ("test_command", "setup_command"):
        assert f"at most {MOST_COMMAND_CHARS:,} characters" in all_options()[key].allowed


def test_the_first_option_begins_a_group() -> None:
    assert next(iter(all_options().values())).begins
