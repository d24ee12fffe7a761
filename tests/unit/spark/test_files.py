"""Documents that a job writes: whole or not at all, on files and in object stores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tideline_spark import files
from tideline_spark.files import write_document


class JavaFailure(Py4JJavaError):  # type: ignore[misc]
    """An exception of Java's, without a Java."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class Stream:
    """A stream of an object store: what it has when it is closed is stored."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name, self.data = place, name, b""

    def write(self, data: bytearray) -> None:
        self.data = bytes(data[: len(data) // 2]) if self.place.full else bytes(data)
        if self.place.full:
            raise JavaFailure("java.io.IOException: No space left on device")

    def close(self) -> None:
        self.place.stored[self.name] = self.data

    def abort(self) -> None:
        if not self.place.aborts:
            raise JavaFailure("java.lang.UnsupportedOperationException")


class Place:
    """A file system of Hadoop's, and what it holds by the end of each name."""

    def __init__(self, *, full: bool = False, aborts: bool = True) -> None:
        self.full, self.aborts = full, aborts
        self.stored: dict[str, bytes] = {}
        self.made: list[str] = []

    def setWriteChecksum(self, wanted: bool) -> None:
        assert not wanted

    def create(self, path: Any, overwrite: bool) -> Stream:
        assert overwrite
        return Stream(self, path.getName())

    def mkdirs(self, folder: str) -> None:
        self.made.append(folder)

    def rename(self, old: Any, new: Any, _: Any) -> None:
        self.stored[new.getName()] = self.stored.pop(old.getName())


class Name:
    def __init__(self, *words: Any) -> None:
        self.words = words

    def getName(self) -> str:
        return str(self.words[-1]).rpartition("/")[2]

    def getParent(self) -> str:
        return str(self.words[-1]).rpartition("/")[0]

    def toUri(self) -> Any:
        return SimpleNamespace(getScheme=lambda: str(self.words[0]).partition(":")[0])


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a document at an address, and return what is there then."""

    def write(place: Place, url: str) -> dict[str, bytes]:
        fs = SimpleNamespace(
            Path=Name,
            FileContext=SimpleNamespace(getFileContext=lambda *_: place),
            Options=SimpleNamespace(Rename=SimpleNamespace(OVERWRITE=1)),
        )
        java = SimpleNamespace(util=SimpleNamespace(UUID=SimpleNamespace(randomUUID=lambda: "id")))
        org = SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs)))
        monkeypatch.setattr(files, "_open", lambda _, url: (place, Name(url)))
        monkeypatch.setattr(files, "java_names", lambda _: SimpleNamespace(org=org, java=java))
        monkeypatch.setattr(files, "explain", lambda error, doing: RuntimeError(doing))
        gateway = SimpleNamespace(new_array=lambda kind, size: [None] * size)
        spark = SimpleNamespace(
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
            _sc=SimpleNamespace(_gateway=gateway),
        )
        write_document(spark, url, b"document")  # type: ignore[arg-type]
        return place.stored

    return write


@pytest.mark.parametrize("url", ["file:///r/a.json", "abfss://c@a.dfs/r/a.json"])
def test_a_file_is_renamed_once_it_is_whole(written: Any, url: str) -> None:
    place = Place()
    assert written(place, url) == {"a.json": b"document"}
    assert place.made


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs"])
def test_an_object_is_written_once(written: Any, scheme: str) -> None:
    """A rename would be a copy, which readers may see in part on none of them."""
    place = Place()
    place.rename = place.mkdirs = None  # type: ignore[assignment]
    assert written(place, f"{scheme}://b/r/a.json") == {"a.json": b"document"}


def test_an_object_that_is_not_written_whole_is_not_stored(written: Any) -> None:
    place = Place(full=True)
    with pytest.raises(RuntimeError, match=r"writing s3://b/r/a\.json"):
        written(place, "s3://b/r/a.json")
    assert place.stored == {}


def test_a_file_that_is_not_written_whole_keeps_its_other_name(written: Any) -> None:
    place = Place(full=True, aborts=False)
    with pytest.raises(RuntimeError, match=r"writing file:///r/a\.json"):
        written(place, "file:///r/a.json")
    assert place.stored.keys() == {".a.json.id"}
