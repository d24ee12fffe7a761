"""What is said of Spark's failures: names, never the text, which can hold row values."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tideline.contract.errors import CorruptData, InvariantBroken, Misconfigured, Unavailable
from tideline_spark.failure_texts import VARIABLE
from tideline_spark.failures import SparkFailure, explain, is_conflict
from tideline_spark.partition_values import REFUSED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RACE = (
    "org.apache.spark.sql.delta.exceptions.ConcurrentAppendException:"
    " [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] at partition secret"
)


@pytest.mark.parametrize(
    ("query", "named", "kind"),
    [
        ("SELECT cast('[SECRET]' AS int)", "CAST_INVALID_INPUT", InvariantBroken),
        (
            "SELECT cast(v AS int) FROM VALUES ('[SECRET]') AS t(v)",
            "CAST_INVALID_INPUT",
            InvariantBroken,
        ),
        (
            "SELECT raise_error(concat('[SECRET]', id)) FROM range(1)",
            "USER_RAISED_EXCEPTION",
            Unavailable,
        ),
        ("SELECT `[SECRET]`", "UNRESOLVED_COLUMN", InvariantBroken),
        ("SELECT ('[SECRET]'", "PARSE_SYNTAX_ERROR", InvariantBroken),
    ],
)
def test_conditions_are_named_and_values_are_not(
    spark: SparkSession,
    capfd: pytest.CaptureFixture[str],
    query: str,
    named: str,
    kind: type[Exception],
) -> None:
    """And what the same statement and rows always meet is nothing to wait for."""
    with pytest.raises(SparkFailure) as raised:
        spark.sql(query).collect()
    assert "SECRET" in str(raised.value)
    error = explain(raised.value, "merging public.t")
    assert type(error) is kind
    assert named in error.message
    assert VARIABLE in str(error.hint)
    assert "SECRET" not in str(error)
    assert "SECRET" not in "".join(capfd.readouterr()), "PySpark logs an error's text"


def failed(spark: SparkSession, query: str = "SELECT cast('[SECRET]' AS int)") -> Exception:
    with pytest.raises(SparkFailure) as raised:
        spark.sql(query).collect()
    error: Exception = raised.value
    return error


def test_the_whole_text_goes_to_a_file_where_an_operator_asks_for_it(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "errors"
    monkeypatch.setenv(VARIABLE, str(file))
    for doing in ("merging public.t", "merging public.u"):
        assert "SECRET" not in str(explain(failed(spark), doing))
    text = file.read_text()
    assert text.index("while merging public.t: ") < text.index("while merging public.u: ")
    assert text.count("'[SECRET]'") > 1 and "org.apache.spark" in text, "the stack is there, too"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "SECRET" not in "".join(capfd.readouterr())


def test_or_to_standard_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "-")
    explain(failed(spark), "merging public.t")
    printed, reported = capfd.readouterr()
    assert "SECRET" in reported and "SECRET" not in printed


def test_a_file_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert isinstance(explain(RuntimeError("[SECRET]"), "merging public.t"), Unavailable)
    _, reported = capfd.readouterr()
    assert f"{tmp_path} cannot be written: Is a directory" in reported and "SECRET" not in reported


def test_a_lost_race_is_told_apart() -> None:
    assert is_conflict(RuntimeError(RACE))
    assert not is_conflict(RuntimeError("[CAST_INVALID_INPUT] no"))
    assert isinstance(explain(RuntimeError(RACE), "merging"), Unavailable)


@pytest.mark.parametrize(
    "text",
    [
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///x",
        "java.lang.RuntimeException: file:/x is not a Parquet file. Expected magic number",
        "[PATH_NOT_FOUND] Path does not exist: file:/x",
    ],
)
def test_an_unreadable_part_is_corrupt(text: str) -> None:
    assert isinstance(explain(RuntimeError(text), "merging"), CorruptData)


def test_a_file_is_named_without_the_values_of_its_partitions() -> None:
    class Unreadable(RuntimeError):
        def getMessageParameters(self) -> dict[str, str]:
            return {"path": "s3a://b/w/public/t/area=[SECRET]/day=[SECRET]/part-1.parquet"}

    error = explain(Unreadable("[FAILED_READ_FILE.NO_HINT]"), "merging")
    assert "s3a://b/w/public/t/area=…/day=…/part-1.parquet" in error.message
    assert "SECRET" not in error.message


def test_a_locale_without_the_characters_of_a_partition_is_named() -> None:
    text = "InvalidPathException: Malformed input or input contains unmappable characters: [SECRET]"
    error = explain(RuntimeError(text), "merging")
    assert isinstance(error, Misconfigured) and "LC_ALL" in str(error.hint)
    assert "SECRET" not in str(error)


@pytest.mark.parametrize(
    ("columns", "expected"), [("a", Misconfigured), ("a, no_such_column", InvariantBroken)]
)
def test_a_refused_text_is_told_apart_from_a_failure_that_shows_the_plan(
    spark: SparkSession, columns: str, expected: type[Exception]
) -> None:
    with pytest.raises(SparkFailure) as raised:
        spark.sql(
            f"SELECT {columns} FROM (SELECT raise_error('{REFUSED}') AS a FROM range(1))"  # noqa: S608
        ).collect()
    assert REFUSED in str(raised.value)
    assert type(explain(raised.value, "merging public.t")) is expected


def test_a_driver_whose_memory_a_broadcast_fills_is_out_of_memory(spark: SparkSession) -> None:
    """Spark's own error for it names neither Java's nor its condition for memory."""
    jvm: Any = spark._jvm
    errors = jvm.org.apache.spark.sql.errors.QueryExecutionErrors
    full = errors.notEnoughMemoryToBuildAndBroadcastTableError(
        jvm.java.lang.OutOfMemoryError("Java heap space"), jvm.PythonUtils.toSeq([])
    )
    error = explain(Py4JJavaError("it failed", full), "merging public.t")
    assert isinstance(error, Unavailable) and "out of memory" in error.message
    assert "merge.driver_memory" in str(error.hint)
