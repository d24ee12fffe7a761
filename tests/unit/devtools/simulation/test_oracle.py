"""Histories that are broken by hand, one promise at a time, and correct ones that pass.

The anomalies of Jepsen's Kafka workload are among them under their names: lost write, duplicate,
aborted read, inconsistent offsets, internal and external nonmonotonic.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.simulation.history import (
    AppendOutcome,
    Attempt,
    ChainEvent,
    LedgerEntry,
    LedgerTransaction,
    Liveness,
    Remerge,
    Row,
    RunHistory,
)
from devtools.simulation.oracle import CHECKS, check
from tests.unit.devtools.simulation.story import Story, T, U, events_of, with_events
from tideline.contract.errors import InvariantBroken


def tell() -> Story:
    """Inserts, updates, a delete and a new life, a moved key, dumps, a takeover, a truncate."""
    story = Story(captured=False)
    story.commit("c old", "c older", "c gone")
    story.commit("d gone")
    story.captured = True
    story.schema_event()
    story.commit("c a", "c b")
    story.commit("c x", "c y", table=U)
    story.dump()
    story.seal()
    story.merge()
    story.roll_back("a")
    story.commit("u a", "u b")
    story.commit("d b")
    story.absent("gone")
    story.seal()
    story.merge()
    story.merge(U)
    story.commit("c b", "m a z")
    story.commit("t", table=U)
    story.commit("c y", table=U)
    story.seal(takeover=True)
    story.merge()
    story.commit("u b")
    story.commit("u b", "c k")
    story.dump()
    story.seal()
    story.merge()
    story.merge(U)
    return story


def letters(history: RunHistory) -> str:
    return "".join(sorted({violation.check for violation in check(history)}))


def event(history: RunHistory, op: str, name: str, nth: int = 0, table: str = T) -> ChainEvent:
    found = [e for e in events_of(history) if (e.op, e.key, e.table) == (op, (name,), table)]
    return found[nth]


def edited(history: RunHistory, one: ChainEvent, **fields: Any) -> RunHistory:
    """The same history with that event changed, and no other."""
    manifests = tuple(
        replace(m, events=tuple(replace(e, **fields) if e is one else e for e in m.events))
        for m in history.manifests
    )
    return replace(history, manifests=manifests)


def without(history: RunHistory, one: ChainEvent) -> RunHistory:
    return with_events(history, lambda events: [e for e in events if e is not one])


def doubled(history: RunHistory, one: ChainEvent) -> RunHistory:
    return with_events(history, lambda events: [x for e in events for x in [e] * (1 + (e is one))])


def moved_after(history: RunHistory, one: ChainEvent, other: ChainEvent) -> RunHistory:
    """``one`` comes right after ``other``, in whatever manifest that is."""

    def change(events: list[ChainEvent]) -> list[ChainEvent]:
        kept = [e for e in events if e is not one]
        return [x for e in kept for x in ([e, one] if e is other else [e])]

    return with_events(history, change)


def manifest_with(history: RunHistory, log_position: int, **fields: Any) -> RunHistory:
    manifests = list(history.manifests)
    manifests[log_position] = replace(manifests[log_position], **fields)
    return replace(history, manifests=tuple(manifests))


def commit_with(history: RunHistory, log_position: int, **fields: Any) -> RunHistory:
    commits = list(history.commits)
    commits[log_position] = replace(commits[log_position], **fields)
    return replace(history, commits=tuple(commits))


def rows_with(history: RunHistory, log_position: int, *rows: Row, but: str = "") -> RunHistory:
    """The rows of a commit without key ``but``, and with ``rows`` instead of their namesakes."""
    names = {row.key for row in rows} | {(but,)}
    kept = tuple(row for row in history.commits[log_position].rows if row.key not in names)
    return commit_with(history, log_position, rows=(*kept, *rows))


class TestLost:
    def test_lost_write(self) -> None:
        """Jepsen's lost write, where a later write of the key hides it in the warehouse."""
        history = tell().history()
        assert letters(without(history, event(history, "u", "b", 1))) == "L"

    def test_lost_delete(self) -> None:
        history = tell().history()
        assert "L" in letters(without(history, event(history, "d", "b")))

    def test_lost_write_behind_a_dumps_row(self) -> None:
        """The dump shows the version, and the log must tell it all the same."""
        history = tell().history()
        found = letters(without(history, event(history, "c", "k")))
        assert found == "AL"

    def test_lost_truncate(self) -> None:
        history = tell().history()
        log_position = next(n for n, m in enumerate(history.manifests) if m.truncates)
        seq = history.manifests[log_position].truncates[0].seq
        assert "L" in letters(manifest_with(history, log_position, truncates=(), others=(seq,)))

    def test_the_warehouse_lacks_a_row(self) -> None:
        assert letters(rows_with(tell().history(), 1, but="a")) == "L"

    def test_the_warehouse_has_an_older_row(self) -> None:
        assert letters(rows_with(tell().history(), 1, Row(("a",), 1, "a 1"))) == "L"

    def test_in_the_end_a_row_that_no_dump_brought_is_not_there(self) -> None:
        story = Story(captured=False)
        story.commit("c old")
        story.captured = True
        story.seal()
        story.rows, rows = {T: {}, U: {}}, story.rows
        story.merge()
        history = replace(story.history(), source={T: tuple(rows[T].values())})
        assert letters(history) == "L"
        assert letters(replace(history, settled=False)) == ""
        assert letters(commit_with(history, 0, whole=False)) == ""

    def test_a_table_was_never_merged(self) -> None:
        history = tell().history()
        commits = tuple(commit for commit in history.commits if commit.table != U)
        assert letters(replace(history, commits=commits)) == "L"


