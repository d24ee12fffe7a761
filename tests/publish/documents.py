"""Chains of a shop's changes, the documents that a publisher makes, and what they must be."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.fixtures.aggregates import CUSTOMER, SCHEMAS, Shop, documents
from tests.fixtures.parts import Event, History, Shaped
from tests.fixtures.settings import as_toml
from tideline.contract.publishing import ChainPosition
from tideline.settings import Settings, make_settings
from tideline.store.chain import ManifestEntry
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.feeds import FeedContext, make_feed

NAME = "documents"
BEGINNING = ChainPosition("one", 0, 0)
Joins = dict[int, dict[int, dict[str, Any]]]
"""The documents after each transaction, by its last sequence."""


class Documents:
    """A chain of a shop's changes, and the documents after each of its transactions."""

    def __init__(self, root: Path, seed: int = 1, *, complete: bool = True) -> None:
        self.history = History(root)
        self.shop = Shop(seed)
        self.joins: Joins = {}
        self.definition: Mapping[str, Any] = CUSTOMER
        tables = {schema.table: {"complete_seq": 0} for schema in SCHEMAS if complete}
        self.history.commit(*map(Shaped, SCHEMAS), states=tables)
        self.join()

    def join(self) -> None:
        """Note the documents as they are now."""
        self.joins[self.history.last_seq] = copy.deepcopy(documents(self.shop.rows))

    def commit(self, manifests: int, transactions: int = 4, changes: int = 5) -> None:
        for _ in range(manifests):
            events: list[Event] = []
            first = self.history.last_seq
            for _ in range(transactions):
                events += self.shop.transaction(changes)
                self.joins[first + len(events)] = copy.deepcopy(documents(self.shop.rows))
            self.history.commit(*events)

    def manifests(self) -> list[ManifestEntry]:
        return list(self.history.chain.entries(1, self.history.last_number))

    def part_path(self, key: str) -> Path:
        return self.history.part_path(key)

    def settings(self, **publisher: Any) -> Settings:
        return make_settings(self._values(publisher))

    def config(self, **publisher: Any) -> Path:
        """Write the settings for another process."""
        path = self.history.root / "tideline.toml"
        path.write_text(as_toml(self._values(publisher)))
        return path

    def _values(self, publisher: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "pipeline": self.history.settings.pipeline,
            "source": {"url": "postgresql://nowhere/shop", "tables": ["public.*"]},
            "store": {"url": self.history.settings.store.url},
            "warehouse": {"url": self.history.settings.warehouse.url},
            "aggregates": {"customer": self.definition},
            "publish": {NAME: {"output": "null", "aggregates": ["customer"], **publisher}},
        }

    def events(self, position: ChainPosition = BEGINNING, **publisher: Any) -> list[ChangeEvent]:
        """The events behind ``position``."""
        history, settings = self.history, self.settings(**publisher)
        context = FeedContext(
            settings,
            NAME,
            settings.publisher(NAME),
            history.store,
            history.chain,
            RealSystem(),
        )
        with closing(make_feed(context, position)) as feed:
            found = [event for batch in feed.batches() for event in batch.events]
        orders = [(event.seq, event.part) for event in found]
        assert orders == sorted(set(orders))
        return found

    def read(self, position: ChainPosition = BEGINNING, **publisher: Any) -> list[dict[str, Any]]:
        """The values of the events behind ``position``."""
        events = self.events(position, **publisher)
        return [json.loads(event.value or b"null") for event in events]


def check(
    events: list[dict[str, Any]], joins: Joins, before: Mapping[int, Any] | None = None
) -> None:
    """Each document is the join at its sequence, and all that changed are there, once."""
    seqs = sorted(joins)
    before = before or {}
    by_seq: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        by_seq.setdefault(event["seq"], []).append(event)
    assert by_seq.keys() <= joins.keys()
    for seq in seqs:
        now = joins[seq]
        found = {event["key"]["id"]: event for event in by_seq.get(seq, [])}
        assert len(found) == len(by_seq.get(seq, []))
        for key, event in found.items():
            assert event.get("row") == now.get(key)
            there = {"c": (False, True), "u": (True, True), "d": (True, False)}[event["op"]]
            assert there == (key in before, key in now)
        changed = {key for key in now.keys() | before.keys() if now.get(key) != before.get(key)}
        assert changed <= found.keys()
        before = now
