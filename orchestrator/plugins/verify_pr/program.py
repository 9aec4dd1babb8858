"""Builds the verification of one pull request, with its own journal, from the arguments of `verify-pr`.

A request that cannot be met raises a `ConfigurationError`, a pull request that cannot be read a `ForgeError`.

Who signed the test results of a commit on GitHub is read from its attestations, which are checked where `sigstore` is
installed. The format of a bundle:
https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto. The fields of a certificate:
https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import random
import re
import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from orchestrator.app.config.settings import LOCAL_FILE, tightened
from orchestrator.app.terminal import known_secrets
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.cycle_parts import open_clone_of
from orchestrator.app.wiring.guards import (
    choose_sandbox,
    chosen_tests,
    host_runs,
    host_tests_in_words,
    refuse_tracing,
)
from orchestrator.app.wiring.program import tell_notices
from orchestrator.app.wiring.repository import choose_site, label_of
from orchestrator.bot.forge.base import is_bot
from orchestrator.bot.forge.local import places
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.opening import ask_remote
from orchestrator.bot.git.remote import parse_remote
from orchestrator.bot.journal.folders import Home, create_run_folder, new_run_id
from orchestrator.bot.journal.records import EventBus
from orchestrator.bot.suggestions import install_command
from orchestrator.bot.verification.page import PREDICATE
from orchestrator.core.cycle_events import ClaimChecked, CycleEnded, CycleStarted
from orchestrator.core.errors import ConfigurationError, ForgeError, ForgePermissionError, PullwrightError
from orchestrator.core.events import Warned
from orchestrator.core.prompts import one_line
from orchestrator.core.repositories import is_branch_name, repository_key
from orchestrator.core.watchdog import time_limit
from orchestrator.plugins.verify_pr.claims import EvidenceLevel, EvidenceLine, Standing
from orchestrator.plugins.verify_pr.pull_request import (
    EvidenceParts,
    ProposedChange,
    own_check,
    verify_pull_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cryptography.x509 import Certificate

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import RunOptions
    from orchestrator.bot.verification.runs import HostRuns
    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.base import Sandbox
    from orchestrator.plugins.verify_pr.pull_request import PullRequestEvidence


EXTRA = "sigstore"
_FULCIO = "1.3.6.1.4.1.57264.1"
_FACTS = (8, 12, 14, 18)
"""The numbers of issuer, repository, ref, and workflow."""
_UTF8_STRING, _MOST_SHORT_LENGTH = 0x0C, 0x7F
_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
"""Who vouches for a job of GitHub Actions: https://docs.github.com/en/actions/concepts/security/openid-connect."""
_MOST_SHOWN = 5
_LINE_CHARS = 300


class SignatureCheck(StrEnum):
    """The result of checking a signature."""

    VALID = "valid"
    INVALID = "invalid"
    NOT_MADE = "not made"
    """It could not be checked here."""


@dataclass(frozen=True, slots=True)
class SignedResult:
    """A signed test result of a commit.

    Attributes:
        issuer: who vouches for the signer.
        repository: address of the repository whose job signed it.
        ref: the branch or pull request at which the job's workflow was taken.
        workflow: path and ref of the job's workflow, as an address.
        result: `PASSED`, `WARNED` or `FAILED`, as signed.
        check: whether the signature is right.
        why: why it is not, or was not checked; empty if it is.
    """

    issuer: str
    repository: str
    ref: str
    workflow: str
    result: str
    check: SignatureCheck
    why: str = ""

    def is_of_default_branch(self, repository: str, branch: str) -> bool:
        """Return whether a workflow of the default branch of a repository signed it.

        Args:
            repository: address of the repository.
        """
        return (
            self.issuer == _GITHUB_ISSUER
            and repository_key(self.repository) == repository_key(repository)
            and self.ref == f"refs/heads/{branch}"
            and self.workflow.endswith(f"@{self.ref}")
        )


def check_signature(bundle: Mapping[str, Any]) -> tuple[SignatureCheck, str]:
    """Check a bundle's signature, certificate and log entry with the trust root that comes with `sigstore`.

    Returns:
        The result, and why it is not that the signature is valid.
    """
    try:
        from sigstore.errors import Error, VerificationError
        from sigstore.models import Bundle, InvalidBundle
        from sigstore.verify import Verifier, policy
    except ImportError:
        return SignatureCheck.NOT_MADE, f"the signature was not checked here: {install_command(EXTRA)}"
    try:
        parsed = Bundle.from_json(json.dumps(bundle))
        Verifier.production(offline=True).verify_dsse(parsed, policy.OIDCIssuerV2(_GITHUB_ISSUER))
    except InvalidBundle:
        # Attestations of private repositories are signed by GitHub's own authority and are in no public log.
        return SignatureCheck.NOT_MADE, "its signature can only be checked by `gh attestation verify`"
    except VerificationError as error:
        return SignatureCheck.INVALID, str(error)
    except Error as error:
        return SignatureCheck.NOT_MADE, f"the signature was not checked here: {error}"
    return SignatureCheck.VALID, ""


