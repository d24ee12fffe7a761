"""The own keys of a PostgreSQL source, and its url."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from tideline.settings.addresses import checked_port, one_of, query_of, split_url
from tideline.settings.base import Effect, Section
from tideline.settings.outbox import MessagePrefix

PostgresSslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]

_BEFORE_THE_QUERY = ("host", "port", "user", "password", "dbname", "service")
"""Parameters that libpq would take from behind the ``?`` instead: the url would name another server
to libpq than to its reader, or a password that is not hidden."""


class PostgresSection(Section):
    """The keys of ``[source]`` that only PostgreSQL has."""

    effect = Effect.RESTART

    slot: str | None = None
    """PostgreSQL: the replication slot's name; None: made from the pipeline's name."""
    publication: str | None = None
    """PostgreSQL: the publication's name; None: made from the pipeline's name."""
    messages: Annotated[tuple[MessagePrefix, ...], Field(max_length=20)] = ()
    """PostgreSQL: prefixes of logical messages (`pg_logical_emit_message`) that are captured, for
    publishers' outboxes ([OUTBOX](OUTBOX.md#logical-messages)). Any role may write
    such messages."""

    @field_validator("messages")
    @classmethod
    def _not_ours(cls, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        if "tideline" in prefixes:
            raise ValueError("has the prefix tideline, which is that of our own messages")
        return prefixes


@dataclass(frozen=True, slots=True)
class PostgresTls:
    """The TLS that a PostgreSQL url asks for, in libpq's terms; ``root_certificate`` is None where
    it names none."""

    mode: PostgresSslMode
    root_certificate: str | None


def check_postgres(url: str) -> None:
    """Raise ValueError, without any part of the url, for one that cannot be PostgreSQL's or names
    several servers."""
    parts = split_url(url)
    if not parts.hostname or not parts.path.strip("/"):
        raise ValueError("must name a host and a database: postgresql://user@host:port/database")
    if "," in parts.netloc.rpartition("@")[2]:
        raise ValueError(
            "must name one host: a name or address that follows the primary serves for several"
        )
    checked_port(parts)
    query = query_of(parts)
    if set(query) & set(_BEFORE_THE_QUERY):
        raise ValueError("must say host, port, user, password and database before the ?")
    tls = postgres_tls(url)
    if tls.root_certificate is not None and tls.mode in ("disable", "allow", "prefer"):
        raise ValueError(f"has an sslrootcert, which sslmode={tls.mode} does not look at")
    if tls.root_certificate == "":
        raise ValueError("must have a file's path, or system, in sslrootcert")
    if tls.root_certificate == "system" and tls.mode != "verify-full":
        raise ValueError("may have sslrootcert=system with sslmode=verify-full only")


def postgres_tls(url: str) -> PostgresTls:
    """Return the TLS that ``url`` asks for; ValueError for an unknown ``sslmode``."""
    query = query_of(split_url(url))
    modes: tuple[PostgresSslMode, ...] = get_args(PostgresSslMode)
    mode = one_of(modes, query.get("sslmode", "verify-full"), "sslmode")
    return PostgresTls(mode, query.get("sslrootcert"))
