"""What `serve` runs and where it listens; a wrong option is named."""

from __future__ import annotations

import pytest

from turnwright_cli.exit_codes import FailureError
from turnwright_cli.serving import is_address, serve_plan, words
from turnwright_cli.stack import LISTEN, reachable

NO_PEERS = {"store": None, "assembler": None, "provider": None}


def test_all_four_run_where_strangers_look_for_them() -> None:
    plan = serve_plan([], [], NO_PEERS)

    assert plan.listen == {
        "executor": "127.0.0.1:7440",
        "store": "127.0.0.1:7441",
        "assembler": "127.0.0.1:7442",
        "provider": "127.0.0.1:7443",
    }
    assert plan.listen == LISTEN
    assert plan.http == "127.0.0.1:7444"


def test_http_is_served_where_the_option_or_else_the_variable_says(monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_HTTP_LISTEN", "")
    assert serve_plan([], [], NO_PEERS).http == ""
    assert serve_plan([], ["http=[::1]:9"], NO_PEERS).http == "[::1]:9"
    monkeypatch.setenv("TURNWRIGHT_HTTP_LISTEN", "h:1")
    assert serve_plan([], [], NO_PEERS).http == "h:1"
    assert serve_plan([], ["http="], NO_PEERS).http == ""
    assert serve_plan(["store"], [], NO_PEERS).http is None


@pytest.mark.parametrize(
    ("only", "listen", "expected"),
    [
        ([], ["127.0.0.1:0"], {**LISTEN, "executor": "127.0.0.1:0"}),
        ([], ["store=unix:/s", "[::]:9"], {**LISTEN, "store": "unix:/s", "executor": "[::]:9"}),
        (["store"], ["127.0.0.1:1"], {"store": "127.0.0.1:1"}),
        (["provider", "store"], ["provider=h:1"], {"provider": "h:1", "store": LISTEN["store"]}),
        (["store", "store"], [], {"store": LISTEN["store"]}),
    ],
)
def test_listen_names_the_executor_or_the_only_service(only, listen, expected) -> None:
    assert serve_plan(only, listen, NO_PEERS).listen == expected


@pytest.mark.parametrize(
    ("only", "listen", "peers", "named"),
    [
        (["stor"], [], {}, "--only"),
        ([], ["nowhere"], {}, "--listen"),
        ([], ["127.0.0.1:65536"], {}, "--listen"),
        ([], ["unix:"], {}, "--listen"),
        (["store", "provider"], ["127.0.0.1:1"], {}, "--listen"),
        (["store"], ["executor=127.0.0.1:1"], {}, "--listen"),
        (["store"], ["http=127.0.0.1:1"], {}, "--listen"),
        ([], ["http=unix:/s"], {}, "--listen"),
        ([], ["store="], {}, "--listen"),
        ([], [], {"store": "h:1"}, "--store"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_names_it(only, listen, peers, named) -> None:
    with pytest.raises(FailureError) as caught:
        serve_plan(only, listen, {**NO_PEERS, **peers})

    assert caught.value.exit_code == 2
    assert caught.value.message.startswith(named)


def test_peers_elsewhere_are_taken_over() -> None:
    assert serve_plan(["executor"], [], {**NO_PEERS, "store": "h:1"}).peers == {"store": "h:1"}


@pytest.mark.parametrize(
    ("listening", "called"),
    [
        ("0.0.0.0:7440", "127.0.0.1:7440"),
        ("[::]:7440", "[::1]:7440"),
        ("unix:/x/y.sock", "unix:/x/y.sock"),
        ("10.0.0.1:7440", "10.0.0.1:7440"),
    ],
)
def test_a_wildcard_is_called_on_loopback(listening, called) -> None:
    assert reachable(listening) == called


def test_addresses_are_known_by_their_form() -> None:
    good = ["h:1", "127.0.0.1:0", "[::1]:65535", "unix:/x", "unix:rel.sock"]
    bad = ["", "h", "h:", ":1", "h:x", "h:-1", "h:70000", "unix:", "h:\u0661"]

    assert [text for text in good + bad if is_address(text)] == good


def test_a_setting_of_several_words_is_split() -> None:
    assert words("store, provider executor") == ["store", "provider", "executor"]
