"""Keys of ``[merge]`` beside Spark's own parsers: what those accept is accepted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from tideline.settings import Merge
from tideline.settings.spark import heap_bytes
from tideline_spark.failures import SparkFailure


def drawn(pieces: list[str], most: int, times: int) -> Iterator[str]:
    chosen = random.Random(7)
    for _ in range(times):
        yield "".join(chosen.choices(pieces, k=chosen.randint(1, most)))


def taken(key: str, text: str) -> bool:
    try:
        Merge.model_validate({key: text})
    except ValidationError:
        return False
    return True


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Any:
    return spark._jvm


def read(call: Any, *words: str) -> Any:
    """What Spark makes of it; None where it refuses."""
    try:
        return call(*words)
    except SparkFailure:
        return None


def test_memory(java: Any) -> None:
    parse = java.org.apache.spark.network.util.JavaUtils.byteStringAsBytes
    units = ["", "b", "k", "kb", "m", "mb", "g", "gb", "t", "tb", "p", "x", "bb", " g", "K", "GB"]
    numbers = ["", "0", "1", "2", "512", "0900", "2097152", "3221225472", "1.5", "-1", "+1"]
    both = 0
    for text in (f" {number}{unit}" for number in numbers for unit in units):
        size = read(parse, text)
        possible = size is not None and 450 << 20 <= size <= 64 << 40
        plain = text.strip().isdecimal()
        assert taken("executor_memory", text) is (possible and not plain), text
        if taken("executor_memory", text):
            both += 1
            assert heap_bytes(text) == size == parse(Merge(executor_memory=text).executor_memory)
    assert both > 20


def test_masters_of_this_machine(java: Any) -> None:
    regexes = java.org.apache.spark.SparkMasterRegex
    patterns = [
        regexes.LOCAL_N_REGEX().pattern(),
        regexes.LOCAL_N_FAILURES_REGEX().pattern(),
        regexes.LOCAL_CLUSTER_REGEX().pattern(),
    ]
    parts = ["1", "2", "*", "x", ",", ", ", " "]
    texts = [
        f"{name}[{one}]" for name in ("local", "local-cluster") for one in drawn(parts, 5, 250)
    ]
    found = {text: any(one.matcher(text).matches() for one in patterns) for text in texts}
    assert {text for text in texts if taken("master", text)} == {
        text for text, matches in found.items() if matches
    }
    assert 5 < sum(found.values()) < len(found)


def test_masters_of_a_standalone_cluster(java: Any) -> None:
    parse = java.org.apache.spark.util.Utils.extractHostPortFromSparkUrl
    pieces = ["h", "H", "1", ".", "-", "_", "10.0.0.7", "[::1]", "[", "::1", "example.org", "@"]
    texts = [f"spark://{one}:7077" for one in drawn(pieces, 3, 60)]  # Each refusal takes 50 ms.
    texts += ["spark://h", "spark://h:", "spark://h:7/", "spark://h:7?a"]
    spark_takes = {text for text in texts if read(parse, text) is not None}
    assert {text for text in texts if taken("master", text)} == spark_takes
    assert 10 < len(spark_takes) < len(texts)


def test_masters_of_kubernetes(java: Any) -> None:
    parse = java.org.apache.spark.util.Utils.checkAndGetK8sMasterUrl
    for text in (
        "k8s://h",
        "k8s://h:6443",
        "k8s://https://h:6443",
        "k8s://http://h",
        "k8s://f://h",
    ):
        assert taken("master", text) is (read(parse, text) is not None), text


def test_hosts(java: Any) -> None:
    """But for a name with a ``_``, which passes this check and is no address of a process."""
    check = java.org.apache.spark.util.Utils.checkHost
    for text in ("h", "h.example.org", "10.0.0.7", "[::1]", "h:1", "1:2:3"):
        spark_takes = True
        try:
            check(text)
        except SparkFailure:
            spark_takes = False
        assert taken("driver_host", text) is spark_takes, text
