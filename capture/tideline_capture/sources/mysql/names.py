"""Identifiers of MySQL and MariaDB in statements as text: quoted here, and nowhere else."""

from __future__ import annotations

from tideline.contract.schema import TableId


def quoted(name: str) -> str:
    """Return ``name`` as an SQL identifier, whatever ``sql_mode`` says (NUL cannot be in a
    name)."""
    return "`" + name.replace("`", "``") + "`"


def qualified(table: TableId) -> str:
    """Return ``table`` as SQL, database and name."""
    return f"{quoted(table.schema)}.{quoted(table.name)}"
