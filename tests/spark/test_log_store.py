"""Entries of a table's log in S3: of any number of writers one wins, and knows it.

``RACED_COMMITS`` says how many commits are tried, by four writers together (100).
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from devtools.services.s3 import S3Server
from tests.fixtures.object_storage import place_in
from tests.support.log_stores import plain_create
from tideline.settings import Store
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.delta.jars import delta_jars
from tideline.warehouse.delta.log_store import SOURCE, compile_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITERS = 4
ROUNDS = int(os.environ.get("RACED_COMMITS", "100")) // WRITERS
PAD = "x" * 20_000
"""Makes an entry larger than one packet, so that a torn one would show."""


pytestmark = pytest.mark.drawn


@pytest.fixture
def folder(s3: S3Server, spark_on_s3: SparkSession) -> str:
    return f"{place_in(s3).url}/t/_delta_log"


@pytest.fixture
def objects(s3: S3Server, folder: str) -> ObjectStore:
    return open_store(Store(url=folder, **s3.access))


def race(spark: SparkSession, store: Any, folder: str, objects: ObjectStore) -> list[str]:
    """Have `WRITERS` write each entry of a log; return what went wrong."""
    wrong = []
    jvm: Any = spark._jvm
    configuration = spark._jsc.hadoopConfiguration()
    barrier = Barrier(WRITERS)

    def write(number: int, words: str) -> bool:
        path = jvm.org.apache.hadoop.fs.Path(f"{folder}/{number:020d}.json")
        lines = jvm.java.util.ArrayList()
        lines.add(words)
        barrier.wait()
        try:
            store.write(path, lines.iterator(), False, configuration)
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getName()
            if kind != "java.nio.file.FileAlreadyExistsException":
                wrong.append(f"entry {number}: {kind}")
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(ROUNDS):
            offers = [f"{uuid.uuid4().hex} {PAD}" for _ in range(WRITERS)]
            won = list(pool.map(write, [number] * WRITERS, offers))
            winners = [f"{one}\n".encode() for one, mine in zip(offers, won, strict=True) if mine]
            if winners != [objects.get(f"{number:020d}.json")]:
                wrong.append(f"entry {number}: {len(winners)} winners, or another's bytes")
    return wrong


def test_of_raced_commits_none_is_lost_or_torn(
    spark_on_s3: SparkSession, folder: str, objects: ObjectStore
) -> None:
    configuration = spark_on_s3._jsc.hadoopConfiguration()
    store = spark_on_s3._jvm.tideline.ConditionalLogStore(configuration)  # type: ignore[union-attr]
    assert race(spark_on_s3, store, folder, objects) == []


def test_a_plain_create_loses_some(
    spark_on_s3: SparkSession, folder: str, objects: ObjectStore, tmp_path: Path
) -> None:
    """The mutant without the condition shows that the race is one."""
    store = mutant(spark_on_s3, tmp_path)
    assert any("winners" in one for one in race(spark_on_s3, store, folder, objects))


def mutant(spark: SparkSession, tmp_path: Path) -> Any:
    """The log store without its condition, loaded under another name."""
    text = plain_create(SOURCE.read_text()).replace("ConditionalLogStore", "MutantLogStore")
    source = tmp_path / "MutantLogStore.java"
    source.write_text(text)
    classes = tmp_path / "classes"
    classes.mkdir()
    compile_to(classes, [source], delta_jars())
    jvm: Any = spark._jvm
    urls = spark._sc._gateway.new_array(jvm.java.net.URL, 1)  # type: ignore[union-attr]
    urls[0] = jvm.java.net.URL(f"{classes.as_uri()}/")
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader = jvm.java.net.URLClassLoader(urls, parent)
    made = jvm.java.lang.Class.forName("tideline.MutantLogStore", True, loader)
    kinds = spark._sc._gateway.new_array(jvm.java.lang.Class, 1)  # type: ignore[union-attr]
    kinds[0] = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration", True, parent)
    values = spark._sc._gateway.new_array(jvm.java.lang.Object, 1)  # type: ignore[union-attr]
    values[0] = spark._jsc.hadoopConfiguration()
    return made.getConstructor(kinds).newInstance(values)
