"""Apache Iceberg's own REST catalog server, of its tests, over a catalog in SQLite.

It gives a token to any client and asks none for one, and listens on every address of this machine:
it cannot do otherwise. Of two commits on one state it takes one. Iceberg 1.12 has not published it;
1.11 has.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pyspark

from devtools.services.java import ensure_java
from devtools.services.maven_jars import MavenJars
from devtools.services.ports import LOOPBACK, is_listening
from devtools.services.process import Child
from devtools.services.server import LoopbackServer

_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_VERSION = "1.11.0"
_JARS = MavenJars(
    f"iceberg-rest-{_VERSION}",
    "Iceberg's REST server",
    (
        ("org.apache.iceberg", "iceberg-open-api", _VERSION, "test-fixtures"),
        ("org.apache.iceberg", "iceberg-core", _VERSION, "tests"),
        ("org.apache.iceberg", "iceberg-core", _VERSION, ""),
        ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.4", ""),
        ("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.4", ""),
        ("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.4", ""),
        ("org.xerial", "sqlite-jdbc", "3.50.3.0", ""),
    ),
    Path(__file__).with_suffix(".sha256"),
)
_OF_SPARK = ("hadoop-client-*.jar", "log4j-*.jar", "jcl-over-slf4j-*.jar")


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
        jars = [*_JARS.paths(), *(path for one in _OF_SPARK for path in spark.glob(one))]
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
