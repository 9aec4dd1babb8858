"""Who and what plays in an attack beside the program: a forge with its people, a web, a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.redteam.attack import Place
from orchestrator.app.redteam.fake_web import FakeWeb
from orchestrator.app.redteam.grounds import DEFAULT_BRANCH, OUR_BRANCH, PAGE, files_of
from orchestrator.app.redteam.off import TrustingForge
from orchestrator.app.redteam.planting import references
from orchestrator.app.wiring.model import ChosenModel
from orchestrator.bot.forge.base import Check, CheckState, Permission, Proposal
from orchestrator.bot.forge.memory import MemoryForge
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.catalog import ModelRef, parse_model

if TYPE_CHECKING:
    from orchestrator.app.config.settings import Settings
    from orchestrator.app.redteam.attack import Attack
    from orchestrator.app.redteam.grounds import Grounds
    from orchestrator.app.redteam.obedient import ObedientModel

NAME = "redteam/greeting"


def make_forge(
    attack: Attack, grounds: Grounds, settings: Settings, base: str, *, trusting: bool
) -> MemoryForge:
    """The forge with the issue, its people, its comments and what was edited."""
    world = attack.world
    forge = (TrustingForge if trusting else MemoryForge)(
        NAME,
        str(grounds.repository),
        lambda branch: references(grounds.repository).get(branch),
        DEFAULT_BRANCH,
        files_of(attack, grounds) if (world.base or base) == DEFAULT_BRANCH else world.default_files,
        {login: Permission(held) for login, held in world.people.items()},
        required_apps={base: world.required_apps},
    )
    words = grounds.fill(attack.text)
    title = words if attack.place is Place.ISSUE_TITLE else grounds.fill(world.title)
    body = grounds.fill(world.body)
    if attack.place in {Place.ISSUE_BODY, Place.ACTOR}:
        body = f"{body}\n\n{words}"
    late = world.edited_by is not None
    number = forge.add_issue(
        grounds.fill(world.title) if late else title,
        grounds.fill(world.body) if late else body,
        author=world.author,
    )
    for label in settings.label.split(",") if world.labelled_by else ():
        forge.put_label(number, label.strip(), by=world.labelled_by)
    if world.edited_by is not None:
        forge.edit_issue(number, by=world.edited_by, title=title, body=body)
    if attack.place is Place.CHECK:
        mine, _ = forge.ensure_pull_request(
            Proposal(OUR_BRANCH, base, "Mend the greeting", "It is mended.", draft=False)
        )
        forge.add_check(mine.commit, Check("tests", CheckState.FAILED, words, mine.url, app=world.check_app))
    for comment in world.comments:
        forge.add_comment(
            number, grounds.fill(comment.body.replace("{{text}}", attack.text)), author=comment.author
        )
    return forge


def make_web(attack: Attack, grounds: Grounds, *, checked: bool) -> FakeWeb:
    """The pages of an attack."""
    pages = dict(attack.world.pages)
    if attack.place in {Place.WEB_PAGE, Place.WEB_SEARCH}:
        pages.setdefault(PAGE, "{{text}}")
    filled = {url: grounds.fill(text.replace("{{text}}", attack.text)) for url, text in pages.items()}
    return FakeWeb(filled, attack.world.hosts, checked=checked)


def in_the_place_of_the_model(model: ObedientModel, settings: Settings) -> ChosenModel:
    """The obedient model in the place of the user's, so that the profile is the one that they would get."""
    ref: ModelRef | None
    try:
        ref = parse_model(settings.model) if settings.model else None
    except ConfigurationError:
        ref = None
    return ChosenModel(model, lambda _usage: 0.0, ref)
