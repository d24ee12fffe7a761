"""A standalone cluster's master: whether it is there, and what a failed start on it means."""

from __future__ import annotations

import socket

from tideline.cluster_spark import STANDALONE
from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings.spark import master_url
from tideline_spark.failures import unexpected

_ANSWER_S = 10.0
_NO_ADDRESS = ("BindException", "UnknownHostException", "UnresolvedAddressException")


def require_master(master: str) -> None:
    """Raise Misconfigured for the address of no standalone master, and Unavailable where none of
    ``master`` accepts connections: Spark itself would try for a minute, and then only say that its
    context was stopped.

    Other masters are left to Spark.
    """
    if not master.startswith(STANDALONE):
        return
    try:
        master_url(master)
    except ValueError as flaw:
        raise Misconfigured(
            f"Spark's master {master} {flaw}",
            hint="correct merge.master, or the host and port of Airflow's connection",
        ) from None
    for address in master.removeprefix(STANDALONE).rstrip(",").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S):
                return
        except OSError:
            continue
    raise Unavailable(
        f"Spark's master does not answer: {master}",
        hint="start it, or name another in merge.master or in Airflow's connection; nothing was"
        " written, and the next run goes on",
    )


def start_failure(error: Exception, master: str, *, secret: bool) -> TidelineError:
    """Return the error for a session on ``master`` that did not start; ``secret``: the driver has
    one for the cluster."""
    if not master.startswith(STANDALONE):
        return unexpected(error, "starting Spark")
    if any(name in str(error) for name in _NO_ADDRESS):
        return Misconfigured(
            "the driver cannot listen on the address that it is given",
            hint="merge.driver_host is a name or an address of this machine; where executors reach"
            " it by another one, merge.driver_bind_address is the one to listen on",
        )
    reason = (
        "its secret may be another than that of merge.authenticate_secret_file"
        if secret
        else "it may want a secret, and merge.authenticate_secret_file is not set"
    )
    return Unavailable(
        f"Spark's master {master} did not accept this application",
        hint=f"{reason}; or its Spark is another version; or executors cannot reach the driver"
        " (merge.driver_host). The master's log says which",
    )
