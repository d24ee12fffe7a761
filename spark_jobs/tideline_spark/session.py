"""The Spark session that merges run in, with every setting that table formats and our parts need.

Each setting is measured, or needed for correct values: timestamps are read and written unchanged
(no calendar rebase, no INT96), names are case-sensitive, missing or torn files are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tideline.cluster_spark import AUTHENTICATE_SECRET, is_cluster
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.local_spark import LOCAL
from tideline.spark_versions import spark_line
from tideline.warehouse.hadoop import AUTHORITIES, S3_CLIENT
from tideline_spark.executors import require_executor
from tideline_spark.files import java_names
from tideline_spark.formats.registry import FORMATS
from tideline_spark.java_classes import require_s3
from tideline_spark.standalone import require_master, start_failure
from tideline_spark.trust import trust, trusted_by_executors

_EXTENSIONS = "spark.sql.extensions"
_JARS = "spark.jars"
_BROADCAST_BYTES_MAX = 10 * 1024 * 1024
_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    # Names and defaults of columns are in statements: ${env:…} in one must not be substituted.
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # Pages of parts have checksums: without this they would not be checked.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Each call of an API function would report its calling line to Java.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark estimates rows by the compressed size of their files: parts of ten million keys pass for
    # less than the threshold, and their table for more than the driver holds. So sides of a join
    # are broadcast by the size that their shuffle has measured; see `FEW`.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": str(_BROADCAST_BYTES_MAX),
}
FEW: Mapping[str, str] = {"spark.sql.autoBroadcastJoinThreshold": str(_BROADCAST_BYTES_MAX)}
"""Settings for a session whose source has few rows, by their count: they are broadcast unmeasured,
so that the target, however large, is not shuffled."""
SMALL: Mapping[str, str] = {
    # Each stage would be a separate job, and be followed by replanning.
    "spark.sql.adaptive.enabled": "false",
    # To compile a statement takes longer than to interpret it for so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for a session in which a few local rows are merged into a small table. Measured: 20
such merges take half of the CPU, and 8 jobs each instead of 22. Nothing is broadcast: that would be
a job more."""

LONG_LIVED_SETTINGS: Mapping[str, str] = {
    # Spark keeps the last thousand of each for its pages, which are not served.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    # Jobs of threads that name a pool of their own share the cores.
    "spark.scheduler.mode": "FAIR",
}
"""Settings for a session of thousands of merges."""

TABLES_AT_ONCE_MAX = 16
_JAVA_NAMES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.hadoop.fs",
    "org.apache.spark.sql.classic",
)
"""Java names that PySpark and we look up repeatedly. Py4J asks each time, part by part, and Java
searches 300 jars for a class of that name before it finds that it is a package."""
_TALKATIVE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's loggers that write an error's whole text, row values included, to stderr."""
_DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's errors can quote row values, and reach us as exceptions in addition to the log.
    "spark.log.level": "FATAL",
}
_LOCAL: Mapping[str, str] = {**LOCAL, "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"}


def make_session(
    *,
    master: str | None = None,
    driver_memory: str | None = None,
    jars: Sequence[str | Path] = (),
    app_name: str = "tideline-merge",
    scratch: str | Path | None = None,
    java_options: str | None = None,
    others: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session of this process, made if there is none yet.

    ``master``, ``driver_memory`` and ``jars`` (the table formats') are for a process that starts
    its own JVM; under ``spark-submit`` its own options give them, and None leaves them alone. A
    local master listens on loopback only and shuffles into two partitions, unless set otherwise
    there. ``scratch`` is where Spark spills; ``java_options`` go to a JVM that is started here
    (`tideline.local_spark.SHORT_LIVED`). ``others`` are Spark settings that ours do not cover,
    those of `tideline.warehouse.hadoop` among them: they can be secret, and reach Spark once Java
    runs, not by its command line. Raises Misconfigured where Spark lacks what a table format needs,
    or is a release that jobs may not run on, and for authorities that Java cannot read; Unavailable
    where a cluster does not answer, or gives no executor.
    """
    spark_line(pyspark.__version__)  # Before a Java is started for it.
    given = {} if master is not None else _submitted()
    place = master or given.get("spark.master", "")
    require_master(place)
    if jars:
        given[_JARS] = ",".join(str(jar) for jar in jars)
    unsaid = dict(others or {})
    authorities = unsaid.pop(AUTHORITIES, None)
    ours = _ours({**given, **unsaid})
    settings = {**_DEFAULTS, **(_LOCAL if place.startswith("local") else {}), **given, **ours}
    if driver_memory is not None:
        settings["spark.driver.memory"] = driver_memory
    if java_options is not None:
        settings["spark.driver.extraJavaOptions"] = java_options
    if scratch is not None:
        settings["spark.local.dir"] = str(scratch)
        settings["spark.sql.warehouse.dir"] = str(Path(scratch) / "spark-warehouse")
    if master is not None:
        settings["spark.master"] = master
        _start_java(settings)
    if authorities is not None:
        trust(authorities)
        if is_cluster(place):
            settings |= trusted_by_executors(_submitted())
    return _made(app_name, {**settings, **unsaid, **ours}, place)


