"""Which model server gets which key."""

from __future__ import annotations

import pytest

from orchestrator.app.config.settings import Settings
from orchestrator.core.addresses import ServerPlace, server_of
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.catalog import Provider, detect_provider, vendor_of
from orchestrator.engine.models.keys import ApiKeys, key_for_server
from tests.tables import table

ALL = ApiKeys(
    openai="key-of-openai", anthropic="key-of-anthropic", gemini="key-of-gemini", other="key-of-others"
)
_GEMINI = "https://generativelanguage.googleapis.com/v1beta"
VENDORS = {
    "https://api.openai.com/v1": "openai",
    "https://API.OpenAI.com/v1": "openai",
    "https://api.openai.com:443/v1": "openai",
    "https://api.openai.com": "openai",
    "https://eu.api.openai.com/v1": "openai",
    "https://us.api.openai.com/v1": "openai",
    "https://jp.api.openai.com/v1/chat/completions": "openai",
    "https://api.anthropic.com/v1": "anthropic",
    "https://api.anthropic.com/v1/chat/completions": "anthropic",
    "https://generativelanguage.googleapis.com/v1beta": "gemini",
    "https://generativelanguage.googleapis.com/v1beta/openai": "gemini",
    "https://aiplatform.googleapis.com/v1": "gemini",
    "https://us-central1-aiplatform.googleapis.com/v1": "gemini",
    "https://europe-west4-aiplatform.googleapis.com/v1": "gemini",
    "https://aiplatform.eu.rep.googleapis.com/v1": "gemini",
}
OTHERS = """
    http://api.openai.com/v1 http://api.openai.com:443/v1 https://api.openai.com:8443/v1 https://api.openai.com:80/v1
    https://api.openai.com./v1 https://api.openai.com..example.com https://.api.openai.com/v1
    https://api.openai.com.example.com/v1 https://example.com/api.openai.com/v1 https://example.com/?api.openai.com
    https://xapi.openai.com/v1 https://x-api.openai.com/v1 https://eu-api.openai.com/v1 https://a.b.api.openai.com/v1
    https://evil.api.openai.com/v1 https://eu.api.openai.com.example.com/v1 https://euapi.openai.com/v1
    https://openai.com/v1 https://www.openai.com/v1 https://api.openai.co/v1 https://api-openai.com/v1
    https://api.openai.com@example.com/v1 https://x@api.openai.com/v1 https://api.openai.com:x@example.com/v1
    https://api.openai.com\\@example.com/v1 https://api.openai.com%2eexample.com/v1 https://api%2eopenai.com/v1
    https://api.openai.com?@example.com/v1 https://api.openai.com#@example.com/v1 https:/api.openai.com/v1
    https:api.openai.com/v1 https:///api.openai.com/v1 //api.openai.com/v1 api.openai.com/v1 ftp://api.openai.com/v1
    https://\u0430pi.openai.com/v1 https://api.openai\u3002com/v1 https://api.openai.com\uff0fexample.com/v1
    https://xn--pi-6kc.openai.com/v1 https://api.openai.com:99999/v1
    https://[api.openai.com]/v1 https://api.openai.com:/v1
    https://api.anthropic.com.example.com/v1 https://eu.api.anthropic.com/v1 https://anthropic.com/v1
    https://generativelanguage.googleapis.com.example.com/v1beta https://storage.googleapis.com/v1
    https://x.generativelanguage.googleapis.com/v1beta https://evil-aiplatform.googleapis.com/v1
    https://aiplatform.example.rep.googleapis.com/v1 https://us-central1-aiplatform.googleapis.com.example.com/v1
    https://my.openai.azure.com/openai/v1 https://openrouter.ai/api/v1 https://api.x.ai/v1 https://api.mistral.ai/v1
    https://api.groq.com/openai/v1 https://llm.example.com/v1 http://localhost:4000/v1 http://127.0.0.1:11434/v1
    http://[::1]:8080/v1 https://10.0.0.7/v1
""".split()  # noqa: SIM905  a table


def granted(url: str, *bound: str, keys: ApiKeys = ALL) -> str | None:
    return key_for_server(keys, url, bound, "openai").key


@table(("url", "vendor"), list(VENDORS.items()))
def test_a_vendors_own_servers_get_its_key_whatever_protocol_is_asked(url: str, vendor: str) -> None:
    assert vendor_of(url) == Provider(vendor)
    for protocol in ("openai", "anthropic", "gemini"):
        assert key_for_server(ALL, url, (), protocol).key == f"key-of-{vendor}"
    assert key_for_server(ApiKeys(other="key-of-others"), url, (), vendor).key is None


