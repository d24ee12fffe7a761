"""How passes make one result: a difference is never lost, nor made of what only moved."""

from __future__ import annotations

from msgspec.structs import replace

from tideline.contract.request import DumpRequest, check_request
from tideline.contract.verification import DifferentKey, Scope, TableResult, VerificationOutcome
from tideline.contract.verification_results import (
    BATCH_KEYS_MAX,
    batches,
    keys_to_repair,
    repaired,
    with_pass,
)

ORDERS = "public.orders"
EQUAL = TableResult(
    ORDERS, VerificationOutcome.EQUAL, seq=10, rows=100, target_version=4, app_id="app"
)
CHANGING = replace(
    EQUAL, outcome=VerificationOutcome.CHANGING, changing=2, changed_keys=(("1",), ("2",))
)
DIFFERS = replace(
    EQUAL,
    outcome=VerificationOutcome.DIFFERS,
    missing=1,
    different=1,
    columns={"name": 1},
    keys=(DifferentKey(("7",), "missing"), DifferentKey(("8",), "different", ("name",))),
)
LATER = replace(EQUAL, seq=20, scope=Scope.KEYS, rows=2)
NOT_COMPARED = TableResult(
    ORDERS, VerificationOutcome.NOT_COMPARED, reason="CorruptData: a part is gone", hint="again"
)


class TestLaterPasses:
    def test_what_was_set_aside_and_found_equal_makes_it_equal_where_it_stood(self) -> None:
        result = with_pass(CHANGING, [LATER])
        assert (result.outcome, result.seq, result.later_seq) == (VerificationOutcome.EQUAL, 10, 20)
        assert (result.changing, result.changed_keys, result.compared_later) == (0, (), 2)
        assert result.rows == 102

    def test_every_row_that_was_compared_counts_once_however_many_passes_it_took(self) -> None:
        """One key moves twice, another one is deleted before it is read again."""
        still = replace(
            LATER, outcome=VerificationOutcome.CHANGING, rows=0, changing=1, changed_keys=(("2",),)
        )
        first = with_pass(CHANGING, [still])
        assert first.rows == 100
        assert with_pass(first, [replace(LATER, rows=1)]).rows == 101

    def test_what_still_moves_is_no_difference(self) -> None:
        still = replace(
            LATER, outcome=VerificationOutcome.CHANGING, changing=1, changed_keys=(("2",),)
        )
        result = with_pass(CHANGING, [still])
        assert (result.outcome, result.changed_keys) == (VerificationOutcome.CHANGING, (("2",),))
        assert result.compared_later == 1

    def test_keys_that_were_too_many_to_list_are_not_proven_by_others(self) -> None:
        """A repair adds keys that moved to a result which set aside more than it lists."""
        many = replace(DIFFERS, changing=150_000)
        still = replace(
            LATER, outcome=VerificationOutcome.CHANGING, changing=1, changed_keys=(("7",),)
        )
        result = with_pass(repaired(many, [still]), [LATER])
        assert (result.outcome, result.changing, result.compared_later) == (
            VerificationOutcome.CHANGING,
            150_000,
            1,
        )

    def test_a_difference_of_a_later_pass_counts(self) -> None:
        lost = replace(
            LATER,
            outcome=VerificationOutcome.DIFFERS,
            missing=1,
            keys=(DifferentKey(("2",), "missing"),),
        )
        result = with_pass(CHANGING, [lost])
        assert (result.outcome, result.missing, result.keys) == (
            VerificationOutcome.DIFFERS,
            1,
            lost.keys,
        )

    def test_a_difference_of_the_first_pass_stays(self) -> None:
        result = with_pass(replace(DIFFERS, changing=1, changed_keys=(("1",),)), [LATER])
        assert (result.outcome, result.differences, result.changing) == (
            VerificationOutcome.DIFFERS,
            2,
            0,
        )

    def test_one_that_could_not_be_compared_proves_nothing(self) -> None:
        result = with_pass(CHANGING, [LATER, NOT_COMPARED])
        assert (result.outcome, result.changing) == (VerificationOutcome.CHANGING, 2)
        assert result.reason == NOT_COMPARED.reason


class TestRepairs:
    def test_keys_that_are_equal_afterwards_are_repaired(self) -> None:
        result = repaired(DIFFERS, [LATER])
        assert (result.outcome, result.repaired, result.differences) == (
            VerificationOutcome.EQUAL,
            2,
            0,
        )
        assert (result.keys, result.columns, result.seq) == ((), {}, 10)
        assert result.rows == 100

    def test_rows_that_are_repaired_count_once_and_not_those_that_the_source_lacks(self) -> None:
        """Key 8 differs and is there twice, key 9 is in the warehouse alone."""
        kinds = (*DIFFERS.keys, DifferentKey(("8",), "duplicate"), DifferentKey(("9",), "extra"))
        more = replace(DIFFERS, duplicates=1, extra=1, keys=kinds)
        assert repaired(more, [LATER]).rows == 100
        # The source has got key 9, too.
        assert repaired(more, [replace(LATER, rows=3)]).rows == 101
        # Key 7 moves: its row is compared in the pass behind.
        moved = replace(
            LATER, outcome=VerificationOutcome.CHANGING, rows=1, changing=1, changed_keys=(("7",),)
        )
        still = repaired(more, [moved])
        assert (still.rows, with_pass(still, [replace(LATER, rows=1)]).rows) == (99, 100)

    def test_those_that_still_differ_are_not(self) -> None:
        still = replace(
            LATER,
            outcome=VerificationOutcome.DIFFERS,
            missing=1,
            keys=(DifferentKey(("7",), "missing"),),
        )
        result = repaired(DIFFERS, [still])
        assert (result.outcome, result.repaired, result.missing) == (
            VerificationOutcome.DIFFERS,
            1,
            1,
        )

    def test_those_that_move_meanwhile_are_to_be_proven(self) -> None:
        still = replace(
            LATER, outcome=VerificationOutcome.CHANGING, changing=1, changed_keys=(("7",),)
        )
        assert repaired(DIFFERS, [still]).outcome is VerificationOutcome.CHANGING

    def test_without_a_comparison_they_still_differ(self) -> None:
        assert repaired(DIFFERS, [NOT_COMPARED]).differences == 2

    def test_a_key_is_dumped_once_and_all_are_known_or_none(self) -> None:
        twice = replace(
            DIFFERS, duplicates=1, keys=(*DIFFERS.keys, DifferentKey(("8",), "duplicate"))
        )
        assert keys_to_repair(twice) == (("7",), ("8",))
        assert keys_to_repair(replace(DIFFERS, missing=9)) is None


def test_batches_are_what_a_request_may_hold() -> None:
    keys = [(str(number), "x" * 30) for number in range(2 * BATCH_KEYS_MAX + 1)]
    found = list(batches(keys))
    assert [key for batch in found for key in batch] == keys
    for batch in found:
        check_request(DumpRequest("v", (ORDERS,), keys=batch, purpose="verify"))
        assert len(batch) <= BATCH_KEYS_MAX
    assert [len(batch) for batch in batches([("x" * 600_000,)] * 2)] == [1, 1]
    assert list(batches([])) == []
