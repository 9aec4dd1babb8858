"""Which addresses are opened, and which are not, and from which hosts a file is downloaded."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.public_web import PublicWeb, joined, parse_address, public_ips, system_resolver
from orchestrator.core.addresses import is_public
from orchestrator.core.errors import ToolError
from tests.doubles.web_server import Answer, WebServer, redirect
from tests.tables import table

PRIVATE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "168.63.129.16/32",
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]


@given(st.data())
def test_no_address_of_a_private_network_is_public(data: st.DataObject) -> None:
    network = ipaddress.ip_network(data.draw(st.sampled_from(PRIVATE)))
    offset = data.draw(st.integers(0, network.num_addresses - 1))
    assert not is_public(str(network[offset]))


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_no_more_public_when_ipv6_carries_it(number: int) -> None:
    for carrier in (number, 0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
        assert not is_public(str(ipaddress.IPv6Address(carrier)))


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_the_library_calls_private_is_not_public(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(str(ip)):
        assert ip.is_global
        assert not any((ip.is_multicast, ip.is_private, ip.is_reserved, ip.is_loopback))


@table("ip", ["8.8.8.8", "1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"])
def test_public_addresses_are_public(ip: str) -> None:
    assert is_public(ip)


@table("text", ["", "localhost", "1.2.3", "2606:4700::1111%eth0", "08.8.8.8"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "127.0.0.1.",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0x7F.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.0x1",
        "0",
        "0.0.0.0",  # noqa: S104  refused
        "127.0.0.1..",
        "%31%32%37.0.0.1",
        "127。0。0。1",
        "\uff11\uff12\uff17.0.0.1",
        "①②⑦.⓪.⓪.①",
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1%25eth0]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[0:0:0:0:0:0:0:1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "ⓛocalhost",
        "metadata.google.internal",
        "printer.local",
        "router.lan",
        "",
        "a..b",
        "-a.example",
        "exa mple.org",
        "a" * 64 + ".org",
    ],
)
async def test_private_hosts_are_refused_however_they_are_written(host: str) -> None:
    with pytest.raises(ToolError):  # noqa: PT012  either of the two checks may refuse it
        address = parse_address(f"http://{host}/")
        await public_ips(address, system_resolver)


@table(
    ("url", "said"),
    [
        ("ftp://example.org/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://example.org/", "only http and https"),
        ("example.org/page", "whole address"),
        ("//example.org/page", "whole address"),
        ("javascript:alert(1)", "whole address"),
        ("", "whole address"),
        ("https://me:secret@example.org/", "user name or password"),
        ("https://me@example.org/", "user name or password"),
        ("https://example.org:22/", "port 22"),
        ("http://example.org:6379/", "port 6379"),
        ("http://example.org:0/", "port 0"),
        ("http://example.org:99999/", "port 99999"),
        ("http://example.org\\@127.0.0.1/", "backslashes"),
        ("http://example.org/\r\nX: y", "cannot be seen"),
        ("http:///path", "no host"),
        ("http://[::1/", "not a valid address"),
        ("https://example.org/" + "a" * 3000, "longer than"),
    ],
)
def test_other_addresses_are_refused_with_a_reason(url: str, said: str) -> None:
    with pytest.raises(ToolError, match=said) as raised:
        parse_address(url)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"https://example.org/{text}"):
        with suppress(ToolError):
            address = parse_address(url)
            assert parse_address(address.url) == address


def test_an_address_in_its_plain_form() -> None:
    address = parse_address(" HTTPS://Bücher.Example.:443/a b?q=1#part ".replace("a b", "a%20b"))
    assert address.url == "https://xn--bcher-kva.example/a%20b?q=1"
    assert address.authority == "xn--bcher-kva.example"
    assert parse_address("http://example.org:8080").url == "http://example.org:8080/"
    assert parse_address("http://[2606:4700::1111]/").authority == "[2606:4700::1111]"


def test_only_the_named_place_may_be_private() -> None:
    allowed = frozenset({"127.0.0.1:9000", "[::1]:9000"})
    assert parse_address("http://127.0.0.1:9000/", allowed).trusted
    assert parse_address("http://[::1]:9000/", allowed).trusted
    for url in (
        "http://127.0.0.1:9001/",
        "http://127.0.0.1/",
        "http://127.0.0.2:9000/",
        "http://localhost:9000/",
    ):
        with pytest.raises(ToolError):
            parse_address(url, allowed)


async def test_a_name_is_refused_if_any_of_its_addresses_is_private() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("example.org", 443)
        return ["93.184.215.14", "10.0.0.1"]

    with pytest.raises(ToolError, match=r"example\.org leads to 10\.0\.0\.1, a private"):
        await public_ips(parse_address("https://example.org/"), resolve)


@pytest.mark.parametrize("failure", [OSError("no such name"), UnicodeError("label too long")])
async def test_an_unknown_host_is_said_to_be_unknown(failure: Exception) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        del host, port
        raise failure

    with pytest.raises(ToolError, match=r"no host example\.org"):
        await public_ips(parse_address("https://example.org/"), resolve)


def test_redirects_are_joined_and_checked() -> None:
    base = parse_address("https://example.org/a/b?c")
    assert joined(base, "../d").url == "https://example.org/d"
    assert joined(base, "//other.example/x").url == "https://other.example/x"
    for location in (
        "http://127.0.0.1/",
        "//localhost/",
        "file:///etc/passwd",
        "http://[::1]/",
        "http://a\nb/",
    ):
        with pytest.raises(ToolError):
            joined(base, location)


async def test_a_file_comes_from_the_named_hosts_alone_and_the_credential_goes_to_the_first() -> None:
    with (
        WebServer({"/kept": Answer(b"\x89PNG"), "/big": Answer(b"x" * 101)}) as store,
        WebServer({}) as forge,
    ):
        access = PublicWeb(allowed_private=frozenset({store.place, forge.place}))
        forge.routes["/a"] = redirect(f"{store.url}/kept")
        forge.routes["/b"] = redirect(f"{store.url}/big")
        forge.routes["/away"] = redirect(f"http://localhost:{store.place.rpartition(':')[2]}/kept")
        hosts = frozenset({"127.0.0.1"})
        assert await access.download(f"{forge.url}/a", hosts, bearer="s3cret") == (200, b"\x89PNG")
        assert await access.download(f"{forge.url}/gone", hosts) == (404, b"")
        with pytest.raises(ToolError, match="over 100 bytes"):
            await access.download(f"{forge.url}/b", hosts, max_bytes=100)
        refused = PublicWeb(
            allowed_private=frozenset({forge.place, f"localhost:{store.place.rpartition(':')[2]}"})
        )
        with pytest.raises(ToolError, match="files are not downloaded from localhost"):
            await refused.download(f"{forge.url}/away", hosts)
        with pytest.raises(ToolError, match=r"files are not downloaded from 127\.0\.0\.1"):
            await access.download(f"{forge.url}/a", frozenset({"example.com"}))
        with pytest.raises(ToolError, match="private or reserved"):
            await PublicWeb(allowed_private=frozenset({forge.place})).download(f"{forge.url}/a", hosts)
    assert [request.headers.get("authorization") for request in forge.requests][:2] == ["Bearer s3cret", None]
    assert not any("authorization" in request.headers for request in store.requests)