CheckSignature: TypeAlias = "Callable[[Mapping[str, Any]], tuple[SignatureCheck, str]]"


def signed_results(
    bundles: Sequence[Mapping[str, Any]], sha256: str, check: CheckSignature = check_signature
) -> list[SignedResult]:
    """Return the test results among a commit's attestations. What is about something else or cannot be read is left out.

    Args:
        sha256: digest of the commit's object.
    """
    found = (_signed_result(bundle, sha256, check) for bundle in bundles)
    return [one for one in found if one is not None]


def _signed_result(bundle: Mapping[str, Any], sha256: str, check: CheckSignature) -> SignedResult | None:
    try:
        payload = base64.b64decode(bundle["dsseEnvelope"]["payload"], validate=True)
        statement = json.loads(payload)
        digests = [subject["digest"].get("sha256") for subject in statement["subject"]]
        if statement["predicateType"] != PREDICATE or sha256 not in digests:
            return None
        result = str(statement["predicate"]["result"])
        material = bundle["verificationMaterial"]
        chain = material.get("x509CertificateChain")
        leaf = material["certificate"] if chain is None else chain["certificates"][0]
        certificate = _load(base64.b64decode(leaf["rawBytes"], validate=True))
        issuer, repository, ref, workflow = (_fact(certificate, number) for number in _FACTS)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, binascii.Error):
        return None
    return SignedResult(issuer, repository, ref, workflow, result, *check(bundle))


def _load(der: bytes) -> Certificate:
    from cryptography.x509 import load_der_x509_certificate

    return load_der_x509_certificate(der)


def _fact(certificate: Certificate, number: int) -> str:
    """Return a text of a certificate of Sigstore's; empty if it does not have it."""
    from cryptography.x509 import UnrecognizedExtension

    for extension in certificate.extensions:
        if extension.oid.dotted_string == f"{_FULCIO}.{number}":
            value = extension.value
            data = value.value if isinstance(value, UnrecognizedExtension) else b""
            return _utf8(data)
    return ""


def _utf8(der: bytes) -> str:
    """Return the text of a UTF8String in DER: https://www.itu.int/rec/T-REC-X.690, 8.1.3 and 8.23."""
    if len(der) < 2 or der[0] != _UTF8_STRING:  # noqa: PLR2004  a tag and a length
        return ""
    extra = der[1] & _MOST_SHORT_LENGTH if der[1] > _MOST_SHORT_LENGTH else 0
    length = int.from_bytes(der[2 : 2 + extra]) if extra else der[1]
    text = der[2 + extra :]
    return text.decode("utf-8", "replace") if len(text) == length else ""


def lines_of_signatures(
    signed: Sequence[SignedResult], claimed: str, repository: str, branch: str
) -> Iterator[EvidenceLine]:
    """Say who signed the test results of the head.

    Only a checked signature by a workflow of the default branch holds: who may push can write every other workflow.

    Args:
        claimed: the result in the pull request's text; empty if there is none.
        repository: address of the repository.
        branch: its default branch.
    """
    for one in dict.fromkeys(signed[:_MOST_SHOWN]):
        who = one.workflow.removeprefix("https://") or "an unknown signer"
        found = one_line(f"{one.result}, signed by {who}", limit=_LINE_CHARS)
        line = EvidenceLine(EvidenceLevel.SIGNED, "signature", Standing.NOTED, found=found)
        if not one.is_of_default_branch(repository, branch):
            yield replace(line, note=_NOT_OURS)
        elif one.check is SignatureCheck.INVALID:
            why = one_line(one.why, limit=_LINE_CHARS)
            yield replace(line, standing=Standing.REFUTED, note=f"the signature is wrong: {why}")
        elif one.check is SignatureCheck.NOT_MADE:
            yield replace(line, note=one_line(one.why, limit=_LINE_CHARS))
        elif claimed and claimed != one.result:
            yield replace(line, standing=Standing.REFUTED, claimed=claimed, note=_OTHER_RESULT)
        else:
            yield replace(line, standing=Standing.HOLDS)
    if not signed:
        found = "nobody signed a test result of the head"
        yield EvidenceLine(EvidenceLevel.SIGNED, "signature", Standing.NOTED, found=found)
    if len(signed) > _MOST_SHOWN:
        found = f"{len(signed) - _MOST_SHOWN} more are not shown"
        yield EvidenceLine(EvidenceLevel.SIGNED, "signatures", Standing.NOTED, found=found)


