"""A certificate for names, made anew for each test run, and both sides of TLS with it."""

from __future__ import annotations

import datetime as dt
import functools
import ssl
import tempfile
from pathlib import Path

NAMES = ("pypi.org", "a.example.org", "evil.example.org", "db.example.com")


@functools.cache
def _pem() -> tuple[str, str]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "double")])
    begin = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in NAMES]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), secret.decode()


def server_context() -> ssl.SSLContext:
    """A server's side. It takes any name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pem"
        file.write_text("".join(_pem()))
        context.load_cert_chain(file)
    return context


def client_context() -> ssl.SSLContext:
    """A client's side, which trusts this certificate only."""
    return ssl.create_default_context(cadata=_pem()[0])
