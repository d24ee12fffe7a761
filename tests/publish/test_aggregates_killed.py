"""Documents through processes that are killed: state and events are as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.aggregates import SCHEMAS, documents
from tests.fixtures.capture import WorkerProcess
from tests.publish.documents import NAME, Documents, check
from tests.publish.rig import IDLE_S, QUICK
from tideline.contract import layout
from tideline.contract.aggregate_state import decode_index
from tideline.contract.publishing import PublisherEntry
from tideline.planner.consumers import known_consumers
from tideline.store.publisher_log import PublisherLog

POINTS = ("after-write", "after-settle", "after-state-object", "after-state", "after-log")
EAGER = {**QUICK, "state_interval_s": 0.001, "flush_interval_s": 0.001, "batch_bytes_max": 1}


class Site:
    """A chain, its publisher's processes, and the folder that they write to."""

    def __init__(self, root: Path, seed: int = 1, **publisher: Any) -> None:
        self.chain = Documents(root, seed)
        self.root, self.folder = root, root / "documents"
        files = {"folder": str(self.folder), "file_bytes_max": 3_000}
        self.config = self.chain.config(output="files", files=files, **EAGER, **publisher)

    def worker(self, until_idle_s: float | None = IDLE_S, **deadly: int) -> WorkerProcess:
        killed = {(name.replace("_", "-"), count): signal.SIGKILL for name, count in deadly.items()}
        return WorkerProcess(
            self.config, self.root, until_idle_s=until_idle_s, deadly=killed, publisher=NAME
        )

    def publish(self) -> None:
        worker = self.worker()
        assert worker.wait() == 0, worker.output()

    def events(self) -> list[dict[str, Any]]:
        paths = sorted(self.folder.glob("*.jsonl"))
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    def entry(self) -> PublisherEntry:
        settings = self.chain.history.settings
        found = PublisherLog(self.chain.history.store, settings.pipeline, NAME).newest()
        assert found is not None
        return found

    def states(self) -> list[str]:
        """The keys of what is in the store of the state."""
        history = self.chain.history
        prefix = layout.publisher_state_prefix(history.settings.pipeline, NAME)
        return [entry.key for page in history.store.entries(prefix) for entry in page]

    def parts_through(self) -> int:
        """The manifest up to which no part is needed, as the garbage's collector has it."""
        history = self.chain.history
        (consumer,) = known_consumers(history.settings, history.store)
        tail = history.chain.tail()
        assert tail is not None
        applied = consumer.applied(tail.manifest, history.chain.open_state(tail))
        return min(applied.get(schema.table, 0) for schema in SCHEMAS)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_point(tmp_path: Path, point: str) -> None:
    """Workers one after the other, each killed at the point: each document is there once, and is
    the join at its position."""
    site = Site(tmp_path)
    killed = 0
    for count in (1, 1, 2, 1, 3):
        site.chain.commit(3)
        worker = site.worker(**{point.replace("-", "_"): count})
        killed += worker.wait() == -signal.SIGKILL
        site.chain.commit(1)
    site.publish()
    assert killed >= 3
    check(site.events(), site.chain.joins)
    assert site.events() == site.chain.read()


def test_killed_at_any_time(tmp_path: Path) -> None:
    """… at points by lot, and parts that are not needed are removed meanwhile: what is needed
    again is there."""
    site, draw = Site(tmp_path, seed=5), random.Random(5)
    for _ in range(12):
        site.chain.commit(2)
        point = draw.choice(POINTS).replace("-", "_")
        site.worker(**{point: draw.randrange(1, 6)}).wait()
        remove_parts(site)
    site.publish()
    check(site.events(), site.chain.joins)


def remove_parts(site: Site) -> None:
    """As garbage collection does."""
    for entry in site.chain.manifests()[: site.parts_through()]:
        for part in entry.manifest.parts:
            site.chain.part_path(part.key).unlink(missing_ok=True)


def test_the_state_is_read_from_its_newest_checkpoint(tmp_path: Path) -> None:
    """A worker on another machine has what it needs though earlier parts are gone, and two
    checkpoints are kept."""
    site = Site(tmp_path)
    for _ in range(6):
        site.chain.commit(2)
        site.publish()
    indexes = [key for key in site.states() if key.endswith(".json")]
    assert len(indexes) == 2
    named = {
        chunk.key
        for key in indexes
        for chunk in decode_index(site.chain.history.store.get(key) or b"", key).chunks
    }
    assert named | {*indexes} == {*site.states()}
    last = site.chain.history.last_number
    assert site.entry().state_manifest == site.parts_through() == last
    remove_parts(site)
    site.chain.commit(2)
    site.publish()
    check(site.events(), site.chain.joins)


def test_parts_wait_for_the_checkpoint(tmp_path: Path) -> None:
    """What is published but in no checkpoint is needed again."""
    site = Site(tmp_path)
    site.chain.commit(2)
    site.config = site.chain.config(
        output="files", files={"folder": str(site.folder)}, **{**EAGER, "state_interval_s": 3_600}
    )
    site.publish()
    assert site.entry().position.manifest_number == site.chain.history.last_number
    assert site.parts_through() == 0


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for _ in range(4):
        site.chain.commit(1)
        site.publish()
    newest = max(key for key in site.states() if not key.endswith(".json"))
    site.chain.history.store.put(newest, b"no")
    site.chain.commit(1)
    site.publish()
    check(site.events(), site.chain.joins)


def test_without_parts_and_state_it_waits_for_dumps(tmp_path: Path) -> None:
    """A publisher that begins where earlier parts are gone: it makes no document until each table
    was dumped from then on."""
    site = Site(tmp_path)
    site.chain.commit(5)
    first = site.chain.manifests()[1].manifest.parts[0]
    site.chain.part_path(first.key).unlink()
    files = {"folder": str(site.folder)}
    site.config = site.chain.config(output="files", files=files, start="now", **EAGER)
    site.publish()
    low = site.chain.history.last_seq
    for schema in SCHEMAS:
        assert site.events() == []
        site.chain.commit(1)
        dump = site.chain.shop.dump(schema.table)
        site.chain.history.commit(*dump, deletes_before=[(schema.table, low)])
        site.publish()
    found = {event["key"]["id"]: event["row"] for event in site.events()}
    assert found == documents(site.chain.shop.rows)
