"""Values of ``[merge]`` that Spark takes, as Spark's own parsers read them.

Spark would refuse a wrong one from Java and without the setting's name, or after a minute of
trying, or, where a jar is concerned, not at all.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

from pydantic import AfterValidator

from tideline.settings.addresses import check_host, split_url

_STANDALONE = "spark://"
_KUBERNETES = "k8s://"
_MASTERS = (
    "local[2], local[*], spark://host:7077 (several: spark://one:7077,two:7077), yarn or"
    " k8s://https://host:6443"
)
_COUNT = "0*[1-9][0-9]{0,8}"
_ON_THIS_MACHINE = re.compile(
    rf"local|local\[(\*|{_COUNT})(\s*,\s*{_COUNT})?\]"
    rf"|local-cluster\[\s*{_COUNT}\s*,\s*{_COUNT}\s*,\s*{_COUNT}\s*\]",
    re.ASCII,
)
"""As Spark's `SparkMasterRegex`: threads, and failures of a task; workers, their cores and MiB."""
_WITH_PORT = re.compile(r"(?P<host>.+):(?P<port>[0-9]{1,9})", re.ASCII)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*(?P<last>{_LABEL})\.?")
"""A name as `java.net.URI` reads one, by which Spark addresses its processes: without a ``_``."""
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})(?:(?P<unit>[kmgt])b?|(?P<bytes>b))?", re.ASCII)
_UNITS = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_HEAP_MIN = 450 * _UNITS["m"]
"""Spark's: half as much again as the 300 MiB that it reserves."""
_HEAP_MAX = 64 * _UNITS["t"]
"""Half of what Java can address."""
_PORTS = range(1, 65_536)
_HOSTS = (
    "one is written as merges.example.org (letters, digits, hyphens and dots), 10.0.0.7 or"
    " [2001:db8::7]"
)


def master_url(master: str) -> str:
    """Return ``master``; ValueError for one that no Spark starts on."""
    if master.startswith(_STANDALONE):
        for server in master.removeprefix(_STANDALONE).rstrip(",").split(","):
            _check_server(server)
    elif master.startswith(_KUBERNETES):
        rest = master.removeprefix(_KUBERNETES)
        api = split_url(rest if "://" in rest else f"https://{rest}")
        if api.scheme not in ("https", "http") or not api.hostname:
            raise ValueError("must have the address of Kubernetes: k8s://https://host:6443")
        check_host(api)
    elif master != "yarn" and not _ON_THIS_MACHINE.fullmatch(master):
        raise ValueError(f"must be {_MASTERS}")
    return master


def _check_server(server: str) -> None:
    found = _WITH_PORT.fullmatch(server)
    if found is None or int(found["port"]) not in _PORTS:
        raise ValueError("must have a port with each host: spark://host:7077")
    if not _is_host(found["host"]):
        raise ValueError(f"has a host that Spark does not read: {_HOSTS}")


def _is_host(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        return _is_address(text[1:-1], IPv6Address)
    name = _NAME.fullmatch(text)
    if name is None:
        return False
    # Java takes a name whose last label begins with a digit for a broken address.
    alone = "." not in text
    return alone or name["last"][0].isalpha() or _is_address(text, IPv4Address)


def _is_address(text: str, kind: type[IPv4Address | IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def host(text: str) -> str:
    """Return the name or address ``text`` of a driver as Spark takes one; ValueError for what is
    none."""
    written = f"[{text}]" if _is_address(text, IPv6Address) else text
    if not _is_host(written):
        raise ValueError(f"must be a name or an address, without a port: {_HOSTS}")
    return written


def heap_bytes(size: str) -> int:
    """Return the bytes of a heap's ``size``; ValueError for one that Java or Spark refuses."""
    number, unit = _sized(size)
    return number * _UNITS[unit]


def _sized(size: str) -> tuple[int, str]:
    found = _SIZE.fullmatch(size.strip().lower())
    if found is None:
        raise ValueError("must be a whole number and a unit (k, m, g or t): 512m, 2g")
    number, unit = int(found["number"]), found["unit"] or found["bytes"]
    if unit is None:  # spark.driver.memory is an argument of Java's, too.
        raise ValueError(
            "must have a unit (k, m, g or t), as in 2g: without one, Java reads bytes and Spark MiB"
        )
    if not _HEAP_MIN <= number * _UNITS[unit] <= _HEAP_MAX:
        raise ValueError("must be from 450m, which Spark needs at least, to 64t")
    return number, unit


def _heap(size: str) -> str:
    """Return ``size`` in the form that Java takes, too: ``2gb`` is Spark's alone."""
    number, unit = _sized(size)
    return f"{number >> 10}k" if unit == "b" else f"{number}{unit}"


def _files(text: str) -> str:
    """Return the names without what Spark would take for part of them: white space."""
    names = [name.strip() for name in text.split(",")]
    if not any(names):
        raise ValueError("names no file: /path/one.jar,/path/two.jar, or leave it out")
    return ",".join(name for name in names if name)


Master = Annotated[str, AfterValidator(master_url)]
Heap = Annotated[str, AfterValidator(_heap)]
Host = Annotated[str, AfterValidator(host)]
Files = Annotated[str, AfterValidator(_files)]
