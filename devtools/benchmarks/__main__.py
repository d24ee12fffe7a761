"""``python -m devtools.benchmarks [NAME…] [--rows N]``: runs the named ones, all without a name."""

from __future__ import annotations

import argparse
import sys

import structlog

from devtools.benchmarks import (
    cluster,
    follow_latency,
    follow_rounds,
    ladder,
    largest_value,
    merge,
    merge_start,
    mysql_capture,
    mysql_dump,
    mysql_memory,
    postgres_capture,
    postgres_dump,
    postgres_latency,
    publish_latency,
    publish_throughput,
    s3_merge,
    small_merges,
    verify,
)
from devtools.benchmarks.result import encode

_ALL = {
    module.NAME: module.run
    for module in (
        postgres_capture,
        postgres_dump,
        postgres_latency,
        publish_throughput,
        publish_latency,
        s3_merge,
        mysql_capture,
        mysql_dump,
        mysql_memory,
        largest_value,
        merge,
        small_merges,
        follow_latency,
        follow_rounds,
        merge_start,
        verify,
        ladder,
        cluster,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m devtools.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_ALL))
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the bulk workload")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - _ALL.keys())
    if unknown or options.rows < 10_000:
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "--rows must be ≥ 10000")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    for name in options.names or _ALL:
        for line in _ALL[name](options.rows):
            print(encode(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
