"""The certificate files of a caller that has nothing but the client's packages: checked when they are read."""

import subprocess
import sys

import pytest

from certificates import Authority
from turnwright_core.rpc.certificates import Tls


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca.pem")


def test_a_certificate_with_its_key_is_taken(authority, tmp_path) -> None:
    own = authority.issue(tmp_path / "own")
    found = Tls(own / "cert.pem", own / "key.pem", authority.file).current()
    assert (found.chain, found.key) == ((own / "cert.pem").read_bytes(), (own / "key.pem").read_bytes())
    assert found.authorities == authority.file.read_bytes()


def test_the_key_of_another_certificate_is_refused(authority, tmp_path) -> None:
    own, other = authority.issue(tmp_path / "own"), authority.issue(tmp_path / "other")
    with pytest.raises(ValueError, match="do not hold a certificate and its key"):
        Tls(own / "cert.pem", other / "key.pem", authority.file)


@pytest.mark.parametrize(
    "content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff"]
)
def test_authorities_that_are_none_are_refused(tmp_path, content) -> None:
    (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(ValueError, match=r"TURNWRIGHT_TLS_CA: .*ca\.pem holds no certificate in PEM form"):
        Tls(authorities=tmp_path / "ca.pem")


def test_a_key_that_everybody_may_read_is_refused(authority, tmp_path) -> None:
    own = authority.issue(tmp_path / "own")
    (own / "key.pem").chmod(0o644)
    with pytest.raises(ValueError, match=r"everybody on this host may read .*key\.pem"):
        Tls(own / "cert.pem", own / "key.pem", authority.file)


def test_nothing_else_is_loaded_for_it(authority, tmp_path) -> None:
    own = authority.issue(tmp_path / "own")
    program = (
        "import sys\nfrom pathlib import Path\nfrom turnwright_client import Tls\nTls(*map(Path, sys.argv[1:]))\n"
        "print('cryptography' in sys.modules)"
    )
    files = (own / "cert.pem", own / "key.pem", authority.file)
    ran = subprocess.run(
        [sys.executable, "-c", program, *files], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout == "False\n"
