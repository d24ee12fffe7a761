"""Debian's packages: another suite's source is derived from what a machine has, and what nobody
signed is not taken."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools.services import debian
from devtools.services.debian import derive_source
from tideline.contract.errors import Unavailable

STANZAS = """\
Types: deb
# a comment: with a colon
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/own.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
LINES = """\
# deb http://old.example/debian bookworm main
deb-src http://source.example/debian bookworm main
deb http://security.example/debian-security bookworm-security main
deb [arch=amd64 signed-by=/etc/key.gpg] https://mirror.example/debian bookworm main contrib
"""


@pytest.mark.parametrize(
    ("files", "uri", "key"),
    [
        (
            {"debian.sources": STANZAS},
            "http://mirror.example/debian",
            "/usr/share/keyrings/own.gpg",
        ),
        ({"sources.list": LINES}, "https://mirror.example/debian", "/etc/key.gpg"),
        ({"sources.list": "deb http://plain.example/ bookworm main"}, "http://plain.example/", ""),
        ({"a.list": "deb http://x/ trixie main", "b.sources": STANZAS}, None, None),
    ],
)
def test_mirror_and_key_are_those_of_the_release(
    files: dict[str, str], uri: str | None, key: str | None
) -> None:
    lines = derive_source(files, release="bookworm", suite="sid").splitlines()
    assert f"URIs: {uri or 'http://mirror.example/debian'}" in lines
    assert "Suites: sid" in lines and "Components: main" in lines
    signed = [line for line in lines if line.startswith("Signed-By")]
    assert signed == ([] if key == "" else [f"Signed-By: {key or '/usr/share/keyrings/own.gpg'}"])


@pytest.mark.parametrize("files", [{}, {"sources.list": LINES}, {"debian.sources": STANZAS}])
def test_a_machine_of_another_release_has_none(files: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="trixie"):
        derive_source(files, release="trixie", suite="sid")


EXPIRED = (
    "E: Release file for http://mirror.example/dists/sid/InRelease is expired (invalid since 3d)."
)


@pytest.mark.parametrize(
    ("answer", "commands"),
    [
        ("exit 0", ["update"]),
        (
            f'case "$*" in *{debian._OLD}*) ;; *) echo "{EXPIRED}" >&2; exit 100;; esac',
            ["update"] * 2,
        ),
        ('echo "E: The repository is not signed." >&2; exit 100', ["update"]),
    ],
    ids=["current", "expired", "unsigned"],
)
def test_lists_that_are_out_of_date_are_taken_only_where_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, commands: list[str]
) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n{answer}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if "not signed" in answer:
        with pytest.raises(Unavailable, match="not signed"):
            debian._update([], tmp_path)
    else:
        debian._update([], tmp_path)
    lines = asked.read_text().splitlines()
    assert len(lines) == len(commands)
    assert debian._OLD not in lines[0]
    for line in lines:
        assert "APT::Get::AllowUnauthenticated=false" in line


def test_an_unsigned_archive_is_refused_where_the_machine_lets_it_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt itself, with settings of the machine's that take anything."""
    if shutil.which("apt-get") is None:
        return  # Nothing is fetched with it then.
    archive = tmp_path / "archive"
    archive.mkdir()
    for name in ("Packages", "Release"):
        (archive / name).touch()
    sources = tmp_path / "sources.list"
    sources.write_text(f"deb file:{archive} ./\n")
    loose = tmp_path / "apt.conf"
    loose.write_text(
        'Acquire::AllowInsecureRepositories "true";\nAPT::Get::AllowUnauthenticated "true";\n'
        f'Dir::Etc::SourceList "{sources}";\nDir::Etc::SourceParts "/dev/null";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(loose))
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(Unavailable, match="not signed"):
        debian._update(debian._private_options(work), work)
