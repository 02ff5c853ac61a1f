"""Endpoints of the file, keys from files, and vendors of plugins. Rows RU306, RU307, RU308."""

import sys

import pytest

from sse_server import SseServer, chat, error
from turnwright_kit.settings import SettingsError
from turnwright_provider.config import ProviderSettings

pytestmark = pytest.mark.asyncio

FILE = """
[endpoint.work]
url = "{url}"
key_variable = "WORK_KEY"
headers = {{ X-Team = "blue" }}
extra = {{ service_tier = "flex", stream_options = {{ include_obfuscation = false }} }}

[endpoint.second]
preset = "xai"
url = "{url}"
key_file = "second.key"

[endpoint.deepseek]
url = "{url}"
extra = {{ top_p = 0.5 }}
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes the file of endpoints into the home, and the keys that it names."""

    def write(url: str, text: str = FILE) -> None:
        (tmp_path / "endpoints.toml").touch(0o600)
        (tmp_path / "endpoints.toml").write_text(text.format(url=url))
        (tmp_path / "second.key").touch(0o600)
        (tmp_path / "second.key").write_text("key-of-a-file\n")
        monkeypatch.setenv("WORK_KEY", "key-of-a-variable")

    return write


async def test_any_number_of_servers_have_a_name_a_key_headers_and_fields_of_their_own(provider, written):
    async with SseServer([chat("one"), chat("two"), chat("three")]) as server:
        written(server.url)
        client = await provider(think=True, deepseek_api_key="key-of-a-preset")
        heard = [await client.generate(name) for name in ("work/a", "second/b", "deepseek/c")]
        vendors = await client.vendors()

    assert [one.text for one in heard] == ["one", "two", "three"]
    keys = [request.headers["authorization"] for request in server.requests]
    assert keys == ["Bearer key-of-a-variable", "Bearer key-of-a-file", "Bearer key-of-a-preset"]
    assert [request.headers.get("x-team") for request in server.requests] == ["blue", None, None]
    work, second, deepseek = (request.json for request in server.requests)
    assert work["service_tier"] == "flex"
    assert work["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    # What a preset is known for stays, also under another name.
    assert (work["reasoning_effort"], second["reasoning_effort"]) == ("medium", "high")
    assert (deepseek["top_p"], deepseek["thinking"]) == (0.5, {"type": "enabled"})
    assert [vendors[name].endpoint for name in ("work", "second", "deepseek")] == [server.url] * 3


@pytest.mark.parametrize(
    ("vendor", "where"),
    [("work", "WORK_KEY"), ("second", "endpoint.second.key_file"), ("deepseek", "DEEPSEEK_API_KEY")],
)
async def test_a_refused_key_is_reported_with_the_place_where_it_is_set(provider, written, vendor, where):
    async with SseServer([error(401, "no such key: key-of-a-variable key-of-a-file")]) as server:
        written(server.url)
        heard = await (await provider()).generate(f"{vendor}/m")

    assert heard.reason == "VENDOR_AUTH"
    assert f"set {where} where the provider runs" in heard.error.message
    if vendor != "deepseek":
        assert f"key-of-a-{'variable' if vendor == 'work' else 'file'}" not in heard.error.message


async def test_a_preset_reads_its_key_from_a_file_where_the_variable_has_none(provider, tmp_path):
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text(" key-of-a-file \n")
    async with SseServer([chat("one"), chat("two")]) as server:
        settings = {"groq_base_url": server.url, "groq_api_key_file": str(tmp_path / "key")}
        await (await provider(**settings)).generate("groq/m")
        await (await provider(**settings, groq_api_key="its-own")).generate("groq/m")

    keys = [request.headers["authorization"] for request in server.requests]
    assert keys == ["Bearer key-of-a-file", "Bearer its-own"]


async def test_an_endpoint_that_lacks_its_url_is_inert_and_says_so(provider, written):
    written("", "[endpoint.work]\nkey = 'k'\n")
    vendor = (await (await provider()).vendors())["work"]

    assert (vendor.configured, vendor.unset) == (False, False)
    assert "endpoint.work.url" in vendor.problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[endpoint.work", "is not TOML"),
        ("[endpoints.work]", r"unknown table or field 'endpoints'"),
        ("[endpoint.work]\nulr = 'x'", r"\[endpoint.work\]: there is no field ulr \(did you mean url\?\)"),
        ("[endpoint.work]\nurl = 7", r"\[endpoint.work\]: Expected `str`, got `int`"),
        ("[endpoint.work]\nwire = 'chta'", r"no wire 'chta' \(did you mean chat\?\)"),
        ("[endpoint.work]\npreset = 'deepsek'", r"no preset 'deepsek' \(did you mean deepseek\?\)"),
        ("[endpoint.work]\nkey = 'a'\nkey_file = 'b'", "give one of key, key_file and key_variable"),
        ("[endpoint.work]\nkey_file = 'gone'", "endpoint.work.key_file: .*gone cannot be read"),
        (
            "[endpoint.work]\nkey = 'a'",
            r"\[endpoint.work\] holds a secret, and everybody .* read .*servers.toml: .*0440",
        ),
        ("[endpoint.work]\nheaders = { Authorization = 'Basic a' }", "holds a secret, and everybody"),
        ("[endpoint.work]\nkey_file = 'open.key'", "endpoint.work.key_file: .*chmod o-rwx .*open.key"),
        ("[endpoint.work]\nheaders = { 'a b' = 'c' }", "the header 'a b' must be printable ASCII"),
        ("[endpoint.scripted]\nurl = 'x'", "`scripted` is taken"),
        ("[endpoint.'A B']\nurl = 'x'", "a name is of a-z"),
        ("endpoint = 7", "write \\[endpoint.NAME\\]"),
    ],
)
async def test_a_mistake_in_the_file_is_reported_at_the_start(tmp_path, text, words):
    path = tmp_path / "servers.toml"
    path.write_text(text)
    path.chmod(0o644)
    (tmp_path / "open.key").write_text("a key")
    with pytest.raises(SettingsError, match=f"(?s){words}"):
        ProviderSettings(home=tmp_path, endpoints_file=str(path))


