"""``python -m devtools cluster``: a standalone Spark cluster on loopback, for trying merges on one.

It stays up until Ctrl-C or SIGTERM. Its files, the secret among them, are in a folder, by default
``.run/cluster`` of the clone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
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
        print("cluster: in the section [merge] of tideline.toml, which init has made:\n")
        print("\n".join(toml_lines(cluster.settings)))
        print("\ncluster: Ctrl-C ends it", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print("cluster: ending …", flush=True)
    finally:
        ignore_interrupts()
        cluster.stop()


def toml_lines(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of ``settings`` for the section ``[merge]``; JSON's texts are TOML's."""
    for key, value in settings.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    yield "shared_files = true    # where store and warehouse are folders of this machine"