class TestDuplicate:
    def test_duplicate(self) -> None:
        """Jepsen's duplicate: one change under two sequences."""
        history = tell().history()
        assert letters(doubled(history, event(history, "u", "a"))) == "D"

    def test_duplicate_delete(self) -> None:
        history = tell().history()
        assert letters(doubled(history, event(history, "d", "b"))) == "D"

    def test_inconsistent_offsets(self) -> None:
        """Jepsen's: one sequence with two contents."""
        history = tell().history()
        one = event(history, "u", "a")
        assert "D" in letters(edited(history, one, seq=one.seq - 1))

    def test_one_place_of_the_log_twice(self) -> None:
        history = tell().history()
        log_position = event(history, "u", "a").log_position
        assert letters(edited(history, event(history, "u", "b"), log_position=log_position)) == "D"

    def test_two_rows_of_a_key(self) -> None:
        history = tell().history()
        rows = history.commits[0].rows
        assert letters(commit_with(history, 0, rows=(*rows, rows[0]))) == "D"


class TestTimeTravel:
    def test_internal_nonmonotonic(self) -> None:
        """Jepsen's: backwards within one read, here one manifest."""
        history = tell().history()
        first, second = event(history, "u", "b", 1), event(history, "u", "b", 2)
        assert letters(moved_after(history, first, second)) == "T"

    def test_external_nonmonotonic(self) -> None:
        """Jepsen's: backwards from one read to the next, here across manifests."""
        history = tell().history()
        assert "T" in letters(
            moved_after(history, event(history, "u", "a"), event(history, "u", "b", 1))
        )

    def test_a_dumps_row_is_stale(self) -> None:
        history = tell().history()
        assert letters(edited(history, event(history, "r", "b", 1), ver=3, digest="b 3")) == "P"
        assert letters(edited(history, event(history, "r", "b", 1), ver=4, digest="b 4")) == "T"

    def test_a_dump_deletes_a_live_row(self) -> None:
        history = tell().history()
        one = event(history, "r", "k")
        found = letters(edited(history, one, op="d", ver=None, digest=None))
        assert found == "RT"

    def test_an_event_comes_after_the_truncate_that_it_was_before(self) -> None:
        history = tell().history()
        found = moved_after(
            history, event(history, "c", "x", table=U), event(history, "c", "y", 1, table=U)
        )
        assert "T" in letters(found)

    def test_the_warehouse_goes_back(self) -> None:
        history = tell().history()
        assert letters(rows_with(history, 4, Row(("b",), 2, "b 2"))) == "LT"

    def test_the_applied_sequence_goes_back(self) -> None:
        history = tell().history()
        commits = history.commits
        again = replace(commits[0], from_manifest=commits[1].to_manifest)
        assert letters(replace(history, commits=(*commits[:2], again, *commits[2:]))) == "GT"


