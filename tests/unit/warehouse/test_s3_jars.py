"""S3's jars: which set a Spark gets, and that each file of digests is of its set and whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.jars import find_jars
from tideline.warehouse import s3_jars
from tideline.warehouse.s3_jars import SETS, find_s3_jar_set, s3_jar_set

FOLDER = Path(s3_jars.__file__).parent
FOREIGN = ("eventstream-1.0.1.jar", "reactive-streams-1.0.4.jar")
"""The jars of no root's version."""


def test_each_file_of_digests_is_of_a_set() -> None:
    files = {path.name for path in FOLDER.glob("*.sha256")}
    assert files == {f"s3-hadoop-{hadoop}.sha256" for hadoop in SETS}
    assert {hadoop: one.name for hadoop, one in SETS.items()} == {
        hadoop: f"s3-hadoop-{hadoop}" for hadoop in SETS
    }


@pytest.mark.parametrize("hadoop", SETS)
def test_a_file_of_digests_is_one_of_sha256sum(hadoop: str) -> None:
    lines = (FOLDER / f"s3-hadoop-{hadoop}.sha256").read_text().splitlines()
    names = [re.fullmatch(r"[0-9a-f]{64}  ([a-z0-9.-]+\.jar)", line) for line in lines]
    assert all(names)
    found = [match[1] for match in names if match]
    assert found == sorted(set(found)) == list(SETS[hadoop].digests)
    assert len(set(SETS[hadoop].digests.values())) == len(found)


@pytest.mark.parametrize("hadoop", SETS)
def test_the_roots_are_among_them_and_all_are_of_one_release(hadoop: str) -> None:
    wanted = SETS[hadoop]
    roots = {f"{name}-{version}.jar" for _, name, version in (r.split(":") for r in wanted.roots)}
    assert roots <= wanted.digests.keys()
    assert f"hadoop-aws-{hadoop}.jar" in roots
    versions = {root.split(":")[2] for root in wanted.roots}
    others = [n for n in wanted.digests if not any(n.endswith(f"-{v}.jar") for v in versions)]
    assert others == [name for name in FOREIGN if name in wanted.digests]
    assert not [name for name in wanted.digests if name.startswith("bundle-")]


def test_the_cache_holds_exactly_the_files_of_the_set() -> None:
    """As they were fetched for these tests: no jar too many, and each the one that was looked
    at."""
    wanted = find_s3_jar_set()
    if wanted is None:
        pytest.skip("the Hadoop of this Spark has no create-only write to S3")
    assert sorted(path.name for path in wanted.folder.iterdir()) == sorted(wanted.digests)
    assert len(find_jars(wanted, wanted.folder)) == len(wanted.digests)


def test_a_wrong_jar_is_not_used(tmp_path: Path) -> None:
    wanted = SETS["3.4.2"]
    for name in wanted.digests:
        (tmp_path / name).write_text("another")
    with pytest.raises(CorruptData, match=f"{next(iter(wanted.digests))} is not the file"):
        find_jars(wanted, tmp_path)


@pytest.mark.parametrize("hadoop", SETS)
def test_the_set_is_the_one_of_sparks_hadoop(spark: Path, hadoop: str) -> None:
    (spark / f"hadoop-client-api-{hadoop}.jar").touch()
    (spark / "hadoop-client-runtime-9.9.9.jar").touch()
    assert s3_jar_set() is find_s3_jar_set() is SETS[hadoop]


def test_a_builders_own_suffix_is_ignored(spark: Path) -> None:
    (spark / "hadoop-client-api-3.4.2-amzn-1.jar").touch()
    assert s3_jar_set() is SETS["3.4.2"]


@pytest.mark.parametrize(
    ("jar", "named"),
    [
        ("hadoop-client-api-3.4.1.jar", r"3\.4\.1"),
        ("hadoop-client-api-3.4.20.jar", r"3\.4\.20"),
        ("hadoop-common.jar", "unknown"),
    ],
)
def test_another_hadoop_is_refused(spark: Path, jar: str, named: str) -> None:
    (spark / jar).touch()
    assert find_s3_jar_set() is None
    with pytest.raises(Misconfigured, match=rf"with the Hadoop of this Spark, {named};") as caught:
        s3_jar_set()
    assert "merge.jars" in str(caught.value.hint)
