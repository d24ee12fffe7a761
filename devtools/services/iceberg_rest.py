"""Apache Iceberg's own REST catalog server, of its tests, over a catalog in SQLite.

It gives a token to any client and asks none for one, and listens on every address of this machine:
it cannot do otherwise. Of two commits on one state it takes one. Iceberg 1.12 has not published it;
1.11 has.
"""

from __future__ import annotations

import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pyspark

from devtools.services.java import ensure_java
from devtools.services.ports import LOOPBACK, is_listening
from devtools.services.process import Child
from devtools.services.server import LoopbackServer
from tideline.cache import cache_folder, check_sha256, fetch, rename_into_place
from tideline.contract.errors import CorruptData, Unavailable

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_VERSION = "1.11.0"
_ARTEFACTS = (
    ("org.apache.iceberg", "iceberg-open-api", _VERSION, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", _VERSION, "tests"),
    ("org.apache.iceberg", "iceberg-core", _VERSION, ""),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.4", ""),
    ("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.4", ""),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.4", ""),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0", ""),
)
"""The group, name, version and classifier of what the server is made of. Jars with a classifier
come without what they depend on."""
_DIGESTS = Path(__file__).with_suffix(".sha256")
"""SHA-256 in hex and name of each jar that these bring, a line each."""
_OF_SPARK = ("hadoop-client-*.jar", "log4j-*.jar", "jcl-over-slf4j-*.jar")
_OTHER_FILE = "nothing was run with it; remove its folder in the cache and try again"


class IcebergRestServer(LoopbackServer):
    """One server. Its catalog stays in ``directory``, tables are below the url ``warehouse``."""

    def __init__(
        self, directory: Path, warehouse: str, *, port: int | None = None, name: str = "iceberg"
    ) -> None:
        super().__init__(directory, port=port, name=name)
        self._warehouse = warehouse

    @property
    def url(self) -> str:
        """Return the address, as the settings have it."""
        return f"http://{LOOPBACK}:{self.port}"

    def _new_child(self) -> Child:
        self._directory.mkdir(parents=True, exist_ok=True)
        home = ensure_java()
        spark = Path(pyspark.__file__).parent / "jars"
        jars = [*_jars(), *(path for one in _OF_SPARK for path in spark.glob(one))]
        command = [
            str(home / "bin" / "java"),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            ":".join(map(str, jars)),
            _MAIN,
        ]
        database = self._directory.absolute() / "catalog.db"
        environment = {
            "PATH": "/usr/bin:/bin",
            "JAVA_HOME": str(home),
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_WAREHOUSE": self._warehouse,
            # Of two connections to one file each waits for the other.
            "CATALOG_URI": f"jdbc:sqlite:{database}?busy_timeout=20000",
        }
        return Child(
            self._name,
            command,
            run_folder=self._directory,
            environment=environment,
            cwd=self._directory,
        )

    def _answers(self) -> bool:
        if not is_listening(self.port):
            return False
        try:
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _jars() -> list[Path]:
    """Return the server's jars, fetched when the cache lacks them. Raises Unavailable where they
    cannot be fetched, CorruptData where one is another file than it should be."""
    digests = [line.split() for line in _DIGESTS.read_text().splitlines()]
    folder = cache_folder() / f"iceberg-rest-{_VERSION}"
    if not folder.is_dir():
        _fetch(folder)
    for digest, name in digests:
        if not (folder / name).is_file():
            raise CorruptData(f"{folder} lacks {name}", hint=_OTHER_FILE)
        check_sha256(folder / name, digest, hint=_OTHER_FILE)
    return [folder / name for _, name in digests]


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable(
            "Iceberg's REST server could not be fetched: there is no mvn",
            hint="install Maven (Debian: apt-get install maven)",
        )
    with tempfile.TemporaryDirectory(prefix="iceberg-rest.", dir=cache_folder()) as name:
        work = Path(name)
        (work / "pom.xml").write_text(_pom())
        command = ["mvn", "--strict-checksums", "-q", "-B", "-f", str(work / "pom.xml")]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        fetch("Iceberg's REST server", [*command, f"-DoutputDirectory={work / 'jars'}"], work)
        rename_into_place(work / "jars", folder)


def _pom() -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>tideline</groupId><artifactId>jars</artifactId><version>1</version>\n"
        f"<dependencies>\n{''.join(map(_dependency, _ARTEFACTS))}</dependencies></project>\n"
    )


def _dependency(artefact: tuple[str, str, str, str]) -> str:
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