class TestPhantom:
    def test_aborted_read(self) -> None:
        """Jepsen's: what was rolled back, though its version was given again."""
        history = tell().history()
        assert letters(edited(history, event(history, "u", "a"), digest="undone a 2")) == "P"

    def test_a_version_that_was_never_written(self) -> None:
        history = tell().history()
        assert letters(edited(history, event(history, "r", "k"), ver=9)) == "P"

    def test_a_delete_that_was_never_committed(self) -> None:
        history = tell().history()
        one = event(history, "r", "k")
        found = letters(edited(history, one, op="d", ver=None, digest=None, dumped=False))
        assert "P" in found

    def test_the_warehouse_has_what_was_never_written(self) -> None:
        assert letters(rows_with(tell().history(), 1, Row(("new",), 1, "new 1"))) == "P"
        assert letters(rows_with(tell().history(), 1, Row(("a",), 9, "a 9"))) == "P"

    def test_in_the_end_the_warehouse_has_what_was_never_written(self) -> None:
        assert letters(rows_with(tell().history(), 4, Row(("new",), 1, "new 1"))) == "P"


class TestResurrection:
    def test_a_dumps_row_after_the_delete(self) -> None:
        history = tell().history()
        one = event(history, "r", "b")
        assert letters(moved_after(history, one, event(history, "d", "b"))) == "RT"

    def test_a_dumps_row_after_the_truncate(self) -> None:
        """Its version is not older than any that came before."""
        story = Story()
        story.commit("c a", "c b")
        story.seal()
        story.dump()
        story.commit("t")
        story.commit("c b")
        story.seal()
        story.merge()
        history = replace(story.history(), source={})
        assert letters(history) == ""
        late = moved_after(history, event(history, "r", "a"), event(history, "c", "b", 1))
        assert "R" in letters(late)

    def test_the_warehouse_keeps_a_deleted_row(self) -> None:
        assert letters(rows_with(tell().history(), 1, Row(("b",), 2, "b 2"))) == "R"

    def test_the_warehouse_keeps_the_row_under_its_old_key(self) -> None:
        found = rows_with(tell().history(), 4, Row(("a",), 2, "a 2"))
        assert letters(found) == "R"


class TestGap:
    def test_a_manifest_is_missing(self) -> None:
        history = tell().history()
        manifests = (history.manifests[0], *history.manifests[2:])
        assert "G" in letters(replace(history, manifests=manifests))

    def test_the_first_manifest_is_missing(self) -> None:
        history = tell().history()
        assert "G" in letters(replace(history, manifests=history.manifests[1:]))

    def test_a_sequence_is_missing(self) -> None:
        history = tell().history()
        others = history.manifests[0].others
        assert letters(manifest_with(history, 0, others=others[1:])) == "G"

    def test_sequences_between_manifests_are_missing(self) -> None:
        history = tell().history()
        last = history.manifests[-1]
        events = tuple(replace(e, seq=e.seq + 1, log_position=None) for e in last.events)
        moved = manifest_with(
            history, -1, first_seq=last.first_seq + 1, last_seq=last.last_seq + 1, events=events
        )
        commits = tuple(
            replace(c, applied_seq=c.applied_seq + (c.to_manifest == last.number))
            for c in moved.commits
        )
        assert letters(replace(moved, commits=commits)) == "G"

    def test_the_position_goes_back(self) -> None:
        assert letters(manifest_with(tell().history(), 2, position=5)) == "G"

    def test_a_merge_passes_over_a_manifest(self) -> None:
        assert letters(commit_with(tell().history(), 3, from_manifest=3)) == "G"

    def test_a_merge_begins_before_what_is_applied(self) -> None:
        assert letters(commit_with(tell().history(), 3, from_manifest=1)) == "G"

    def test_a_merge_ends_inside_a_manifest(self) -> None:
        history = tell().history()
        seq = history.commits[0].applied_seq
        assert "G" in letters(commit_with(history, 0, applied_seq=seq - 1))

    def test_manifests_without_data_of_the_table_may_be_passed_over(self) -> None:
        story = tell()
        story.seal()
        story.commit("u b")
        story.seal()
        story.merge()
        assert letters(commit_with(story.history(), -1, from_manifest=5)) == ""


