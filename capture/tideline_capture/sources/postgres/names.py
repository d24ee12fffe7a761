"""Names on a PostgreSQL server: a pipeline's own, unless the settings give others, and quoting.

A slot's name may hold lower-case letters, digits and ``_`` only, and 63 of them; a pipeline whose
own name does not fit gets a digest in its name, so that two pipelines never share a slot.
"""

from __future__ import annotations

import hashlib
import re

from tideline.contract.errors import Misconfigured
from tideline.contract.printable import printable
from tideline.contract.schema import TableId
from tideline.settings import Settings
from tideline.settings.sources.postgres import PostgresSection

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_PREFIX = "tideline_"
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')


def slot_name(settings: Settings) -> str:
    """Return the replication slot's name; Misconfigured when ``source.slot`` cannot be one."""
    name = settings.source.section(PostgresSection).slot or _derived(settings.pipeline)
    if not _SLOT.fullmatch(name):
        raise Misconfigured(
            f"source.slot {name!r} cannot be the name of a replication slot",
            hint="use lower-case letters, digits and underscores, 63 at most",
        )
    return name


def publication_name(settings: Settings) -> str:
    """Return the publication's name."""
    own = settings.source.section(PostgresSection)
    return own.publication or _derived(settings.pipeline)


def quoted(name: str) -> str:
    """Return ``name`` as an SQL identifier, for statements as text (NUL cannot be in a name)."""
    return '"' + name.replace('"', '""') + '"'


def pasteable(statement: str) -> str:
    r"""Return ``statement`` as it is shown, to be pasted into a client: names in quotes that have
    invisible characters are written as ``U&"a\000ab"``."""
    return _QUOTED.sub(_visible, statement)


def _visible(name: re.Match[str]) -> str:
    if printable(name[1]) == name[1]:
        return name[0]
    return f'U&"{"".join(map(_as_unicode, name[1]))}"'


def _as_unicode(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if printable(character) == character:
        return character
    code = ord(character)
    return f"\\{code:04x}" if code < 0x10000 else f"\\+{code:06x}"


def qualified(table: TableId) -> str:
    """Return ``table`` as SQL, schema and name."""
    return f"{quoted(table.schema)}.{quoted(table.name)}"


def _derived(pipeline: str) -> str:
    plain = _PREFIX + re.sub(r"[^a-z0-9_]", "_", pipeline.lower())
    if plain == _PREFIX + pipeline and len(plain) <= 63:
        return plain
    return f"{plain[:54]}_{hashlib.sha256(pipeline.encode()).hexdigest()[:8]}"
