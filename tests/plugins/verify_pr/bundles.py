"""Attestations as `actions/attest` makes them, but signed by nobody whom the world trusts."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
ISSUER = "https://token.actions.githubusercontent.com"


def bundle(  # noqa: PLR0913  what a test may want to be otherwise
    sha256: str,
    result: str = "PASSED",
    *,
    repository: str = "https://github.com/octo/calc",
    ref: str = "refs/heads/main",
    issuer: str = ISSUER,
    predicate: str = PREDICATE,
    file: str = "verify.yml",
) -> dict[str, Any]:
    """A bundle about a commit, by a workflow of a repository."""
    workflow = f"{repository}/.github/workflows/{file}@{ref}"
    facts = {8: issuer, 12: repository, 14: ref, 18: workflow}
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(minutes=5))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(workflow)]), critical=True)
    )
    for number, fact in facts.items():
        data = fact.encode()
        length = bytes([len(data)]) if len(data) < 0x80 else bytes([0x81, len(data)])
        oid = x509.ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
        builder = builder.add_extension(
            x509.UnrecognizedExtension(oid, b"\x0c" + length + data), critical=False
        )
    certificate = builder.sign(key, hashes.SHA256())
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "head", "digest": {"sha256": sha256}}],
        "predicateType": predicate,
        "predicate": {"result": result, "configuration": []},
    }
    payload = json.dumps(statement).encode()
    kind = "application/vnd.in-toto+json"
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
    signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "tlogEntries": [],
            "timestampVerificationData": {},
            "certificate": {"rawBytes": _base64(certificate.public_bytes(serialization.Encoding.DER))},
        },
        "dsseEnvelope": {
            "payload": _base64(payload),
            "payloadType": kind,
            "signatures": [{"sig": _base64(signature)}],
        },
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
