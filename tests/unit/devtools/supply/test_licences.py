"""No dependency's licence comes in unseen."""

from __future__ import annotations

import re
import tomllib
from email.message import Message
from functools import cache, cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from devtools.supply import carried as contents
from devtools.supply.carried import LIBRARIES, jars, libraries, s3_jars
from devtools.supply.licence_page import LOCKS, PAGE, locked, page
from devtools.supply.licences import (
    CARRIED,
    KNOWN,
    LESSER,
    carried,
    carried_unlooked_at,
    licence_of,
    may_be_carried,
    permissive,
    refused,
    rows,
    unlooked_at,
)

ROOT = Path(__file__).resolve().parents[4]


class Package(Distribution):
    """A package that says this of itself."""

    def __init__(self, *fields: tuple[str, str]) -> None:
        self._message = Message()
        for name, value in (("Name", "thing"), ("Version", "1"), *fields):
            self._message[name] = value

    @property
    def metadata(self) -> Any:
        return self._message

    def read_text(self, filename: str) -> str | None:
        return None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError


class Installed(Distribution):
    """An installed package that is read once, not by each question: there are hundreds."""

    def __init__(self, package: Distribution) -> None:
        self._package = package

    @cached_property
    def metadata(self) -> Any:
        return self._package.metadata

    @cached_property
    def files(self) -> Any:
        return self._package.files

    def read_text(self, filename: str) -> str | None:
        return self._package.read_text(filename)

    def locate_file(self, path: Any) -> Any:
        return self._package.locate_file(path)


@cache
def installed() -> tuple[Distribution, ...]:
    return tuple(Installed(package) for package in distributions())


def test_every_licence_here_is_permissive_or_was_looked_at() -> None:
    assert list(unlooked_at(installed())) == []
    other = {name for name, _, licence in rows(installed()) if not permissive(licence)}
    assert other == KNOWN.keys(), "a package that is no longer here needs no exception"


@pytest.mark.parametrize(
    ("fields", "licence", "free"),
    [
        ([("License-Expression", "MIT")], "MIT", True),
        ([("License-Expression", "Apache-2.0 AND (MIT OR GPL-2.0)")], None, True),
        ([("License-Expression", "MIT AND GPL-3.0-only")], None, False),
        ([("License", "LGPL-3.0-only")], "LGPL-3.0-only", False),
        ([("License", "Apache License, Version 2.0, as text")], "unknown", False),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT", True),
        ([("License", "UNKNOWN")], "unknown", False),
        ([], "unknown", False),
    ],
)
def test_a_package_is_taken_at_its_word(
    fields: list[tuple[str, str]], licence: str | None, free: bool
) -> None:
    package = Package(*fields)
    found = licence_of(package)
    assert licence is None or found == licence
    assert permissive(found) == free
    assert bool(list(unlooked_at([package]))) == (not free)


def test_what_packages_bring_inside_was_looked_at() -> None:
    assert list(carried_unlooked_at(installed())) == []
    for package, known in LIBRARIES.items():
        assert {name for name, _ in libraries(package)} == known.keys(), package


def test_s3s_jars_are_among_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    names = s3_jars()
    assert {"hadoop-aws", "s3", "sts", "utils-lite"} <= set(names)
    assert set(names) == contents._S3_JARS.keys(), "a jar that is no longer used needs no review"
    found = dict(jars())
    assert {name: found[name] for name in names if found[name] != "Apache-2.0"} == {
        "reactive-streams": "MIT-0"
    }
    monkeypatch.setattr(contents, "s3_jars", lambda: [*names, "newcomer"])
    assert ("newcomer in pyspark", "unknown") in list(carried_unlooked_at(distributions()))


