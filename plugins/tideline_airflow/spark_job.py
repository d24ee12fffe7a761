"""The base of the operators that start a Spark job of Tideline's, on the Spark provider's
operator."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook

from tideline.cluster_spark import (
    STANDALONE,
    driver_settings,
    executor_settings,
    is_cluster,
    secret_settings,
)
from tideline.contract.errors import Misconfigured, TidelineError
from tideline.java import java_home
from tideline.local_spark import LOCAL, QUICK_LAUNCH, short_lived, spark_home
from tideline.settings import Merge, Settings
from tideline.warehouse.hadoop import handed_on
from tideline.warehouse.job_jars import job_jars
from tideline.warehouse.spark_settings import access_settings
from tideline_airflow.compat import AirflowException, AirflowNotFoundException
from tideline_airflow.log_lines import log_line
from tideline_airflow.pools import SPARK_POOL

CONNECTION_VARIABLE = "TIDELINE_SPARK_CONN_ID"
CONNECTION = "spark_default"
"""The default connection; it need not exist."""
SUBMIT = "spark-submit"
_ENVIRONMENT_IN_ARGUMENTS = ("yarn", "k8s")
"""What is in the names of masters to which the Spark provider passes the environment as arguments,
which others can read: there the cluster itself has the access to S3."""
_SAMPLE = ("yarn", {"queue": "root.default"})
"""Host and extra of the `spark_default` among the samples that Airflow makes on request."""
_REPORTED = "tideline: "
"""The beginning of the last line of our jobs; the kind of error follows."""
Left = TypeVar("Left")
_OF_SIGNAL = 128
_SIGNALS = {one.value: one.name for one in signal.Signals}
_KINDS = {kind.__name__: kind for kind in TidelineError.__subclasses__()}


class SparkJobOperator(SparkSubmitOperator):
    """Takes a slot of the pool `pools.SPARK_POOL`, and the connection of `CONNECTION_VARIABLE`.

    Without a connection the job runs on ``merge.master`` of the settings, its driver here.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("pool", SPARK_POOL)
        kwargs.setdefault("conn_id", os.environ.get(CONNECTION_VARIABLE, CONNECTION))
        # Our receipts show what a killed try has done, in every deploy mode.
        kwargs.setdefault("durable", False)
        super().__init__(**kwargs)

    def submit(
        self, program: str, arguments: Sequence[str], settings: Settings, context: Any
    ) -> None:
        """Run ``program`` with spark-submit; the task's own arguments take precedence over the
        settings. Raises AirflowException when it fails, or the error that the job names."""
        named = self.application
        self.application, self.application_args = program, list(arguments)
        merge = settings.merge
        self._driver_memory = self._driver_memory or merge.driver_memory
        absent = connection_absent(self._conn_id)
        if absent:
            self.log.info("%s: the job runs on %s (merge.master)", absent, merge.master)
        try:
            with self._folded():
                self._hook = self._settled_hook(settings, here=absent is not None)
                SparkSubmitOperator.execute(self, context)
        finally:
            # The next job of this task may be another program.
            self.application, self._hook = named, None

    def left_by(
        self,
        read: Callable[[], Left | None],
        program: str,
        arguments: Sequence[str],
        settings: Settings,
        context: Any,
    ) -> Left | None:
        """Run ``program``, and ``read`` the document that it leaves; None where it left none. The
        document decides, not the exit code: without one the job's error is raised."""
        try:
            self.submit(program, arguments, settings, context)
        except (AirflowException, TidelineError):
            if read() is None:
                raise
        return read()

    def _settled_hook(self, settings: Settings, *, here: bool) -> Any:
        """Return the provider's hook, on our own master or on the connection's."""
        merge = settings.merge
        master, in_cluster = merge.master, False
        if not here:
            master, mode = _connected(self._conn_id, self._deploy_mode)
            in_cluster = mode == "cluster"
        if not is_cluster(master):
            self.conf = {**local_settings(), **(self.conf or {})}
            self._equip(settings)
        elif in_cluster:
            self._place_in_cluster(settings, master)
        else:
            self.conf = {
                **executor_settings(merge, master),
                **driver_settings(merge, master),
                **(self.conf or {}),
            }
            if brings_jars(master):
                self._equip(settings)
        self.jars = self.jars or merge.jars
        standing_in = _standing_in(self._conn_id, master) if here else nullcontext()
        with standing_in, _kubernetes_known():
            hook = self._get_hook()
        if _has_our_environment(hook):
            # Not the task's own: Airflow shows those.
            given = {**access_settings(settings), **secret_settings(merge, master)}
            hook._env_vars = {**(self.env_vars or {}), **handed_on(given)}
        return hook

    def _place_in_cluster(self, settings: Settings, master: str) -> None:
        """Prepare for a driver that runs in the cluster, which has Spark's jars and an access to
        S3 of its own."""
        if master.startswith(STANDALONE):
            raise Misconfigured(
                f"the driver of a Python job cannot run in a standalone cluster: {master}",
                hint=f"set the deploy mode of the connection {self._conn_id} to client: the driver"
                " runs where the task does, the executors in the cluster",
            )
        self.conf = {**executor_settings(settings.merge, master), **(self.conf or {})}
        self.py_files = self.py_files or settings.merge.py_files

    def _equip(self, settings: Settings) -> None:
        """Add what a driver on this machine needs that is started by the installed Spark."""
        self.env_vars = {**local_environment(), **(self.env_vars or {})}
        if not self.jars and settings.merge.jars is None:
            self.jars = ",".join(str(jar) for jar in job_jars(settings))

    @contextmanager
    def _folded(self) -> Iterator[None]:
        """Fold Spark's output into one line that can be opened on Airflow's page."""
        self.log.info("::group::what spark-submit printed")
        try:
            yield
        except AirflowException as failed:
            raise self._as_reported() or _unsaid(failed) from None
        finally:
            self.log.info("::endgroup::")

    def _as_reported(self) -> Exception | None:
        """Return why the job failed, from its last line; None where it printed none."""
        lines = [] if self._hook is None else list(self._hook._last_submit_log_lines)
        text = [line.removeprefix(_REPORTED) for line in lines if line.startswith(_REPORTED)]
        if not text:
            return None
        last = log_line(text[-1])
        kind, _, words = last.partition(": ")
        made = _KINDS.get(kind)
        return AirflowException(last) if made is None else made(words)


