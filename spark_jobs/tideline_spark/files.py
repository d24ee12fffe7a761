"""Reads and writes small documents through Spark's file system, with Spark's credentials: jobs need
no other store client."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tideline.contract.errors import CorruptData
from tideline_spark.failures import explain
from tideline_spark.hadoop_files import find_status, read_file

DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
_OBJECT_STORES = ("s3", "s3a", "gs")
"""Schemes of stores where an object appears whole once it is written, and a rename is a copy. Not
Azure's, whose files are seen while they are written: Delta's log store renames there, too."""


def java_names(session: SparkSession) -> Any:
    """Return Py4J's view of Java's names, one for all sessions of a process: PySpark lacks Hadoop's
    file systems, and `binaryFile` would run a job for each document.

    Java interfaces that a table format needs are in the format's own folder.
    """
    gateway: Any = session.sparkContext._gateway
    return gateway.jvm


def spark_path(url: str) -> str:
    """Return ``url`` as Spark's path: addresses are percent-encoded, Hadoop's paths are not."""
    return unquote(url)


def read_document(spark: SparkSession, url: str) -> bytes:
    """Read the bytes at ``url``. Raises CorruptData when nothing is there or it is too large."""
    if (data := find_document(spark, url)) is None:
        raise CorruptData(f"nothing is at {url}")
    return data


def find_document(spark: SparkSession, url: str) -> bytes | None:
    """Read the bytes at ``url``; None where nothing is. Raises CorruptData when they are too
    many."""
    try:
        files, path = _open(spark, url)
        if (status := find_status(files, path)) is None:
            return None
        if (size := status.getLen()) > DOCUMENT_BYTES_MAX:
            raise CorruptData(f"{url} has {size} bytes, more than a document may")
        return read_file(files, status)
    except Py4JJavaError as error:
        raise explain(error, f"reading {url}") from None


def write_document(spark: SparkSession, url: str, data: bytes) -> None:
    """Put ``data`` at ``url`` atomically: a reader sees all of it or what was there before.

    No checksum file is left next to it, since other readers of the store would fail on it.
    """
    try:
        files, path = _open(spark, url)
        files.setWriteChecksum(False)
        jvm = java_names(spark)
        if path.toUri().getScheme() in _OBJECT_STORES:
            _write(files, path, data)
            return
        folder = path.getParent()
        files.mkdirs(folder)
        temporary = jvm.org.apache.hadoop.fs.Path(
            folder, f".{path.getName()}.{jvm.java.util.UUID.randomUUID()}"
        )
        _write(files, temporary, data)
        context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            path.toUri(),
            spark._jsc.hadoopConfiguration(),
        )
        rename = jvm.org.apache.hadoop.fs.Options.Rename
        overwriting = spark._sc._gateway.new_array(rename, 1)  # type: ignore[union-attr]
        overwriting[0] = rename.OVERWRITE
        context.rename(temporary, path, overwriting)
    except Py4JJavaError as error:
        raise explain(error, f"writing {url}") from None


def _write(files: Any, path: Any, data: bytes) -> None:
    stream = files.create(path, True)
    try:
        stream.write(bytearray(data))
    except Py4JJavaError:
        _give_up(stream)
        raise
    stream.close()


def _give_up(stream: Any) -> None:
    """Close ``stream`` without what was written to it: a store keeps what it has at the close."""
    try:
        stream.abort()
    except Py4JJavaError:  # Files cannot; they are renamed once they are whole.
        with suppress(Py4JJavaError):
            stream.close()


def _open(spark: SparkSession, url: str) -> tuple[Any, Any]:
    """Return a separate file system (its settings are not a table format's) and the path."""
    jvm = java_names(spark)
    path = jvm.org.apache.hadoop.fs.Path(spark_path(url))
    configuration = spark._jsc.hadoopConfiguration()
    return jvm.org.apache.hadoop.fs.FileSystem.newInstance(path.toUri(), configuration), path
