"""What is left in an Iceberg table's folder goes with it, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tideline.contract.layout import ICEBERG_FOLDER
from tideline.warehouse.iceberg.leftovers import remove_leftovers


def table(warehouse: Path) -> Path:
    """A table's folder after its files were removed."""
    folder = warehouse / ICEBERG_FOLDER / "public" / "odd~20name"
    for path in ("data/region=a/.one.parquet.crc", "metadata/.v1.metadata.json.crc"):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(b"crc")
    return folder


@pytest.mark.parametrize("written", ["file://{}", "file:{}", "{}"])
def test_checksums_and_empty_folders_go(tmp_path: Path, written: str) -> None:
    folder = table(tmp_path)
    remove_leftovers(written.format(folder))
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_stay(tmp_path: Path) -> None:
    folder = table(tmp_path)
    kept = (
        folder / "data" / "region=a" / "note.txt",
        folder / "data" / "two.parquet",
        folder / "data" / ".two.parquet.crc",  # Its file is there.
        tmp_path / ICEBERG_FOLDER / "public" / "other" / "data" / ".one.parquet.crc",
    )
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    remove_leftovers(folder.as_uri())
    assert sorted(one for one in tmp_path.rglob("*") if one.is_file()) == sorted(kept)


def test_a_folder_that_the_operator_made_stays(tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "public" / "orders"
    folder.mkdir(parents=True)
    remove_leftovers(folder.as_uri())
    assert [one.name for one in tmp_path.rglob("*")] == ["lake"]


@pytest.mark.parametrize("location", ["s3://bucket/w/t", "file://host/w/t", "file:///no/such/t"])
def test_no_folder_is_nothing_to_do(location: str) -> None:
    remove_leftovers(location)