def _unsaid(failed: AirflowException) -> AirflowException:
    """Return the error of a job without a last line: the provider's error is mostly its command
    line."""
    code = re.search(r"Error code is: (-?[0-9]+)", str(failed))
    if code is None:
        return failed
    number = int(code[1])
    # The driver's own end reaches spark-submit as a shell would have it.
    name = _SIGNALS.get(-number) or _SIGNALS.get(number - _OF_SIGNAL)
    if name is not None:
        return AirflowException(
            f"spark-submit was ended by {name} before the job said why; the machine does that where"
            " memory runs out: look at its log. Another run goes on where this one ended"
        )
    return AirflowException(
        f"spark-submit ended with exit code {number} before the job said why; what was printed is"
        " in the folded lines of this log"
    )


def _has_our_environment(hook: Any) -> bool:
    """Return whether the job's driver is a process of this machine, to which the provider hands an
    environment as such. It refuses one for a driver in a standalone cluster."""
    master, mode = hook._connection["master"], hook._connection["deploy_mode"]
    return mode != "cluster" and not any(one in master for one in _ENVIRONMENT_IN_ARGUMENTS)


def connection_absent(conn_id: str) -> str | None:
    """Return why there is no connection to take a master from; None where there is one.

    Misconfigured where one is named that does not exist.
    """
    try:
        found = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if conn_id != CONNECTION:
            raise Misconfigured(
                f"Airflow has no connection {conn_id}",
                hint=f"make it (Admin, Connections; type Spark), or unset {CONNECTION_VARIABLE}",
            ) from None
        return f"Airflow has no connection {conn_id}"
    hadoop = any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    if (found.host, found.extra_dejson) == _SAMPLE and not hadoop:
        return f"the connection {conn_id} is Airflow's sample, and no Hadoop is configured here"
    return None


