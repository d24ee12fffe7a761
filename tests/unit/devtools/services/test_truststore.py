"""The keystore that an unpacked Java gets, read by a real Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools.services import java, truststore
from tideline.java import java_home


@pytest.mark.thorough
def test_java_reads_every_authority_of_the_machine(tmp_path: Path) -> None:
    certificates = truststore.authorities()
    assert certificates, "this machine has no bundle of certificate authorities"
    path = tmp_path / "cacerts"
    path.write_bytes(truststore.keystore(certificates))
    keytool = java_home() / "bin" / "keytool"
    command = [str(keytool), "-list", "-keystore", str(path), "-storepass", truststore.PASSWORD]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("trustedCertEntry") == len(certificates)


def test_the_unpacked_java_gets_it(tmp_path: Path) -> None:
    security = tmp_path / "usr/lib/jvm/java-17-openjdk-amd64/lib/security"
    security.mkdir(parents=True)
    (security / "cacerts").symlink_to("/etc/ssl/certs/java/nowhere")
    java.give_authorities(tmp_path)
    assert not (security / "cacerts").is_symlink()
    assert (security / "cacerts").read_bytes().startswith(b"\xfe\xed\xfe\xed")