_NOT_OURS = "not by a workflow of the default branch, so whoever may push there could have signed it"
_OTHER_RESULT = "the pull request's text has another result than the signed one"


DOOR = "verify-pr"
_NUMBER = re.compile(r"#?([1-9][0-9]{0,17})")
_PULL = re.compile(r"(?P<repository>/[^/]+/[^/]+)/pull/(?P<number>[1-9][0-9]{0,17})(?:/[^?]*)?")
_LOCAL_PULL = re.compile(r"([1-9][0-9]{0,17})\.json")


@dataclass(frozen=True, slots=True)
class NamedPull:
    """The subject that a person named: a number, a branch, or a bundle. Exactly one of the three is set."""

    repository: str
    number: int = 0
    branch: str = ""
    bundle: Path | None = None


def named_pull(text: str, repository: str | None, home: Home) -> NamedPull:
    """Parse the subject of a verification.

    Args:
        text: a number, the address of a pull request, a bundle's path, or a branch.
        repository: value of `--repo`.

    Raises:
        ConfigurationError: the text is none of these, or the repository is not named, or named twice.
    """
    if "://" in text:
        found = _at_address(text, home)
        if repository is not None:
            raise ConfigurationError(f"{text} names its repository: leave out --repo")
        return found
    if repository is None:
        raise ConfigurationError(
            "name the repository: --repo owner/name, a URL or a path; or give the pull request's address"
        )
    path = Path(text).expanduser()
    if number := _NUMBER.fullmatch(text):
        return NamedPull(repository, number=int(number[1]))
    if path.is_file():
        return NamedPull(repository, bundle=path.resolve())
    if not is_branch_name(text):
        raise ConfigurationError(
            f"{text!r} is not a pull request's number or address, nor a file, nor the name of a branch"
        )
    return NamedPull(repository, branch=text)


def _at_address(text: str, home: Home) -> NamedPull:
    parts = urlsplit(text)
    if parts.scheme in {"http", "https"} and (match := _PULL.fullmatch(parts.path.rstrip("/"))):
        return NamedPull(f"{parts.scheme}://{parts.netloc}{match['repository']}", int(match["number"]))
    if parts.scheme == "file":
        file = Path(unquote(parts.path))
        number = _LOCAL_PULL.fullmatch(file.name)
        known = {root.absolute(): repository for root, repository in places(home.root).items()}
        if number and file.parent.name == "pulls" and (folder := known.get(file.parent.parent)):
            return NamedPull(str(folder), int(number[1]))
    raise ConfigurationError(
        f"{text} is not the address of a pull request: such an address ends with /pull/NUMBER"
    )


