"""Jars that Spark is given, known by a class of each."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.warehouse.s3_jars import find_s3_jar_set
from tideline_spark import java_classes
from tideline_spark.java_classes import require_s3


@pytest.mark.skipif(find_s3_jar_set() is None, reason="no jars for S3 with this Spark")
def test_the_jars_for_s3_are_there(spark: SparkSession) -> None:
    require_s3(spark)


def test_a_missing_one_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"java.lang.String": "java.jar", "tideline.Nowhere": "nowhere.jar"}
    monkeypatch.setattr(java_classes, "classes_in_s3", lambda: wanted)
    with pytest.raises(Misconfigured, match=r"not in this Spark: nowhere\.jar;") as lacking:
        require_s3(spark)
    assert "merge.jars" in str(lacking.value.hint) and "DEPLOYMENT" in str(lacking.value.hint)
