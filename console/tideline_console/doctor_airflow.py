"""``tideline doctor --airflow``: checks what the DAGs need, where Airflow runs.

It runs in Airflow's environment: its Python, its settings, its user. It changes only a probe object
in the store and one in the warehouse's folder, and makes and removes a namespace in a catalog of
Iceberg tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.settings import CONFIG_VARIABLE, Settings
from tideline.warehouse.job_jars import job_jars
from tideline_capture.sources.finding import Finding, error, ok, warning
from tideline_console.checks import (
    attempt,
    check_cluster,
    check_control,
    check_store,
    check_warehouse,
    report,
)
from tideline_console.doctor_bigquery import check_bigquery
from tideline_console.doctor_catalog import check_catalog
from tideline_console.doctor_iceberg import check_iceberg
from tideline_console.doctor_jars import check_jars
from tideline_console.doctor_layouts import check_layouts
from tideline_console.modes import check_modes

NAMES = (*("merge", "repair", "backfill", "verify", "rebuild", "maintain", "aggregate", "control"),)
_PROCESS = "_AIRFLOW_PROCESS_CONTEXT"
_NO_DAGS = (
    "put dags/tideline_dags/pipeline.py into Airflow's folder of DAGs, or add"
    " tideline_dags.bundle.TidelineDagBundle to its dag_bundle_config_list"
)


def run(settings: Settings, path: Path) -> int:
    """Print every finding with its fix; return 0 when none keeps the DAGs from running. ``path``:
    the settings file."""
    found = chain(examine(settings), check_modes(settings, path))
    return report(found, good="the DAGs may run", bad="the DAGs may not run")


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield all findings, each as soon as it is known."""
    try:
        import airflow
    except ImportError:
        fix = "run this with the tideline of Airflow's environment, where the provider is installed"
        yield error("airflow", "there is no Airflow in this tideline's environment", fix)
        return
    yield ok("airflow", f"Airflow {airflow.__version__}")
    yield from _settings()
    yield from attempt("store", lambda: check_store(settings))
    yield from attempt("control", lambda: check_control(settings))
    yield from attempt("warehouse", lambda: check_warehouse(settings))
    yield from attempt("layout", lambda: check_layouts(settings), grave=False)
    yield from check_catalog(settings)
    yield from check_iceberg(settings, grave=True)
    yield from check_bigquery(settings, grave=True)
    checks: dict[str, Callable[[], list[Finding]]] = {
        "spark": lambda: check_spark(settings),
        "plugin": check_plugin,
        "dags": check_dags,
        "pool": check_pool,
    }
    for name, check in checks.items():
        yield from attempt(name, check)


def _settings() -> Iterator[Finding]:
    named = os.environ.get(CONFIG_VARIABLE)
    if named is None:
        fix = f"set {CONFIG_VARIABLE} for all of Airflow's processes, or give tideline_dags a path"
        yield warning("settings", f"{CONFIG_VARIABLE} is not set", fix)
    elif not os.access(named, os.R_OK):
        yield error("settings", f"{CONFIG_VARIABLE} names {named}, which cannot be read here")
    else:
        yield ok("settings", f"{CONFIG_VARIABLE} names {named}")


def check_spark(settings: Settings) -> list[Finding]:
    """Report where jobs run, and check what that needs."""
    from tideline_airflow.spark_job import (
        CONNECTION,
        CONNECTION_VARIABLE,
        brings_jars,
        connection_absent,
        connection_master,
        local_environment,
        variable,
    )

    name = os.environ.get(CONNECTION_VARIABLE, CONNECTION)
    # As Airflow looks for its tasks, in its database, too; elsewhere in the environment alone.
    with variable(_PROCESS, "server"):
        absent = connection_absent(name)
        master = settings.merge.master if absent else connection_master(name)
    if absent is None:
        found = [ok("connection", f"jobs run on {master}, as the connection {name} says")]
    else:
        found = [ok("connection", f"{absent}: jobs run on {master} (merge.master)")]
    found += check_cluster(settings, master)
    if not brings_jars(master):
        jars = settings.merge.jars
        wanted = f"the jars of {DEFAULT_FORMAT} tables"
        report = f"merge.jars names {wanted}" if jars else f"{wanted} are to be in its Spark"
        fix = None if jars else "name them in merge.jars if they are not"
        return [*found, ok("jars", report) if jars else warning("jars", report, fix)]
    environment = local_environment()
    jars = settings.merge.jars or ",".join(str(jar) for jar in job_jars(settings))
    return [
        *found,
        ok("java", f"Java 17 or newer: {environment['JAVA_HOME']}"),
        *check_jars(settings, jars.split(",")),
    ]


def check_plugin() -> list[Finding]:
    """Check that Airflow loads our plugin, which makes the pool."""
    from airflow import plugins_manager

    from tideline_airflow.compat import plugin_errors

    plugins_manager.ensure_plugins_loaded()
    failed = [f"{file}: {why}" for file, why in plugin_errors().items()]
    names = {str(plugin["name"]) for plugin in plugins_manager.get_plugin_info()}
    if "tideline" in names:
        return [ok("plugin", "Airflow loads the plugin tideline")]
    fix = "install airflow-provider-tideline in this environment, or put plugins/ into its folder"
    why = f": {'; '.join(failed)}" if failed else ""
    return [error("plugin", f"Airflow does not load the plugin tideline{why}", fix)]


def check_dags() -> list[Finding]:
    """Check that a bundle of Airflow's, by default its folder of DAGs, makes complete sets."""
    from tideline_airflow.compat import bundle_folders, dag_bag

    folders, failed = bundle_folders()
    bags = [dag_bag(folder) for folder in folders.values()]
    findings = [
        warning(
            "dags",
            f"the bundle {name} cannot be read here: {why}; the DAG processor's log says more",
        )
        for name, why in failed.items()
    ]
    findings += [
        error("dags", f"{file} cannot be imported: {trace.strip().splitlines()[-1]}")
        for bag in bags
        for file, trace in bag.import_errors.items()
        if "tideline" in trace
    ]
    ours = {dag_id for bag in bags for dag_id, dag in bag.dags.items() if "tideline" in dag.tags}
    prefixes = {dag_id.rpartition("_")[0] for dag_id in ours}
    if not ours:
        places = ", ".join(f"{folder} ({name})" for name, folder in folders.items()) or "no bundle"
        findings.append(error("dags", f"no DAG of Tideline is in {places}", _NO_DAGS))
    for prefix in sorted(prefixes):
        missing = [name for name in NAMES if f"{prefix}_{name}" not in ours]
        if missing:
            findings.append(error("dags", f"{prefix}: {', '.join(missing)} missing"))
        else:
            findings.append(ok("dags", f"{prefix}_… : {', '.join(NAMES)}"))
    return findings


def check_pool() -> list[Finding]:
    """Check that the pool of Spark jobs exists: a task in a missing pool is never scheduled."""
    from airflow.models.pool import Pool
    from sqlalchemy.exc import SQLAlchemyError

    from tideline_airflow.pools import SPARK_POOL

    try:
        pool = Pool.get_pool(SPARK_POOL)
    except SQLAlchemyError as failed:
        fix = "run `airflow db migrate`, and this with Airflow's own settings and user"
        reason = type(failed).__name__
        return [error("pool", f"Airflow's database cannot be asked: {reason}", fix)]
    if pool is None:
        fix = f"start Airflow's scheduler, which makes it, or: airflow pools set {SPARK_POOL} 1 ''"
        return [error("pool", f"there is no pool {SPARK_POOL}", fix)]
    return [ok("pool", f"the pool {SPARK_POOL} has {pool.slots} slots")]
