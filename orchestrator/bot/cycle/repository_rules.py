"""A repository's rules for contributions, and its own configuration of this program."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple

from orchestrator.core.errors import FileTooLargeError, FileUnreadableError, ToolError
from orchestrator.core.prompts import fence_after
from orchestrator.engine.environments.patterns import path_test
from orchestrator.engine.profiles.base import OTHER_DOCUMENTS, UNIVERSAL_DOCUMENT, documents_in_rule_folders
from orchestrator.engine.tools.textfile import UnknownEncodingError, decode_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from orchestrator.bot.cycle.parts import CycleOptions, Trailer
    from orchestrator.bot.forge.base import Forge


_FOLDERS = ("", ".github/", "docs/")
_NAMES = (
    "contributing",
    "contributing.md",
    "contributing.rst",
    "contributing.txt",
    "ai_policy.md",
    "ai-policy.md",
)
_ABOUT_AI = _NAMES[-2:]
_SUBJECT = "AI policy"
_DCO_FILES = frozenset({"dco", "dco.txt", ".github/dco.yml"})


_SENTENCE = re.compile(
    r"(?<=[.!])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\betc\.)\s+|\n(?:[^\S\n]*\n)+|\n(?=[^\S\n]*(?:\||(?:[-*+#>]|\d+[.)])\s))"
)
"""Ends a sentence. A question is one with its answer."""
_MACHINE = r"(?:AI|A\.I\.|LLMs?|(?:large )?language models?|generative (?:AI|models?)|Copilot|ChatGPT|Claude|coding agents?)"
_WORK = r"(?:contributions?|code|content|changes?|commits?|patch(?:es)?|pull requests?|PRs?|submissions?|tools?|agents?)"
_BANS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:we|this project|the project|maintainers)\b.{{0,40}}\b(?:ban|forbid|prohibit|reject|disallow|refuse|close)s?\b.{{0,60}}\b{_MACHINE}\b",
        rf"\b(?:do not|don't|does not|cannot|will not|won't|never) (?:accept|allow|permit|merge|take|want|review)\b.{{0,80}}\b{_MACHINE}\b",
        rf"\b(?:do not|don't|must not|may not|never|please refrain from|refrain from) (?:submit|submitting|open|opening|send|sending|contribute|contributing|post|posting)\b.{{0,60}}\b{_MACHINE}\b",
        rf"\b{_MACHINE}\b.{{0,80}}\b(?:is|are|will be) (?:strictly |explicitly |currently )?(?:not (?:be )?(?:accepted|allowed|permitted|welcome)|forbidden|prohibited|banned|rejected|disallowed|closed)\b",
        rf"^\W*no {_MACHINE}(?:[- ](?:generated|assisted|written|authored))?\b.{{0,30}}\b{_WORK}\b",
    )
)
"""Sentences that refuse what machines made, collected from public contribution guides and AI policies."""
_CONTRIBUTED = re.compile(
    r"\b(?:contribut\w*|polic(?:y|ies)|pull requests?|PRs?|patch(?:es)?|commits?|submi(?:t|ts|tted|tting|ssions?)|merge[ds]?|"
    r"(?:AI|LLM|GPT|machine|model|agent|bot)[- ](?:generated|assisted|written|authored|created|produced|made)|"
    r"(?:generated|written|authored|created|produced|made|assisted) (?:by|with|using|through)|generative|this (?:repository|project|codebase))\b",
    re.IGNORECASE,
)
"""Words of a sentence that is about what is contributed, and not about what the program does."""
_ANY_MACHINE = re.compile(
    rf"(?<![A-Za-z0-9])(?:{_MACHINE}|artificial intelligence|gen-?AI|[a-z]*GPT(?:-?\d\w*)?|OpenAI|Anthropic|Gemini|Codex|Cursor|Windsurf|Devin|DeepSeek|Llama|Mistral|Qwen|Grok"
    r"|language[- ]models?|neural net(?:work)?s?|machine learning|machines?|synthetic|generative|agentic|agents?[- ](?:written|made|generated|authored|created)"
    r"|(?:code|coding|programming) assistants?|chat ?bots?|non-?humans?"
    r"|(?:authored|made|written|created|produced|work) (?:only |entirely |solely )?(?:by|of) (?:an? )?(?:real |actual )?(?:humans?|persons?|people)|humans? (?:contributors?|authors?|only)|human[- ](?:written|made|authored|created|thoughts?|minds?|hands?|brains?|authors?|beings?)"
    r"|models? (?:that (?:was|were) )?trained|agents need not|no agents"
    r"|automatic(?:ally)? (?:generated|written)|auto-?generated|vibe[- ]?cod\w+|slop|(?:ro)?bots?"
    r"|(?:automated|autonomous) (?:agents?|tools?|contributions?|pull requests?|PRs?|changes|patches)|(?:code|text) generators?"
    r"|KI|IA|intelligence artificielle|intelig\u00eancia artificial|inteligencia artificial|intelligenza artificiale|sztuczn\w{1,9} inteligencj\w{1,9}|yapay zeka\w{0,9}|ИИ|нейросет\w{1,9})(?![A-Za-z0-9])|人工智能|人工知能|大模型|生成AI",
    re.IGNORECASE,
)
_NAMES_AI = re.compile(
    rf"(?<![A-Za-z0-9]){_MACHINE}(?![A-Za-z0-9])|artificial intelligence|\bgenerative\b|GPT|vibe|slop|\bagents?\b|\bhumans?\b|\bpersons?\b|\bpeople\b|[^\x00-\x7f]",
    re.IGNORECASE,
)
_ANY_REFUSAL = re.compile(
    r"\b(?:no|not|never|nothing|none|nobody|thrown?|trash\w*|discard\w*|cannot|nor|neither|without|avoid|refrain|against|only|ban(?:s|ned)?|forbid\w*|prohibit\w*|reject\w*"
    r"|refus\w+|declin\w+|disallow\w*|clos(?:e|es|ed)|unwelcome|unacceptable|inadmissible|free of|zero|strictly|must|human\w*"
    r"|hand-?written|people|disqualif\w+|delet\w+|block\w*|discourag\w+|off-limits|keep\b.{0,20}\bout|stays? (?:out|away)|spam|instead|yourself|free|unwanted|expect\w*|no-go"
    r"|exclu(?:de[sd]?|ding)|the bin|will be ignored|bannable|lock (?:any|all|the|your)|by hand|own work|need not|tainted"
    r"|abgelehnt|ablehn\w*|untersagt\w*|unerw\u00fcnscht|refus\u00e9\w*|rechaz\w+|vietat\w*|proibid\w*|ne\s+sont"
    r"|nicht|kein\w*|verboten|interdit\w*|pas|prohibid\w*|prohibi\w*|запрещ\w*|не|n\u00e3o|nie|niet|geen|inte|ikke|non|edilmez)\b|n['\u2019]t\b|不|禁止|勿|ません|ない|않|금지",
    re.IGNORECASE,
)
_MADE = re.compile(
    rf"\b{_MACHINE}[- ](?:generated|assisted|written|authored|created|produced|made)\b|\b{_MACHINE} {_WORK}\b"
    rf"|\b(?:generated|written|authored|created|produced|made|drafted)\b.{{0,30}}\b(?:by|with|using|through|from)\b.{{0,20}}\b{_MACHINE}\b"
    r"|\buse of (?:any )?generative\b",
    re.IGNORECASE,
)
"""Words of a sentence that is about what a machine made."""
_ENDS = re.compile(r"[.!?;][\"')\]*_`]*$")
_ITEM = re.compile(r"[-*+>]\s|\d+[.)]\s")
_MOST_HEADING = 100
_LEAST_STATEMENT = 20
_CONDITIONS = re.compile(
    r"\b(?:unless|without|except|undisclosed|unreviewed|untested|low[- ]quality|purely|blindly|if you|that you (?:do|have) not|not understand|disclos)",
    re.IGNORECASE,
)
"""Words that turn such a sentence into a mere condition."""
_SIGN_OFF = re.compile(
    r"signed[- ]off\b|developer certificate of origin|developercertificate\.org|\bcommit\s+(?:-a?s[am]{0,2}|--signoff)\b"
    r"|\bsign off (?:on )?(?:all |every |each |your |the )?commits?\b",
    re.IGNORECASE,
)
_NO_SIGN_OFF = re.compile(
    r"(?:\b(?:not|no longer|never)|n['\u2019]t) (?:be )?(?:required|needed|necessary|need|require|use|add|ask|have)\b|\bno (?:need|signed-off|DCO|developer)\b|\boptional\b",
    re.IGNORECASE,
)
"""Words of a sentence that asks for no sign-off, or wants none of a machine."""
_ASSISTED = re.compile(r"\bAssisted-by\b", re.IGNORECASE)
_GENERATED = re.compile(
    r"\bGenerated-by\b(?=.{0,3}:|.{0,40}\b(?:trailer|line|tag|footer|token))", re.IGNORECASE
)
_CO_AUTHORED = re.compile(r"\bCo-authored-by\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:no|not|don't|never|without|remove|drop|omit|forbid|reject)\b", re.IGNORECASE)

_QUOTE_CHARACTERS = 200
_MOST_SENTENCE_CHARACTERS = 1_000
_OVERLAP = 200


class Statement(NamedTuple):
    """A sentence of a file that may refuse what machines made."""

    path: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}: {self.sentence[:_QUOTE_CHARACTERS]}"

    @property
    def is_likely(self) -> bool:
        """Whether it counts as a refusal where no model can tell.

        By its words it is about contributions, or it stands in a guide and names AI: machines, bots and cursors are other
        things, too.
        """
        if not _may_refuse(self.sentence):
            return False
        if _CONTRIBUTED.search(self.sentence) is not None:
            return True
        return _is_guide(self.path) and _NAMES_AI.search(self.sentence) is not None


@dataclass(frozen=True, slots=True)
class Etiquette:
    """Rules in the repository's contribution guides.

    Attributes:
        forbids: the place and sentence that refuses machine-made changes; None if there is none.
        doubtful: the places and sentences that may mean it, about which a model is asked.
        sign_off: whether commits need a `Signed-off-by` line (https://developercertificate.org).
        trailer: how a commit names the model.
    """

    forbids: str | None = None
    sign_off: bool = False
    doubtful: tuple[Statement, ...] = ()
    trailer: Trailer = "none"

    def chosen(self, signoff: str, trailer: Trailer | Literal["auto"]) -> Etiquette:
        """Return the rules with the user's decisions applied. `auto` leaves a rule to the repository."""
        sign = self.sign_off if signoff == "auto" else signoff == "always"
        return Etiquette(self.forbids, sign, self.doubtful, self.trailer if trailer == "auto" else trailer)

    def trailers(self, name: str, email: str, model: str) -> tuple[str, ...]:
        """Return the trailers of a commit message, for this author and model."""
        lines = []
        if self.trailer == "assisted-by":
            # The form of https://docs.kernel.org/process/coding-assistants.html
            lines.append(f"Assisted-by: Pullwright:{_word(model)}")
        elif self.trailer == "generated-by":
            # The form of https://www.apache.org/legal/generative-tooling.html
            lines.append(f"Generated-by: Pullwright ({_word(model)})")
        elif self.trailer == "co-authored-by":
            lines.append(f"Co-authored-by: {_word(model)} <{email}>")
        if self.sign_off:
            lines.append(f"Signed-off-by: {name} <{email}>")
        return tuple(lines)


_READMES = ("readme.md", "readme.rst", "readme.txt", "readme")


def texts_to_read(paths: Iterable[str]) -> list[str]:
    """Return the files of the repository that contain its rules: guides, instruction files at the top, the README."""
    wanted = {f"{folder}{name}" for folder in _FOLDERS for name in _NAMES}
    wanted |= {name.lower() for name in (UNIVERSAL_DOCUMENT, *OTHER_DOCUMENTS)}
    wanted |= {f"{folder}{name}" for folder in _FOLDERS for name in _READMES}
    paths = list(paths)
    rules = set(documents_in_rule_folders(paths))  # those at the top have the name that is their path
    return sorted(path for path in paths if path.lower() in wanted or path in rules)


def _is_readme(path: str) -> bool:
    return path.lower().rpartition("/")[2] in _READMES


_NAMED_FILE = re.compile(r"[\w][\w./-]*+")
_MOST_NAMED_FILES = 10


def named_in(path: str, text: str, paths: Collection[str]) -> list[str]:
    """Return the text files of the repository that an instruction file names, by link, import or words."""
    found: dict[str, None] = {}
    for name in _NAMED_FILE.findall(text):
        for folder in dict.fromkeys((posixpath.dirname(path), "")):
            target = posixpath.normpath(posixpath.join(folder, name.rstrip(".")))
            if target in paths and target.lower().endswith((".md", ".rst", ".txt")) and target != path:
                found[target] = None
    return list(found)[:_MOST_NAMED_FILES]


def read_etiquette(paths: Iterable[str], texts: Mapping[str, str]) -> Etiquette:
    """Extract the rules from the repository's files.

    Args:
        texts: the text of the files of `texts_to_read`, by path.
    """
    everything = "\n\n".join(text for path, text in texts.items() if not _is_readme(path))
    found = list(_statements(texts))
    doubtful = [one for one, is_clear in found if not is_clear]
    return Etiquette(
        forbids=next((str(one) for one, is_clear in found if is_clear), None),
        doubtful=tuple(sorted(doubtful, key=_is_unlikely)),
        sign_off=_wants_sign_off(everything, has_robot=any(path.lower() in _DCO_FILES for path in paths)),
        trailer=_trailer(everything),
    )


def _is_unlikely(one: Statement) -> tuple[bool, bool, bool]:
    """Return what sorts the sentences by how likely they refuse contributions: by their words, then by their file."""
    return not _may_refuse(one.sentence), _CONTRIBUTED.search(one.sentence) is None, not _is_guide(one.path)


def _is_guide(path: str) -> bool:
    return path.lower().rpartition("/")[2] in _NAMES


def _statements(texts: Mapping[str, str]) -> Iterator[tuple[Statement, bool]]:
    """Yield the sentences that may refuse what machines made, and whether each does so clearly.

    One that lacks a word of the two kinds is read with the heading, or the line with a colon, that it stands below, in a
    file about AI with this subject. In a guide, one about what a machine contributes is told even without a word that
    refuses: every list of such words misses some, and a model is asked. One that asks for a trailer allows the change.
    """
    for path, text in texts.items():
        subject = _SUBJECT if path.lower().rpartition("/")[2] in _ABOUT_AI else ""
        heading = subject
        for own in _sentences(text):
            sentence = own
            if not _may_refuse(own):
                below = "" if own.startswith("#") else heading
                if len(own) <= _MOST_HEADING and not (_ENDS.search(own) or _ITEM.match(own)):
                    heading = own.strip("#*_=-~: ")
                    if subject and not _ANY_MACHINE.search(heading):
                        heading = f"{subject}, {heading}"
                sentence = f"{below}: {own}" if below else own
                if not (_is_guide(path) or _CONTRIBUTED.search(sentence)):
                    continue
            if not _may_refuse(sentence):
                is_heading = own.startswith("#") or len(own) < _LEAST_STATEMENT
                if (
                    _is_guide(path)
                    and not is_heading
                    and _ANY_MACHINE.search(own)
                    and _CONTRIBUTED.search(own)
                    and not any(one.search(own) for one in (_ASSISTED, _GENERATED, _CO_AUTHORED))
                ):
                    yield Statement(path, own), False
            else:
                is_clear = _is_guide(path) and _MADE.search(sentence) and not _CONDITIONS.search(sentence)
                yield Statement(path, sentence), bool(is_clear) and any(ban.search(sentence) for ban in _BANS)


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line; of a very long one, parts that overlap."""
    for part in _SENTENCE.split(text):
        flat = " ".join(part.split())
        for start in range(
            0, max(len(flat) - _OVERLAP, min(len(flat), 1)), _MOST_SENTENCE_CHARACTERS - _OVERLAP
        ):
            yield flat[start : start + _MOST_SENTENCE_CHARACTERS]


def _may_refuse(sentence: str) -> bool:
    return _ANY_MACHINE.search(sentence) is not None and _ANY_REFUSAL.search(sentence) is not None


def _wants_sign_off(text: str, *, has_robot: bool) -> bool:
    """Return whether commits of this program need a sign-off.

    A project may ask people for it and forbid it to machines, as the Linux kernel does; then a person signs off.
    """
    about = [flat for flat in _sentences(text) if _SIGN_OFF.search(flat)]
    if any(_ANY_MACHINE.search(one) and _NOT.search(one) for one in about):
        return False
    return has_robot or any(not _NO_SIGN_OFF.search(one) for one in about)


def _trailer(text: str) -> Trailer:
    for sentence in _SENTENCE.split(text):
        if _ASSISTED.search(sentence) and not _NOT.search(sentence):
            return "assisted-by"
    for sentence in _SENTENCE.split(text):
        if _GENERATED.search(sentence) and not _NOT.search(sentence):
            return "generated-by"
    for sentence in _SENTENCE.split(text):
        machine = re.search(rf"\b{_MACHINE}\b", sentence, re.IGNORECASE)
        if machine and _CO_AUTHORED.search(sentence) and not _NOT.search(sentence):
            return "co-authored-by"
    return "none"


def _word(model: str) -> str:
    """Return a model's name as a word for a trailer."""
    return re.sub(r"[^A-Za-z0-9._:/-]+", "-", model).strip("-") or "unknown"


def owners_of(codeowners: str, paths: Iterable[str]) -> list[str]:
    """Return the owners of these paths, in the order of the file. Of several matching lines the last one counts.

    https://docs.github.com/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
    """
    rules: list[tuple[Callable[[str], bool], list[str]]] = []
    for line in codeowners.splitlines():
        pattern, *owners = line.partition("#")[0].split() or [""]
        rules.append((path_test([pattern]), owners))
    found: dict[str, None] = {}
    for path in paths:
        mine = next((who for names, who in reversed(rules) if names(path)), [])
        found.update(dict.fromkeys(mine))
    order = [who for _, owners in rules for who in owners]
    return sorted(found, key=order.index)


# Places and names: https://docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests
_TEMPLATE_FOLDERS = ("", ".github", "docs")
_TEMPLATE_NAMES = ("pull_request_template.md", "pull_request_template.txt", "pull_request_template")
_HEADING = re.compile(r"#{1,6}[ \t]++(?P<title>\S.*)")
_COMMENT = re.compile(r"<!--.*?(?:(?P<end>-->)|\Z)", re.DOTALL)
_LEFT = "\ufdd0"
"""Stands for a comment while it is decided whether its line goes too; a character that no text has."""
_CHECKBOX = re.compile(r"^[ \t]*[-*+][ \t]\[[ xX]\]", re.MULTILINE)
_DESCRIPTIVE = re.compile(r"descri|summary|what|change|overview|purpose", re.IGNORECASE)


def find_template(paths: list[str]) -> str | None:
    """Return the path of the pull-request template, in any letter case."""
    by_lower = {path.lower(): path for path in paths}
    for folder in _TEMPLATE_FOLDERS:
        for name in _TEMPLATE_NAMES:
            if found := by_lower.get(str(PurePosixPath(folder, name))):
                return found
    return None


def fill_template(template: str, body: str) -> str:
    """Put the body under the template's heading for descriptions, and keep the other sections.

    A body with all headings of the template is returned unchanged. Comments, which instruct authors, are dropped.
    """
    plain = _without_comments(template)
    headings = list(_headings(plain))
    written = {title.lower() for title, _ in _headings(body)}
    if headings and all(title.lower() in written for title, _ in headings):
        return body
    found = next((end for title, end in headings if _DESCRIPTIVE.search(title)), None)
    if found is None:  # no heading asks for a description: the first one that stands above every checklist
        box = _CHECKBOX.search(plain)
        ends = [end for _, end in headings[1:]] + [len(plain)]
        sections = zip((end for _, end in headings), ends, strict=False)
        found = next((end for end, later in sections if box is None or later <= box.start()), None)
    if found is None:
        return f"{body}\n\n{plain}".strip()
    return f"{plain[:found]}\n\n{body}\n{plain[found:]}".strip()


def _without_comments(template: str) -> str:
    """Return a template without its comments. A line goes with its comment if nothing else is in it."""
    marked = _COMMENT.sub(lambda found: _LEFT if found["end"] else found[0], template.replace(_LEFT, ""))
    lines = [line for line in marked.split("\n") if _LEFT not in line or line.replace(_LEFT, "").strip()]
    return "\n".join(line.replace(_LEFT, "").rstrip() if _LEFT in line else line for line in lines).strip()


def _headings(text: str) -> Iterator[tuple[str, int]]:
    """Yield the title and end of each heading outside of code blocks."""
    fence, at = "", 0
    for line in text.splitlines(keepends=True):
        before, fence = fence, fence_after(line, fence)
        if not (before or fence) and (heading := _HEADING.match(line.rstrip("\n"))):
            title = heading["title"]
            yield title.rstrip("#").rstrip(" \t") or title[0], at + heading.end()
        at += len(line)


MOST_RULES_BYTES = 512_000
"""Of one file with rules; a longer one is named and not read."""
# https://docs.github.com/repositories/managing-your-repositorys-settings-and-features/customizing-your-repository/about-code-owners
_OWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_MOST_OWNERS = 10


@dataclass(frozen=True, slots=True)
class RepositoryRules:
    """The repository's rules for contributions.

    Attributes:
        forbids, doubtful: see `Etiquette`.
        trailers: the trailers of every commit message.
        codeowners: the text of the CODEOWNERS file.
        starts_no_checks: whether our pull request will start no workflow.
        unread: files that may have rules and cannot be read, each with the reason.
    """

    template: str | None = None
    forbids: str | None = None
    doubtful: tuple[Statement, ...] = ()
    trailers: tuple[str, ...] = ()
    codeowners: str = ""
    starts_no_checks: bool = False
    unread: tuple[str, ...] = ()

    def owners(self, paths: Sequence[str]) -> list[str]:
        """Return the first ten owners of these paths."""
        return owners_of(self.codeowners, paths)[:_MOST_OWNERS]


def _is_document(path: str, links: Mapping[str, str]) -> bool:
    names = {UNIVERSAL_DOCUMENT.lower(), *(name.lower() for name in OTHER_DOCUMENTS)}
    return path.lower() in names or path in links.values() or documents_in_rule_folders([path]) == [path]


async def read_repository_rules(
    paths: Sequence[str],
    read: Callable[[str, int], Awaitable[bytes]],
    options: CycleOptions,
    model: str,
    links: Mapping[str, str] | None = None,
) -> RepositoryRules:
    """Read the rules. A file that cannot be read contains none, and is named.

    Args:
        paths: all files of the base.
        read: returns at most so many bytes of a file; raises `ToolError`.
        options: the user's decisions.
        model: the model's name.
        links: links with the name of an instruction file, each with the file that it leads to.
    """
    unread: dict[str, str] = {}

    async def text(path: str | None) -> str | None:
        if path is None:
            return None
        try:
            data = await read(path, MOST_RULES_BYTES)
            try:
                return decode_text(path, data).plain
            except UnknownEncodingError:
                unread[path] = "its encoding is not sure, so only its ASCII letters are read"
                return data.decode("utf-8", "replace")
        except FileTooLargeError:
            unread[path] = f"it is longer than {MOST_RULES_BYTES // 1000} kB"
        except FileUnreadableError:
            unread[path] = "it is no text, or may not be read"
        except ToolError:  # it was removed, or a link leads out
            pass
        return None

    there = links or {}
    wanted = [there.get(path, path) for path in texts_to_read([*paths, *there])]
    texts = {path: found for path in wanted if (found := await text(path)) is not None}
    documents = {path: texts[path] for path in wanted if path in texts and _is_document(path, there)}
    for path, found in documents.items():
        for named in named_in(path, found, frozenset(paths)):
            if named not in texts and (words := await text(named)) is not None:
                texts[named] = words
    etiquette = read_etiquette(paths, texts).chosen(options.signoff, options.trailer)
    owners = next((path for path in _OWNERS if path in paths), None)
    return RepositoryRules(
        template=await text(find_template(list(paths))),
        forbids=etiquette.forbids,
        doubtful=etiquette.doubtful,
        trailers=etiquette.trailers(options.author_name, options.author_email, model),
        codeowners=await text(owners) or "",
        starts_no_checks=options.starts_no_checks,
        unread=tuple(f"{path}: {why}" for path, why in unread.items()),
    )


class RulesFile:
    """The repository's configuration of this program, cached until something changes on the forge.

    Args:
        path: the file on the default branch.
    """

    def __init__(self, forge: Forge, path: str) -> None:
        self._forge, self._path = forge, path
        self._read: tuple[str, str | None] | None = None

    def text(self, fingerprint: str) -> str | None:
        """Return the file's text; None if there is none."""
        if self._read is None or self._read[0] != fingerprint:
            self._read = fingerprint, self._forge.read_file(self._path, fingerprint)
        return self._read[1]
