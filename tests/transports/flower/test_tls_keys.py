"""Keys are made once, for their owner's eyes, and the server's certificate is of the authority."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from cryptography import x509

from dpfl.errors import DpflError
from dpfl.transports.flower.tls_keys import node_key, server_keys


def test_a_servers_keys_are_made_once_and_kept(tmp_path: Path) -> None:
    keys = server_keys(tmp_path / "keys", ("hospital.example", "10.0.0.7"))
    files = {file: file.read_bytes() for file in (tmp_path / "keys").iterdir()}
    assert server_keys(tmp_path / "keys", ("elsewhere",)) == keys
    assert {file: file.read_bytes() for file in (tmp_path / "keys").iterdir()} == files
    assert {file.name for file in files if file.stat().st_mode & 0o077} == {"ca.crt", "server.crt"}


def test_the_certificate_is_of_the_authority_and_names_the_server(tmp_path: Path) -> None:
    keys = server_keys(tmp_path, ("hospital.example", "10.0.0.7"))
    root, signed = (
        x509.load_pem_x509_certificate(file.read_bytes())
        for file in (keys.authority, keys.certificate)
    )
    signed.verify_directly_issued_by(root)
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hospital.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.7")]


def test_a_nodes_key_is_made_once(tmp_path: Path) -> None:
    line = node_key(tmp_path / "carrier.key")
    assert line.startswith("ecdsa-sha2-nistp384 ")
    assert node_key(tmp_path / "carrier.key") == line
    assert not (tmp_path / "carrier.key").stat().st_mode & 0o077


def test_a_spoilt_key_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "carrier.key").write_text("no key")
    with pytest.raises(DpflError, match="cannot be read"):
        node_key(tmp_path / "carrier.key")
