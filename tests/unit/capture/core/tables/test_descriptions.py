"""What the catalog says of comments and NOT NULL, on its way into the open state."""

from __future__ import annotations

import dataclasses

import msgspec

from tests.fixtures.core import FACTS, SCHEMA, TABLE, Driver, emitted, started
from tideline.contract.description import Description, describe
from tideline.contract.open_state import OpenState
from tideline.contract.schema import TableSchema
from tideline_capture.core.events import SchemaSeen, WatermarkKind


class TestDescriptions:
    """Comments and NOT NULL are no part of a schema: nothing but the open state tells of them."""

    @staticmethod
    def wanted(comment: str, *not_null: str) -> Description:
        return describe(TABLE, comment, {}, not_null)

    def looked(self, driver: Driver, description: Description) -> None:
        driver.catalog(dataclasses.replace(FACTS, description=description))

    def test_the_first_look_and_each_news_are_durable_once(self) -> None:
        driver = Driver()
        first, second = self.wanted("one"), self.wanted("two")
        self.looked(driver, first)
        driver.dump([(1, "a")])
        assert driver.close_segment().descriptions == (first,)
        self.looked(driver, first)
        assert not driver.core.state.segment.has_content()
        self.looked(driver, second)
        sealed = driver.close_segment()
        assert (sealed.descriptions, sealed.state_changed) == ((second,), True)
        assert sealed.state.tables[TABLE].description == second.fingerprint
        assert sealed.last_seq < sealed.first_seq, "no sequence is taken"

    def test_news_cost_no_event_no_dump_and_disturb_none(self) -> None:
        driver = started()
        before = driver.core.state.tables[TABLE]
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.change(("u", 1, "new"))
        self.looked(driver, self.wanted("one", "v"))
        driver.log(None, SchemaSeen(SCHEMA, description=self.wanted("two")))
        driver.answer(order, [(1, "old"), (2, "b")])
        driver.mark(WatermarkKind.HIGH, order.token)
        sealed = driver.close_segment()
        assert sealed.schema_events == ()
        assert [row[1:] for row in emitted(sealed)] == [("u", 1, "new"), ("r", 2, "b")]
        state = sealed.state.tables[TABLE]
        assert state.description == self.wanted("two").fingerprint
        other = msgspec.structs.replace(state, description=None, complete_seq=before.complete_seq)
        assert other == before

    def test_a_quarantined_table_is_not_described(self) -> None:
        driver = started()
        lost = TableSchema(TABLE, SCHEMA.columns, ())
        driver.log(None, SchemaSeen(lost, description=self.wanted("one")))
        assert driver.core.state.tables[TABLE].description is None

    def test_a_successor_knows_what_was_said(self) -> None:
        driver = Driver()
        self.looked(driver, self.wanted("one"))
        driver.dump([(1, "a")])
        sealed = driver.close_segment()
        raw = msgspec.json.encode(sealed.state)
        state = msgspec.json.decode(raw, type=OpenState)
        assert state.tables[TABLE].description == self.wanted("one").fingerprint
