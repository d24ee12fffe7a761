"""Shows that the parity suite sees: `python -m tests.spark.parity_mutants [NAME…]`.

Each mutant changes one decision of the code that merges are made of; within a few histories the
model must differ from the target, or the merge must fail. Exit status 1 when one survives.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from msgspec.structs import replace
from pyspark.sql import functions as F

from console.services.jars import delta_jars
from console.services.java import java_home
from spark_jobs import columns, refill, target_columns
from spark_jobs.schemas import UNCHANGED
from spark_jobs.schemas import column as col
from spark_jobs.session import SHORT_LIVED, make_session
from tests.spark.test_parity import compare
from tideline.contract import evolution
from tideline.contract.evolution import Ancestor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEEDS = (10, 11, 12, 13)


def _without(name: str) -> Callable[..., str | None]:
    """The refill, but for one of the things that it does."""

    def mutant(target: str, schema: Any, stands: Any, mode: Any) -> str | None:
        less = replace(stands, refill=replace(stands.refill, **{name: {}}))
        return _REFILL(target, schema, less, mode)

    return mutant


_REFILL = refill.refill_statement


def _nulls(ancestor: Ancestor, data_type: Any) -> Any:
    return F.lit(None).cast(data_type)


def _one_epoch(plan: Any, schema: Any) -> list[int]:
    return [len(plan.changes)]


def _no_drop(state: Any, name: str, *, ignored: bool) -> None:
    return None


MUTANTS: Mapping[str, tuple[object, str, Any]] = {
    "rows skip the later steps": (columns, "ancestors", lambda n, c: {x: Ancestor(x) for x in n}),
    "older rows have no default": (columns, "default_value", _nulls),
    "all rows are of the newest schema": (columns, "_epochs", _one_epoch),
    "overflow of parts keeps old names": (columns, "_renamed", lambda r, name: col(name)),
    "unchanged keeps old names": (columns, "_unchanged", lambda r: col(UNCHANGED)),
    "the target is not filled": (target_columns, "refill_statement", _without("fills")),
    "overflow of the target keeps old names": (
        target_columns,
        "refill_statement",
        _without("names"),
    ),
    "a dropped column keeps its values": (evolution._State, "_drop", _no_drop),
}


def caught(spark: SparkSession, name: str) -> int | None:
    """After how many histories the mutant was caught; None: it survived all."""
    where, attribute, instead = MUTANTS[name]
    with patch.object(where, attribute, instead):
        for count, seed in enumerate(_SEEDS, 1):
            with tempfile.TemporaryDirectory() as root:
                try:
                    compare(spark, Path(root), seed, frozenset(), drop_columns=False)
                except AssertionError:
                    return count
    return None


def main(names: list[str]) -> int:
    os.environ["JAVA_HOME"] = str(java_home())
    with tempfile.TemporaryDirectory() as scratch:
        spark = make_session(
            master="local[2]",
            driver_memory="1g",
            jars=delta_jars(),
            scratch=scratch,
            java_options=SHORT_LIVED,
        )
        survived = 0
        for name in names or MUTANTS:
            histories = caught(spark, name)
            survived += histories is None
            print(f"{name:40} {'survived' if histories is None else f'caught after {histories}'}")
            sys.stdout.flush()
        spark.stop()
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
