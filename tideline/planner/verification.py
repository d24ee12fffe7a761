"""Takes the steps of a verification: for a terminal all at once, for Airflow each in a task.

Rows are read between watermarks; the warehouse is merged up to there; both are compared; keys that
changed in the meantime are read again; and, on request, those that differ are dumped, merged, and
compared again. Every round is bounded, and every request has its own id: a used one would be
answered with the earlier rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from tideline.contract.errors import Misconfigured
from tideline.contract.options import Purpose
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt
from tideline.contract.request import Answer, DumpRequest, KeyRange, RequestState
from tideline.contract.verification import (
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
)
from tideline.contract.verification_results import (
    PASSES_MAX,
    Keys,
    batches,
    keys_to_read,
    keys_to_repair,
    repaired,
    short,
    with_passes,
)
from tideline.planner.merges import plan_merge
from tideline.planner.verified import store_verification
from tideline.planner.verifying import plan_verification, stuck
from tideline.settings import Settings

MERGES_MAX = 10
"""Maximum merges that a comparison runs for the tables which it waits for."""
PLANS_MAX = 20
"""Maximum plans of one such merge: each is capped."""
REPAIRS_MAX = 3


class CompareWork(Protocol):
    """The work outside the planner for a comparison: on Spark, and where users read."""

    def run_plan(self, plan: Plan) -> Receipt:
        """Run the merge of ``plan``; return its receipt."""

    def compare(self, plan: VerifyPlan) -> Verification:
        """Run ``plan`` and store its result, unless it is there."""

    def report(self, text: str) -> None:
        """Report progress."""


class VerifyWork(CompareWork, Protocol):
    """The same work, and requests to the worker."""

    def read(self, request: DumpRequest) -> Answer:
        """Have the worker serve ``request``; return its final answer."""


class RowsRead(NamedTuple):
    """The tables that the worker has read for a request, which ended in a manifest."""

    request_id: str
    manifest_number: int
    tables: Sequence[str]


def next_pass(
    first: DumpRequest,
    request_id: str,
    table: str,
    *,
    keys: Keys | None = None,
    key_range: KeyRange | None = None,
    purpose: Purpose = "verify",
) -> DumpRequest:
    """Make the request for another pass of ``first`` over ``table``, or over some of its rows.

    All that says how rows are read is that of ``first``: its priority and throttle, who asked. Only
    the rows are others.
    """
    return replace(
        first,
        request_id=request_id,
        tables=(table,),
        keys=None if keys is None else tuple(keys),
        key_range=key_range,
        time=None,
        sample_percent=None,
        purpose=purpose,
    )


def compare_rows(
    settings: Settings, work: CompareWork, rows: RowsRead, *, verify_id: str, merge_id: str
) -> Verification:
    """Compare the rows that were read with the warehouse, merged that far first, as ``verify_id``.
    Plans of those merges are named after ``merge_id``. A table whose merge fails is delayed."""
    failed: dict[str, str] = {}
    for attempt in range(MERGES_MAX + 1):
        planned = plan_verification(
            settings,
            rows.request_id,
            verify_id=verify_id,
            finished_in=rows.manifest_number,
            tables=rows.tables,
            failed=failed,
            last_call=attempt == MERGES_MAX,
        )
        if not planned.waiting:
            break
        work.report(f"merging {', '.join(planned.waiting)} up to where they were read")
        failed |= merge_up(settings, work, f"{merge_id}.m{attempt}", planned.waiting)
    return work.compare(planned.plan)


def merge_up(
    settings: Settings, work: CompareWork, name: str, tables: Sequence[str]
) -> Mapping[str, str]:
    """Merge what is new of ``tables``, in plans named after ``name``. Returns the tables that
    failed, each with its error: they are not planned again, a merge has its own retries."""
    failed: dict[str, str] = {}
    for number in range(PLANS_MAX):
        rest = [table for table in tables if table not in failed]
        if not rest:
            break
        plan = plan_merge(settings, plan_id=f"{name}.{number}", tables=rest)
        for table, reason in sorted(plan.delayed.items()):
            work.report(f"{table} is delayed: {reason}")
        if not plan.tables:
            break
        for one in work.run_plan(plan).tables:
            if one.outcome is Outcome.FAILED:
                failed[one.table] = one.error or "its merge failed"
        if plan.to_manifest >= plan.tail:
            break
    return failed


class VerificationRun:
    """One verification from its first request to its result; its name is that request's id."""

    def __init__(
        self,
        settings: Settings,
        work: VerifyWork,
        request: DumpRequest,
        *,
        passes_max: int = PASSES_MAX,
    ) -> None:
        self._settings = settings
        self._work = work
        self._request = request
        self._name = request.request_id
        self._passes_max = passes_max
        self._passes = 0
        self._comparisons = 0
        self._incarnation = ""

    def run(self, *, repair: bool) -> Verification:
        """Return the result, which is stored. Raises Misconfigured when the worker refuses to
        read."""
        results = self._hopeless() or self._settled(self._compared(self._request))
        for number in range(REPAIRS_MAX if repair else 0):
            # A reason after a repair: its dump, merge or comparison has used up its own retries.
            again = [bool(one.differences and not (number and one.reason)) for one in results]
            if not any(again):
                break
            results = [
                self._repair(one, number) if wanted else one
                for one, wanted in zip(results, again, strict=True)
            ]
        result = Verification(
            self._name, self._settings.pipeline, self._incarnation, self._name, tuple(results)
        )
        store_verification(self._settings, result)
        return result

    def _hopeless(self) -> list[TableResult]:
        """Return the tables as delayed, if none of those asked for need be read."""
        delayed = stuck(self._settings, self._request.tables)
        if not set(self._request.tables) <= set(delayed):
            return []
        return [
            TableResult(name, VerificationOutcome.NOT_COMPARED, reason=why)
            for name, why in delayed.items()
        ]

    def _compared(self, request: DumpRequest) -> list[TableResult]:
        """Have rows read for ``request``, and compare them."""
        answer = self._work.read(request)
        if answer.state is RequestState.REFUSED or answer.manifest_number is None:
            raise Misconfigured(
                f"the worker refuses to read: {answer.error or answer.state.value}", answer.hint
            )
        done = [one.table for one in answer.tables if one.state is RequestState.DONE]
        failed = [
            TableResult(
                one.table, VerificationOutcome.NOT_COMPARED, reason=one.error or one.state.value
            )
            for one in answer.tables
            if one.state is not RequestState.DONE
        ]
        if not done:
            return failed
        self._comparisons += 1
        verify_id = f"{self._name}.{self._comparisons}"
        rows = RowsRead(request.request_id, answer.manifest_number, done)
        result = compare_rows(
            self._settings, self._work, rows, verify_id=verify_id, merge_id=verify_id
        )
        self._incarnation = result.incarnation
        return [*result.tables, *failed]

    def _settled(self, results: Sequence[TableResult]) -> list[TableResult]:
        """Read keys again until no key is set aside any more, or the passes are used up."""
        settled = list(results)
        for _ in range(self._passes_max):
            changing = [one for one in settled if one.changed_keys and one.reason is None]
            if not changing:
                break
            for one in changing:
                self._work.report(
                    f"{one.table}: {one.changing:,} keys changed meanwhile; reading them"
                )
            settled = with_passes(settled, self._of_keys(keys_to_read(changing)))
        return settled

    def _of_keys(self, wanted: Iterable[tuple[str, Keys]]) -> list[TableResult]:
        """Have the keys of tables read in a separate pass, and compare them."""
        self._passes += 1
        found = []
        for number, (table, keys) in enumerate(wanted):
            name = f"{self._name}:p{self._passes}.{number}:{short(table)}"
            found += self._compared(next_pass(self._request, name, table, keys=keys))
        return found

    def _repair(self, result: TableResult, number: int) -> TableResult:
        """Dump, merge and compare again the differing keys of ``result``; or, where they are not
        all known, the whole table."""
        keys = keys_to_repair(result)
        many = "the whole table" if keys is None else f"{len(keys):,} keys"
        self._work.report(f"{result.table}: {result.differences:,} differences; dumping {many}")
        for at, batch in enumerate([None] if keys is None else batches(keys)):
            name = f"{self._name}:r{number}.{at}:{short(result.table)}"
            repair = next_pass(self._request, name, result.table, keys=batch, purpose="dump")
            answer = self._work.read(repair)
            if answer.state is not RequestState.DONE:
                reason = f"the repair is {answer.state.value}: {answer.error or 'no reason given'}"
                return replace(result, reason=reason, hint=answer.hint)
        merge_id = f"{self._name}.r{number}.{short(result.table)}"
        failed = merge_up(self._settings, self._work, merge_id, [result.table])
        if failed:
            return replace(result, reason=f"the repair is not merged: {failed[result.table]}")
        if keys is None:
            name = f"{self._name}:w{number}:{short(result.table)}"
            again = next_pass(self._request, name, result.table, key_range=result.key_range)
            return self._settled(self._compared(again))[0]
        later = self._of_keys((result.table, batch) for batch in batches(keys))
        return self._settled([repaired(result, later)])[0]
