"""Delta Lake's four jars for the installed Spark, fetched once and kept in the cache; after that no
network is needed.

Each has to have the SHA-256 that stands here, when it is fetched and whenever it is taken from the
cache: a jar runs with all permissions of a merge.

Spark's own resolution brings 33 jars of 174 MB, nearly all of which Spark has already. Only these
four (12.7 MB) are missing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tideline.cache import cache_folder, check_sha256, fetch, rename_into_place
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.java import java_home
from tideline.spark_versions import installed_spark, spark_line

GROUP = "io.delta"
VERSION = "4.4.0"
BUILDS: Mapping[str, str] = MappingProxyType(
    {
        "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
        "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
        "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    }
)
"""By line of Spark: SHA-256 of the jar of ``VERSION`` that is built for it, in hex."""
SHARED: Mapping[str, str] = MappingProxyType(
    {
        "delta-storage": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        "delta-kernel-api": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
        "delta-kernel-defaults": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    }
)
"""SHA-256 of the jars that are the same for each Spark; a new version brings new ones
(docs/SUPPLY_CHAIN.md)."""

_NOT_WANTED = ("org.*", "com.*", "net.*", "jakarta.*", "javax.*", "io.unitycatalog")
"""Groups of what Delta depends on and Spark already has; Ivy's glob patterns."""

_OTHER_FILE = (
    "nothing was run with it; where it was taken from the cache, remove its folder and run make "
    "setup, else ask whoever runs the mirror it came from"
)

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tideline</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def build_for(line: str) -> str:
    """Return the name of the jar that is built for Spark ``line``, a key of `BUILDS`."""
    return f"delta-spark_{line}_2.13"


def jar_names(line: str) -> list[str]:
    """Return the names of the four jars for Spark ``line``, that of the build first."""
    return list(_digests(line))


def jars_folder(line: str) -> Path:
    """Return the folder of the jars for Spark ``line``."""
    return cache_folder() / f"delta-{VERSION}-spark-{line}"


def delta_jars() -> list[Path]:
    """Return the four jars for ``spark.jars`` that fit the installed Spark, fetched when the cache
    lacks them.

    Through Maven when ``mvn`` is on PATH, else through Spark's Ivy. Unavailable when neither can
    fetch them; Misconfigured without Java or a Spark that jobs may run on; CorruptData when one is
    another file than it should be.
    """
    line = spark_line(installed_spark())
    target = jars_folder(line)
    if not target.is_dir():
        _fetch(target, line)
    return find_jars(target, line)


def find_jars(folder: Path, line: str) -> list[Path]:
    """Return the four jars for Spark ``line`` in ``folder``; Unavailable naming the missing ones,
    CorruptData naming one that is another file."""
    digests = _digests(line)
    found = [_jar(folder, name) for name in digests]
    missing = [name for name, path in zip(digests, found, strict=True) if path is None]
    if missing:
        raise Unavailable(
            f"Delta's jars are missing in {folder}: {', '.join(missing)}",
            hint="remove that folder and run make setup",
        )
    jars = [path for path in found if path is not None]
    for digest, jar in zip(digests.values(), jars, strict=True):
        check_sha256(jar, digest, hint=_OTHER_FILE)
    return jars


def _digests(line: str) -> dict[str, str]:
    return {build_for(line): BUILDS[line], **SHARED}


def _jar(folder: Path, name: str) -> Path | None:
    # Ivy's names begin with the group: io.delta_delta-storage-4.4.0.jar.
    for path in (folder / f"{name}-{VERSION}.jar", folder / f"{GROUP}_{name}-{VERSION}.jar"):
        if path.is_file():
            return path
    return None


def _fetch(target: Path, line: str) -> None:
    home = java_home()
    work = Path(tempfile.mkdtemp(prefix="jars.", dir=cache_folder()))
    try:
        fetched = work / "fetched"
        fetched.mkdir()
        if shutil.which("mvn") is not None:
            _with_maven(work, fetched, home, build_for(line))
        else:
            _with_ivy(work, fetched, home, build_for(line))
        kept = work / "kept"
        kept.mkdir()
        for name, path in zip(jar_names(line), find_jars(fetched, line), strict=True):
            shutil.copyfile(path, kept / f"{name}-{VERSION}.jar")
        rename_into_place(kept, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _with_maven(work: Path, fetched: Path, java: Path, artifact: str) -> None:
    pom = work / "pom.xml"
    pom.write_text(_POM.format(group=GROUP, artifact=artifact, version=VERSION))
    # Maven only warns of a wrong checksum, and -q hides that; --strict-checksums ends it instead.
    command = ["mvn", "--strict-checksums", "-q", "-B", "-f", str(pom)]
    command += ["dependency:copy-dependencies"]
    _run([*command, f"-DoutputDirectory={fetched}"], work, java, {})


def _with_ivy(work: Path, fetched: Path, java: Path, artifact: str) -> None:
    """Let Spark resolve the package for a job that does nothing, and take the jars from its Ivy.

    A separate home keeps Ivy from ``~/.m2``: poms without their jars there make it give up.
    """
    job = work / "nothing.py"
    job.write_text("")
    submit = Path(sys.executable).parent / "spark-submit"
    if not submit.exists():
        raise Misconfigured(
            "spark-submit is not installed", hint="pip install 'tideline-cdc[spark]'"
        )
    command = [str(submit), "--master", "local[1]"]
    command += ["--packages", f"{GROUP}:{artifact}:{VERSION}"]
    command += ["--exclude-packages", ",".join(f"{group}:*" for group in _NOT_WANTED)]
    command += ["--conf", f"spark.jars.ivy={work / 'ivy'}", str(job)]
    _run(command, work, java, {"SPARK_SUBMIT_OPTS": f"-Duser.home={work}"})
    for path in (work / "ivy" / "jars").glob("*.jar"):
        shutil.copyfile(path, fetched / path.name)


def _run(command: list[str], work: Path, java: Path, extra: Mapping[str, str]) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    fetch("Delta's jars", command, work, {**extra, "JAVA_HOME": str(java), "PATH": path})
