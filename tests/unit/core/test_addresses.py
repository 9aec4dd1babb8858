"""What a credential in an address is, for all who refuse it."""

from __future__ import annotations

from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.addresses import holds_credential, without_credential
from tests.tables import table

LETTERS = st.lists(
    st.sampled_from([*"abc:@/?#\\\t %[].", "https://", "ssh://", "user:pw@", "host"]), max_size=9
)


@table(
    ("address", "holds"),
    [
        ("https://host/a@b", False),
        ("https://host", False),
        ("https://user@host/a", True),
        ("HTTPS://user:pw@host", True),
        ("https://@host", True),
        ("https://:@host", True),
        ("https://a@b@host", True),
        ("https://user?:pw@host", True),
        ("https://host\\@evil", True),
        (" https:/\t/user@host", True),
        ("ftp://token@host", True),
        ("ssh://git@host/a", False),
        ("ssh://git:pw@host/a", True),
        ("git@host:owner/name", False),
        ("owner/name", False),
        ("/a/b@c", False),
    ],
)
def test_what_stands_in_front_of_a_host(address: str, holds: bool) -> None:  # noqa: FBT001  a case of the table
    assert holds_credential(address) is holds


@given(LETTERS.map("".join))
def test_what_pythons_parser_finds_is_found(text: str) -> None:
    try:
        parts = urlsplit(text)
    except ValueError:
        return
    if parts.scheme in {"http", "https"} and parts.netloc:
        assert holds_credential(text) or "@" not in parts.netloc
        assert "@" not in urlsplit(without_credential(text)).netloc or any(map(str.isspace, text))