class TestFork:
    def test_two_manifests_of_one_number(self) -> None:
        history = tell().history()
        twin = replace(history.manifests[1], first_seq=0, last_seq=-1, events=(), digest="other")
        manifests = (*history.manifests[:2], twin, *history.manifests[2:])
        assert "F" in letters(replace(history, manifests=manifests))

    def test_an_older_term_goes_on(self) -> None:
        assert letters(manifest_with(tell().history(), 3, term=1)) == "F"

    def test_a_term_without_a_takeover(self) -> None:
        assert letters(manifest_with(tell().history(), 2, takeover=False)) == "F"

    def test_a_takeover_without_a_term(self) -> None:
        assert letters(manifest_with(tell().history(), 1, takeover=True)) == "F"

    def test_another_writer_without_a_takeover(self) -> None:
        assert letters(manifest_with(tell().history(), 3, writer="w9")) == "F"

    def test_the_predecessor_is_another(self) -> None:
        assert letters(manifest_with(tell().history(), 3, previous_digest="other")) == "F"

    @pytest.mark.parametrize(
        ("digest", "outcome", "found"),
        [
            ("other", AppendOutcome.ACCEPTED, "F"),
            ("m2", AppendOutcome.FENCED, "F"),
            ("m2", AppendOutcome.UNKNOWN, ""),
            ("other", AppendOutcome.FENCED, ""),
            ("other", AppendOutcome.UNKNOWN, ""),
        ],
    )
    def test_what_a_writer_was_told(self, digest: str, outcome: AppendOutcome, found: str) -> None:
        history = tell().history()
        attempts = (*history.attempts, Attempt(2, 1, "zombie", digest, outcome))
        assert letters(replace(history, attempts=attempts)) == found

    def test_a_manifest_that_was_promised_is_not_there(self) -> None:
        history = tell().history()
        attempts = (*history.attempts, Attempt(9, 2, "w2", "m9", AppendOutcome.ACCEPTED))
        assert letters(replace(history, attempts=attempts)) == "F"


class TestAtomicity:
    def test_a_transaction_is_split_between_manifests(self) -> None:
        history = tell().history()
        one, other = event(history, "c", "b", 1), event(history, "u", "b", 1)

        def change(events: list[ChainEvent]) -> list[ChainEvent]:
            kept = [e for e in events if e is not one]
            return [x for e in kept for x in ([one, e] if e is other else [e])]

        assert "A" in letters(with_events(history, change))

    def test_a_dumps_row_is_ahead_of_the_log(self) -> None:
        history = tell().history()
        found = moved_after(history, event(history, "u", "b", 2), event(history, "r", "b", 1))
        assert letters(found) == "A"

    def test_the_warehouse_is_ahead(self) -> None:
        assert letters(rows_with(tell().history(), 1, Row(("z",), 1, "z 1"))) == "A"

    def test_the_banks_sum_is_off(self) -> None:
        assert letters(commit_with(tell().history(), 1, total=1)) == "A"


