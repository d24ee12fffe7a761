"""Settings of a Spark whose executors are other machines' processes: for commands, and for Airflow.

The secret ones reach Spark once Java runs, or by the environment (`tideline.warehouse.hadoop`): a
command line can be read by every user of the machine.
"""

from __future__ import annotations

from urllib.parse import unquote

from tideline.contract.errors import Misconfigured
from tideline.settings import Merge, Settings
from tideline.settings.addresses import split_url

SHARED_FILES = "spark.tideline.sharedFiles"
"""The setting, of ours and not of Spark's, that holds ``merge.shared_files`` in a session."""

EXECUTORS_WAIT = "spark.tideline.executorsWait"
"""The setting, of ours likewise, that holds ``merge.executors_wait_s``."""

AUTHENTICATE_SECRET = "spark.authenticate.secret"
"""The setting that holds a standalone cluster's secret."""

STANDALONE = "spark://"
"""The beginning of the address of a standalone cluster's master."""


def is_cluster(master: str) -> bool:
    """Return whether ``master`` has executors besides the driver's process."""
    return not master.startswith("local") or master.startswith("local-cluster")


def require_no_folder(settings: Settings) -> None:
    """Check before anything is planned that a job on ``merge.master`` may reach its places: a plan
    is stored, and names its warehouse for good. Raises Misconfigured as `folder_refused`."""
    merge = settings.merge
    if not is_cluster(merge.master) or merge.shared_files:
        return
    for place in (settings.store, settings.warehouse_storage):
        parts = split_url(place.url)
        if parts.scheme == "file":
            raise folder_refused(unquote(parts.path), merge.master)


def folder_refused(folder: str, master: str) -> Misconfigured:
    """Return the error for files that executors on ``master`` may not see."""
    return Misconfigured(
        f"{folder} is a folder, and Spark's executors on {master} may be other machines, each with"
        " a folder of its own of that name",
        hint="move store and warehouse to S3; or, if it is one mount on all machines, set"
        " merge.shared_files = true",
    )


def executor_settings(merge: Merge, master: str) -> dict[str, str]:
    """Return the settings of executors on ``master`` that hold no secret; {} for a local one."""
    if not is_cluster(master):
        return {}
    sizes = {
        "spark.executor.memory": merge.executor_memory,
        "spark.executor.cores": merge.executor_cores,
        "spark.cores.max": merge.cores_max,
    }
    found = {name: str(value) for name, value in sizes.items() if value is not None}
    found |= {SHARED_FILES: str(merge.shared_files).lower()}
    if master.startswith(STANDALONE):  # Others have queues, or machines that have yet to start.
        found |= {EXECUTORS_WAIT: f"{merge.executors_wait_s:g}"}
    return found


def driver_settings(merge: Merge, master: str) -> dict[str, str]:
    """Return the addresses of a driver that runs on this machine; {} for a local master."""
    if not is_cluster(master):
        return {}
    addresses = {
        "spark.driver.host": merge.driver_host,
        "spark.driver.bindAddress": merge.driver_bind_address or merge.driver_host,
    }
    return {name: value for name, value in addresses.items() if value is not None}


def secret_settings(merge: Merge, master: str) -> dict[str, str]:
    """Return the settings by which a driver knows a standalone cluster's secret; {} without one.

    Other clusters make one for each application, where ``spark.authenticate`` is on. Raises
    Misconfigured for a file that cannot be read.
    """
    secret = merge.secret() if master.startswith(STANDALONE) else None
    if secret is None:
        return {}
    return {
        "spark.authenticate": "true",
        AUTHENTICATE_SECRET: secret,
        "spark.network.crypto.enabled": "true",
    }


def cluster_settings(merge: Merge, master: str) -> dict[str, str]:
    """Return all of them, for a driver that runs in this process."""
    return {
        **executor_settings(merge, master),
        **driver_settings(merge, master),
        **secret_settings(merge, master),
    }
