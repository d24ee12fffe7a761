"""Gives a new PostgreSQL cluster the identity and counters that a stored chain knows its server by.

A chain names its server by the system identifier, its tables by oid, and where it stands by LSN.
A cluster that was never started since ``initdb`` or was shut down in an orderly way can be given
all of these, so that one made today stands in for the one that a release before was run on. Only
the standard library is used: recipes of old releases import this module, too.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

SYSTEM_ID = 7_600_000_000_000_000_001
_FIRST_XID, _FIRST_OID, _FIRST_SEGMENT = 10_000, 30_000, "000000010000000000000008"
_CONTROL_BYTES = 8_192


def prepare(data: Path, programs: Path) -> None:
    """Set the system identifier, and the next transaction id, oid and log segment, of the stopped
    cluster in ``data``; ``programs`` has ``pg_resetwal``."""
    control = data / "global" / "pg_control"
    owner = control.stat()
    control.write_bytes(_renamed(control.read_bytes()))
    command = [str(programs / "pg_resetwal"), "-f", "-l", _FIRST_SEGMENT]
    command += ["-x", str(_FIRST_XID), "-o", str(_FIRST_OID), str(data)]
    as_owner = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    done = subprocess.run(
        command,
        cwd=data,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        **(as_owner if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _renamed(control: bytes) -> bytes:
    """``pg_control`` with `SYSTEM_ID`; its checksum follows the fields, as many as there are."""
    (end,) = (at for at, crc in _checksums(control) if _word(control, at) == crc)
    fields = struct.pack("<Q", SYSTEM_ID) + control[8:end]
    (crc,) = (crc for at, crc in _checksums(fields + bytes(4)) if at == end)
    return (fields + struct.pack("<I", crc)).ljust(_CONTROL_BYTES, b"\0")


def _word(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])


def _checksums(raw: bytes) -> list[tuple[int, int]]:
    """The CRC-32C of every prefix of ``raw`` that may be all fields, by its length."""
    found = []
    crc = 0xFFFFFFFF
    for at in range(min(len(raw), 1_024)):
        if at >= 128 and at % 4 == 0:
            found.append((at, crc ^ 0xFFFFFFFF))
        crc = _TABLE[(crc ^ raw[at]) & 0xFF] ^ (crc >> 8)
    return found


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(_entry(byte) for byte in range(256))
