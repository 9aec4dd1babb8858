"""Who signed a test result is read from the certificate; only a checked signature of the default branch's workflow holds."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plugins.verify_pr.claims import EvidenceLine, Standing
from orchestrator.plugins.verify_pr.program import (
    SignatureCheck,
    check_signature,
    lines_of_signatures,
    signed_results,
)
from tests.plugins.verify_pr.bundles import bundle
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

SHA256 = "5" * 64
DATA = Path(__file__).parents[2] / "data" / "sigstore"
KEYS = st.sampled_from(["dsseEnvelope", "payload", "verificationMaterial", "certificate", "rawBytes"])
WORKFLOW = "github.com/octo/calc/.github/workflows/verify.yml@refs/heads/main"


def told(
    bundles: list[Mapping[str, Any]], check: SignatureCheck = SignatureCheck.VALID, claimed: str = "PASSED"
) -> list[EvidenceLine]:
    signed = signed_results(bundles, SHA256, lambda _bundle: (check, "no root" if check != "valid" else ""))
    return list(lines_of_signatures(signed, claimed, "https://github.com/Octo/calc", "main"))


def test_nobody_signed() -> None:
    (line,) = told([])
    assert (line.standing, line.found) == (Standing.NOTED, "nobody signed a test result of the head")


@table(
    ("check", "claimed", "standing", "note"),
    [
        (SignatureCheck.VALID, "PASSED", Standing.HOLDS, ""),
        (SignatureCheck.VALID, "", Standing.HOLDS, ""),
        (SignatureCheck.VALID, "WARNED", Standing.REFUTED, "another result than the signed one"),
        (SignatureCheck.NOT_MADE, "PASSED", Standing.NOTED, "no root"),
        (SignatureCheck.INVALID, "PASSED", Standing.REFUTED, "the signature is wrong: no root"),
    ],
)
def test_a_signature_counts_as_far_as_it_was_checked(
    check: SignatureCheck, claimed: str, standing: Standing, note: str
) -> None:
    (line,) = told([bundle(SHA256)], check, claimed)
    assert (line.standing, line.found) == (standing, f"PASSED, signed by {WORKFLOW}")
    assert note in line.note


@table(
    "other",
    [
        {"ref": "refs/pull/7/merge"},
        {"ref": "refs/heads/feature"},
        {"repository": "https://github.com/other/calc"},
        {"issuer": "https://accounts.example.com"},
    ],
)
def test_another_workflow_than_the_default_branch_s_proves_nothing(other: dict[str, str]) -> None:
    (line,) = told([bundle(SHA256, **other)])
    assert (line.standing, "not by a workflow of the default branch" in line.note) == (Standing.NOTED, True)


@table(
    "change",
    [
        lambda one: one["dsseEnvelope"].pop("payload"),
        lambda one: one["dsseEnvelope"].update(payload="not base64"),
        lambda one: one["verificationMaterial"].update(certificate={"rawBytes": "AAAA"}),
        lambda one: one["verificationMaterial"].update(certificate=None),
        lambda one: one["verificationMaterial"].update(x509CertificateChain={"certificates": []}),
    ],
)
def test_what_cannot_be_read_is_left_out(change: Any) -> None:
    one = bundle(SHA256)
    change(one)
    assert signed_results([one], SHA256) == []


def test_an_attestation_of_something_else_is_left_out() -> None:
    others = [bundle("6" * 64), bundle(SHA256, predicate="https://slsa.dev/provenance/v1")]
    assert signed_results(others, SHA256) == []


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda one: st.lists(one) | st.dictionaries(KEYS, one)
    )
)
def test_json_of_any_shape_is_left_out(value: Any) -> None:
    assert signed_results([value if isinstance(value, dict) else {"dsseEnvelope": value}], SHA256) == []


def test_many_are_counted() -> None:
    lines = told([bundle(SHA256, ref=f"refs/heads/{at}") for at in range(7)])
    assert (len(lines), lines[-1].found) == (6, "2 more are not shown")


def test_without_the_extra_the_line_says_how_to_check() -> None:
    if importlib.util.find_spec("sigstore") is None:
        check, why = check_signature(bundle(SHA256))
        assert check is SignatureCheck.NOT_MADE
        assert "sigstore]" in why


@pytest.fixture
def published() -> dict[str, Any]:
    """An attestation that GitHub's public authority signed."""
    pytest.importorskip("sigstore")
    found: dict[str, Any] = json.loads((DATA / "reusable-workflow-attestation.sigstore.json").read_text())
    return found


def test_a_published_attestation_is_valid_and_one_byte_makes_it_invalid(published: dict[str, Any]) -> None:
    assert check_signature(published) == (SignatureCheck.VALID, "")
    signature = published["dsseEnvelope"]["signatures"][0]
    signature["sig"] = (
        signature["sig"][:20] + ("A" if signature["sig"][20] != "A" else "B") + signature["sig"][21:]
    )
    check, why = check_signature(published)
    assert (check, bool(why)) == (SignatureCheck.INVALID, True)


def test_a_made_up_certificate_is_not_valid() -> None:
    pytest.importorskip("sigstore")
    assert check_signature(bundle(SHA256))[0] is not SignatureCheck.VALID
