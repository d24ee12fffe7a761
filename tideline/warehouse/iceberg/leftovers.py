"""Removes what is left in the folder of an Iceberg table on a disk once its files are removed.

Hadoop keeps a checksum beside each file that Spark writes there, ``.NAME.crc``, of which neither
the table's metadata nor pyiceberg knows.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tideline.contract.layout import ICEBERG_FOLDER

_CHECKSUMS = ".*.crc"


def remove_leftovers(location: str) -> None:
    """Remove the checksums of files that are gone, and folders that are empty then: the table's
    own, its namespace's, and ours of all Iceberg tables. Other files stay, and so does a place that
    is no folder here."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return
    folder = Path(
        parts.path
    )  # Iceberg and pyiceberg take it as it is, whatever a % means in a url.
    with suppress(OSError):
        for checksum in folder.rglob(_CHECKSUMS):
            if not checksum.with_name(checksum.name[1 : -len(".crc")]).exists():
                checksum.unlink()
        below = sorted((one for one in folder.rglob("*") if one.is_dir()), reverse=True)
        above = [one for one in (folder.parent.parent,) if one.name == ICEBERG_FOLDER]
        for one in (*below, folder, folder.parent, *above):
            with suppress(OSError):  # It is not empty.
                one.rmdir()
