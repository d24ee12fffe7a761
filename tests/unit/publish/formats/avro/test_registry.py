"""The client of schema registries, at a real HTTP server that checks what it is asked."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.services.schema_registry import SchemaRegistryServer
from tests.fixtures.certificates import make_authority, sign
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.settings.avro import AvroSettings
from tideline_publish.formats.avro.registry import SchemaRegistry

CANARY = "canary-9f31"
SUBJECT = "shop.public.t-value"


def record(*names: str, **types: str) -> dict[str, Any]:
    fields: list[dict[str, Any]] = [
        {"name": name, "type": ["null", "string"], "default": None} for name in names
    ]
    fields += [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "Event", "namespace": "shop.public.t", "fields": fields}


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as server:
        yield server


def client(server: SchemaRegistryServer, **settings: Any) -> SchemaRegistry:
    return SchemaRegistry(AvroSettings(registry=server.url, **settings))


def test_a_schema_is_registered_and_asked_for_once(server: SchemaRegistryServer) -> None:
    registry = client(server)
    first = registry.id_of(SUBJECT, record("a"))
    assert registry.id_of(SUBJECT, record("a")) == first
    assert registry.id_of(SUBJECT, record("a", "b")) != first
    assert server.requests == [f"/subjects/{SUBJECT}/versions"] * 2
    assert client(server).id_of(SUBJECT, record("a")) == first


def test_a_subject_with_odd_characters_is_one_step_of_the_path(
    server: SchemaRegistryServer,
) -> None:
    client(server).id_of("a/b ä?-value", record("a"))
    assert list(server.subjects) == ["a/b ä?-value"]


def test_looking_up_registers_nothing(server: SchemaRegistryServer) -> None:
    looking = client(server, register_schemas=False)
    with pytest.raises(Misconfigured, match=rf"refuses the subject {SUBJECT}: it has no such"):
        looking.id_of(SUBJECT, record("a"))
    assert server.subjects == {}
    wanted = client(server).id_of(SUBJECT, record("a"))
    assert looking.id_of(SUBJECT, record("a")) == wanted


def test_an_incompatible_schema_is_refused_by_name(server: SchemaRegistryServer) -> None:
    registry = client(server)
    registry.id_of(SUBJECT, record("a"))
    with pytest.raises(Misconfigured, match=rf"refuses the subject {SUBJECT}: .*not compatible"):
        registry.id_of(SUBJECT, record("a", b="string"))
    server.compatibility = "NONE"
    registry.id_of(SUBJECT, record("a", b="string"))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, "401, the user may not"),
        (403, "403, the user may not"),
        (409, "not compatible"),
        (422, "not valid"),
        (404, "status 404"),
        (302, "status 302"),
    ],
)
def test_what_stops_it_names_the_subject(
    server: SchemaRegistryServer, status: int, text: str
) -> None:
    server.fault = lambda *_: status
    with pytest.raises(Misconfigured, match=text) as error:
        client(server, user="u", password=CANARY).id_of(SUBJECT, record("a"))
    assert SUBJECT in str(error.value)
    assert CANARY not in str(error.value)


@pytest.mark.parametrize("status", [-1, 408, 429, 500, 503])
def test_what_passes_is_asked_again(server: SchemaRegistryServer, status: int) -> None:
    server.fault = lambda number, _: status if number == 1 else 0
    registry = client(server)
    with pytest.raises(Unavailable):
        registry.id_of(SUBJECT, record("a"))
    assert registry.id_of(SUBJECT, record("a")) == 1


def test_one_that_is_away_is_unavailable(server: SchemaRegistryServer) -> None:
    server.stop()
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{server.port} does not answer"):
        client(server).id_of(SUBJECT, record("a"))


def test_credentials_from_a_file(server: SchemaRegistryServer, tmp_path: Path) -> None:
    server.login = ("shop", CANARY)
    with pytest.raises(Misconfigured, match="401"):
        client(server).id_of(SUBJECT, record("a"))
    file = tmp_path / "secret"
    file.write_text(f"{CANARY}\n")
    assert client(server, user="shop", password_file=file).id_of(SUBJECT, record("a")) == 1


def test_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = sign(authority)
    pair = tmp_path / "server.pem"
    pair.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    with SchemaRegistryServer(context=context) as server:
        with pytest.raises(Misconfigured, match="not verified"):
            client(server).id_of(SUBJECT, record("a"))
        assert client(server, ca_file=authority.file).id_of(SUBJECT, record("a")) == 1
