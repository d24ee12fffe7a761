"""How Java gets onto a machine, and what is said when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.services import java
from tideline.contract.errors import Misconfigured


def test_without_apt_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Misconfigured, match="no apt-get"):
        java.ensure_java()


def test_an_apt_that_fails_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("apt-get", "dpkg"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'no network here' >&2\nexit 100\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Misconfigured, match="no network here"):
        java.ensure_java()


def test_links_into_etc_are_turned_to_the_unpacked_copy(tmp_path: Path) -> None:
    root = tmp_path / "root"
    conf = root / "usr/lib/jvm/java-17-openjdk-amd64/conf"
    conf.mkdir(parents=True)
    (root / "etc/java").mkdir(parents=True)
    (root / "etc/java/net.properties").write_text("x=1\n")
    entry = conf / "net.properties"
    entry.symlink_to("/etc/java/net.properties")
    java.turn_links_inwards(root)
    assert entry.read_text() == "x=1\n"
    assert not str(entry.readlink()).startswith("/")
