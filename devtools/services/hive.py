"""A Hive metastore, 2.3, from the jars that pyspark has, over an embedded Derby database.

It has no login, and listens on every address of this machine: that release cannot do otherwise.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import pyspark
from pymetastore.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from devtools.services.java import ensure_java
from devtools.services.ports import LOOPBACK, is_listening
from devtools.services.process import Child
from devtools.services.server import LoopbackServer

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"


class HiveServer(LoopbackServer):
    """One metastore. Its database, and the folders of its schemas, stay in ``directory``."""

    def __init__(self, directory: Path, *, port: int | None = None, name: str = "hive") -> None:
        super().__init__(directory, port=port, name=name)

    @property
    def url(self) -> str:
        """Return the address, as Spark and the settings have it."""
        return f"thrift://{LOOPBACK}:{self.port}"

    def _new_child(self) -> Child:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._write_settings()
        home = ensure_java()
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        command = [
            str(home / "bin" / "java"),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dderby.stream.error.field=java.lang.System.err",
            "-cp",
            f"{self._directory.absolute()}:{jars}",
            _MAIN,
            "-p",
            str(self.port),
        ]
        return Child(
            self._name,
            command,
            run_folder=self._directory,
            environment={"PATH": "/usr/bin:/bin", "JAVA_HOME": str(home)},
            cwd=self._directory,
        )

    def _write_settings(self) -> None:
        """Write the file that Hive finds on its class path."""
        folder = self._directory.absolute()
        values = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/db;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"{folder}/warehouse",
            # It would need a jar that Spark leaves out.
            "hive.async.log.enabled": "false",
        }
        properties = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
            for name, value in values.items()
        )
        text = f"<configuration>\n{properties}</configuration>\n"
        (self._directory / "hive-site.xml").write_text(text)

    def _answers(self) -> bool:
        if not is_listening(self.port):
            return False
        transport = TBufferedTransport(TSocket(LOOPBACK, self.port))
        try:
            transport.open()
            ThriftHiveMetastore.Client(TBinaryProtocol(transport)).get_all_databases()
        except (TException, OSError):
            return False
        finally:
            transport.close()
        return True