async def test_a_file_that_is_named_has_to_be_there(tmp_path):
    with pytest.raises(SettingsError, match="TURNWRIGHT_ENDPOINTS_FILE"):
        ProviderSettings(home=tmp_path, endpoints_file=str(tmp_path / "gone.toml"))


PLUGIN = """
from turnwright_provider.plugins import AppendContent, Finish, ModelCheck, ModelInfo, VendorState


class Echo:
    def describe(self):
        return VendorState("in this process")

    async def stream(self, call, attempt):
        yield AppendContent(f"{call.model}: {call.messages[-1].text}")
        yield Finish("stop", None, call.model)

    async def check(self, models):
        return [ModelCheck(info=ModelInfo(context_length=1000)) for _ in models]


def register(registry):
    registry.vendor("echo", Echo())


def taken(registry):
    registry.vendor("openai", Echo())


def lacking(registry):
    registry.vendor("lacking", object())
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed distribution with a vendor."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    about = tmp_path / "site" / "echoes-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echoes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[turnwright.vendors]\necho = echoes:register\n")
    (tmp_path / "site" / "echoes.py").write_text(PLUGIN)
    monkeypatch.delitem(sys.modules, "echoes", raising=False)


@pytest.mark.usefixtures("plugin")
async def test_a_plugin_brings_a_vendor(provider):
    client = await provider()
    heard = await client.generate("echo/any")
    (check,) = await client.check("echo/any")

    assert (heard.text, heard.finish.reason) == ("any: hi", "stop")
    assert check.usable
    assert (await client.vendors())["echo"].endpoint == "in this process"
    assert "echo" not in await (await provider(vendors="none")).vendors()


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("target", "words"), [("taken", "the vendor openai already exists"), ("lacking", "lacking has no describe")]
)
async def test_a_provider_does_not_start_with_a_vendor_that_cannot_be(provider, target, words):
    with pytest.raises(SettingsError, match=f"^TURNWRIGHT_VENDORS: .*{words}"):
        await provider(vendors=f"echoes:{target}")
