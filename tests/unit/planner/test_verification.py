"""The rounds of a verification: bounded, in order; equal is only what was compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tideline.contract.errors import Misconfigured
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.contract.request import Answer, DumpRequest, KeyRange, RequestState, TableProgress
from tideline.contract.verification import (
    DifferentKey,
    Scope,
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
)
from tideline.contract.verification_results import PASSES_MAX
from tideline.planner import verification
from tideline.planner.verification import MERGES_MAX, REPAIRS_MAX, VerificationRun, next_pass
from tideline.planner.verifying import Planned
from tideline.settings import make_settings
from tideline_console import verify
from tideline_console.requests import make_request
from tideline_console.verify import verdict

T = "public.t"
REQUEST = DumpRequest(
    "v", (T,), purpose="verify", priority=3, chunk_rows=500, delay_ms=20, requested_by="ann"
)
HOW = (3, 500, 20, "ann")
"""How rows are read, whatever the pass."""
EQUAL = TableResult(
    T, VerificationOutcome.EQUAL, seq=10, rows=9, source_time_us=1_700_000_000_000_000
)
CHANGING = replace(EQUAL, outcome=VerificationOutcome.CHANGING, changing=1, changed_keys=(("1",),))
DIFFERS = replace(
    EQUAL, outcome=VerificationOutcome.DIFFERS, missing=1, keys=(DifferentKey(("7",), "missing"),)
)
Compare = Callable[[DumpRequest], TableResult]


def how_of(request: DumpRequest) -> tuple[int, int | None, int | None, str]:
    return request.priority, request.chunk_rows, request.delay_ms, request.requested_by


class Jobs:
    """Answers every request as done; ``compare`` says what comes of what was read last."""

    def __init__(self, compare: Compare, *, merges: int = 0) -> None:
        self.asked: list[DumpRequest] = []
        self.merged: list[str] = []
        self.plans: list[VerifyPlan] = []
        self.stored: list[Verification] = []
        self.waits = merges
        self.answer = RequestState.DONE
        self.fails: str | None = None
        self.tail = 5
        self.delayed: list[str] = []
        self._compare = compare

    def read(self, request: DumpRequest) -> Answer:
        self.asked.append(request)
        table = TableProgress(T, self.answer, error=None if self.done else "it is gone")
        number = None if self.answer is RequestState.REFUSED else 5
        return Answer(request.request_id, self.answer, manifest_number=number, tables=(table,))

    def run_plan(self, plan: Plan) -> Receipt:
        self.merged.append(plan.plan_id)
        self.waits -= 1
        outcome = Outcome.APPLIED if self.fails is None else Outcome.FAILED
        table = TableReceipt(T, outcome, 5, 5, error=self.fails)
        return Receipt(plan.plan_id, "shop", "one", (table,))

    def compare(self, plan: VerifyPlan) -> Verification:
        self.plans.append(plan)
        verified = self._compare(self.asked[-1])
        return Verification(plan.verify_id, "shop", "one", plan.request_id, (verified,))

    def report(self, text: str) -> None:
        assert "7" not in text.split()

    @property
    def done(self) -> bool:
        return self.answer is RequestState.DONE

    def plan_merge(self, settings: Any, *, plan_id: str, tables: Sequence[str]) -> Any:
        assert tables == [T]
        return SimpleNamespace(
            plan_id=plan_id, tables=(T,), delayed={}, to_manifest=5, tail=self.tail
        )

    def plan(self, settings: Any, request_id: str, **more: Any) -> Planned:
        failed = more.get("failed", {})
        late = more["last_call"] or T in failed
        self.delayed += failed.values()
        waiting = (T,) if self.waits > 0 and not late else ()
        plan = VerifyPlan(more["verify_id"], "shop", "one", "file:///s", request_id, ())
        return Planned(plan, waiting)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TableResult]:
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://h/d", "tables": ["public.*"]},
            "store": {"url": "memory://x"},
            "control": {"url": "redis://h"},
            "warehouse": {"url": "file:///w"},
        }
    )

    def run(jobs: Jobs, *, repair: bool = False) -> TableResult:
        monkeypatch.setattr(verification, "plan_verification", jobs.plan)
        monkeypatch.setattr(verification, "plan_merge", jobs.plan_merge)
        monkeypatch.setattr(
            verification, "store_verification", lambda _, result: jobs.stored.append(result)
        )
        result = VerificationRun(settings, jobs, REQUEST).run(repair=repair)
        assert jobs.stored == [result]
        assert len({plan.verify_id for plan in jobs.plans}) == len(jobs.plans)
        assert len({request.request_id for request in jobs.asked}) == len(jobs.asked)
        assert len(set(jobs.merged)) == len(jobs.merged)
        assert {how_of(request) for request in jobs.asked} <= {HOW}
        [table] = result.tables
        return table

    return run


def test_what_no_merge_brings_on_is_not_even_read(
    run: Callable[..., TableResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said at once; but a pattern, or one of several, is read with the others."""
    jobs = Jobs(lambda _: EQUAL)
    monkeypatch.setattr(verification, "stuck", lambda *_: {T: "blocked before sequence 7"})
    found = run(jobs)
    assert (found.outcome, found.reason) == (
        VerificationOutcome.NOT_COMPARED,
        "blocked before sequence 7",
    )
    assert (jobs.asked, jobs.merged, jobs.plans) == ([], [], [])
    monkeypatch.setattr(verification, "stuck", lambda *_: {"public.u": "blocked"})
    assert run(Jobs(lambda _: EQUAL)) == EQUAL


