"""Apache Kafka, one broker that is its own controller (KRaft), from its jars.

It has no login and no TLS, and listens on loopback alone.
"""

from __future__ import annotations

import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from devtools.services.java import ensure_java
from devtools.services.maven_jars import MavenJars
from devtools.services.ports import LOOPBACK, free_port, is_free
from devtools.services.process import Child
from devtools.services.server import LoopbackServer
from tideline.contract.errors import Unavailable

_VERSION = "4.4.0"
JARS = MavenJars(
    f"kafka-{_VERSION}",
    "Kafka",
    (("org.apache.kafka", "kafka_2.13", _VERSION, ""),),
    Path(__file__).with_suffix(".sha256"),
)
_API_VERSIONS = bytes.fromhex("0000000a001200000000000100" + "00")
"""A request that any broker answers once it serves."""


class KafkaServer(LoopbackServer):
    """One broker. Its log stays in ``directory``. ``settings`` win over those that are made."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        name: str = "kafka",
    ) -> None:
        super().__init__(directory, port=port, name=name)
        self._controller_port = free_port()
        self._settings = settings or {}

    @property
    def address(self) -> str:
        """Return the address, as clients have it."""
        return f"{LOOPBACK}:{self.port}"

    def _launch(self, port: int) -> None:
        try:
            super()._launch(port)
        except Unavailable:
            if is_free(self._controller_port):
                raise
            self._controller_port = free_port()  # Another program took it in between.
            super()._launch(port)

    def _new_child(self) -> Child:
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._values().items()))
        if not (self._directory / "log" / "meta.properties").exists():
            self._format(file)
        return Child(
            self._name,
            [*self._java("-Xmx256m"), "kafka.Kafka", str(file)],
            run_folder=self._directory,
            environment=self._environment(),
            cwd=self._directory,
        )

    def _values(self) -> dict[str, str]:
        controller = f"{LOOPBACK}:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._directory.absolute() / "log"),
            "num.partitions": "3",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            **self._settings,
        }

    def _format(self, file: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        cluster = cluster.replace("-", "_")  # At the front it would be an option.
        formatting = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
        done = subprocess.run(
            [*self._java("-Xmx64m"), *formatting],
            env=self._environment(),
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unavailable(
                "Kafka's storage could not be made:", lines=tuple(done.stderr.splitlines()[-10:])
            )

    def _java(self, heap: str) -> list[str]:
        return [
            str(ensure_java() / "bin" / "java"),
            heap,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            ":".join(map(str, JARS.paths())),
        ]

    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(ensure_java())}

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as connection:
                connection.sendall(_API_VERSIONS)
                return bool(connection.recv(4))
        except OSError:
            return False
