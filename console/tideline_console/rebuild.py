"""``tideline rebuild``: builds a shadow table, checks it against the live one, and swaps them."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.moves import PlannedMove
from tideline.contract.plan import PlannedSwap
from tideline.contract.printable import command
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.schema import parse_table
from tideline.control.reservation import Reservation
from tideline.planner import begin_rebuild, next_step
from tideline.planner.registration import register
from tideline.planner.runs import store_receipt
from tideline.settings import Settings
from tideline_console.arguments import RebuildOptions
from tideline_console.merge import print_delayed, print_registration, run_in
from tideline_console.output import say
from tideline_console.spark import spark_session

EXIT_FAILED = 1
STEPS_MAX = 10_000
"""A rebuild that has not finished by then will not: the live table moves faster."""


def run(settings: Settings, table: str, options: RebuildOptions) -> int:
    """Take step after step until the tables are swapped; 1 when one fails."""

    if options.restart_before_0_2:
        say("tideline: --anew is called --restart since 0.2.0, and goes with 0.3.0", error=True)
    record = begin_rebuild(
        settings,
        table,
        mode=options.mode,
        since_dump=options.since_dump,
        restart=options.restart or options.restart_before_0_2,
        to=options.to or "",
    )
    target = f", to {record.to}" if record.to else ""
    say(f"rebuild {record.build} of {table}, as {record.mode.value}{target}")
    with (
        spark_session(settings, "rebuild") as session,
        Reservation(settings, record.table, say) as reservation,
    ):
        for _ in range(STEPS_MAX):
            plan = next_step(settings, record, accept_differences=options.accept_differences)
            if plan is None:
                _say_end(settings, record)
                print_registration(register(settings, [record.table]))
                return 0
            if plan.delayed:
                print_delayed(plan)
                return EXIT_FAILED
            if plan.takes_over and reservation.begin():
                continue  # A merger stands still from here on, not where it stood.
            for step in plan.tables:
                say(f"building up to manifest {step.to_manifest}: {len(step.parts)} parts")
            for swap in plan.swaps:
                say(_describe_swap(swap))
            for move in plan.moves:
                say(_describe_move(move))
            receipt = run_in(session, settings, plan)
            store_receipt(settings, receipt)
            if [one for one in receipt.tables if _failed(one)]:
                return EXIT_FAILED
    say(f"{table} was merged faster than it could be rebuilt: run the command again")
    return EXIT_FAILED


def _describe_swap(swap: PlannedSwap) -> str:
    if swap.live_to_manifest is None:
        return f"comparing and swapping at manifest {swap.to_manifest}"
    return (
        f"swapping at manifest {swap.to_manifest}, without comparing: the live table cannot go on"
        f" from manifest {swap.live_to_manifest}"
    )


def _describe_move(move: PlannedMove) -> str:
    if move.copy:
        return f"copying {move.source} to {move.target}"
    return f"comparing with the copy, which takes over, at manifest {move.to_manifest}"


def _say_end(settings: Settings, record: RebuildRecord) -> None:
    if not record.to:
        say(f"{record.table} is rebuilt, as {record.mode.value}")
        return
    say(f"{record.table} is at {record.target}; {command('delete-former', record.table)} removes")
    say("what it was before, which is no longer fed")
    wanted = settings.format_of(parse_table(record.table))
    if wanted != record.to:
        say(f"the settings still say {wanted}: that is what it would be made as if it were removed")


def _failed(one: TableReceipt) -> bool:
    """Report a step's outcome, where it is more than done; return whether it failed."""
    for change in one.external_changes:
        say(f"{one.table}: changed by someone else: {change}")
    for warning in one.warnings:
        say(f"{one.table}: warning: {warning}")
    if one.outcome is Outcome.REFUSED:
        say(f"{one.table}: {one.error}")
    if one.outcome is not Outcome.FAILED:
        _print_differences(one.table, one.differences)
        return False
    say(f"{one.table}: {one.error}")
    if one.hint is not None:
        say(f"  hint: {one.hint}")
    return True


def _print_differences(table: str, differences: Mapping[str, int]) -> None:
    for kind, count in sorted(differences.items()):
        say(f"{table}: {count} keys {kind}")
