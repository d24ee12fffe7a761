"""Jars of a server's own class path, by Maven, each with a known hash."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tideline.cache import cache_folder, check_sha256, fetch, rename_into_place
from tideline.contract.errors import CorruptData, Unavailable

_OTHER_FILE = "nothing was run with it; remove its folder in the cache and try again"

Artefact = tuple[str, str, str, str]
"""Group, name, version and classifier. One with a classifier comes without what it depends on."""


@dataclass(frozen=True, slots=True)
class MavenJars:
    """The jars that ``artefacts`` bring, in the cache's folder ``name``. ``digests`` is a file with
    the SHA-256 in hex and the name of each, a line for each."""

    name: str
    title: str
    artefacts: Sequence[Artefact]
    digests: Path

    @property
    def folder(self) -> Path:
        """The folder in the cache, which may not be there yet."""
        return cache_folder() / self.name

    def paths(self) -> list[Path]:
        """Return the jars, fetched when the cache lacks them. Raises Unavailable where they cannot
        be fetched, CorruptData where one is another file than it should be."""
        known = [line.split() for line in self.digests.read_text().splitlines()]
        if not self.folder.is_dir():
            self._fetch()
        for digest, name in known:
            if not (self.folder / name).is_file():
                raise CorruptData(f"{self.folder} lacks {name}", hint=_OTHER_FILE)
            check_sha256(self.folder / name, digest, hint=_OTHER_FILE)
        return [self.folder / name for _, name in known]

    def _fetch(self) -> None:
        if shutil.which("mvn") is None:
            raise Unavailable(
                f"{self.title} could not be fetched: there is no mvn",
                hint="install Maven (Debian: apt-get install maven)",
            )
        with tempfile.TemporaryDirectory(prefix=f"{self.name}.", dir=cache_folder()) as made:
            work = Path(made)
            (work / "pom.xml").write_text(_pom(self.artefacts))
            command = ["mvn", "--strict-checksums", "-q", "-B", "-f", str(work / "pom.xml")]
            command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            fetch(self.title, [*command, f"-DoutputDirectory={work / 'jars'}"], work)
            rename_into_place(work / "jars", self.folder)


def _pom(artefacts: Sequence[Artefact]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>tideline</groupId><artifactId>jars</artifactId><version>1</version>\n"
        f"<dependencies>\n{''.join(map(_dependency, artefacts))}</dependencies></project>\n"
    )


def _dependency(artefact: Artefact) -> str:
    group, name, version, classifier = artefact
    alone = (
        f"<classifier>{classifier}</classifier><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions>"
        if classifier
        else ""
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{alone}</dependency>\n"
    )
