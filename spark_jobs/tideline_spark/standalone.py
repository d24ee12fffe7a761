"""A standalone cluster's master: whether it is there, and what a failed start on it means."""

from __future__ import annotations

import socket

from tideline.cluster_spark import STANDALONE
from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline_spark.failures import unexpected

_ANSWER_S = 10.0
_NO_ADDRESS = ("BindException", "UnknownHostException", "UnresolvedAddressException")


def require_master(master: str) -> None:
    """Raise Unavailable where no standalone master of ``master`` accepts connections: Spark itself
    would try for a minute, and then only say that its context was stopped.

    Other masters, and addresses that Spark has to judge, are left to Spark.
    """
    if not master.startswith(STANDALONE):
        return
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            return
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


def start_failure(error: Exception, master: str) -> TidelineError:
    """Return the error for a session on ``master`` that did not start."""
    if not master.startswith(STANDALONE):
        return unexpected(error, "starting Spark")
    if any(name in str(error) for name in _NO_ADDRESS):
        return Misconfigured(
            "the driver cannot listen on the address that it is given",
            hint="merge.driver_host is a name or an address of this machine; where executors reach"
            " it by another one, merge.driver_bind_address is the one to listen on",
        )
    return Unavailable(
        f"Spark's master {master} did not take this application in",
        hint="its secret may be another (merge.authenticate_secret), or its Spark another version;"
        " or executors cannot reach the driver (merge.driver_host). Its log says which",
    )