def test_one_pass_is_enough_where_nothing_moves(run: Callable[..., TableResult]) -> None:
    jobs = Jobs(lambda _: EQUAL, merges=2)
    assert run(jobs) == EQUAL
    assert jobs.asked == [REQUEST]
    assert len(jobs.merged) == 2


def test_what_is_never_merged_is_not_waited_for(run: Callable[..., TableResult]) -> None:
    jobs = Jobs(lambda _: EQUAL, merges=10_000)
    run(jobs)
    assert len(jobs.merged) == MERGES_MAX


def test_a_merge_that_fails_is_not_planned_again(run: Callable[..., TableResult]) -> None:
    """Not even where more waits than one plan takes: each plan is a Spark job of minutes."""
    jobs = Jobs(lambda _: EQUAL, merges=10_000)
    jobs.fails, jobs.tail = "the disk is full", 99
    run(jobs)
    assert (len(jobs.merged), jobs.delayed) == (1, ["the disk is full"])


def test_a_repair_whose_merge_fails_gives_the_reason_and_is_not_repeated(
    run: Callable[..., TableResult],
) -> None:
    """The repair can be a dump of the whole table."""
    jobs = Jobs(lambda _: replace(DIFFERS, missing=50_000))
    jobs.fails, jobs.tail = "the disk is full", 99
    found = run(jobs, repair=True)
    assert found.reason == "the repair is not merged: the disk is full"
    assert [one.purpose for one in jobs.asked] == ["verify", "dump"]
    assert len(jobs.merged) == 1