@pytest.mark.parametrize(
    ("package", "licence", "expected"),
    [
        ("thing", "MIT", False),
        ("thing", "GPL-3.0-only", True),
        ("thing", "AGPL-3.0-or-later", True),
        ("thing", "LGPL-2.1-or-later", True),
        ("thing", "MIT AND GPL-2.0-or-later", True),
        ("thing", "MIT OR GPL-2.0-or-later", False),
        ("thing", "Apache-2.0 AND (MIT OR AGPL-3.0-only)", False),
        ("thing", "GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("psycopg2-binary", "LGPL-3.0-or-later", False),
        ("psycopg2-binary", "GPL-3.0-or-later", True),
    ],
)
def test_copyleft_is_refused(package: str, licence: str, expected: bool) -> None:
    assert refused(package, licence) == expected


@pytest.mark.parametrize(
    ("name", "licence", "expected"),
    [
        ("serde 1.0.1", "MIT OR Apache-2.0", True),
        ("option-ext 0.2.0", "MPL-2.0", True),
        ("jta", "CDDL-1.1", True),
        ("option-ext 0.3.0", "SSPL-1.0", False),
        *((f"thing {at}", licence, False) for at, licence in enumerate((
            "MPL-2.0", "SSPL-1.0", "EUPL-1.2", "BUSL-1.1", "CC-BY-NC-4.0", "EPL-2.0", "unknown",
            "MIT AND MPL-2.0", "GPL-3.0-only", "LGPL-3.0-or-later", "Custom", "",
        ))),
    ],
)  # fmt: skip
def test_what_a_package_brings_is_permissive_or_was_looked_at(
    name: str, licence: str, expected: bool
) -> None:
    assert may_be_carried("thing", name, licence) == expected


def test_no_review_of_content_lets_a_gpl_in() -> None:
    assert not may_be_carried("thing", "libquadmath", "LGPL-2.1-or-later")
    assert may_be_carried("numpy", "libquadmath", "LGPL-2.1-or-later")


def test_each_review_of_content_is_of_what_is_there() -> None:
    there = {(name.partition(" ")[0], licence) for _, name, licence in carried(installed())}
    assert {(name, licence) for name, (licence, _) in CARRIED.items()} <= there


def test_the_page_names_what_it_leaves_out() -> None:
    """Packages of Debian that the image installs."""
    dockerfile = (PAGE.parents[1] / "Dockerfile").read_text()
    [line] = re.findall(r"apt-get install -y --no-install-recommends (.+?) \\\n", dockerfile)
    assert len(line.split()) > 2
    for name in line.split():
        assert f"`{name}`" in PAGE.read_text()


def test_no_exception_lets_a_gpl_in() -> None:
    """Naming a package does not suffice."""
    known = Package(("License-Expression", "GPL-3.0-only"))
    known._message.replace_header("Name", "certifi")
    assert "certifi" in KNOWN
    assert list(unlooked_at([known])) == [("certifi", "GPL-3.0-only")]
    classified = Package(
        ("Classifier", "License :: OSI Approved :: GNU General Public License (GPL)")
    )
    assert refused("thing", licence_of(classified))
    lesser = {name for name, _, licence in rows(installed()) if "LGPL" in licence}
    assert lesser == {"psycopg2-binary"} and lesser < LESSER.keys()


def test_the_page_has_the_packages_and_versions_of_the_locks() -> None:
    listed = re.findall(
        r"^\| ([a-z0-9._-]+) \| (\d[^ |]*) \| [^|]+ \| (\S[^|]*) \|$", PAGE.read_text(), re.M
    )
    locks = locked()
    wanted = {pair for lock in locks.values() for pair in lock.items()}
    assert {(name, version) for name, version, _ in listed} == wanted, "run `make licences`"
    assert {name for name, _, where in listed if where == "image"} == locks["image"].keys()
    assert all(len(locks[name]) for name in LOCKS)


def test_the_page_is_what_make_licences_writes() -> None:
    """Where what is installed is what the locks name; `make matrix` has other versions."""
    versions = {name: version for name, version, _ in rows(installed())}
    for name, version in locked()["developers"].items():
        if versions.get(name, version) != version:
            return
    assert PAGE.read_text() == page(installed()), "run `make licences`"
    assert "unknown" not in PAGE.read_text()


def test_both_distributions_say_their_licence_and_carry_it() -> None:
    for folder in (ROOT, ROOT / "plugins"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        assert project["license"] == "Apache-2.0"
        for name in project["license-files"]:
            assert (folder / name).read_bytes() == (ROOT / name).read_bytes()
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