class TestValue:
    def test_an_event(self) -> None:
        history = tell().history()
        assert letters(edited(history, event(history, "u", "a"), digest="NULL")) == "V"

    def test_a_dumps_row(self) -> None:
        history = tell().history()
        assert letters(edited(history, event(history, "r", "k"), digest="NULL")) == "V"

    def test_a_whole_row_without_a_version(self) -> None:
        history = tell().history()
        assert letters(edited(history, event(history, "r", "k"), ver=None)) == "V"

    def test_a_whole_row_without_a_digest(self) -> None:
        history = tell().history()
        assert letters(edited(history, event(history, "u", "a"), digest=None)) == "V"

    def test_a_row_of_the_warehouse(self) -> None:
        assert letters(rows_with(tell().history(), 1, Row(("a",), 2, "a NULL"))) == "V"
        assert letters(rows_with(tell().history(), 1, Row(("a",), None, "a 2"))) == "V"

    def test_a_value_is_pending_in_the_end(self) -> None:
        pending = Row(("z",), 1, None)
        assert letters(rows_with(tell().history(), 3, pending)) == ""
        assert letters(rows_with(tell().history(), 4, pending)) == "V"

    def test_columns_that_the_log_did_not_carry(self) -> None:
        history = tell().history()
        one = edited(history, event(history, "u", "a"), digest=None, unchanged=("doc",))
        assert letters(one) == ""


def test_idempotence() -> None:
    history = tell().history()
    assert letters(replace(history, remerges=(Remerge(T, 9, "one", "another"),))) == "I"


@pytest.mark.parametrize(
    ("heartbeat_s", "unended", "found"),
    [(15.0, (), ""), (15.1, (), "E"), (None, (), "E"), (11.0, ("r7",), "E")],
)
def test_liveness(heartbeat_s: float | None, unended: tuple[str, ...], found: str) -> None:
    live = Liveness(faults_ended_s=10.0, bound_s=5.0, heartbeat_s=heartbeat_s, unended=unended)
    assert letters(replace(tell().history(), liveness=live)) == found


@pytest.mark.parametrize(
    ("through_us", "lacks_us", "found"),
    [(5, 5, ""), (4, 5, ""), (6, 5, "C"), (6, None, ""), (None, 5, "")],
)
def test_a_manifest_claims_no_more_than_it_has(
    through_us: int | None, lacks_us: int | None, found: str
) -> None:
    history = manifest_with(tell().history(), 1, through_us=through_us, lacks_us=lacks_us)
    assert letters(history) == found


def test_a_correct_history_passes() -> None:
    history = tell().history()
    assert check(history) == []
    assert {e.op for e in events_of(history)} == set("cudr")


def test_every_check_has_its_letter() -> None:
    assert "".join(CHECKS) == "LDTPRGFAVIEC"


def test_words_hold_no_value_of_a_row() -> None:
    history = edited(tell().history(), event(tell().history(), "u", "a"), digest="secret")
    history = rows_with(history, 1, Row(("canary",), 7, "secret"))
    text = " ".join(map(str, check(history)))
    assert "canary" not in text
    assert "secret" not in text


def test_what_the_log_does_not_tell_a_dump_may() -> None:
    """Deletes without row events, and rows that come back without one."""
    story = Story()
    story.commit("c a", "c b")
    story.seal()
    story.merge()
    story.captured = False
    story.commit("d a", "u b")
    story.captured = True
    story.absent("a")
    story.dump()
    story.seal()
    story.merge()
    assert check(story.history()) == []


def test_a_source_that_contradicts_its_ledger_is_the_rigs_mistake() -> None:
    history = tell().history()
    with pytest.raises(InvariantBroken, match="not what its ledger says"):
        check(replace(history, source={T: ()}))
    entries = (LedgerEntry(T, ("a",), 5, "u", "a 5"),)
    with pytest.raises(InvariantBroken, match="have a gap"):
        check(replace(history, transactions=(LedgerTransaction(1, entries),), source={}))
    with pytest.raises(InvariantBroken, match="needs its commit order"):
        check(replace(history, ordered=False))


