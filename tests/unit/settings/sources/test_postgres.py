"""The own keys and the url of PostgreSQL."""

from __future__ import annotations

import traceback

import pytest

from tests.fixtures.source_settings import settings
from tideline.contract.errors import Misconfigured
from tideline.settings.sources.postgres import PostgresSection, PostgresTls, postgres_tls

SECRET = "hunter2-öß%@"


def test_all_own_keys() -> None:
    keys = {"slot": "s", "publication": "p", "messages": ("outbox",)}
    own = settings("postgres://tide@db/shop", **keys).source.section(PostgresSection)
    assert {key: getattr(own, key) for key in PostgresSection.model_fields} == keys
    plain = settings("postgresql://tide@db/shop").source.section(PostgresSection)
    assert (plain.slot, plain.publication, plain.messages) == (None, None, ())


@pytest.mark.parametrize("url", ["postgresql://host", "postgresql:///shop", "postgres://h/", "x"])
def test_a_source_needs_host_and_database(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"source\.url: must"):
        settings(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://tide@a:5432,b:5432/shop", "name one host"),
        ("postgresql://tide@a,b/shop", "name one host"),
        ("postgresql://tide@db:x/shop", "port from 1 to 65535"),
        ("postgresql://tide:hunter2/x@db:1/shop", "port from 1 to 65535"),
        (f"postgresql://tide@db/shop?sslmode={SECRET}", "sslmode of disable, allow, prefer"),
        ("postgresql://tide@db:0/shop", "port from 1 to 65535"),
        (f"postgresql://tide@db/shop?password={SECRET}", r"before the \?"),
        ("postgresql://tide@db/shop?host=other", r"before the \?"),
        ("postgresql://tide@db/shop?sslmode=VERIFY_IDENTITY", "sslmode of disable, allow, prefer"),
        ("postgresql://tide@db/shop?sslmode=require&sslmode=disable", "twice"),
        ("postgresql://tide@db/shop?sslmode=disable&sslrootcert=/ca.pem", "does not look at"),
        ("postgresql://tide@db/shop?sslmode=require&sslrootcert=system", "verify-full only"),
        ("postgresql://tide@db/shop?sslrootcert=", "a file's path"),
        (f"postgresql://tide:{SECRET}℀@db/shop", "percent-encoded"),
    ],
)
def test_what_a_postgres_url_refuses(url: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=rf"source\.url: .*{reason}") as caught:
        settings(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_tls_is_verified_unless_the_url_says_otherwise() -> None:
    def asked(query: str) -> PostgresTls:
        return postgres_tls(f"postgresql://tide@127.0.0.1/shop{query}")

    assert asked("") == PostgresTls("verify-full", None)
    assert asked("?sslrootcert=%2Fca.pem") == PostgresTls("verify-full", "/ca.pem")
    assert asked("?sslmode=disable&application_name=x") == PostgresTls("disable", None)
