"""What people said about an issue, as far as a model is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from orchestrator.bot.cycle.tasks import Remark, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.bot.forge.base import Comment

CommentsPolicy: TypeAlias = Literal["none", "writers", "quoted"]
"""Whose comments a model is told: nobody's, those of people who may cause work, or everybody's with that flag."""

MOST_REMARKS = 50
MOST_CHARACTERS = 20_000
"""Of all remarks together."""


def choose_remarks(
    comments: Sequence[Comment],
    policy: CommentsPolicy,
    may: Callable[[str], bool],
    clean: Callable[[str, str], str],
) -> tuple[Remark, ...]:
    """The remarks that the policy lets through, oldest first.

    What the program itself wrote is left out: it may be a model's words under the name of somebody
    who may write. Where there are too many, the newest stay, and a stranger's go before others.

    Args:
        comments: oldest first.
        policy: whose are wanted.
        may: whether somebody may cause work.
        clean: a text without what people do not see; told who wrote it.
    """
    if policy == "none":
        return ()
    judged = [(comment, may(comment.author)) for comment in comments]
    wanted = [
        (at, comment, trusted)
        for at, (comment, trusted) in enumerate(judged)
        if (trusted and not is_ours(comment.body)) or (not trusted and policy == "quoted")
    ]
    wanted.sort(key=lambda entry: (not entry[2], -entry[0]))
    kept: dict[int, Remark] = {}
    left = MOST_CHARACTERS
    for at, comment, trusted in wanted[:MOST_REMARKS]:
        text = clean(comment.body, comment.author).strip()
        if text and left > 0:
            shown = text if len(text) <= left else f"{text[: left - 1]}…"
            kept[at] = Remark(comment.author, shown, trusted)
            left -= len(shown)
    return tuple(kept[at] for at in sorted(kept))
