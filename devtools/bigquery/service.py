"""The stand-in as a server that is started and stopped: an emulator, and the front before it."""

from __future__ import annotations

from pathlib import Path

from devtools.bigquery.front import BigQueryFront
from devtools.services.bigquery import BigQueryServer
from devtools.services.ports import require_free


class BigQueryService:
    """One emulator in ``folder`` with its front, which is in this process and listens on ``port``;
    0: on a free one."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._folder = folder
        self._port = port
        self._server = BigQueryServer(folder)
        self._front: BigQueryFront | None = None

    @property
    def endpoint(self) -> str:
        """Return the address of the front's REST API, once it was started."""
        assert self._front is not None
        return self._front.endpoint

    def start(self) -> None:
        """Start both. Raises Misconfigured where the port is taken."""
        if self._port:
            require_free(self._port, what="BigQuery's stand-in")
        self._server.start()
        files = self._folder / "bigquery-files"
        files.mkdir(parents=True, exist_ok=True)
        self._front = BigQueryFront(self._server.endpoint, files, self._port)
        self._front.__enter__()

    def stop(self) -> None:
        """End both; safe before the start."""
        if self._front is not None:
            self._front.__exit__(None, None, None)
            self._front = None
        self._server.stop()
