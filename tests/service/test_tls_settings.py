"""Certificates and keys are checked before anything is served."""

import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.errors import FileError, InputError
from hamtarget.serve import ServiceSettings
from hamtarget.store import Store

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate and its key."""
    return make_pair(tmp_path_factory.mktemp("tls"))


def make_pair(folder, *more):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes certificates, is not installed")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, *(more or ["-noenc"])], check=True, capture_output=True)
    (folder / "key.pem").chmod(0o600)
    return folder / "cert.pem", folder / "key.pem"


def test_both_or_neither(pair):
    cert, key = pair
    for wrong in ({"tls_cert": cert}, {"tls_key": key}):
        with pytest.raises(InputError, match="both --tls-cert and --tls-key"):
            ServiceSettings(**wrong)
    assert ServiceSettings(tls_cert=cert, tls_key=key).cautions == []


def test_files_that_are_no_pair_are_refused(pair, tmp_path):
    cert, key = pair
    _, other = make_pair(tmp_path)
    nothing, empty = tmp_path / "nothing", tmp_path / "empty"
    empty.write_bytes(b"")
    for wrong_cert, wrong_key in ((cert, other), (key, key), (cert, cert), (cert, empty), (empty, key)):
        with pytest.raises(FileError, match="no certificate and its key"):
            ServiceSettings(tls_cert=wrong_cert, tls_key=wrong_key)
    with pytest.raises(FileError, match="cannot be read"):
        ServiceSettings(tls_cert=nothing, tls_key=key)
    with pytest.raises(FileError, match="cannot be read"):
        ServiceSettings(tls_cert=cert, tls_key=tmp_path)


def test_a_key_with_a_password_is_refused_without_a_question(tmp_path):
    cert, key = make_pair(tmp_path, "-passout", "pass:secret")
    with pytest.raises(FileError, match="without a password"):
        ServiceSettings(tls_cert=cert, tls_key=key)


def test_a_key_that_everybody_can_read_is_told(pair, tmp_path):
    cert, key = pair
    readable = tmp_path / "key.pem"
    readable.write_bytes(key.read_bytes())
    readable.chmod(0o644)
    (told,) = ServiceSettings(tls_cert=cert, tls_key=readable).cautions
    assert "chmod 600" in told


def test_an_open_address_without_tls_is_told(pair):
    cert, key = pair
    (told,) = ServiceSettings(host="0.0.0.0", token=TOKEN).cautions
    assert "nginx or Caddy" in told
    assert ServiceSettings(host="0.0.0.0", token=TOKEN, tls_cert=cert, tls_key=key).cautions == []


def test_the_command_refuses_before_it_serves(pair, tmp_path):
    Store.create(tmp_path / "store", n_bits=64, radius=2).close()
    told = CliRunner().invoke(app, ["serve", str(tmp_path / "store"), "--tls-cert", str(pair[0])])
    assert told.exit_code == 2
    assert "both --tls-cert and --tls-key" in told.output
    assert told.output.count("\n") == 1


def test_trusted_proxies_are_addresses():
    with pytest.raises(InputError, match="expected an address or a network"):
        ServiceSettings(trusted_proxies=("proxy.example",))
    with pytest.raises(InputError, match="expected an address or a network"):
        ServiceSettings(trusted_proxies=("*",))
    assert ServiceSettings(trusted_proxies=("10.0.0.0/8", "::1")).trusted_proxies
