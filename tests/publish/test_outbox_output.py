"""What every output makes of an outbox next to tables, whoever is killed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from devtools.services.kafka import KafkaServer
from tests.fixtures.outbox import OUTBOX, insert, outbox_schema
from tests.fixtures.parts import Logged, LoggedEvent, Row, Shaped
from tests.publish.outputs import OUTBOX_TOPIC, KafkaCase, OutboxCase, OutboxRead
from tests.publish.rig import IDLE_S, Rig
from tideline_console.errors import EXIT_MISCONFIGURED

AGGREGATES = 4


class OutboxRig(Rig):
    """A rig whose chain has an outbox, too: a table, and messages."""

    def __init__(self, root: Path, output: OutboxCase) -> None:
        outbox = {
            "table": OUTBOX,
            "topic": f"{output.topic_prefix}{OUTBOX_TOPIC}{{type}}",
            "messages": ["outbox"],
        }
        super().__init__(root, output, outbox=outbox)
        self.case = output
        self.history.commit(Shaped(outbox_schema(tenant="string")))
        self.routed: list[OutboxRead] = []

    def _changes(self, number: int, rows: int) -> list[LoggedEvent]:
        """Changes of tables, among them inserts into the outbox whose rows are deleted at once."""
        found: list[LoggedEvent] = []
        for change in super()._changes(number, rows):
            found.append(change)
            seq = self.history.last_seq + len(found) + 1
            found.append(self._event(seq, number))
            if isinstance(found[-1], Row):
                found.append(Row(OUTBOX, "d", {"id": str(seq)}))
        return found

    def _event(self, seq: int, number: int) -> LoggedEvent:
        """An event of one of a few aggregates, whose payload is what an output may stumble on."""
        kind, key = f"kind/{seq % 2}", str(seq % AGGREGATES)
        payload = None if seq % 7 == 0 else f'{{"n": {number}, "text": "ü\\n{seq}"}}'
        time = f"2024-01-01T00:00:{seq % 60:02d}.000000Z"
        headers = {"id": str(seq), "type": "Happened", "time": time, "tenant": "ü"}
        route = f"{OUTBOX_TOPIC}kind_x2f_{seq % 2}"
        self.routed.append(OutboxRead((seq, 0), route, key, headers, payload))
        if seq % 3:
            values = {"aggregatetype": kind, "aggregateid": key, "type": "Happened"}
            return insert(str(seq), **values, payload=payload, tenant="ü")
        text = f'{{"id":{seq},"aggregatetype":"{kind}","aggregateid":"{key}",'
        text += f'"type":"Happened","tenant":"ü","payload":{payload or "null"}}}'
        return Logged("outbox", text.encode())

    def check(self) -> None:
        """All events of the tables and of the outbox are there, those of an aggregate in order."""
        super().check()
        found = self.case.outbox()
        prefix = self.case.topic_prefix
        assert all(one.route.startswith(f"{prefix}{OUTBOX_TOPIC}") for one in found)
        wanted = [
            OutboxRead(one.order, f"{prefix}{one.route}", one.key, one.headers, one.payload)
            for one in self.routed
        ]
        if self.output.once:
            assert len(found) == len(wanted)
        if self.output.order_of_all and not prefix:  # Else each topic has its own order.
            assert _first_times(found) == wanted
        aggregates = _by_aggregate(found)
        assert aggregates.keys() == _by_aggregate(wanted).keys()
        for name, events in _by_aggregate(wanted).items():
            assert _first_times(aggregates[name]) == events


def _by_aggregate(events: list[OutboxRead]) -> dict[tuple[str, str], list[OutboxRead]]:
    def name(one: OutboxRead) -> tuple[str, str]:
        return one.route, one.key

    return {key: list(some) for key, some in groupby(sorted(events, key=name), name)}


def _first_times(events: list[OutboxRead]) -> list[OutboxRead]:
    """Those that no earlier one repeats."""
    found: list[OutboxRead] = []
    for event in events:
        if not found or event.order > found[-1].order:
            found.append(event)
    return found


@pytest.fixture
def rig(tmp_path: Path, outbox_output: OutboxCase) -> OutboxRig:
    return OutboxRig(tmp_path, outbox_output)


def test_an_outbox_and_tables_arrive_each_in_its_form(rig: OutboxRig) -> None:
    rig.commit(5)
    rig.publish()
    rig.check()
    assert {one.payload is None for one in rig.routed} == {True, False}


@pytest.mark.parametrize("point", ["after_write", "after_settle", "after_log"])
def test_a_publisher_that_is_killed_loses_nothing_of_an_outbox(rig: OutboxRig, point: str) -> None:
    for count in (1, 2):
        rig.publish_until_killed(point, count)
    rig.publish()
    rig.check()


def test_a_type_that_names_the_topic_of_positions_stops_the_publisher(
    tmp_path: Path, kafka: KafkaServer
) -> None:
    case = KafkaCase(kafka, transactions=True)
    outbox = {"table": OUTBOX, "topic": f"{case.prefix}.{{type}}"}
    rig = Rig(tmp_path, case, outbox=outbox)
    rig.history.commit(Shaped(outbox_schema()), insert("1", aggregatetype="positions"))
    worker = rig.worker(IDLE_S)
    assert worker.wait() == EXIT_MISCONFIGURED, worker.output()
    assert f"would go to {case.prefix}.positions, which keeps" in worker.output()
