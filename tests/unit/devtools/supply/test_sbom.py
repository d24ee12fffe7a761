"""The list of what Tideline is made of: whole, valid as CycloneDX, and not about this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from devtools.supply import sbom
from devtools.supply.images import FILES
from devtools.supply.licences import KNOWN, OURS
from tideline.spark_versions import installed_spark, spark_line
from tideline.warehouse.delta import jars as delta_jars
from tideline.warehouse.s3_jars import find_s3_jar_set

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As `make sbom` writes it, but for Spark's own jars: half a gigabyte to be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sbom, "find_spec", lambda name: None)
        file = tmp_path_factory.mktemp("sbom") / "sbom.json"
        assert sbom.main([str(file)]) == 0
        return file.read_text()


@pytest.fixture(scope="module")
def components(text: str) -> dict[str, Any]:
    return {one["bom-ref"]: one for one in json.loads(text)["components"]}


def test_it_is_valid_cyclonedx(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    broken = text.replace('"type": "library"', '"type": "thing"', 1)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(broken) is not None


def test_every_installed_package_is_in_it_with_licence_and_hashes(
    components: dict[str, Any],
) -> None:
    names = {re.sub(r"[-_.]+", "-", one.name).lower() for one in distributions()} - OURS
    listed = {one["name"]: one for ref, one in components.items() if ref.startswith("pkg:pypi/")}
    assert listed.keys() == names
    assert not [name for name, one in listed.items() if not one.get("licenses")]
    hashes = sbom.locked_hashes()
    for (name, version), expected in hashes.items():
        if name in listed and listed[name]["version"] == version:
            [reference] = listed[name]["externalReferences"]
            assert {one["content"] for one in reference["hashes"]} == set(expected), name
    assert listed.keys() & KNOWN.keys() >= {"certifi", "psycopg2-binary"}


def test_jars_and_images_are_in_it_by_their_digests(components: dict[str, Any]) -> None:
    line = spark_line(installed_spark())
    build = {delta_jars.build_for(line): delta_jars.BUILDS[line]}
    for name, digest in {**build, **delta_jars.SHARED}.items():
        found = components[f"pkg:maven/io.delta/{name}@{delta_jars.VERSION}"]
        assert found["hashes"] == [{"alg": "SHA-256", "content": digest}]
    if (in_s3 := find_s3_jar_set()) is not None:
        hashes = {one["hashes"][0]["content"] for one in components.values() if one.get("hashes")}
        assert set(in_s3.digests.values()) <= hashes
    images = [one for one in components.values() if one["type"] == "container"]
    texts = [(ROOT / name).read_text() for name in FILES]
    pinned = {digest for one in texts for digest in re.findall("@sha256:([0-9a-f]{64})", one)}
    assert {one["hashes"][0]["content"] for one in images} == pinned


def test_nothing_in_it_is_this_machines(text: str) -> None:
    addresses = set(re.findall(r"https?://[^\"]+", text))
    assert addresses == {"http://cyclonedx.org/schema/bom-1.6.schema.json"}
    for own in (str(ROOT), sys.prefix, str(Path.home()), socket.gethostname(), os.getcwd()):
        assert f'"{own}' not in text and f"{own}/" not in text, own


def test_all_belongs_to_us(text: str, components: dict[str, Any]) -> None:
    document = json.loads(text)
    assert document["metadata"]["component"]["name"] == "tideline-cdc"
    [ours] = [one for one in document["dependencies"] if one["ref"] == "tideline-cdc"]
    assert set(ours["dependsOn"]) == components.keys()


@pytest.mark.parametrize("named", [True, False])
def test_a_jar_says_what_it_is_or_its_name_does(tmp_path: Path, named: bool) -> None:
    path = tmp_path / "thing-core-1.2.jar"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("META-INF/maven/org.other/shaded/pom.properties", "")
        if named:
            file.writestr("META-INF/maven/org.things/thing-core/pom.properties", "")
    found = sbom.jar(path)
    assert (found.name, found.version) == ("thing-core", "1.2")
    address = "pkg:maven/org.things/thing-core@1.2"
    assert (str(found.purl) == address) if named else (found.purl is None)
    [digest] = found.hashes
    assert digest.content == hashlib.sha256(path.read_bytes()).hexdigest()


def test_debians_packages_are_those_that_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dpkg-query"
    rows = "tini 0.19.0-1 amd64 installed\\ngone 1 amd64 config-files\\n"
    program.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [str(one.purl) for one in sbom.system_packages()] == [
        "pkg:deb/debian/tini@0.19.0-1?arch=amd64"
    ]