def test_a_repair_that_the_worker_cannot_dump_is_not_repeated(
    run: Callable[..., TableResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(lambda _: DIFFERS)
    read = jobs.read

    def cancelled(request: DumpRequest) -> Answer:
        jobs.answer = RequestState.DONE if request.verifies else RequestState.FAILED
        return read(request)

    monkeypatch.setattr(jobs, "read", cancelled)
    found = run(jobs, repair=True)
    assert str(found.reason).startswith("the repair is failed: ")
    assert [one.purpose for one in jobs.asked] == ["verify", "dump"]


def test_differences_are_repaired_where_changed_keys_could_not_be_read(
    run: Callable[..., TableResult],
) -> None:
    """That reason is older than any repair."""
    results = iter([replace(DIFFERS, reason="it is gone"), EQUAL])
    jobs = Jobs(lambda _: next(results))
    assert run(jobs, repair=True).differences == 0
    assert [one.purpose for one in jobs.asked] == ["verify", "dump", "verify"]


def test_keys_that_moved_are_read_again(run: Callable[..., TableResult]) -> None:
    results = iter([CHANGING, replace(EQUAL, seq=20, rows=1, scope=Scope.KEYS)])
    jobs = Jobs(lambda _: next(results))
    verified = run(jobs)
    assert (verified.outcome, verified.seq, verified.compared_later, verified.later_seq) == (
        VerificationOutcome.EQUAL,
        10,
        1,
        20,
    )
    assert (jobs.asked[1].keys, jobs.asked[1].verifies) == ((("1",),), True)


def test_keys_that_never_rest_are_no_difference(
    run: Callable[..., TableResult],
) -> None:
    jobs = Jobs(lambda _: CHANGING)
    verified = run(jobs)
    assert (verified.outcome, verified.changing, verified.differences) == (
        VerificationOutcome.CHANGING,
        1,
        0,
    )
    assert len(jobs.asked) == 1 + PASSES_MAX
    assert "changed: 1 keys" in verdict(verified)


def test_differences_are_dumped_merged_and_proven(run: Callable[..., TableResult]) -> None:
    results = iter([DIFFERS, replace(EQUAL, seq=30, rows=1)])
    jobs = Jobs(lambda _: next(results))
    verified = run(jobs, repair=True)
    assert (verified.outcome, verified.repaired, verified.differences) == (
        VerificationOutcome.EQUAL,
        1,
        0,
    )
    assert [(one.purpose, one.keys) for one in jobs.asked] == [
        ("verify", None),
        ("dump", (("7",),)),
        ("verify", (("7",),)),
    ]
    assert len(jobs.merged) == 1


def test_keys_that_move_before_and_after_a_repair_are_read_each_time(
    run: Callable[..., TableResult],
) -> None:
    """Under the id of a request that has ended, the worker would answer with what it read then."""
    both = replace(DIFFERS, changing=1, changed_keys=(("1",),))
    one = replace(EQUAL, seq=20, rows=1, scope=Scope.KEYS)
    moves = replace(
        one, outcome=VerificationOutcome.CHANGING, rows=0, changing=1, changed_keys=(("7",),)
    )
    results = iter([both, one, moves, one])
    jobs = Jobs(lambda _: next(results))
    verified = run(jobs, repair=True)
    assert (verified.outcome, verified.repaired) == (VerificationOutcome.EQUAL, 1)
    assert [(one.purpose, one.keys) for one in jobs.asked] == [
        ("verify", None),
        ("verify", (("1",),)),
        ("dump", (("7",),)),
        ("verify", (("7",),)),
        ("verify", (("7",),)),
    ]


def test_another_pass_reads_other_rows_in_the_same_way() -> None:
    first = replace(REQUEST, key_range=KeyRange(("1",), None), sample_percent=5)
    again = next_pass(first, "v:p1", T, keys=[("1",)])
    assert (again.request_id, again.tables, again.keys) == ("v:p1", (T,), (("1",),))
    assert (again.key_range, again.sample_percent, again.verifies) == (None, None, True)
    assert how_of(again) == HOW
    whole = next_pass(first, "v:w0", T, key_range=first.key_range, purpose="dump")
    assert (whole.keys, whole.key_range, whole.verifies) == (None, first.key_range, False)
    assert how_of(whole) == HOW


def test_without_repair_nothing_is_dumped(run: Callable[..., TableResult]) -> None:
    jobs = Jobs(lambda _: DIFFERS)
    assert run(jobs).outcome is VerificationOutcome.DIFFERS
    assert all(one.verifies for one in jobs.asked)


def test_what_cannot_be_repaired_is_given_up(run: Callable[..., TableResult]) -> None:
    jobs = Jobs(lambda _: DIFFERS)
    assert run(jobs, repair=True).outcome is VerificationOutcome.DIFFERS
    assert sum(not one.verifies for one in jobs.asked) == REPAIRS_MAX


def test_more_differences_than_are_listed_dump_the_table(run: Callable[..., TableResult]) -> None:
    results = iter([replace(DIFFERS, missing=50_000), EQUAL])
    jobs = Jobs(lambda _: next(results))
    assert run(jobs, repair=True).outcome is VerificationOutcome.EQUAL
    assert [(one.purpose, one.keys) for one in jobs.asked] == [
        ("verify", None),
        ("dump", None),
        ("verify", None),
    ]


def test_a_table_that_could_not_be_read_is_not_compared(run: Callable[..., TableResult]) -> None:
    jobs = Jobs(lambda _: EQUAL)
    jobs.answer = RequestState.FAILED
    verified = run(jobs)
    assert (verified.outcome, verified.reason) == (VerificationOutcome.NOT_COMPARED, "it is gone")
    assert verdict(verified) == "not compared"


def test_a_refused_request_is_an_error(run: Callable[..., TableResult]) -> None:
    jobs = Jobs(lambda _: EQUAL)
    jobs.answer = RequestState.REFUSED
    with pytest.raises(Misconfigured, match="refuses to read"):
        run(jobs)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tables": [], "every": False}, "name tables"),
        ({"tables": [T], "every": True}, "name tables"),
        ({"tables": [T, "a.b"], "key_range": ("1", None)}, "exactly one table"),
        ({"tables": [T], "key_range": ("5", "5")}, "empty"),
        ({"tables": ["nope"]}, "nope"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        make_request(purpose="verify", **options)


def test_what_is_printed_holds_keys_and_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    verify._print(Verification("v", "shop", "one", "v", (DIFFERS,)))
    printed = capsys.readouterr().out
    assert "public.t missing 7" in printed
    assert verdict(EQUAL) == "equal at seq 10 (source time 2023-11-14 22:13:20Z)"
    assert "a sample of 5 %" in verdict(replace(EQUAL, sample_percent=5))
