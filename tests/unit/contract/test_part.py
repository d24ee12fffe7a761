"""The counts of a part: one value from rows up to a plan, and the same fields in documents."""

from __future__ import annotations

import msgspec

from tideline.contract.manifest import Part
from tideline.contract.part import NO_COUNTS, PartCounts, total
from tideline.contract.plan import PlannedPart
from tideline.contract.planning.table_plans import planned_part

COUNTS = PartCounts(unchanged_rows=1, before_rows=2, overflow_rows=3, before_image_rows=4)
PART = Part("k", "s.t", "f", 9, {"c": 9}, 10, "d", 1, 9, **msgspec.structs.asdict(COUNTS))


def test_they_are_added_up_field_by_field() -> None:
    assert total([]) == NO_COUNTS
    assert total([COUNTS, PART, NO_COUNTS]) == PartCounts(
        unchanged_rows=2, before_rows=4, overflow_rows=6, before_image_rows=8
    )


def test_documents_have_their_fields_after_their_own() -> None:
    names = list(PartCounts.__struct_fields__)
    assert list(Part.__struct_fields__[-len(names) :]) == names
    assert list(PlannedPart.__struct_fields__[-len(names) :]) == names


def test_a_plan_says_all_that_the_manifest_counts() -> None:
    assert total([planned_part(PART)]) == COUNTS
