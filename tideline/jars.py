"""Fetches sets of jars once, and keeps them in the cache; after that no network is needed.

Each jar has to have the SHA-256 that its set names, when it is fetched and whenever it is taken
from the cache: a jar runs with all permissions of a merge.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tideline.cache import cache_folder, check_sha256, fetch, rename_into_place
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.java import java_home

_OTHER_FILE = (
    "nothing was run with it; where it was taken from the cache, remove its folder and run make "
    "setup, else ask whoever runs the mirror it came from"
)


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together.

    ``title`` is for people, ``name`` the folder's in the cache. ``roots`` are the coordinates
    (``group:artifact:version``) that bring them, ``excluded`` those that these depend on and that
    are not wanted: ``group:artifact``, in which ``*`` stands for any; a pattern of a group counts
    for Ivy alone. ``digests``: SHA-256 in hex by the name of each file.
    """

    title: str
    name: str
    roots: tuple[str, ...]
    excluded: tuple[str, ...]
    digests: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """The folder of the jars, whether they are there or not."""
        return cache_folder() / self.name


def ensure_jars(wanted: JarSet) -> list[Path]:
    """Return the jars of a set, in its order, fetched when the cache lacks them.

    Through Maven when ``mvn`` is on PATH, else through Spark's Ivy. Unavailable when neither can
    fetch them; Misconfigured without Java; CorruptData when one is another file than it should be.
    """
    if not wanted.folder.is_dir():
        _fetch(wanted)
    return find_jars(wanted, wanted.folder)


def find_jars(wanted: JarSet, folder: Path) -> list[Path]:
    """Return the jars of a set in ``folder``; Unavailable naming the missing ones, CorruptData
    naming one that is another file."""
    found = {name: _jar(folder, name) for name in wanted.digests}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise Unavailable(
            f"{wanted.title} are missing in {folder}: {', '.join(missing)}",
            hint="remove that folder and run make setup",
        )
    jars = [path for path in found.values() if path is not None]
    for digest, jar in zip(wanted.digests.values(), jars, strict=True):
        check_sha256(jar, digest, hint=_OTHER_FILE)
    return jars


def _jar(folder: Path, name: str) -> Path | None:
    # Ivy's names begin with the group: io.delta_delta-storage-4.4.0.jar.
    if (folder / name).is_file():
        return folder / name
    return next(iter(sorted(folder.glob(f"*_{name}"))), None)


def _fetch(wanted: JarSet) -> None:
    home = java_home()
    work = Path(tempfile.mkdtemp(prefix="jars.", dir=cache_folder()))
    try:
        fetched = work / "fetched"
        fetched.mkdir()
        if shutil.which("mvn") is not None:
            _with_maven(wanted, work, fetched, home)
        else:
            _with_ivy(wanted, work, fetched, home)
        kept = work / "kept"
        kept.mkdir()
        for name, path in zip(wanted.digests, find_jars(wanted, fetched), strict=True):
            shutil.copyfile(path, kept / name)
        rename_into_place(kept, wanted.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _with_maven(wanted: JarSet, work: Path, fetched: Path, java: Path) -> None:
    pom = work / "pom.xml"
    pom.write_text(_pom(wanted))
    # Maven only warns of a wrong checksum, and -q hides that; --strict-checksums ends it instead.
    command = ["mvn", "--strict-checksums", "-q", "-B", "-f", str(pom)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    _run(wanted, [*command, f"-DoutputDirectory={fetched}"], work, java, {})


def _pom(wanted: JarSet) -> str:
    """Return a project that depends on the roots."""
    unwanted = [one.split(":") for one in wanted.excluded if "*" not in one.partition(":")[0]]
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in unwanted
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><exclusions>{exclusions}</exclusions></dependency>\n"
        for group, artifact, version in (root.split(":") for root in wanted.roots)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>tideline</groupId><artifactId>jars</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _with_ivy(wanted: JarSet, work: Path, fetched: Path, java: Path) -> None:
    """Let Spark resolve the roots for a job that does nothing, and take the jars from its Ivy.

    A separate home keeps Ivy from ``~/.m2``: poms without their jars there make it give up.
    """
    job = work / "nothing.py"
    job.write_text("")
    submit = Path(sys.executable).parent / "spark-submit"
    if not submit.exists():
        raise Misconfigured(
            "spark-submit is not installed", hint="pip install 'tideline-cdc[spark]'"
        )
    command = [str(submit), "--master", "local[1]", "--packages", ",".join(wanted.roots)]
    command += ["--exclude-packages", ",".join(wanted.excluded)]
    command += ["--conf", f"spark.jars.ivy={work / 'ivy'}", str(job)]
    _run(wanted, command, work, java, {"SPARK_SUBMIT_OPTS": f"-Duser.home={work}"})
    for path in (work / "ivy" / "jars").glob("*.jar"):
        shutil.copyfile(path, fetched / path.name)


def _run(
    wanted: JarSet, command: list[str], work: Path, java: Path, extra: Mapping[str, str]
) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    fetch(wanted.title, command, work, {**extra, "JAVA_HOME": str(java), "PATH": path})