def _ours(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that correct results need, which no others replace: those of Spark, and
    of the table formats that a session with the settings ``given`` is made for."""
    settings, extensions = {**_SETTINGS}, list[str]()
    jars = {jar.rpartition("/")[2] for jar in given.get(_JARS, "").split(",")}
    for one in FORMATS.values():
        if one.used_by(given):
            settings |= {**one.settings, **(one.settings_in_s3 if S3_CLIENT in given else {})}
            for jar in jars & one.settings_with_jar.keys():
                settings |= one.settings_with_jar[jar]
            extensions += [*filter(None, [one.settings.get(_EXTENSIONS)])]
    return settings | ({_EXTENSIONS: ",".join(extensions)} if extensions else {})


def _made(app_name: str, settings: Mapping[str, str], place: str) -> SparkSession:
    """Start the session with the master ``place``, and check that jobs can run in it."""
    builder = SparkSession.Builder().appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    _silence()
    session = _started(builder, place, secret=AUTHENTICATE_SECRET in settings)
    remember(java_names(session), _JAVA_NAMES)
    _check(session, settings)
    if is_cluster(place):
        _await_executor(session, place)
    return session


def _started(builder: SparkSession.Builder, master: str, *, secret: bool) -> SparkSession:
    """Start the session; a named error where a cluster does not take it in."""
    try:
        return builder.getOrCreate()
    except Py4JError as error:
        if not is_cluster(master):
            raise
        raise start_failure(error, master, secret=secret) from None


def _start_java(settings: Mapping[str, str]) -> None:
    """Start this process's Java, if it has none. PySpark puts all settings that it has by then into
    Java's command line, which everybody on the machine can read."""
    if SparkContext._gateway is None:
        configuration = SparkConf(loadDefaults=False)
        for name, value in settings.items():
            configuration.set(name, value)
        SparkContext._ensure_initialized(conf=configuration)


def _silence() -> None:
    # heavy: no earlier Spark than 4.0 has it, and such a one is refused with an error of ours
    from pyspark.logger import PySparkLogger

    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True


def _check(session: SparkSession, settings: Mapping[str, str]) -> None:
    """End the session and raise Misconfigured where its Spark cannot run jobs: it can be another
    than PySpark's, by ``SPARK_HOME``."""
    try:
        if spark_line(session.version) != spark_line(pyspark.__version__):
            raise Misconfigured(
                f"PySpark {pyspark.__version__} drives Spark {session.version}, of another line",
                hint="install the PySpark of the Spark that SPARK_HOME names, or unset SPARK_HOME",
            )
        for one in FORMATS.values():
            if one.used_by(settings):
                remember(java_names(session), one.java_names)
                one.check(session)
        if S3_CLIENT in settings:
            require_s3(session)
    except Misconfigured:
        end_session(session)
        raise


def _await_executor(session: SparkSession, master: str) -> None:
    """End the session and raise Unavailable where no executor joins."""
    try:
        require_executor(session, master)
    except Unavailable:
        end_session(session)
        raise


def remember(jvm: object, names: Iterable[str]) -> None:
    """Make ``jvm``, Py4J's view of Java's names, cache what it finds for each part of ``names``."""
    for name in names:
        found = jvm
        for part in name.split("."):
            known = getattr(found, part)
            setattr(found, part, known)
            found = known


def side_by_side(spark: SparkSession, wanted: int | None) -> int:
    """Return the number of tables to process at once: ``wanted``, or as many as Spark has cores.

    Planning, which is most of a small merge, is done by this process alone on any cluster.
    """
    if wanted is not None:
        return wanted
    try:
        cores = spark.sparkContext.defaultParallelism
    except (Py4JError, OSError):  # A Java process that is gone is an error of each table.
        cores = 1
    return max(1, min(TABLES_AT_ONCE_MAX, cores))


def end_session(spark: SparkSession) -> None:
    """Stop the session. One whose Java process is gone has nothing left to stop."""
    with suppress(Py4JError, OSError, EOFError):
        spark.stop()


def _submitted() -> dict[str, str]:
    """Return the settings given to ``spark-submit``, whose process holds them, not this one."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())