@dataclass(slots=True)
class VerifyProgram:
    """Verifies one pull request, once.

    Attributes:
        text: description for a branch or a bundle; None if there is none.
    """

    context: BuildContext
    site: Site
    named: NamedPull
    text: str | None
    sandbox: Sandbox | None
    bus: EventBus
    _options: RunOptions | None = None
    _asked: bool = False
    _tightened: Settings | None = None

    async def run(self) -> PullRequestEvidence:
        """Verify the pull request, and record it in a journal."""
        context, settings = self.context, self.context.settings
        run = new_run_id(context.clock.now(), random.SystemRandom())
        folder = create_run_folder(context.home, run)
        parts = EvidenceParts(
            self.read,
            partial(open_clone_of, self.site, context, run, Path(tempfile.gettempdir()), with_git=False),
            self._verifier,
            self._requirement,
            self._signatures,
            self.bus,
            context.stop.at_once,
            settings.max_minutes,
        )
        with time_limit(settings.max_minutes), context.recording(self.bus, folder):
            rules = host_tests_in_words(settings, self.sandbox)
            self.bus(CycleStarted(run, self.site.label, "", "", rules, origin=self.site.origin, door=DOOR))
            try:
                found = await verify_pull_request(parts)
            except PullwrightError as error:
                self.bus(CycleEnded({"outcome": "failed", "error": str(error)}))
                raise
            for line in found.lines:
                self.bus(
                    ClaimChecked(line.level, line.subject, line.standing, line.claimed, line.found, line.note)
                )
            name = f"{found.change.name} {found.change.title}".strip()
            self.bus(CycleEnded({**found.to_json(), "reason": name, "run": run}))
        return found

    def read(self) -> ProposedChange:
        """Return the present state of the proposed change."""
        named = self.named
        if named.number:
            return ProposedChange.of(self.site.forge.pull_request(named.number))
        onto = self.site.source().branch
        if named.bundle is not None:
            return ProposedChange(named.bundle.name, "", onto, text=self.text or "", bundle=named.bundle)
        source = self.site.source()
        with tempfile.TemporaryDirectory(prefix="pullwright-") as folder:
            remote = replace(parse_remote(source.url, self.site.credential), cancelled=self.context.stop.now)
            tip = ask_remote(HostGit(Path(folder)), remote, named.branch, f"cannot read {remote.shown}")
        if tip is None:
            raise ConfigurationError(f"{remote.shown} has no branch {named.branch}")
        return ProposedChange(
            named.branch, f"refs/heads/{named.branch}", onto, text=self.text or "", commit=tip.commit
        )

    def write_check(self, found: PullRequestEvidence) -> tuple[str, str]:
        """Create or update our check run for the head.

        Returns:
            The check run's address; or an empty string, and the reason why none was written.
        """
        check = own_check(found)
        if check is None or not self.named.number:
            return "", "no check run was written: there is no pull request's head to write it for"
        try:
            clean = replace(check, summary=self.context.redactor.redact(check.summary))
            return self.site.forge.ensure_check(clean), ""
        except ForgePermissionError as error:
            lacking = "it takes the token of a workflow or an App with checks: write"
            return "", f"no check run was written: {error}; {lacking}"
        except ForgeError as error:
            return "", f"no check run was written: {error}"

    def _verifier(self, clone: Clone, base: str) -> HostRuns | None:
        if not self._asked:
            self._options, self._asked = self._chosen(clone), True
        if self._options is None:
            return None
        return host_runs(self.site, self.context, self.sandbox, self._options, clone, base=base, reuses=False)

    def _settings(self) -> Settings:
        """Return the person's settings with the stricter rules of the repository's file on the default branch."""
        if self._tightened is None:
            settings, text = self.context.settings, self.site.forge.read_file(LOCAL_FILE)
            if text is not None:
                settings, notes = tightened(settings, text, f"{LOCAL_FILE} of {self.site.label}")
                for note in notes:
                    self.bus(Warned(note))
            self._tightened = settings
        return self._tightened

    def _requirement(self, change: ProposedChange) -> str:
        """Return whose pull requests need evidence, if this is one of them; else an empty text."""
        whose: str = getattr(self._settings(), "require_evidence", "none")
        # The account of an unknown author is gone, so nobody can say that it was a person's.
        is_asked = whose == "all" or (whose == "bots" and (not change.author or is_bot(change.author)))
        return f"required of {whose}" if is_asked else ""

    def _signatures(self, sha256: str, claimed: str) -> list[EvidenceLine]:
        """Return who signed the test results of the head, whose object has this digest."""
        forge = self.site.forge
        try:
            bundles, repository = forge.attestations(f"sha256:{sha256}"), forge.repository()
        except ForgeError as error:
            found = f"nobody could be asked who signed it: {error}"
            return [EvidenceLine(EvidenceLevel.SIGNED, "signature", Standing.NOTED, found=found)]
        signed = signed_results(bundles, sha256)
        branch = repository.default_branch or ""
        return list(lines_of_signatures(signed, claimed, repository.url, branch))

    def _chosen(self, clone: Clone) -> RunOptions | None:
        """Return how to run the tests: as the person says, or with `auto` as the default branch says."""
        settings = self._settings()
        return chosen_tests(self.context, self.sandbox, settings, clone) if settings.test_command else None


def build_verification(  # noqa: PLR0913, PLR0917  what a person gave, where, and who looks on
    subject: str,
    repository: str | None,
    text: str | None,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    view: Emit,
) -> VerifyProgram:
    """Read the configuration, and build what a verification needs. Nothing is contacted.

    Args:
        subject: text that names the pull request, see `named_pull`.
        repository: value of `--repo`.
        text: description of a branch or of a bundle.
    """
    redactor = known_secrets(environ)
    bus = EventBus(view, redactor)
    named = named_pull(subject, repository, Home.of(environ))
    in_journals = partial(label_of, named.repository)
    context = BuildContext.of(flags, environ, cwd, emit=bus, redactor=redactor, named=in_journals)
    if text is not None and named.number:
        raise ConfigurationError("--body is for a branch or a bundle: a pull request has its own text")
    tell_notices(context)
    refuse_tracing(context.settings)
    site = choose_site(named.repository, context, writes=False)
    return VerifyProgram(context, site, named, text, choose_sandbox(context.settings), bus)
