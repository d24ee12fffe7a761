"""The real Debezium, in Kafka Connect's standalone worker, from its jars.

Newer versions of the connectors are not on Maven Central whole: these are the newest that are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.services.java import ensure_java
from devtools.services.maven_jars import MavenJars
from devtools.services.ports import LOOPBACK, is_listening
from devtools.services.process import Child
from devtools.services.server import LoopbackServer

_CONNECT_VERSION = "4.1.1"
"""These versions of Debezium use classes of Kafka's that 4.4 lacks."""
_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
_STARTS_SOON = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class Connector:
    """One of Debezium's connectors, in one version."""

    name: str
    version: str
    main: str

    @property
    def jars(self) -> MavenJars:
        """The jars of a worker with this connector."""
        name = f"debezium-{self.name}-{self.version}"
        return MavenJars(
            name,
            "Debezium",
            (
                ("org.apache.kafka", "connect-runtime", _CONNECT_VERSION, ""),
                ("org.apache.kafka", "connect-file", _CONNECT_VERSION, ""),
                ("org.slf4j", "slf4j-simple", "1.7.36", ""),
                ("io.debezium", f"debezium-connector-{self.name}", f"{self.version}.Final", ""),
            ),
            Path(__file__).with_name(f"{name}.sha256"),
        )


POSTGRES = Connector("postgres", "3.6.1", "io.debezium.connector.postgresql.PostgresConnector")
MARIADB = Connector("mariadb", "3.5.0", "io.debezium.connector.mariadb.MariaDbConnector")


class DebeziumServer(LoopbackServer):
    """One connector at the Kafka at ``kafka``, whose records are JSON with schemas.

    ``settings`` are the connector's, and may name another one of Kafka Connect's instead
    (``connector.class``); its offsets stay in ``directory``. ``java`` are options of its Java: the
    default ones have it start soon, and slow with much.
    """

    READY_TIMEOUT_S = 120.0

    def __init__(
        self,
        directory: Path,
        connector: Connector,
        kafka: str,
        settings: Mapping[str, str],
        *,
        java: Sequence[str] = _STARTS_SOON,
        name: str = "debezium",
    ) -> None:
        super().__init__(directory, port=None, name=name)
        self._java = java
        self._connector = connector
        self._kafka = kafka
        self._settings = settings

    def _new_child(self) -> Child:
        self._directory.mkdir(parents=True, exist_ok=True)
        worker, connector = (
            self._directory / "worker.properties",
            self._directory / "connector.json",
        )
        lines = (f"{name}={value}\n" for name, value in self._worker().items())
        worker.write_text("".join(lines))
        connector.write_text(json.dumps({"name": self._name, "config": self._configuration()}))
        command = [
            str(ensure_java() / "bin" / "java"),
            *self._java,
            "-cp",
            ":".join(map(str, self._connector.jars.paths())),
            _MAIN,
            str(worker),
            str(connector),
        ]
        return Child(
            self._name,
            command,
            run_folder=self._directory,
            environment={"PATH": "/usr/bin:/bin", "JAVA_HOME": str(ensure_java()), "TZ": "UTC"},
            cwd=self._directory,
        )

    def _worker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self._kafka,
            "listeners": f"http://{LOOPBACK}:{self.port}",
            "key.converter": _JSON,
            "value.converter": _JSON,
            "offset.storage.file.filename": str(self._directory.absolute() / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.discovery": "service_load",
            "topic.creation.enable": "true",
        }

    def _configuration(self) -> dict[str, str]:
        return {
            "connector.class": self._connector.main,
            "tasks.max": "1",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            "poll.interval.ms": "50",
            **self._settings,
        }

    def _answers(self) -> bool:
        return is_listening(self.port)
