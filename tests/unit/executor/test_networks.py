"""Which addresses may be reached, and how pages and skills are named. Architecture 10; rows RU179, RU239."""

import pytest

from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.networks import may_be_reached, networks_of
from turnwright_executor.domain.pages import PageAddressError, is_page, page_address
from turnwright_executor.domain.skills import skill_name, skill_paths, summary_of_text, without_outer_folder
from turnwright_kit.settings import SettingsError

CLOSED = {
    "this host": "127.0.0.1",
    "this host by another number": "127.9.9.9",
    "this host in IPv6": "::1",
    "any address": "0.0.0.0",
    "any address in IPv6": "::",
    "a private network": "10.1.2.3",
    "a private network of sixteen bits": "192.168.1.1",
    "a private network of twelve bits": "172.16.0.1",
    "unique local": "fd12:3456::1",
    "link-local": "169.254.1.1",
    "link-local with its zone": "fe80::1%eth0",
    "metadata of clouds": "169.254.169.254",
    "metadata of clouds in IPv6": "fd00:ec2::254",
    "metadata of a cloud by a carrier's number": "100.100.100.200",
    "the machine below a virtual one": "168.63.129.16",
    "a carrier's network": "100.64.0.1",
    "multicast": "224.0.0.251",
    "multicast in IPv6": "ff02::fb",
    "broadcast": "255.255.255.255",
    "reserved": "240.0.0.1",
    "documentation": "192.0.2.1",
    "site-local": "fec0::1",
    "metadata of a cloud among protocols": "192.0.0.192",
    "relays of 6to4": "192.88.99.1",
    "a NAT64 of one's own": "64:ff9b:1::a00:1",
    "documentation in IPv6": "3fff::1",
    "IPv4 in IPv6": "::ffff:127.0.0.1",
    "IPv4 in an old IPv6": "::127.0.0.1",
    "IPv4 behind NAT64": "64:ff9b::a00:1",
    "IPv4 in 6to4": "2002:7f00:1::",
    "IPv4 in Teredo": "2001:0:4136:e378:8000:63bf:80ff:fffe",
}
OPEN = ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::"]


@pytest.mark.parametrize("address", CLOSED.values(), ids=CLOSED.keys())
def test_an_address_that_is_not_public_is_closed(address):
    assert not may_be_reached(address, ())


@pytest.mark.parametrize("address", OPEN)
def test_a_public_address_is_open(address):
    assert may_be_reached(address, ())


@pytest.mark.parametrize(
    ("networks", "address", "open_"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "192.168.0.1", False),
        ("10.0.0.0/8, fd00::/8", "fd00::1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
    ],
)
def test_an_operator_opens_networks(networks, address, open_):
    assert may_be_reached(address, networks_of(networks)) is open_


@pytest.mark.parametrize(
    "wrong",
    [
        {"web_networks": "everywhere"},
        {"web_networks": "10.0.0.0/33"},
        {"web_searxng_url": "localhost:8888"},
        {"web_searxng_url": "http://a:b"},
    ],
    ids=str,
)
def test_settings_of_the_web_that_make_no_sense_are_named(wrong):
    (name,) = wrong
    with pytest.raises(SettingsError, match=f"TURNWRIGHT_{name.upper()}: must be"):
        ExecutorSettings(**wrong)


@pytest.mark.parametrize(
    ("name", "default", "said", "kept"),
    [
        ("web_searxng_url", "", "http://search.example:8888", "http://search.example:8888"),
        ("web_timeout_s", 30.0, "5", 5.0),
        ("web_networks", "", "10.0.0.0/8", "10.0.0.0/8"),
    ],
)
def test_a_setting_of_the_web_has_its_default_and_its_variable(monkeypatch, name, default, said, kept):
    """RU309"""
    monkeypatch.delenv(f"TURNWRIGHT_{name.upper()}", raising=False)
    assert getattr(ExecutorSettings(), name) == default
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", said)
    assert getattr(ExecutorSettings(), name) == kept


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://Example.ORG", "https://example.org/"),
        ("HTTPS://example.org:443/A?b=C#d", "https://example.org/A?b=C"),
        ("http://example.org:8080/a b", "http://example.org:8080/a%20b"),
        ("https://example.org/ü?q=ü", "https://example.org/%C3%BC?q=%C3%BC"),
        ("https://example.org/%7Ea", "https://example.org/%7Ea"),
        ("http://[2606:4700::1]:80/", "http://[2606:4700::1]/"),
    ],
)
def test_a_page_has_one_spelling(text, address):
    assert page_address(text) == address
    assert page_address(address) == address


@pytest.mark.parametrize(
    "text",
    [
        "https://user@example.org/",
        "https://:word@example.org/",
        "https://",
        "https://:80/",
        "http://a:99999/",
        "http://a:b/",
        "http://[::1",
        "file:///etc/passwd",
        "known://fact",
        f"https://example.org/{'x' * 2100}",
        "https://example.org/\ud800",
        "https://ex\udfffample.org/",
    ],
)
def test_what_is_no_address_of_a_page_is_refused(text):
    with pytest.raises(PageAddressError):
        page_address(text)


def test_a_path_with_a_star_is_a_pattern_over_pages_and_one_with_a_query_is_a_page():
    assert is_page("https://example.org/a?b=c")
    assert is_page("HTTP://example.org/[a]")
    assert not is_page("https://example.org/*")
    assert not is_page("known://a")
    assert not is_page("src/app.py")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("guide.md", "guide"),
        ("docs/skills/guide/", "guide"),
        ("docs/guide/index.md", "guide"),
        ("docs/guide/SKILL.md", "guide"),
        ("https://example.org/a/guide.ZIP", "guide"),
        ("https://example.org/a/my guide!.md", "my-guide"),
        ("https://example.org/a/guide.zip?raw=1#x", "guide"),
        ("https://example.org/a/my%20guide/SKILL.md", "my-guide"),
        ("https://example.org/..", ""),
        ("https://example.org", ""),
        ("index.md", ""),
        ("/", ""),
    ],
)
def test_a_skill_is_called_by_its_file_or_folder(source, name):
    assert skill_name(source) == name


def test_a_skill_is_a_tree_whose_indexes_stand_for_their_folders():
    files = ["index.md", "foo/index.md", "foo/bar.md", "foo.md", "run.py", "SKILL.md", "x/skill.md"]
    assert skill_paths("g", files) == {
        "skill://g": "index.md",
        "skill://g/foo": "foo/index.md",
        "skill://g/foo/bar": "foo/bar.md",
        "skill://g/run.py": "run.py",
        "skill://g/x": "x/skill.md",
    }


@pytest.mark.parametrize(
    ("files", "inner"),
    [
        ({"g/index.md": b"", "g/a/b.md": b""}, {"index.md": b"", "a/b.md": b""}),
        ({"g/index.md": b"", "b.md": b""}, {"g/index.md": b"", "b.md": b""}),
        ({"b.md": b""}, {"b.md": b""}),
    ],
)
def test_the_outer_folder_of_an_archive_is_taken_off(files, inner):
    assert without_outer_folder(files) == inner


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("# How to release\n\nDo it.", "How to release"),
        ("\n\nDo it.\n", "Do it."),
        ("---\nname: x\ndescription: 'When you  release'\n---\n# Release\n", "When you release"),
        ("---\nname: x\n---\n# Release\n", "Release"),
        ("x" * 100, "x" * 80),
        ("", ""),
    ],
)
def test_a_skill_is_summarized_by_its_description_its_heading_or_its_first_line(text, summary):
    assert summary_of_text(text) == summary