@contextmanager
def _standing_in(conn_id: str, master: str) -> Iterator[None]:
    """Give an absent connection while the hook looks for it, by the environment, where Airflow
    looks first. Without one the hook takes YARN, and says so in the task's log."""
    name = f"AIRFLOW_CONN_{conn_id.upper()}"
    with variable(name, json.dumps({"conn_type": "spark", "host": master})):
        yield


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of this process's environment inside the context."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def brings_jars(master: str) -> bool:
    """Return whether jobs on ``master`` get their jars from this machine: on a local one; and on a
    standalone cluster where ``spark-submit`` is the installed PySpark's, whose driver has no jars
    but Spark's, and hands them to executors."""
    if not is_cluster(master):
        return True
    if not master.startswith(STANDALONE):
        return False
    found = shutil.which(SUBMIT)
    own = str(Path(sys.executable).parent)
    return "SPARK_HOME" not in os.environ and (found is None or str(Path(found).parent) == own)


def connection_master(conn_id: str) -> str:
    """Return the master that the Spark provider takes from the connection."""
    return _connected(conn_id, None)[0]


def _connected(conn_id: str, deploy_mode: str | None) -> tuple[str, str | None]:
    """Return the master and the deploy mode that the Spark provider takes from the connection, the
    latter unless ``deploy_mode`` is given.

    Raises Misconfigured as `_kubernetes_known` does.
    """
    with _kubernetes_known():
        found = SparkSubmitHook(conn_id=conn_id, deploy_mode=deploy_mode)._connection
    return str(found["master"]), found["deploy_mode"]


@contextmanager
def _kubernetes_known() -> Iterator[None]:
    """Raise Misconfigured where a hook is made for Kubernetes, and Airflow's provider that knows it
    is not installed: the hook fails at a name that it did not import, or finds None there."""
    try:
        yield
    except (NameError, RuntimeError):
        if getattr(spark_submit, "kube_client", None) is not None:
            raise
        raise Misconfigured(
            "Airflow's Spark provider cannot use Kubernetes here",
            hint="install apache-airflow-providers-cncf-kubernetes where Airflow runs its tasks",
        ) from None


def at_once(merge: Merge) -> list[str]:
    """Return the argument that says how many tables a job works on concurrently; none by
    default."""
    return [] if merge.tables_at_once is None else ["--tables-at-once", str(merge.tables_at_once)]


def local_settings() -> dict[str, str]:
    """Return the settings under ``conf`` for jobs on a local master."""
    return {**LOCAL, "spark.driver.extraJavaOptions": short_lived()}


def local_environment() -> Mapping[str, str]:
    """Return the environment of ``spark-submit`` for a driver here: our Java, our Python, and the
    installed Spark, whether or not their folders are on Airflow's PATH. ``SPARK_HOME`` is the Spark
    that the jars are chosen for: without it, another Spark's ``spark-submit`` would start that one.
    """
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    if shutil.which(SUBMIT) is None:
        if shutil.which(SUBMIT, path=own) is None:
            raise Misconfigured(
                "no Spark is installed where Airflow runs its tasks",
                hint="install tideline-cdc[spark] there, or name a cluster in an Airflow connection"
                f" and have its {SUBMIT} on PATH",
            )
        path = f"{own}{os.pathsep}{path}"
    given = {"SPARK_LAUNCHER_OPTS": QUICK_LAUNCH, "PYSPARK_PYTHON": sys.executable}
    home = spark_home()
    spark = {} if home is None or not (home / "jars").is_dir() else {"SPARK_HOME": str(home)}
    return {
        **{name: value for name, value in given.items() if name not in os.environ},
        **spark,
        "PATH": path,
        "JAVA_HOME": str(java_home()),
    }


def application(variable: str, program: str) -> str:
    """Return the path of a job's program: what the environment's ``variable`` names, else the
    installed one.

    Found and not imported: it needs Spark.
    """
    named = os.environ.get(variable)
    if named:
        return named
    spec = find_spec("tideline_spark")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    for folder in folders:
        if (path := Path(folder) / program).exists():
            return str(path)
    raise Misconfigured(
        f"tideline_spark/{program} is not installed here",
        hint=f"install tideline-cdc[spark], or set {variable}",
    )
