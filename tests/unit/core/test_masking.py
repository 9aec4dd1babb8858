"""What is shown of a secret that a server or a person says."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.values import Credential
from orchestrator.bot.git.remote import GitCredential
from orchestrator.core.redaction import REPLACEMENT, without_bytes, without_secrets


@pytest.mark.parametrize("kind", [Credential, GitCredential])
def test_a_credential_shows_no_password(kind: type) -> None:
    shown = repr(kind("example.com", "bot", "q7Zr2VbN9xKp4TmW"))
    assert "q7Zr" not in shown
    assert REPLACEMENT in shown


@given(st.text(min_size=8, max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_no_form_of_a_secret_stays(secret: str, before: str, after: str) -> None:
    raw = secret.encode()
    for form in (secret, quote(raw, safe=""), json.dumps(secret)[1:-1], base64.b64encode(raw).decode()):
        text = f"{before}\0{form}\0{after}"
        said = without_secrets(text, secret)
        assert without_bytes(text.encode(), secret).decode() == said
        assert f"\0{form}\0" not in said


def test_a_short_value_is_left_where_it_is() -> None:
    assert without_secrets("the key is none", "none") == "the key is none"
