from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.github.address import api_url_for, git_host_of
from orchestrator.core.errors import ConfigurationError
from tests.tables import table


@table(
    ("given_url", "api_url", "host"),
    [
        ("https://github.com", "https://api.github.com", "github.com"),
        ("github.com", "https://api.github.com", "github.com"),
        ("https://www.github.com/", "https://api.github.com", "github.com"),
        ("https://api.github.com", "https://api.github.com", "github.com"),
        ("HTTPS://GitHub.com", "https://api.github.com", "github.com"),
        ("https://octo.ghe.com", "https://api.octo.ghe.com", "octo.ghe.com"),
        ("https://api.octo.ghe.com/", "https://api.octo.ghe.com", "octo.ghe.com"),
        ("https://git.example.com", "https://git.example.com/api/v3", "git.example.com"),
        (
            "https://git.example.com:8443/api/v3/",
            "https://git.example.com:8443/api/v3",
            "git.example.com:8443",
        ),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000/api/v3", "127.0.0.1:5000"),
        ("http://[::1]:5000", "http://[::1]:5000/api/v3", "[::1]:5000"),
        ("http://localhost", "http://localhost/api/v3", "localhost"),
        ("https://github.com:443", "https://api.github.com", "github.com"),
        ("https://github.com./", "https://api.github.com", "github.com"),
        ("https://git.example.com:443", "https://git.example.com/api/v3", "git.example.com"),
        ("https://git.example.com.:443/api/v3", "https://git.example.com/api/v3", "git.example.com"),
        ("https://git.example.com:80", "https://git.example.com:80/api/v3", "git.example.com:80"),
        ("http://127.0.0.1:80", "http://127.0.0.1/api/v3", "127.0.0.1"),
        (" https://git.example.com ", "https://git.example.com/api/v3", "git.example.com"),
    ],
)
def test_addresses(given_url: str, api_url: str, host: str) -> None:
    assert api_url_for(given_url) == api_url
    assert git_host_of(api_url) == host


@table(
    ("given_url", "words"),
    [
        ("", "give an address"),
        ("ftp://github.com", "give an address"),
        ("https://", "give an address"),
        ("https://.", "give an address"),
        ("https://github.com?x=1", "give an address"),
        ("https://git.example.com:port", "give one like"),
        ("https://[::1", "give one like"),
        ("https://github.com/octo/demo", "leave out /octo/demo"),
        ("http://git.example.com", "use https"),
        ("https://octo:hunter22@git.example.com", "holds a credential"),
    ],
)
def test_what_is_no_address_is_refused_and_a_password_not_repeated(given_url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        api_url_for(given_url)
    assert "hunter22" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_gives_an_address_or_a_clear_error(text: str) -> None:
    try:
        found = api_url_for(text)
    except ConfigurationError:
        return
    assert api_url_for(found) == found
