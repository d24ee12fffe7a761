"""Airflow on loopback: its four components as children, with their metadata in PostgreSQL.

Not ``airflow standalone``: its children outlive it. SQLite metadata cannot run backfills. Every
component listens on 127.0.0.1 only, and all are sized for a small machine.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from devtools.services.airflow_api import AirflowApi
from devtools.services.ports import LOOPBACK, free_port, is_free
from devtools.services.private_file import write_private
from devtools.services.process import Child
from devtools.services.server import Service
from tideline.contract.errors import Misconfigured, Unavailable

USER = "admin"
DAGS = (
    "tideline_aggregate",
    "tideline_backfill",
    "tideline_maintain",
    "tideline_merge",
    "tideline_rebuild",
    "tideline_repair",
    "tideline_control",
    "tideline_verify",
)
PROJECT = Path(__file__).resolve().parents[2]
COMMAND_TIMEOUT_S = 300.0
READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.2
_AUTH_MANAGER = "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"

COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    # Without --skip-serve-logs these two serve logs on all addresses.
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}


@dataclass(frozen=True, slots=True)
class AirflowOptions:
    """Options that differ between runs. ``environment`` overrides everything else.

    ``config`` is the ``tideline.toml`` that the DAGs find; ``merge_schedule`` a cron expression
    or preset, empty: merges run only when triggered.
    """

    config: Path
    merge_schedule: str = "*/5 * * * *"
    bin_folder: Path = Path(sys.prefix) / "bin"
    environment: Mapping[str, str] = field(default_factory=dict)


class AirflowServices(Service):
    """Scheduler, DAG processor, triggerer and API server.

    ``metadata_dsn`` is a ``postgresql://`` url of an empty (or once migrated) database. Logs, pid
    files and secrets lie in ``run_folder``. Log in at ``url`` as `USER` with ``password``.
    """

    def __init__(self, run_folder: Path, metadata_dsn: str, options: AirflowOptions) -> None:
        self.run_folder = run_folder.absolute()
        self._dsn = metadata_dsn
        self._options = options
        self._port = free_port()
        self._secrets = _read_or_make_secrets(self.run_folder)
        self._children: dict[str, Child] = {}
        self.api = AirflowApi(self.url, user=USER, password=self.password)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def password(self) -> str:
        return self._secrets["password"]

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the children, each a process group leader."""
        return [child.pid for child in self._children.values()]

    def start(self) -> Self:
        """Migrate the database, start all, and return when all are healthy and the DAGs listed.

        Raises Unavailable with the end of the log of what does not come up, and Misconfigured
        with the stack trace of a DAG file that cannot be imported.
        """
        self._write_passwords()
        try:
            self.run("db", "migrate")
            if not is_free(self._port):  # another program took it in that time
                self._port = free_port()
                self.api.url = self.url
            self._children = {
                name: self._child(f"airflow-{name}", *words) for name, words in COMPONENTS.items()
            }
            for child in self._children.values():
                child.start()
            self._wait(self._healthy, "not healthy")
            self._wait(self._dags_listed, "DAGs not listed")
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all four, by force what takes longer than `STOP_TIMEOUT_S`; safe to call twice.

        The API server goes last: the others talk to it until their end.
        """
        self._end([child for name, child in self._children.items() if name != "api-server"])
        self._end(list(self._children.values()))

    def kill(self, component: str) -> None:
        """Kill (SIGKILL) a component and its descendants; ``restart_component`` brings it back."""
        self._children[component].kill()

    def restart_component(self, component: str) -> None:
        self._children[component].start()

    def run(self, *words: str) -> None:
        """Run ``airflow WORDS`` to its end; Unavailable with the end of its log when it fails."""
        child = self._child(f"airflow-{words[0]}", *words)
        child.start()
        try:
            code = child.wait(COMMAND_TIMEOUT_S)
        finally:
            child.stop()
        if code != 0:
            raise child.ended(code)

    def environment(self) -> dict[str, str]:
        """Return the environment of every component, and of ``airflow`` commands by hand."""
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")
        }
        return {
            **inherited,
            **{f"AIRFLOW__{key}": value for key, value in self._settings().items()},
            "AIRFLOW_HOME": str(self.run_folder),
            "PYTHONUNBUFFERED": "1",
            "TIDELINE_CONFIG": str(self._options.config.absolute()),
            "TIDELINE_MERGE_SCHEDULE": self._options.merge_schedule,
            **self._options.environment,
        }

    def _settings(self) -> dict[str, str]:
        # Without libpq's options, which asyncpg does not know; the server is on loopback.
        address = self._dsn.partition("://")[2].partition("?")[0]
        return {
            "CORE__DAGS_FOLDER": str(PROJECT / "dags"),
            "CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "4",
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "CORE__FERNET_KEY": self._secrets["fernet_key"],
            "CORE__AUTH_MANAGER": _AUTH_MANAGER,
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords_file),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "API__HOST": LOOPBACK,
            "API__PORT": str(self._port),
            "API__BASE_URL": self.url,
            "API__WORKERS": "1",
            "API__SECRET_KEY": self._secrets["secret_key"],
            "API_AUTH__JWT_SECRET": self._secrets["jwt_secret"],
            "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{address}",
            "DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+asyncpg://{address}",
            "DATABASE__SQL_ALCHEMY_POOL_SIZE": "3",
            "DATABASE__SQL_ALCHEMY_MAX_OVERFLOW": "5",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "SCHEDULER__JOB_HEARTBEAT_SEC": "5",
            "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            # The files do not change in between: every scan of the DAGs costs seconds of a core.
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
            "DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "LOGGING__BASE_LOG_FOLDER": str(self.run_folder / "logs"),
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    @property
    def _passwords_file(self) -> Path:
        return self.run_folder / "passwords.json"

    def _write_passwords(self) -> None:
        write_private(self._passwords_file, json.dumps({USER: self.password}))

    def _child(self, name: str, *command: str) -> Child:
        return Child(
            name,
            [str(self._options.bin_folder / "airflow"), *command],
            run_folder=self.run_folder,
            environment=self.environment(),
            cwd=self.run_folder,
        )

    def _end(self, children: list[Child]) -> None:
        running = [child for child in children if child.running]
        for child in running:
            child.send(signal.SIGTERM)
        end = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < end and any(child.running for child in running):
            time.sleep(_POLL_S)
        for child in running:
            child.kill()  # also what outlived it

    def _wait(self, ready: Callable[[], str | None], what: str) -> None:
        end = time.monotonic() + READY_TIMEOUT_S
        while (missing := ready()) is not None:
            for child in self._children.values():
                if not child.running:
                    raise child.ended(child.returncode)
            if time.monotonic() > end:
                raise Unavailable(f"airflow: {what} in {READY_TIMEOUT_S:g} s: {missing}")
            time.sleep(_POLL_S)

    def _healthy(self) -> str | None:
        """Return what is not healthy yet, None when all is."""
        try:
            health = self.api.health()
        except Unavailable as error:
            return str(error)
        missing = [f"{name}: {state}" for name, state in health.items() if state != "healthy"]
        return ", ".join(missing) or None

    def _dags_listed(self) -> str | None:
        errors = self.api.import_errors()
        if errors:
            traces = "\n".join(f"{file}:\n{trace[-2000:]}" for file, trace in errors.items())
            lines = tuple(traces.splitlines())
            raise Misconfigured("airflow cannot import DAG files:", lines=lines)
        missing = sorted(set(DAGS) - set(self.api.dags()))
        return ", ".join(missing) or None


def _read_or_make_secrets(run_folder: Path) -> dict[str, str]:
    """Return the metadata database's secrets, made once and kept next to it (0600)."""
    path = run_folder / "airflow-secrets.json"
    if not path.exists():
        run_folder.mkdir(parents=True, exist_ok=True)
        made = {
            "password": secrets.token_urlsafe(12),
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "secret_key": secrets.token_hex(32),
            "jwt_secret": secrets.token_hex(40),
        }
        write_private(path, json.dumps(made))
    kept: dict[str, str] = json.loads(path.read_text())
    return kept