def test_the_ledgers_order_does_not_matter_to_it() -> None:
    story = Story()
    story.commit("c a")
    story.commit("u a", "c b")
    story.commit("d a")
    story.seal()
    story.merge()
    history = story.history()
    turned = replace(history, transactions=history.transactions[::-1], ordered=False)
    assert check(turned) == []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)),
                                              min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["dump", "seal", "takeover", "truncate", "undo", "absent"]),
                  st.just([])),
    ),
    max_size=40,
)  # fmt: skip


def reported(steps: list[tuple[str, list[tuple[int, int]]]]) -> Story:
    """A correct run of these steps, captured from the third on, merged at every manifest."""
    story = Story(captured=False)
    for count, (step, choices) in enumerate(steps):
        if count == 3:
            story.captured = True
            story.dump()
        if step == "change":
            story.commit(*changes_of(story, choices))
        elif step in ("seal", "takeover"):
            story.seal(takeover=step == "takeover" and bool(story.manifests))
            if story.captured:
                story.merge()
        elif step == "undo":
            story.roll_back("k1")
        elif story.captured:
            {"dump": story.dump, "truncate": lambda: story.commit("t"), "absent": nothing}[step]()
    if not story.captured:
        story.captured = True
        story.dump()
    story.seal()
    story.merge()
    story.merge(U)
    return story


def nothing() -> None:
    """A step that this run has no room for."""


def changes_of(story: Story, choices: list[tuple[int, int]]) -> list[str]:
    live = {str(key[0]) for key in story.rows[T]}
    changes = []
    for key, choice in choices:
        name, other = f"k{key}", f"k{(key + 1) % 6}"
        if name not in live:
            changes.append(f"c {name}")
            live.add(name)
        elif choice < 2:
            changes.append(f"d {name}")
            live.discard(name)
        elif choice < 4 and other not in live:
            changes.append(f"m {name} {other}")
            live = live - {name} | {other}
        else:
            changes.append(f"u {name}")
    return changes


@given(steps=STEPS)
def test_any_correct_history_passes(steps: list[tuple[str, list[tuple[int, int]]]]) -> None:
    assert check(reported(steps).history()) == []


@given(steps=STEPS, choice=st.integers(0, 1_000), how=st.sampled_from(["lose", "double", "alter"]))
def test_any_event_that_is_lost_doubled_or_altered_is_found(
    steps: list[tuple[str, list[tuple[int, int]]]], choice: int, how: str
) -> None:
    history = reported(steps).history()
    logged = [e for e in events_of(history) if not e.dumped]
    if not logged:
        return
    one = logged[choice % len(logged)]
    if how == "lose":
        assert "L" in letters(without(history, one))
    elif how == "double":
        assert "D" in letters(doubled(history, one))
    elif one.op != "d":
        assert "V" in letters(edited(history, one, digest="altered"))


@given(steps=STEPS, choice=st.integers(0, 1_000))
def test_any_row_of_the_warehouse_that_is_lost_is_found(
    steps: list[tuple[str, list[tuple[int, int]]]], choice: int
) -> None:
    history = reported(steps).history()
    rows = [(n, row) for n, c in enumerate(history.commits) for row in c.rows]
    if rows:
        log_position, row = rows[choice % len(rows)]
        assert "L" in letters(rows_with(history, log_position, but=str(row.key[0])))


def test_it_is_cheap() -> None:
    """Linear, and 2,000 events with twenty merges in well under the simulator's share of a run."""
    took = {size: min(seconds_for(size) for _ in range(3)) for size in (100, 400)}
    assert took[400] < 0.2
    assert took[400] < 4 * 4 * took[100]


def seconds_for(transactions: int) -> float:
    """Of this thread's own work, for the oracle to judge that many of five changes each."""
    story = Story()
    for n in range(transactions):
        story.commit(
            *(f"{'u' if n > 9 else 'c'} k{n % 10}-{log_position}" for log_position in range(5))
        )
        if n % 20 == 19:
            story.seal()
            story.merge()
    story.dump()
    story.seal()
    story.merge()
    story.merge(U)
    history = story.history()
    before = time.thread_time()
    assert check(history) == []
    return time.thread_time() - before
