"""``tideline verify``: prove tables equal to their source, or name what differs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import check_patterns
from tideline.contract.request import Answer, DumpRequest, KeyRange, check_request
from tideline.contract.verification import Proof, TableProof, Verification, VerifyPlan
from tideline.control import Asker
from tideline.planner import plan_merge
from tideline.planner.verified import store_verification
from tideline.settings import Settings
from tideline_console.dump import EVERY_TABLE, asked_by, bound, tell_if_nobody_works, watch
from tideline_console.merge import print_held, run_in, store_receipt
from tideline_console.output import say, write_document
from tideline_console.proving import Proving
from tideline_console.spark import spark_session
from tideline_console.tables import moment, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_EQUAL, EXIT_DIFFERS, EXIT_ERROR = 0, 1, 2
KEYS_SHOWN = 20
"""Of the differing keys of a table; the document has more."""
_MERGES_MAX = 20


def make_request(
    tables: Sequence[str],
    *,
    every: bool = False,
    key_range: tuple[str | None, str | None] = (None, None),
    sample: int | None = None,
    priority: int = 0,
    request_id: str | None = None,
) -> DumpRequest:
    """The request that the command line asks for; Misconfigured when its options do not fit."""
    if every == bool(tables):
        raise Misconfigured("name tables, or --all, one of the two")
    check_patterns(tables)
    request = DumpRequest(
        request_id=request_id or f"verify-{uuid.uuid4().hex[:16]}",
        tables=(EVERY_TABLE,) if every else tuple(tables),
        key_range=None if key_range == (None, None) else KeyRange(*map(bound, key_range)),
        priority=priority,
        requested_by=asked_by(),
        purpose="verify",
        sample_percent=sample,
    )
    check_request(request)
    return request


def run(settings: Settings, request: DumpRequest, *, repair: bool, as_json: bool) -> int:
    """Verify, print what came of it; the exit code."""
    with ExitStack() as stack:
        jobs = ConsoleJobs(settings, stack, quiet=as_json)
        result = Proving(settings, jobs, request).run(repair=repair)
    if as_json:
        write_document(result)
    else:
        _print(result)
    proofs = {table.proof for table in result.tables}
    if Proof.DIFFERS in proofs:
        return EXIT_DIFFERS
    return EXIT_EQUAL if proofs == {Proof.EQUAL} else EXIT_ERROR


class ConsoleJobs:
    """`proving.Jobs` in this process; the Spark application ends with ``stack``."""

    def __init__(self, settings: Settings, stack: ExitStack, *, quiet: bool) -> None:
        self._settings = settings
        self._stack = stack
        self._quiet = quiet

    @cached_property
    def _session(self) -> SparkSession:
        return self._stack.enter_context(spark_session(self._settings, "verify"))

    def read(self, request: DumpRequest) -> Answer:
        asker = Asker(self._settings.control, self._settings.pipeline)
        try:
            asker.ask(request)
            tell_if_nobody_works(asker, self.tell)
            return watch(self._settings, asker, request, quiet=self._quiet)
        finally:
            asker.close()

    def merge(self, name: str, tables: Sequence[str]) -> None:
        for number in range(_MERGES_MAX):
            plan = plan_merge(self._settings, plan_id=f"{name}.{number}", tables=list(tables))
            if plan.held and not self._quiet:
                print_held(plan)
            if not plan.tables:
                return
            receipt = run_in(self._session, self._settings, plan)
            store_receipt(self._settings, receipt)
            for one in receipt.tables:
                if one.error is not None:
                    self.tell(f"{one.table}: {one.outcome.value}: {one.error}")
            if plan.b >= plan.tail:
                return

    def compare(self, plan: VerifyPlan) -> Verification:
        from tideline_spark.verify import run_verification

        result = run_verification(
            self._session, plan, tables_at_once=self._settings.merge.tables_at_once
        )
        store_verification(self._settings, result)
        return result

    def tell(self, text: str) -> None:
        if not self._quiet:
            say(text)


def _print(result: Verification) -> None:
    print_table(
        ("table", "result", "rows", "missing", "extra", "different", "sequence", "duplicate",
         "moving", "pending", "repaired"),
        (
            (
                one.table,
                verdict(one),
                one.rows,
                one.missing,
                one.extra,
                one.different,
                one.sequence,
                one.duplicates,
                one.moving,
                one.pending,
                one.repaired,
            )
            for one in result.tables
        ),
    )  # fmt: skip
    for one in result.tables:
        _print_table(one)


def _print_table(table: TableProof) -> None:
    for different in table.keys[:KEYS_SHOWN]:
        columns = f": {', '.join(different.columns)}" if different.columns else ""
        say(f"{table.table} {different.kind} {','.join(different.key)}{columns}")
    if table.differences > min(len(table.keys), KEYS_SHOWN):
        say(f"{table.table}: {table.differences:,} keys differ; --json lists more of them")
    if not table.extra_sought:
        say(
            f"{table.table}: rows that the source does not have were not looked for, because the"
            " order of its keys is the database's own"
        )
    if table.uncompared:
        say(f"{table.table}: not in the warehouse, by settings: {', '.join(table.uncompared)}")
    if table.reason is not None:
        hint = "" if table.hint is None else f"; {table.hint}"
        say(f"{table.table}: {table.reason}{hint}")


def verdict(table: TableProof) -> str:
    """A table's result in words."""
    share = "" if table.sample_percent is None else f" (a sample of {table.sample_percent} %)"
    at = f" at seq {table.seq}"
    if table.source_time_us is not None:
        at += f" (source time {moment(table.source_time_us)})"
    if table.proof is Proof.EQUAL:
        return f"equal{at}{share}"
    if table.proof is Proof.MOVING:
        return f"moving: {table.moving:,} keys, the others equal{at}{share}"
    if table.proof is Proof.DIFFERS:
        return f"{table.differences:,} keys differ{at}{share}"
    return "not proven"
