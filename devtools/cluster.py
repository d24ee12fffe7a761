"""``python -m devtools cluster``: a standalone Spark cluster on loopback, for trying merges on one.

It stays up until Ctrl-C or SIGTERM. Its files, the secret among them, are in ``.run/cluster`` of
the clone.
"""

from __future__ import annotations

import threading
from pathlib import Path

from devtools.services.process import leftovers
from devtools.services.spark_cluster import SparkCluster
from devtools.signals import ignore_interrupts, interrupt_on_sigterm

FOLDER = Path(__file__).resolve().parents[1] / ".run" / "cluster"


def run(workers: int, cores: int, memory: str, port: int | None, folder: Path = FOLDER) -> None:
    """Start the cluster, print the settings with which commands use it, and wait for a signal.

    Raises Misconfigured where another one runs in ``folder``, or ``port`` is taken; whatever
    happens, no process is left behind.
    """
    interrupt_on_sigterm()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    leftovers(folder)
    cluster = SparkCluster(folder, port=port, workers=workers, cores=cores, memory=memory)
    try:
        cluster.start()
        print(f"cluster: {workers} workers with {cores} cores and {memory} each")
        print(f"cluster: the master's page, without a login: {cluster.master.page}")
        print("cluster: in tideline.toml:\n\n[merge]")
        for key, value in cluster.settings.items():
            print(f'{key} = "{value}"')
        print("shared_files = true    # where store and warehouse are folders of this machine")
        print("\ncluster: Ctrl-C ends it", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print("cluster: ending …", flush=True)
    finally:
        ignore_interrupts()
        cluster.stop()