@table(
    ("variable", "api_url", "asked", "key"),
    [
        ("TEAM_API_KEY", "https://llm.example/v1", "https://llm.example/v1", "key-of-team"),
        ("TEAM_API_KEY", "https://llm.example/v1", "https://llm.example:443/v2", "key-of-team"),
        ("TEAM_API_KEY", "https://llm.example/v1", "https://other.example/v1", "key-of-others"),
        ("TEAM_API_KEY", "https://llm.example/v1", "http://llm.example/v1", "key-of-others"),
        ("TEAM_API_KEY", "https://api.openai.com/v1", "https://api.openai.com/v1", "key-of-team"),
        ("TEAM_API_KEY", "https://api.openai.com/v1", "https://api.anthropic.com/v1", "key-of-anthropic"),
        ("TEAM_API_KEY", "", "https://llm.example/v1", "key-of-others"),
        # What has another use already goes only where it always goes.
        ("OPENAI_API_KEY", "https://llm.example/v1", "https://llm.example/v1", "key-of-others"),
        ("GITHUB_TOKEN", "https://llm.example/v1", "https://llm.example/v1", "key-of-others"),
        ("GITHUB_TOKEN", "https://api.openai.com/v1", "https://api.openai.com/v1", "key-of-openai"),
        ("GOOGLE_API_KEY", _GEMINI, _GEMINI, "key-of-google"),
        ("PULLWRIGHT_API_KEY", "https://api.openai.com/v1", "https://api.openai.com/v1", "key-of-others"),
    ],
)
def test_a_named_variable_has_the_key_of_one_server(
    variable: str, api_url: str, asked: str, key: str
) -> None:
    environ = {
        "OPENAI_API_KEY": "key-of-openai",
        "ANTHROPIC_API_KEY": "key-of-anthropic",
        "GEMINI_API_KEY": "key-of-gemini",
        "GOOGLE_API_KEY": "key-of-google",
        "PULLWRIGHT_API_KEY": "key-of-others",
        "GITHUB_TOKEN": "token-of-github",
        "TEAM_API_KEY": "key-of-team",
    }
    assert granted(asked, keys=ApiKeys.of(environ, variable, api_url)) == key
    assert "key-of-team" not in repr(ApiKeys.of(environ, variable, api_url).named)


def test_a_named_variable_that_is_not_set_is_named() -> None:
    found = key_for_server(
        ApiKeys.of({}, "TEAM_API_KEY", "https://a.example"), "https://a.example", (), "openai"
    )
    assert (found.key, found.variable) == (None, "TEAM_API_KEY")
    with pytest.raises(ConfigurationError, match="TEAM_API_KEY holds a space"):
        ApiKeys.of({"TEAM_API_KEY": "a b"}, "TEAM_API_KEY")


@table(
    "url",
    [
        *OTHERS,
        "https://api.openai.com\t.example.com/v1",
        "https://api.openai.com\n/v1",
        " https://api.openai.com",
    ],
)
def test_no_other_server_gets_the_key_of_a_vendor(url: str) -> None:
    assert vendor_of(url) is None
    assert granted(url) == "key-of-others"
    assert granted(url, keys=ApiKeys(openai="key-of-openai", anthropic="a", gemini="g")) is None
    bound = (
        "openai=api.example.com",
        "anthropic=localhost",
        "gemini=127.0.0.1:4000",
        "openai=llm.example.com:8443",
    )
    assert granted(url, *bound) == "key-of-others"


@table(
    ("bound", "url", "key"),
    [
        ("openai=llm.example.com", "https://llm.example.com/v1", "key-of-openai"),
        ("openai=llm.example.com", "https://LLM.example.com:443/v1", "key-of-openai"),
        ("openai=llm.example.com:8443", "https://llm.example.com:8443/v1", "key-of-openai"),
        ("anthropic=llm.example.com", "https://llm.example.com/v1", "key-of-anthropic"),
        ("openai=localhost:4000", "http://localhost:4000/v1", "key-of-openai"),
        ("openai=127.0.0.1:4000", "http://127.0.0.1:4000", "key-of-openai"),
        ("openai=[::1]:4000", "http://[::1]:4000/v1", "key-of-openai"),
        ("openai=my.openai.azure.com", "https://my.openai.azure.com/openai/v1", "key-of-openai"),
        ("openai=llm.example.com", "https://llm.example.com:8443/v1", "key-of-others"),
        ("openai=llm.example.com", "https://a.llm.example.com/v1", "key-of-others"),
        ("openai=llm.example.com", "https://llm.example.com.evil.example/v1", "key-of-others"),
        ("openai=llm.example.com", "https://llm.example.com@evil.example/v1", "key-of-others"),
        ("openai=llm.example.com", "https://llm.example.com./v1", "key-of-others"),
        ("openai=localhost", "http://localhost:4000/v1", "key-of-others"),
        ("anthropic=api.openai.com", "https://api.openai.com/v1", "key-of-openai"),
    ],
)
def test_a_person_binds_a_key_to_one_server(bound: str, url: str, key: str) -> None:
    (checked,) = Settings(key_host=(bound,)).key_host
    assert granted(url, checked) == key


def test_no_key_of_a_vendor_goes_over_a_plain_connection_to_another_machine() -> None:
    with pytest.raises(ConfigurationError, match="is not encrypted: use https://"):
        granted("http://llm.example.com/v1", "openai=llm.example.com")


@table(
    "bound",
    [
        "llm.example.com",
        "mistral=llm.example.com",
        "openai=",
        "openai=*.example.com",
        "openai=https://llm.example.com",
        "openai=llm.example.com/v1",
        "openai=a@llm.example.com",
        "openai=llm.example.com.",
        "openai=llm.example.com:99999",
        "openai=\u0430pi.example.com",
        "other=llm.example.com",
    ],
)
def test_what_is_no_host_to_bind(bound: str) -> None:
    with pytest.raises(ValueError, match="key_host"):
        Settings(key_host=(bound,))


@table(
    ("url", "place"),
    [
        ("https://example.com", ServerPlace("https", "example.com", 443)),
        ("HTTP://Example.com:8080/a?b=c@d", ServerPlace("http", "example.com", 8080)),
        ("http://[::1]:80", ServerPlace("http", "::1", 80)),
        ("https://a_b.example/x", ServerPlace("https", "a_b.example", 443)),
        ("https://-a.example", None),
        ("https://a..b", None),
        ("https://", None),
        ("", None),
    ],
)
def test_where_an_address_leads(url: str, place: ServerPlace | None) -> None:
    assert server_of(url) == place


def test_a_region_of_openai_speaks_the_protocol_of_openai() -> None:
    assert detect_provider("https://eu.api.openai.com/v1") is Provider.OPENAI
    assert detect_provider("https://eu.api.openai.com.example.com/v1") is Provider.OPENAI_CHAT
