"""What a merge does with rows, as SQL: no Spark is started here."""

from __future__ import annotations

from tideline_spark.formats.statements import RowClause, RowMerge, RowUpdate, of_source, of_target


def test_a_merge_has_a_clause_for_each_side() -> None:
    merge = RowMerge(
        "changes",
        f"{of_target('a`b')} = {of_source('a`b')}",
        (RowClause("x OR y"), RowClause(values={"a`b": "1", "n": "NULL"})),
        RowClause("z", {"a`b": of_source("a`b")}),
        RowClause(),
    )
    assert merge.sql("delta.`t`").splitlines() == [
        "MERGE INTO delta.`t` AS _tl_target USING changes AS _tl_source"
        " ON _tl_target.`a``b` = _tl_source.`a``b`",
        "WHEN MATCHED AND (x OR y) THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET _tl_target.`a``b` = 1, _tl_target.`n` = NULL",
        "WHEN NOT MATCHED AND (z) THEN",
        "INSERT (`a``b`) VALUES (_tl_source.`a``b`)",
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ]
    assert len(RowMerge("changes", "true").sql("t").splitlines()) == 1


def test_an_update_is_of_all_rows_or_of_some() -> None:
    assert RowUpdate({"a b": "1", "c": "d"}).sql("t") == "UPDATE t SET `a b` = 1, `c` = d"
    assert RowUpdate({"c": "d"}, "e OR f").sql("t") == "UPDATE t SET `c` = d WHERE e OR f"
