"""The jars with which Spark reads and writes S3, for the Hadoop that the installed Spark has.

Hadoop asks for Amazon's whole library, 600 MB. What S3 needs of it are these modules, 12 MB; their
own dependencies, Netty and Apache's HTTP client, Spark has. Their digests are in the files beside
this one, as ``sha256sum`` writes and checks them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

from tideline.contract.errors import Misconfigured
from tideline.jars import JarSet
from tideline.local_spark import spark_home

_AMAZON = "software.amazon.awssdk"
_EXCLUDED = (
    f"{_AMAZON}:bundle",
    "commons-codec:*",
    "commons-logging:*",
    "io.netty:*",
    "org.apache.httpcomponents:*",
    "org.slf4j:*",
    "org.wildfly.openssl:*",
    "software.amazon.encryption.s3:*",
)
_CLIENT = re.compile(r"hadoop-client-api-(\d+\.\d+\.\d+)[\w.-]*\.jar")


def _set(hadoop: str, sdk: str, accelerator: str) -> JarSet:
    # The accelerator is not used, and S3A does not load without it.
    roots = (
        f"org.apache.hadoop:hadoop-aws:{hadoop}",
        *(f"{_AMAZON}:{name}:{sdk}" for name in ("s3", "s3-transfer-manager", "sts")),
        f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{accelerator}",
    )
    name = f"s3-hadoop-{hadoop}"
    # Executed from a wheel's archive, too, in which no path leads.
    listed = files(__package__).joinpath(f"{name}.sha256")
    lines = listed.read_text(encoding="ascii").splitlines()
    digests = {file: digest for digest, file in (line.split() for line in lines)}
    return JarSet("S3's jars", name, roots, _EXCLUDED, digests)


SETS: Mapping[str, JarSet] = MappingProxyType(
    {"3.4.2": _set("3.4.2", "2.29.52", "1.2.1"), "3.5.0": _set("3.5.0", "2.35.4", "1.3.1")}
)
"""By the version of Hadoop that Spark has: 3.4.2 with Spark 4.1, 3.5.0 with 4.2. That of Spark 4.0,
3.4.1, has no create-only write to S3."""


_CLASSES = {
    "org.apache.hadoop.fs.s3a.S3AFileSystem": "hadoop-aws",
    f"{_AMAZON}.services.s3.S3Client": "s3",
    f"{_AMAZON}.transfer.s3.S3TransferManager": "s3-transfer-manager",
}
"""Classes without which S3A does not start, each with the artifact that has it. Amazon's are in its
bundle, too."""


def s3_classes() -> dict[str, str]:
    """Return classes that S3A needs, each with its jar; with a Hadoop that is in no set its own
    alone, and a jar without a version."""
    found = find_s3_jar_set()
    if found is None:
        return dict([next(iter(_CLASSES.items()))])
    versions = dict(root.split(":")[1:] for root in found.roots)
    return {name: f"{artifact}-{versions[artifact]}.jar" for name, artifact in _CLASSES.items()}


def s3_jar_set() -> JarSet:
    """Return the jars for the installed Spark; Misconfigured where S3 cannot be used with it."""
    found = find_s3_jar_set()
    if found is None:
        raise Misconfigured(
            f"S3 cannot be written safely with the Hadoop of this Spark, {_hadoop() or 'unknown'}",
            hint=f"use a Spark with Hadoop {' or '.join(SETS)} (Spark 4.1 or 4.2), or name jars in"
            " merge.jars",
        )
    return found


def find_s3_jar_set() -> JarSet | None:
    """Return the jars for the installed Spark; None where S3 cannot be used with it."""
    return SETS.get(_hadoop() or "")


def _hadoop() -> str | None:
    """Return the version of the Hadoop that the installed Spark has."""
    home = spark_home()
    names = [] if home is None else [path.name for path in (home / "jars").glob("hadoop-client-*")]
    return next((match[1] for name in names if (match := _CLIENT.fullmatch(name))), None)
