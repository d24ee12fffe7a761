"""What a session of ours asks Java for, and the Sparks that it does not start with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.warehouse.hadoop import AUTHORITIES, S3_CLIENT
from tideline_spark import session
from tideline_spark.formats.registry import FORMATS
from tideline_spark.session import make_session, remember


class Package:
    """Py4J's view of Java's names: it asks for each part of each name that it is asked for."""

    def __init__(self, name: str, asked: Counter[str]) -> None:
        self._name = name
        self._asked = asked

    def __getattr__(self, part: str) -> Package:
        name = f"{self._name}.{part}"
        self._asked[name] += 1
        return Package(name, self._asked)


def test_names_that_are_remembered_are_asked_for_once() -> None:
    asked = Counter[str]()
    jvm = Package("", asked)
    remember(jvm, ("functions", "org.apache.hadoop.fs", "org.apache.spark"))
    remembered = {".functions", ".org", ".org.apache", ".org.apache.hadoop", ".org.apache.spark"}
    assert asked == dict.fromkeys({*remembered, ".org.apache.hadoop.fs"}, 1)
    assert jvm.functions is jvm.functions
    assert jvm.org.apache.hadoop.fs.Path is not jvm.org.apache.hadoop.fs.Path
    assert asked[".org.apache.hadoop.fs.Path"] == 2
    assert set(asked.values()) == {1, 2}


@pytest.mark.parametrize("release", ["3.5.9", "4.0.0", "4.1.2"])
def test_no_java_is_started_for_a_pyspark_that_is_refused(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", release)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: pytest.fail("started"))
    monkeypatch.setattr(session, "_start_java", lambda _: pytest.fail("started"))
    with pytest.raises(Misconfigured, match=f"Spark {release}"):
        make_session(master="local[1]")


class DeltaLog(JavaClass):  # type: ignore[misc]
    """Delta's class, as Py4J shows it, from the jar that is built for Spark ``built``."""

    def __init__(self, built: str) -> None:
        self._built = built

    @property
    def _java_lang_class(self) -> SimpleNamespace:
        location = SimpleNamespace(
            getPath=lambda: f"/jars/delta-spark_{self._built}_2.13-4.4.0.jar"
        )
        source = SimpleNamespace(getLocation=lambda: location)
        domain = SimpleNamespace(getCodeSource=lambda: source)
        return SimpleNamespace(getProtectionDomain=lambda: domain)


class Session:
    """A session of Spark ``version``, whose Java has Delta's jars for ``built``."""

    def __init__(self, version: str, built: str) -> None:
        self.version = version
        self.stopped = False
        sql = SimpleNamespace(classic=None, delta=SimpleNamespace(DeltaLog=DeltaLog(built)))
        apache = SimpleNamespace(hadoop=SimpleNamespace(fs=None), spark=SimpleNamespace(sql=sql))
        self._jvm = SimpleNamespace(
            org=SimpleNamespace(apache=apache), functions=0, PythonUtils=0, PythonSQLUtils=0
        )

    def stop(self) -> None:
        self.stopped = True


def made(monkeypatch: pytest.MonkeyPatch, found: Session, package: str = "4.1.3") -> SparkSession:
    """``package``: the PySpark that asks for the session."""
    monkeypatch.setattr(pyspark, "__version__", package)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: found)
    monkeypatch.setattr(session, "java_names", lambda _: found._jvm)
    monkeypatch.setattr(session, "_start_java", lambda _: None)
    return make_session(master="local[1]")


def test_a_java_of_a_refused_release_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FORMATS", {})
    found = Session("4.0.0", "4.0")
    with pytest.raises(Misconfigured, match=r"Spark 4\.0\.0 is refused"):
        made(monkeypatch, found)
    assert found.stopped


@pytest.mark.parametrize(
    "package, java, same",
    [
        ("4.1.3", "4.0.4", False),
        ("4.0.4", "4.1.3", False),
        ("4.1.3", "4.1.4", True),
        ("4.2.0", "4.2.0-amzn-1", True),
    ],
)
def test_a_java_of_another_line_than_pyspark_is_ended(
    monkeypatch: pytest.MonkeyPatch, package: str, java: str, same: bool
) -> None:
    monkeypatch.setattr(session, "FORMATS", {})
    found = Session(java, java[:3])
    if same:
        made(monkeypatch, found, package)
    else:
        with pytest.raises(Misconfigured, match=f"PySpark {package} drives Spark {java}") as caught:
            made(monkeypatch, found, package)
        assert "SPARK_HOME" in str(caught.value.hint)
    assert found.stopped is not same


