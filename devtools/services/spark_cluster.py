"""A standalone Spark cluster of the installed PySpark: a master and workers, on loopback.

Who connects must know a secret (``spark.authenticate``), and what is sent is encrypted. The secret
stands in files that only this user reads, never on a command line: the workers hand it to their
executors in the environment.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from devtools.services.ports import LOOPBACK, free_port, is_listening
from devtools.services.private_file import write_private
from devtools.services.process import Child
from devtools.services.server import LoopbackServer, Service
from tideline.contract.errors import Misconfigured
from tideline.java import java_home
from tideline.local_spark import QUICK_LAUNCH, spark_home

EXECUTOR = "CoarseGrainedExecutorBackend"
"""Stands in the command line of each executor."""
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_ANSWER_S = 5.0


class SparkMaster(LoopbackServer):
    """The master. Applications and workers that it knew are taken up again after a restart."""

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        super().__init__(directory, port=port, name="spark-master")
        self._ui_port = free_port()
        self._secret = secrets.token_hex(16)
        # What an earlier cluster's master wrote there would be waited for.
        shutil.rmtree(self._recovery, ignore_errors=True)
        self.secret_file = directory.absolute() / "secret"
        self.configuration = directory.absolute() / "configuration"
        """The folder for ``SPARK_CONF_DIR`` of master and workers."""

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def page(self) -> str:
        """The address of its web page, which has no login."""
        return f"http://{LOOPBACK}:{self._ui_port}"

    @property
    def _recovery(self) -> Path:
        return self._directory.absolute() / "recovery"

    def state(self) -> dict[str, Any]:
        """Return what the page knows, as JSON. Raises OSError where it does not answer."""
        with urlopen(f"{self.page}/json/", timeout=_ANSWER_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _new_child(self) -> Child:
        self._write_configuration()
        words = ("--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self._ui_port))
        return spark_child(self._name, _MASTER, words, self._directory, self.configuration)

    def _write_configuration(self) -> None:
        self.configuration.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.secret_file, self._secret)
        settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self._secret,
            "spark.network.crypto.enabled": "true",
            # Takes applications without the secret, and a driver in it could not be ours.
            "spark.master.rest.enabled": "false",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self._recovery),
        }
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        write_private(self.configuration / "spark-defaults.conf", "".join(lines))

    def _answers(self) -> bool:
        return is_listening(self.port) and is_listening(self._ui_port)


class SparkWorker(LoopbackServer):
    """A worker of ``master``. ``launcher`` stands before its command, as ``unshare`` does."""

    def __init__(
        self,
        directory: Path,
        master: SparkMaster,
        *,
        name: str,
        cores: int,
        memory: str,
        launcher: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, port=None, name=name)
        self._master = master
        self._sizes = ("--cores", str(cores), "--memory", memory)
        self._launcher = launcher
        self._ui_port = free_port()

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run on it now."""
        return [one for one in _descendants(self.pid) if EXECUTOR in " ".join(_command(one))]

    def _new_child(self) -> Child:
        work = self._directory.absolute() / f"{self._name}-work"
        words = (
            *("--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self._ui_port)),
            *("--work-dir", str(work), *self._sizes, self._master.url),
        )
        return spark_child(
            self._name, _WORKER, words, self._directory, self._master.configuration, self._launcher
        )

    def _answers(self) -> bool:
        try:
            workers = self._master.state()["workers"]
        except (URLError, OSError):
            return False
        return any(one["port"] == self.port and one["state"] == "ALIVE" for one in workers)


class SparkCluster(Service):
    """A master and as many ``workers``, each with ``cores`` and ``memory`` for executors.

    ``launchers`` stand before the commands of the first workers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        launchers: Sequence[Sequence[str]] = (),
    ) -> None:
        self.master = SparkMaster(directory, port=port)
        self.workers = tuple(
            SparkWorker(
                directory,
                self.master,
                name=f"spark-worker-{number}",
                cores=cores,
                memory=memory,
                launcher=launchers[number] if number < len(launchers) else (),
            )
            for number in range(workers)
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """The keys of ``[merge]`` with which commands run on it."""
        return {
            "master": self.master.url,
            "authenticate_secret_file": str(self.master.secret_file),
            "driver_host": LOOPBACK,
        }

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run now, on any worker."""
        return [one for worker in self.workers if worker.running for one in worker.executors()]

    def start(self) -> Self:
        try:
            self.master.start()
            for worker in self.workers:
                worker.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        for server in (*self.workers, self.master):
            server.stop()


def spark_child(
    name: str,
    program: str,
    words: Sequence[str],
    folder: Path,
    configuration: Path,
    launcher: Sequence[str] = (),
) -> Child:
    """Make the child that runs a class of the installed Spark, in a small heap.

    Raises Misconfigured without a Spark.
    """
    home = spark_home()
    if home is None:
        raise Misconfigured("no Spark is installed", hint="pip install 'tideline-cdc[spark]'")
    return Child(
        name,
        [*launcher, str(home / "bin" / "spark-class"), program, *words],
        run_folder=folder,
        environment={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(folder.absolute()),
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(configuration),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_PUBLIC_DNS": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_LAUNCH,
            "SPARK_LAUNCHER_OPTS": QUICK_LAUNCH,
        },
        cwd=folder,
    )


def _descendants(pid: int) -> Iterator[psutil.Process]:
    try:
        yield from psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
