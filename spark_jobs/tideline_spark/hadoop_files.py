"""Reads files through Hadoop's file systems, with as few requests to a store as they need."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]


def find_status(files: Any, path: Any) -> Any | None:
    """Return Hadoop's status of the file at ``path``, None where nothing is. Raises
    Py4JJavaError."""
    try:
        return files.getFileStatus(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return None
        raise


def read_file(files: Any, status: Any) -> bytes:
    """Read the file of that status whole. Raises Py4JJavaError.

    Hadoop's plain ``open`` would ask a store for the status once more.
    """
    stream = files.openFile(status.getPath()).withFileStatus(status).build().get()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()
