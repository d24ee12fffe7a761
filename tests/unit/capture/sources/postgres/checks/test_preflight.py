"""Preflight's judgments where no test server can be brought into the state."""

from __future__ import annotations

import dataclasses

import pytest

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId
from tideline.settings import Settings, make_settings
from tideline_capture.sources.finding import Finding, SecuredSession
from tideline_capture.sources.postgres.checks.facts import (
    PostgresServerFacts,
    PublicationFacts,
    RelationFacts,
    SlotFacts,
)
from tideline_capture.sources.postgres.checks.preflight import (
    PreflightNames,
    check_capacity,
    check_server,
    check_slot,
)
from tideline_capture.sources.postgres.checks.publication import check_publication
from tideline_capture.sources.postgres.names import publication_name, qualified, quoted, slot_name

GOOD = PostgresServerFacts(
    version_num=180000,
    version="18.0",
    wal_level="logical",
    standby=False,
    encoding="UTF8",
    database="shop",
    role="tideline",
    replication=True,
    superuser=False,
    rds=False,
    may_create=True,
    slots_max=10,
    slots_used=0,
    senders_max=10,
    senders_used=0,
    slot_keep_mb=1024,
    synchronous_commit="on",
    prepared=(),
    session=SecuredSession(here=False, encrypted=True, verified=True),
)
SLOT = SlotFacts(
    plugin="pgoutput",
    slot_type="logical",
    database="shop",
    active_pid=None,
    wal_status="reserved",
    safe_wal_bytes=None,
    retained_bytes=10,
    confirmed_lsn=500,
)
TABLE = RelationFacts(
    table=TableId("public", "a"),
    kind="r",
    persistence="p",
    identity="d",
    partition=False,
    owned=True,
    readable=True,
    rows_hidden=False,
    schema_usable=True,
    unique_index=None,
    key=("id",),
    columns=("id",),
    generated=(),
    leaf_identities=(),
)
PUBLICATION = PublicationFacts(
    frozenset(("insert", "update", "delete", "truncate")), True, False, True, {TABLE.table: False}
)
NAMES = PreflightNames("tideline_shop", '"p"', '"tideline"')


def bad(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(one.name, one.level) for one in findings if one.level != "ok"]


def server(**changed: object) -> list[Finding]:
    facts = dataclasses.replace(GOOD, **changed)  # type: ignore[arg-type]
    return [*check_server(facts, NAMES), *check_capacity(facts, None)]


def test_a_good_server() -> None:
    assert bad(server()) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"version_num": 130012}, ("version", "error")),
        ({"standby": True}, ("primary", "error")),
        ({"wal_level": "replica"}, ("wal_level", "error")),
        ({"encoding": "LATIN1"}, ("encoding", "warning")),
        ({"encoding": "SQL_ASCII"}, ("encoding", "error")),
        ({"replication": False}, ("replication", "error")),
        ({"session": SecuredSession(False, False, False)}, ("encryption", "warning")),
        ({"session": SecuredSession(False, True, False)}, ("encryption", "warning")),
        ({"slots_used": 10}, ("slots", "error")),
        ({"senders_used": 10}, ("senders", "error")),
        ({"slot_keep_mb": -1}, ("slot_keep", "warning")),
        ({"prepared": ("it's",)}, ("prepared", "warning")),
    ],
)
def test_one_thing_wrong(changed: dict[str, object], expected: tuple[str, str]) -> None:
    assert bad(server(**changed)) == [expected]


@pytest.mark.parametrize(
    "changed",
    [
        {"session": SecuredSession(True, False, False)},
        {"replication": False, "rds": True},
        {"replication": False, "superuser": True},
    ],
)
def test_what_makes_up_for_it(changed: dict[str, object]) -> None:
    assert bad(server(**changed)) == []


def test_a_prepared_transactions_name_is_quoted() -> None:
    (finding,) = [one for one in server(prepared=("it's",)) if one.name == "prepared"]
    assert finding.fix is not None
    assert finding.fix.startswith("COMMIT PREPARED 'it''s';")


def test_our_own_slot_and_sender_need_no_free_ones() -> None:
    full = dataclasses.replace(GOOD, slots_used=10, senders_used=10)
    running = dataclasses.replace(SLOT, active_pid=7)
    assert bad(list(check_capacity(full, running))) == []
    assert bad(list(check_capacity(full, SLOT))) == [("senders", "error")]


@pytest.mark.parametrize(
    ("changed", "level", "text"),
    [
        ({}, "ok", "can be read, 10 bytes of log kept"),
        ({"wal_status": "unreserved", "safe_wal_bytes": -5}, "warning", "about to be lost"),
        ({"wal_status": "lost"}, "error", "is lost"),
        ({"database": "other"}, "error", "belongs to the database other"),
        ({"plugin": "wal2json"}, "error", "plugin wal2json"),
        ({"active_pid": 7}, "ok", "read by the process 7"),
    ],
)
def test_slots(changed: dict[str, object], level: str, text: str) -> None:
    slot = dataclasses.replace(SLOT, **changed)  # type: ignore[arg-type]
    for chain_lsn in (None, 500, 600):
        (finding,) = check_slot(slot, PUBLICATION, GOOD, NAMES, chain_lsn=chain_lsn)
        assert finding.level == level
        assert text in finding.message


def test_a_slot_and_the_chain() -> None:
    (gone,) = check_slot(None, PUBLICATION, GOOD, NAMES, chain_lsn=500)
    assert (gone.level, "is gone" in gone.message) == ("error", True)
    (new,) = check_slot(None, PUBLICATION, GOOD, NAMES, chain_lsn=0)
    assert new.level == "ok"
    (ahead,) = check_slot(SLOT, PUBLICATION, GOOD, NAMES, chain_lsn=499)
    assert (ahead.level, "what is between them is lost" in ahead.message) == ("error", True)


def test_publication_of_a_stranger_that_lacks_a_table() -> None:
    lacking = dataclasses.replace(PUBLICATION, published={}, owned=False)
    found = list(check_publication(lacking, [TABLE], GOOD, NAMES.publication))
    assert bad(found) == [("publication_tables", "error")]
    assert found[-1].fix == 'ALTER PUBLICATION "p" ADD TABLE "public"."a";'


def settings(pipeline: str = "shop", **source: str) -> Settings:
    return make_settings(
        {
            "pipeline": pipeline,
            "source": {"url": "postgresql://u@h/d", **source},
            "store": {"url": "memory://"},
            "warehouse": {"url": "file:///w"},
        }
    )


def test_names_of_a_pipeline() -> None:
    assert (
        slot_name(settings("shop_2")) == publication_name(settings("shop_2")) == "tideline_shop_2"
    )
    assert slot_name(settings(slot="mine")) == "mine"
    assert publication_name(settings(publication="Odd Name")) == "Odd Name"
    names = [slot_name(settings(name)) for name in ("a-b", "a_b", "A_b", "x" * 63, "x" * 62)]
    assert len(set(names)) == 5
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize("slot", ["A", "a-b", "a" * 64, "a'b"])
def test_a_slot_cannot_have_every_name(slot: str) -> None:
    with pytest.raises(Misconfigured, match="cannot be the name"):
        slot_name(settings(slot=slot))


def test_quoting() -> None:
    assert quoted('a"b') == '"a""b"'
    assert qualified(TableId("a.b", "c d")) == '"a.b"."c d"'
