"""Files of ours in the bucket of staged rows, through Hadoop's file systems, as executors see them.

What a killed run leaves there, no one removes but a rule of the bucket's.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


class BucketFolder:
    """The folder at ``url``. It holds no session, so it may be removed when one has ended."""

    def __init__(self, session: SparkSession, url: str) -> None:
        self.url = url
        self._hadoop = session._jsc.hadoopConfiguration()
        gateway: Any = session.sparkContext._gateway
        self._path_of = gateway.jvm.org.apache.hadoop.fs.Path

    def take(self, file: Path) -> str:
        """Move a file of the driver's there; return its url."""
        source, target = self._path_of(file.as_uri()), self._path_of(f"{self.url}/{file.name}")
        self._files(target).copyFromLocalFile(True, True, source, target)
        return f"{self.url}/{file.name}"

    def remove(self) -> None:
        """Remove the folder, as far as it may be: what a job has done or met by then counts."""
        with suppress(Py4JError):
            path = self._path_of(self.url)
            self._files(path).delete(path, True)

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._hadoop)
