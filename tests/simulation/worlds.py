"""Worlds with a name: windows in which a crash is dangerous, faults that are mended, and known ones that are not."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.plan import (
    DEADLY,
    DENIED,
    OVERTAKING,
    SECRET,
    SIGNED,
    Act,
    Deed,
    Incident,
    Kind,
    Plan,
    Task,
)

_REQUESTS = (
    "forge ensure_pull_request",
    "forge ensure_label",
    "forge remove_label",
    "git push claims",
    "git push branch claims",
    "git push claims wip",
    "git fetch",
    "model",
)


def windows() -> dict[str, Plan]:
    """Return the two crash windows of each kind of request: before it is sent, and after it was done."""
    found = {}
    for request in _REQUESTS:
        for kind in (Kind.KILLED_BEFORE, Kind.KILLED):
            flags = (("max_rounds", 1),) if "wip" in request else ()
            found[f"{kind} at {request}"] = Plan((Task(2),), (0,), (Incident(kind, request, 1),), flags=flags)
    return found


_KILLED_AT_WORK = Incident(Kind.KILLED, "record ToolCallEnded", 1)


def _overtaken(act: Act, *incidents: Incident) -> Plan:
    """Return a world in which somebody acts while a model works, and before it proposes."""
    return Plan((Task(3),), (0,), incidents, (Deed(act, 1, 1.2),))


def deadly() -> dict[str, Plan]:
    """Return worlds with a task that kills its workers at one place, in front of others: one machine, and two."""
    return {
        f"dies at {place}, {len(slots)} machines{', round by round' if flags else ''}": Plan(
            (Task(2, kills=place), Task(1), Task(1)), slots, flags=flags
        )
        for place in DEADLY
        for slots in ((0,), (0, 1))
        for flags in ((), (("max_rounds", 1),))
    }


_HOOK = "pre-receive hook declined\n"
_OF_CONTENT = (
    SECRET,
    f"{_HOOK}error: GH001: Large files detected.\nerror: File a.bin is 150.00 MB; this exceeds the limit of 100.00 MB",
    f"{_HOOK}GitLab: Commit message does not follow the pattern 'JIRA-[0-9]+'",
    f"{_HOOK}GitLab: File name a.pem was prohibited by the pattern '\\.pem$'.",
    "commit 1a2b3c4: missing Change-Id in message footer",
    f"{_HOOK}computer says no",
)
_OF_PERSON = (
    SIGNED,
    "push declined due to email privacy restrictions\nGH007: Your push would publish a private email address.",
    f"{_HOOK}GitLab: Committer's email 'bot@example.com' does not follow the pattern '@octo'",
    f"{_HOOK}GitLab: Branch name does not follow the pattern 'feature/.*'",
    "protected branch hook declined\nerror: GH006: Protected branch update failed for refs/heads/pullwright/issue-1.",
    "push declined due to repository rule violations\n- Cannot create ref due to creations being restricted.",
    "computer says no",
)


def refused() -> dict[str, Plan]:
    """Return worlds in which the server refuses a task's change: for ever, once, or until it differs."""
    found = {}
    for words in (*_OF_CONTENT, *_OF_PERSON):
        found[f"{words}: for ever"] = Plan((Task(1, refused=words), Task(1)), (0,), cycles=1)
    for words in _OF_CONTENT:
        found[f"{words}: once"] = Plan((Task(2, refused=words, refusals=1), Task(1)), (0,))
        found[f"{words}: until it differs"] = Plan((Task(1, refused=words, mends=True), Task(1)), (0, 1))
    return found


def denied() -> dict[str, Plan]:
    """Return worlds in which the forge refuses one write about a task. 423 is a locked conversation."""
    return {
        f"{status} at {write}, {cycles or 'all'} cycles": Plan(
            (Task(1, asks=write == "ensure_question", denied=((write, status),)), Task(1)),
            (0,),
            cycles=cycles,
        )
        for write in DENIED
        for status in (403, 404, 410, 422, 423)
        for cycles in (None, 1)
    }


_KILLED_UNPROPOSED = Incident(Kind.KILLED_BEFORE, "forge ensure_pull_request", 1)

