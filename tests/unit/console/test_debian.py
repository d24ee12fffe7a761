"""Another suite's package source, derived from what a machine has."""

from __future__ import annotations

import pytest

from console.services.debian import derive_source
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
