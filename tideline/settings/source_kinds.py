"""The registry of sources: every kind of database that can be captured, by its url's scheme.

A source is added by its folder and one line here. Settings, commands and the planner read a kind's
entry; its code is imported by the worker and by commands that connect, and only when a url asks for
it (`capture/tideline_capture/sources/registry.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tideline.contract.position import MysqlPosition, PostgresPosition, SourcePosition
from tideline.settings.base import Section
from tideline.settings.sources.mysql import MysqlSection, check_mysql
from tideline.settings.sources.postgres import PostgresSection, check_postgres


@dataclass(frozen=True, slots=True)
class DatasetNaming:
    """OpenLineage's names for tables of a kind of source.

    Their namespace is ``scheme://host:port``; ``port`` stands in for one that the url lacks, and
    None leaves it out then. ``form`` makes a table's name of ``{database}`` (the url's path),
    ``{schema}`` and ``{table}``.
    """

    scheme: str
    port: int | None
    form: str = "{schema}.{table}"

    def name(self, url: str, schema: str, table: str) -> tuple[str, str]:
        """Return the namespace and the name of a table; nothing of a password is in them."""
        parts = urlsplit(url)
        port = parts.port or self.port
        place = f"{parts.hostname or ''}{'' if port is None else f':{port}'}"
        database = unquote(parts.path.strip("/"))
        named = self.form.format(database=database, schema=schema, table=table)
        return f"{self.scheme}://{place}", named


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source.

    ``name`` is its name in documents, ``title`` the one for people. ``form`` shows the form of a
    url of one of its ``schemes``; ``check_url`` raises ValueError for one that is wrong. ``tables``
    is the first choice of tables, in which ``{database}`` is the url's. ``section`` holds the keys
    of ``[source]`` that only such a source has. Chains of it hold ``position``. ``package`` has a
    module ``factory``, a `SourceFactory`; one that begins with a dot lies in
    `tideline_capture.sources`. ``extra`` installs the driver. ``datasets`` names its tables for
    lineage. ``whole_rows`` has a table's log hold whole rows, where it may not.
    """

    name: str
    title: str
    schemes: tuple[str, ...]
    form: str
    check_url: Callable[[str], None]
    tables: str
    section: type[Section]
    position: type[SourcePosition]
    package: str
    extra: str
    datasets: DatasetNaming
    whole_rows: str = ""


SOURCE_KINDS: dict[str, SourceKind] = {
    kind.name: kind
    for kind in (
        SourceKind(
            "postgres", "PostgreSQL", ("postgresql", "postgres"),
            "postgresql://user@host:port/database", check_postgres, "public.*",
            PostgresSection, PostgresPosition, ".postgres", "postgres",
            DatasetNaming("postgres", 5432, "{database}.{schema}.{table}"),
            whole_rows="ALTER TABLE … REPLICA IDENTITY FULL",
        ),
        SourceKind(
            "mysql", "MySQL", ("mysql",),
            "mysql://user@host:port/", check_mysql, "{database}.*",
            MysqlSection, MysqlPosition, ".mysql", "mysql",
            DatasetNaming("mysql", 3306), whole_rows="SET GLOBAL binlog_row_image = FULL",
        ),
        SourceKind(
            "mariadb", "MariaDB", ("mariadb",),
            "mariadb://user@host:port/", check_mysql, "{database}.*",
            MysqlSection, MysqlPosition, ".mysql", "mysql",
            DatasetNaming("mysql", 3306), whole_rows="SET GLOBAL binlog_row_image = FULL",
        ),
    )
}  # fmt: skip


def kind_of_scheme(scheme: str) -> SourceKind | None:
    """Return the kind of source that urls of this scheme name."""
    return next((kind for kind in SOURCE_KINDS.values() if scheme in kind.schemes), None)


def own_sections() -> tuple[type[Section], ...]:
    """Return the sections of all kinds, each once."""
    return tuple(dict.fromkeys(kind.section for kind in SOURCE_KINDS.values()))


def kinds_with(key: str) -> list[SourceKind]:
    """Return the kinds of source that the key ``key`` of ``[source]`` is for; [] for every
    kind."""
    return [kind for kind in SOURCE_KINDS.values() if key in kind.section.model_fields]


def url_forms() -> list[str]:
    """Return the form of the url of each kind of source."""
    return [kind.form for kind in SOURCE_KINDS.values()]
