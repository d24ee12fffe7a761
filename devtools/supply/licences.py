"""The licences of packages and their bundled content, and the rules for their use.

GPL and AGPL are refused, and LGPL except for the packages in `LESSER`; any other licence that
requires more than a notice is explained in `KNOWN` or, of bundled content, in `CARRIED`, so that a
dependency's licence is reviewed before it is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from types import MappingProxyType

from devtools.supply.carried import crates, jars, libraries, with_libraries

OURS = frozenset({"tideline-cdc", "airflow-provider-tideline", "tideline"})
PERMISSIVE = frozenset(
    {
        "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
        "BSD-Attribution-HPND-disclaimer", "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0",
        "OLDAP-2.8", "PSF-2.0", "PostgreSQL", "Python-2.0", "Unicode-3.0", "Unicode-DFS-2016",
        "Unlicense", "WTFPL", "Zlib", "bzip2-1.0.6", "public domain",
    }
)  # fmt: skip
"""SPDX names of licences that require at most a notice."""
KNOWN = MappingProxyType(
    {
        "certifi": "MPL-2.0: files of it that are changed stay under it; none is",
        "hypothesis": "MPL-2.0: in tests alone",
        "pathspec": "MPL-2.0: as certifi",
        "psycopg2-binary": "LGPL with exceptions: used as a library, and it can be exchanged",
        "text-unidecode": "Artistic or GPL, as one likes: Artistic; Airflow needs it",
    }
)
"""Packages with another licence, and why they may be used."""
NOTES = MappingProxyType(
    {"python-daemon": "the library is Apache-2.0; the GPL text beside it is of its tests alone"}
)
"""Notes on packages that need no exception."""
LESSER = MappingProxyType(
    {
        "numpy": "libquadmath, which GCC's Fortran runtime needs, can be exchanged",
        "psycopg2-binary": "itself, libcrypt and libkeyutils: libraries that can be exchanged",
    }
)
"""The packages that may be, or bring along, what is under the LGPL. Of numpy it is one library."""
_UNCHANGED_CRATE = "compiled in as it is published on crates.io, with its source"
_UNCHANGED_JAR = "a jar of its own, as Spark brings it"
_EXCHANGEABLE = "a library that can be exchanged"
CARRIED = MappingProxyType(
    {
        **dict.fromkeys(
            ("astral-pubgrub", "astral-version-ranges", "colored", "option-ext", "version-ranges"),
            ("MPL-2.0", _UNCHANGED_CRATE),
        ),
        "priority-queue": ("LGPL-3.0-or-later OR MPL-2.0", f"MPL-2.0: {_UNCHANGED_CRATE}"),
        **dict.fromkeys(
            (
                "aopalliance-repackaged", "hk2-api", "hk2-locator", "hk2-utils",
                "jakarta.annotation-api", "jakarta.servlet-api", "jakarta.ws.rs-api",
                "osgi-resource-locator",
            ),
            ("EPL-2.0", _UNCHANGED_JAR),
        ),
        **dict.fromkeys(("javax.servlet-api", "jta"), ("CDDL-1.1", _UNCHANGED_JAR)),
        "transaction-api": ("CDDL-1.0", _UNCHANGED_JAR),
        **dict.fromkeys(
            ("libcrypt", "libkeyutils", "libquadmath"), ("LGPL-2.1-or-later", _EXCHANGEABLE)
        ),
        "libgfortran": (
            "GPL-3.0-or-later WITH GCC-exception-3.1",
            "its exception covers what is linked with it",
        ),
    }
)  # fmt: skip
"""What packages carry under another licence: (the licence that was looked at, why it may be)."""
RUNTIME_EXCEPTIONS = ("WITH GCC-exception-3.1", "WITH Classpath-exception-2.0")
"""Exceptions by which a GPL does not reach programs linked with the library."""
SILENT = MappingProxyType({"atheris": "Apache-2.0", "openlineage_sql": "Apache-2.0"})
"""Licences of packages that state them only in a file or in their repository."""
_SPDX = MappingProxyType(
    {
        "apache": "Apache-2.0", "apache 2": "Apache-2.0", "apache 2.0": "Apache-2.0",
        "apache license 2.0": "Apache-2.0", "apache software license": "Apache-2.0",
        "artistic license": "Artistic-1.0-Perl",
        "bsd": "BSD-2-Clause", "bsd 2-clause license": "BSD-2-Clause",
        "bsd 3-clause license": "BSD-3-Clause",
        "3-clause bsd license": "BSD-3-Clause", "bsd license": "BSD-3-Clause",
        "gnu affero general public license v3 or later (agplv3+)": "AGPL-3.0-or-later",
        "gnu general public license (gpl)": "GPL-1.0-or-later",
        "gnu general public license v2 (gplv2)": "GPL-2.0-only",
        "gnu general public license v2 or later (gplv2+)": "GPL-2.0-or-later",
        "gnu general public license v3 (gplv3)": "GPL-3.0-only",
        "gnu general public license v3 or later (gplv3+)": "GPL-3.0-or-later",
        "gnu library or lesser general public license (lgpl)": "LGPL-3.0-or-later",
        "isc license": "ISC", "isc license (iscl)": "ISC", "mit license": "MIT",
        "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0", "psfl": "PSF-2.0",
        "python software foundation license": "PSF-2.0", "the unlicense (unlicense)": "Unlicense",
        "mit -or- apache license 2.0": "MIT OR Apache-2.0",
    }
)  # fmt: skip
_SPDX_NAME = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR) [A-Za-z0-9.+-]+)*")
_COPYLEFT = re.compile(r"\bA?GPL", re.IGNORECASE)
_LESSER = re.compile(r"\bLGPL", re.IGNORECASE)


def licence_of(package: Distribution) -> str:
    """Return an SPDX expression from the package's metadata: its expression, its licence field,
    else its classifiers; ``unknown`` without any."""
    fields = package.metadata
    if "License-Expression" in fields:
        return fields["License-Expression"]
    short = fields["License"].strip() if "License" in fields else ""
    classifiers = [
        line.rpartition("::")[2].strip().lower()
        for line in fields.get_all("Classifier") or ()
        if line.startswith("License ::")
    ]
    known = [_SPDX[one] for one in (short.lower(), *classifiers) if one in _SPDX]
    if short.lower() in _SPDX or (not _SPDX_NAME.fullmatch(short) and known):
        return known[0] if short.lower() in _SPDX else " OR ".join(dict.fromkeys(known))
    if _SPDX_NAME.fullmatch(short) and short != "UNKNOWN":
        return short
    return " OR ".join(dict.fromkeys(known)) or SILENT.get(fields["Name"], "unknown")


def permissive(expression: str) -> bool:
    """Return whether an SPDX expression requires at most a notice; one alternative suffices."""
    return all(any(one in PERMISSIVE for one in part) for part in _parts(expression))


def refused(package: str, expression: str) -> bool:
    """Return whether an expression only allows a GPL, an AGPL, or an LGPL outside `LESSER`."""
    return any(all(_binds(package, one) for one in part) for part in _parts(expression))


def _binds(package: str, licence: str) -> bool:
    if _LESSER.search(licence):
        return package not in LESSER
    return bool(_COPYLEFT.search(licence)) and not licence.endswith(RUNTIME_EXCEPTIONS)


def _parts(expression: str) -> Iterator[list[str]]:
    """Yield the alternatives of each part of ``A AND (B OR C)``."""
    for part in re.split(r" AND ", re.sub(r"[()]", "", expression)):
        yield [one.strip() for one in part.split(" OR ")]


def unlooked_at(packages: Iterable[Distribution]) -> Iterator[tuple[str, str]]:
    """Yield (name, licence) of packages neither permissive nor known, and of refused ones."""
    for name, _, licence in rows(packages):
        known = permissive(licence) or name in KNOWN
        if not known or refused(name, licence):
            yield name, licence


def carried_unlooked_at(packages: Iterable[Distribution]) -> Iterator[tuple[str, str]]:
    """Yield the same for content of packages: copied libraries, crates, jars."""
    for package, name, licence in carried(packages):
        if not may_be_carried(package, name, licence):
            yield f"{name} in {package}", licence


def carried(packages: Iterable[Distribution]) -> list[tuple[str, str, str]]:
    """Return (package, name, licence) of the content of packages."""
    packages = list(packages)
    found = [(name, *one) for name in with_libraries(packages) for one in libraries(name)]
    found += [(package.name, *one) for package in packages for one in crates(package)]
    return found + [("pyspark", *one) for one in jars()]


def may_be_carried(package: str, name: str, licence: str) -> bool:
    """Return whether ``package`` may bring along ``name`` (a crate's ends with its version): under
    a permissive licence, or under the very one that `CARRIED` has for it."""
    if refused(package, licence):
        return False
    read_version, _ = CARRIED.get(name.partition(" ")[0], (None, ""))
    return permissive(licence) or licence == read_version


def rows(packages: Iterable[Distribution]) -> list[tuple[str, str, str]]:
    """Return (name, version, licence) by name; without ours."""
    found = {
        (re.sub(r"[-_.]+", "-", one.name).lower(), one.version, licence_of(one)) for one in packages
    }
    return sorted(row for row in found if row[0] not in OURS)
