"""Says who signed the test results of a commit on GitHub: reads attestations, and checks them where `sigstore` is installed.

The format of a bundle: https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto. The fields of a
certificate: https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.bot.verification.page import PREDICATE
from orchestrator.core.prompts import one_line
from orchestrator.core.repositories import repository_key
from orchestrator.core.suggestions import install_command
from orchestrator.plugins.verify_pr.claims import EvidenceLevel, EvidenceLine, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cryptography.x509 import Certificate

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