def test_delta_that_is_built_for_another_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Session("4.1.3", "4.2")
    with pytest.raises(
        Misconfigured, match=r"built for Spark 4\.2, and this is Spark 4\.1\.3"
    ) as at:
        made(monkeypatch, found)
    assert "delta-spark_4.1_2.13" in str(at.value.hint) and found.stopped


def test_delta_that_is_built_for_this_line_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Session("4.1.3", "4.1")
    made(monkeypatch, found)
    assert not found.stopped


@dataclass
class Started:
    """What a session was started with: Java's settings, Spark's, and the order of the steps."""

    java: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Nothing is started; what would be is noted."""
    found = Started()

    def start_java(settings: Mapping[str, str]) -> None:
        found.java.update(settings)
        found.steps.append("java")

    def get(builder: SparkSession.Builder) -> Session:
        found.spark.update({name: str(value) for name, value in builder._options.items()})
        found.steps.append("spark")
        return Session("4.1.3", "4.1")

    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    monkeypatch.setattr(session, "_start_java", start_java)
    monkeypatch.setattr(session, "trust", found.steps.append)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get)
    monkeypatch.setattr(session, "java_names", lambda made: made._jvm)
    monkeypatch.setattr(session, "FORMATS", {})
    return found


def test_what_java_is_started_with_holds_no_other_setting(started: Started) -> None:
    """Its command line can be read by everybody, and the others can be secret."""
    secret = "spark.hadoop.fs.s3a.bucket.b.secret.key"
    others = {secret: "canary"}
    make_session(master="local[1]", jars=["a.jar", "b.jar"], java_options="-Xx", others=others)
    assert "canary" not in str(started.java)
    assert started.java["spark.master"] == "local[1]"
    assert started.java["spark.jars"] == "a.jar,b.jar"
    assert started.java["spark.driver.extraJavaOptions"] == "-Xx"
    assert started.spark[secret] == "canary"


def test_java_is_told_as_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []

    def launch(conf: SparkConf) -> SimpleNamespace:
        told.append(dict(conf.getAll()))
        return SimpleNamespace(jvm=None)

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr("pyspark.core.context.launch_gateway", launch)
    session._start_java({"spark.master": "local[1]"})
    session._start_java({"spark.master": "local[2]"})
    assert told == [{"spark.master": "local[1]"}], "it is started once"


def test_settings_of_correct_results_are_nobody_elses(started: Started) -> None:
    make_session(master="local[1]", others={"spark.sql.ansi.enabled": "false"})
    assert started.spark["spark.sql.ansi.enabled"] == "true"


CLIENT = {S3_CLIENT: "org.apache.hadoop.fs.s3a.S3AFileSystem"}


@pytest.mark.parametrize(("others", "asked"), [({}, False), (CLIENT, True)])
def test_jars_for_s3_are_asked_for_where_the_settings_reach_it(
    started: Started, monkeypatch: pytest.MonkeyPatch, others: dict[str, str], asked: bool
) -> None:
    """A session without them is ended."""
    lacking = Misconfigured("jars for S3 are not in this Spark")
    ended: list[object] = []

    def refuse(_: object) -> None:
        raise lacking

    monkeypatch.setattr(session, "require_s3", refuse)
    monkeypatch.setattr(session, "end_session", ended.append)
    if asked:
        with pytest.raises(Misconfigured, match="jars for S3 are not in this Spark"):
            make_session(master="local[1]", others=others)
    else:
        make_session(master="local[1]", others=others)
    assert bool(ended) is asked


@pytest.mark.parametrize(
    ("jars", "has_it"),
    [
        ((), False),
        (("/jars/delta-storage-4.4.0.jar",), False),
        (
            ("/jars/delta-storage-4.4.0.jar", Path("/cache/log-store-0/tideline-log-stores.jar")),
            True,
        ),
        (("https://jars.example/tideline-log-stores.jar",), True),
    ],
)
def test_our_log_store_of_files_is_used_where_its_jar_is_given(
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
    jars: tuple[str | Path, ...],
    has_it: bool,
) -> None:
    """A cluster's own list may not have it, and Delta ends at a class that it lacks."""
    monkeypatch.setattr(session, "FORMATS", FORMATS)
    make_session(master="local[1]", jars=jars)
    assert ("spark.delta.logStore.file.impl" in started.spark) is has_it


def test_authorities_are_trusted_before_spark_is_started(started: Started) -> None:
    make_session(master="local[1]", others={AUTHORITIES: "/a.pem:/b.pem"})
    assert started.steps == ["java", "/a.pem:/b.pem", "spark"]
    assert AUTHORITIES not in started.spark