MENDED: dict[str, Plan] = {
    "the base is rewritten between the push of a branch and its pull request": Plan(
        (Task(1),), (0,), (_KILLED_UNPROPOSED,), (Deed(Act.REWRITE, 1, 2.7),)
    ),
    "a person commits to a branch before its pull request is open": Plan(
        (Task(1),), (0,), (_KILLED_UNPROPOSED,), (Deed(Act.PUSH, 1, 2.7),)
    ),
    "the base is rewritten below a pull request, and a person asks for a change": Plan(
        (Task(1),), (0,), (), (Deed(Act.REWRITE, 1, 10.0), Deed(Act.REVIEW, 1, 20.0))
    ),
    **{f"meanwhile a person: {act}": _overtaken(act) for act in (*OVERTAKING, Act.CLOSE, Act.UNLABEL)},
    "the base is rewritten, and a limit ends the work": Plan(
        (Task(3),), (0,), (), (Deed(Act.REWRITE, 1, 1.2),), flags=(("max_rounds", 2),)
    ),
    "the base is rewritten, and the worker is asked to end": _overtaken(
        Act.REWRITE, Incident(Kind.STOP, "record ToolCallEnded", 2)
    ),
    "the base moves, and the first look at it fails": _overtaken(
        Act.MOVE, Incident(Kind.ERROR, "git fetch", 3)
    ),
    "killed before it took saved work up": Plan(
        (Task(2),), (0,), (Incident(Kind.KILLED, "record Cloned", 2),), flags=(("max_rounds", 1),)
    ),
    "the machine is lost whose run was proposed after a recovery": Plan(
        (Task(2),), (0,), (_KILLED_AT_WORK, Incident(Kind.LOST, "record Proposed", 1))
    ),
    "killed while it went on with work that only its machine has": Plan(
        (Task(2),),
        (0,),
        (Incident(Kind.KILLED, "forge ensure_pull_request", 1),),
        (Deed(Act.RELEASE, 1, 0.6),),
        pace=280,
        flags=(("max_rounds", 2),),
        cycles=1,
    ),
    "a task that kills its worker": Plan((Task(1, kills="model"), Task(1)), (0,)),
    "a pull request that the forge does not process": Plan(
        (Task(1, unprocessable=True), Task(1)), (0,), cycles=1
    ),
    "a push that is refused for its content": Plan((Task(1, refused=SECRET), Task(1)), (0,), cycles=1),
    "many issues that nobody authorised": Plan((Task(1),), (0,), strangers=100),
    "the disk is full from the push of a branch on": Plan(
        (Task(2),), (0,), (_KILLED_AT_WORK, Incident(Kind.FULL, "git push branch", 1))
    ),
    "a damaged line in a dead run's journal": Plan(
        (Task(3),), (0,), (Incident(Kind.KILLED, "record ToolCallEnded", 2),), (Deed(Act.DAMAGE, 1, 5.0),)
    ),
    "a dead run behind many newer ones": Plan(
        (Task(3),), (0,), (Incident(Kind.KILLED, "record ToolCallEnded", 2),), (Deed(Act.OTHERS, 1, 5.0),)
    ),
    "the base is rewritten while the worker is dead": Plan(
        (Task(1),), (0,), (Incident(Kind.KILLED, "record Cloned", 1),), (Deed(Act.REWRITE, 1, 1.1),)
    ),
    "a push takes longer than a tool may, and the base is rewritten": Plan(
        (Task(1),), (0,), (Incident(Kind.SLOW, "git push branch", 1),), (Deed(Act.REWRITE, 1, 2.9),)
    ),
    "a person releases a task whose worker waits for a slow request": Plan(
        (Task(1),),
        (0, 1),
        (Incident(Kind.SLOW, "", 8), Incident(Kind.SLOW, "forge ensure_label", 1)),
        (Deed(Act.RELEASE, 1, 9.2),),
    ),
    "a person commits to the branch, and then asks for a change": Plan(
        (Task(1),), (0,), (), (Deed(Act.PUSH, 1, 5.7), Deed(Act.REVIEW, 1, 42.6))
    ),
    "a person asks for a change of a proposal whose end could not be recorded": Plan(
        (Task(1), Task(1)),
        (1,),
        (Incident(Kind.FULL, "record ToolCallEnded", 5), Incident(Kind.FULL, "", 1)),
        (Deed(Act.REVIEW, 2, 75.1),),
    ),
    "a full disk ends a review, and a check fails meanwhile": Plan(
        (Task(2),),
        (2, 0),
        (Incident(Kind.FULL, "model", 5),),
        (Deed(Act.REVIEW, 1, 59.9), Deed(Act.CHECKS, 1, 80.7)),
    ),
    "a full disk ends a review of work that was saved before": Plan(
        (Task(2),),
        (0, 1),
        (
            Incident(Kind.KILLED, "record Proposed", 1),
            Incident(Kind.KILLED_BEFORE, "git push claims wip", 1),
            Incident(Kind.FULL, "record Proposing", 2),
        ),
        (Deed(Act.REVIEW, 1, 28.3),),
        flags=(("max_rounds", 2),),
    ),
    "the machine is lost that pushed a review, whose earlier cycle had saved work": Plan(
        (Task(1, asks=True),),
        (1,),
        (Incident(Kind.LOST, "forge ensure_pull_request", 2),),
        (Deed(Act.REVIEW, 1, 19.9),),
    ),
    "a full disk keeps saved work beside its pull request, and a person asks for a change": Plan(
        (Task(3),),
        (0, 1),
        (Incident(Kind.FULL, "git push branch", 1), Incident(Kind.LOST, "record Cloned", 1)),
        (Deed(Act.REVIEW, 1, 89.5),),
        flags=(("max_rounds", 2),),
        cycles=1,
    ),
    "a person asks for a change": Plan((Task(1),), (0,), (), (Deed(Act.REVIEW, 1, 10.0),)),
    "a check of the pull request fails": Plan((Task(1),), (0,), (), (Deed(Act.CHECKS, 1, 10.0),)),
    "the label of work in progress cannot be removed": Plan(
        (Task(1),), (0,), (Incident(Kind.ERROR, "forge remove_label", 1),)
    ),
    "killed after its last cycle ended what was saved, before it said so": Plan(
        (Task(1, asks=True, gives_up=True),), (0,), (Incident(Kind.KILLED, "git push claims wip", 2),)
    ),
}
"""Worlds in which something did not hold once."""


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A fault that a world shows, until it is mended.

    Attributes:
        why: what is wrong, in words.
        breaks: the sentence that does not hold.
    """

    why: str
    breaks: str
    plan: Plan


KNOWN: dict[str, KnownFault] = {}
