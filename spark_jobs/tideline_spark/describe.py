"""Has a target say what the source says of its table: comments, and which columns hold no NULL.

A comment is the source's where the source has one; one that somebody wrote where it has none stays.

NOT NULL is a promise that every writer of the table is held to, us first. So a column is declared
NOT NULL only behind a merge, and only if no row holds NULL in it, and it is declared so no more
before rows are merged that may: when the source says so no longer, or drops or renames the column,
or when a row comes that has no value all the same (one that its type cannot hold, that the log did
not carry, or that is older than the source's word). What the source says is in the table's property
in any case. A log of changes has rows without values (deletes, truncates): there it is said only.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from tideline.contract.description import Described, PlannedDescription
from tideline.contract.modes import Mode
from tideline_spark.formats.base import Target
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import TableWords, undecided
from tideline_spark.parquet import comment_text


def loosen(target: Target, planned: PlannedDescription) -> None:
    """Before rows are merged: no column is NOT NULL any more that the source does not say so of."""
    wanted = frozenset(planned.not_null)
    target.description.rewrite(
        lambda now: TableWords(now.comments, now.firm & wanted, now.described)
    )


def give_way(target: Target) -> TableWords:
    """A row has no value in a column that is NOT NULL: none is any more; what it said before.

    What is to be so is decided again: behind this merge, or, if that is killed, by the next plan.
    """
    table = target.description
    before = table.words()
    table.rewrite(lambda now: TableWords(now.comments, frozenset(), undecided(now.described)))
    return before


def declare_again(target: Target, before: TableWords) -> None:
    """Behind a merge that `give_way` let pass: what still holds no NULL is declared again."""
    table = target.description

    def change(now: TableWords) -> TableWords:
        clean = table.without_null(before.firm & now.columns - now.firm)
        return TableWords(now.comments, now.firm | clean, before.described)

    table.rewrite(change)


def describe(target: Target, planned: PlannedDescription, mode: Mode) -> None:
    """Behind a merge, or without one: comments and NOT NULL as ``planned``."""
    table = target.description
    wanted = frozenset() if mode is Mode.APPEND else frozenset(planned.not_null)

    def change(now: TableWords) -> TableWords:
        clean = table.without_null((wanted - now.firm) & now.columns)
        return _described(now, planned, (now.firm & wanted) | clean)

    table.rewrite(change)


def describe_idle(session: SparkSession, planned: PlannedDescription) -> None:
    """`describe` a target that nothing is merged into; one of another build is left."""
    target = open_target(session.newSession(), planned.target)
    snapshot = target.snapshot()
    if snapshot.exists and snapshot.build == planned.build:
        describe(target, planned, snapshot.mode)


def carry_over(target: Target, live: TableWords, beside: TableWords) -> None:
    """Behind a swap: what the table that was built anew says of itself, which its rows alone do not
    bring along, and the comments that somebody wrote on the live one."""
    theirs = {n: text for n, text in live.comments.items() if n not in live.described.comments}
    target.description.rewrite(
        lambda now: TableWords({**theirs, **beside.comments}, beside.firm, beside.described)
    )


def _described(now: TableWords, planned: PlannedDescription, firm: frozenset[str]) -> TableWords:
    columns = {name: comment_text(text) for name, text in planned.columns.items()}
    source = {**columns, **({"": planned.comment} if planned.comment else {})}
    theirs = {n: text for n, text in now.comments.items() if n not in now.described.comments}
    said = Described(planned.fingerprint, tuple(sorted(source)), planned.not_null)
    return TableWords({**theirs, **source}, firm, said)
