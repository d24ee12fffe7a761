"""``python -m devtools.supply.sbom FILE [--system]``: this Tideline's components, as CycloneDX.

Python packages that are installed here (licence, and the hashes that the locks accept), the jars
that Spark runs with (their own hashes), and, in a checkout, the images that the compose files name.
With ``--system`` also Debian's packages: so the image is listed when it is built (``Dockerfile``).

Nothing in it is this machine's: no path, no name of a host, no address of a registry.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import find_spec
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from devtools.supply.images import FILES, images_in
from devtools.supply.licences import OURS, licence_of
from tideline.jars import ensure_jars
from tideline.spark_versions import installed_spark, spark_line
from tideline.warehouse.delta import jars as delta_jars
from tideline.warehouse.s3_jars import find_s3_jar_set

ROOT = Path(__file__).resolve().parents[2]
OUR_NAME = "tideline-cdc"
_LICENCES = LicenseFactory()
_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")


def locked_hashes(root: Path = ROOT) -> Mapping[tuple[str, str], list[str]]:
    """Return the SHA-256 hashes that the locks in ``requirements/`` accept, by (name, version)."""
    found: dict[tuple[str, str], list[str]] = {}
    for lock in sorted((root / "requirements").glob("*.txt")):
        for block in re.split(r"\n(?=\S)", lock.read_text()):
            pinned = re.match(r"([a-z0-9._-]+)==(\S+)", block)
            if pinned:
                known = found.setdefault((pinned[1], pinned[2]), [])
                hashes = re.findall(r"sha256:([0-9a-f]{64})", block)
                known.extend(one for one in hashes if one not in known)
    return found


def packages(installed: Iterable[Distribution], root: Path = ROOT) -> Iterator[Component]:
    """Yield each Python package except ours, once."""
    hashes = locked_hashes(root)
    seen: set[str] = set()
    for package in installed:
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        if name in seen or name in OURS:
            continue
        seen.add(name)
        address = PackageURL("pypi", name=name, version=package.version)
        files = [_sha256(one) for one in hashes.get((name, package.version), ())]
        reference = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(str(address)),
            comment="files of this version that the locks accept",
            hashes=files,
        )
        licence = licence_of(package)
        yield Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=package.version,
            purl=address,
            bom_ref=str(address),
            licenses=[] if licence == "unknown" else [_LICENCES.make_from_string(licence)],
            external_references=[reference] if files else [],
        )


def jars() -> Iterator[Component]:
    """Yield the jars of Delta, S3 and PySpark; a jar that names itself has its coordinates."""
    for path in ensure_jars(delta_jars.delta_jar_set(spark_line(installed_spark()))):
        yield jar(path, group=delta_jars.GROUP)
    in_s3 = find_s3_jar_set()
    for path in [] if in_s3 is None else ensure_jars(in_s3):
        yield jar(path)
    spark = find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        for path in sorted((Path(spark.origin).parent / "jars").glob("*.jar")):
            yield jar(path)


def jar(path: Path, group: str | None = None) -> Component:
    """Make a jar's component from its own metadata, else from its file's name."""
    match = _JAR.fullmatch(path.name)
    name, version = (match["name"], match["version"]) if match else (path.stem, None)
    if group is None:
        group = _groups(path).get(name)
    address = group and PackageURL("maven", group, name, version)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Component(
        type=ComponentType.LIBRARY,
        group=group or None,
        name=name,
        version=version,
        purl=address or None,
        bom_ref=str(address or f"jar:{path.name}"),
        hashes=[_sha256(digest)],
    )


def _groups(path: Path) -> dict[str, str]:
    """Return Maven's group of each artefact that the jar's metadata lists."""
    with zipfile.ZipFile(path) as file:
        parts = [name.split("/") for name in file.namelist() if name.endswith("/pom.properties")]
    return {words[3]: words[2] for words in parts if words[:2] == ["META-INF", "maven"]}


def images(root: Path = ROOT) -> Iterator[Component]:
    """Yield the images that the compose files and the Dockerfile name, where these exist."""
    texts = ((root / name).read_text() for name in FILES if (root / name).is_file())
    for image in dict.fromkeys(image for text in texts for image in images_in(text)):
        space, _, name = image.name.rpartition("/")
        address = PackageURL(
            "docker", space or None, name, image.digest or None, {"tag": image.tag}
        )
        yield Component(
            type=ComponentType.CONTAINER,
            name=image.name,
            version=image.tag,
            purl=address,
            bom_ref=str(address),
            hashes=[_sha256(image.digest.partition(":")[2])] if image.digest else [],
        )


def system_packages() -> Iterator[Component]:
    """Yield the packages that dpkg lists as installed."""
    form = "${Package} ${Version} ${Architecture} ${db:Status-Status}\n"
    done = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={form}"], capture_output=True, text=True, check=True
    )
    for line in done.stdout.splitlines():
        name, version, architecture, status = line.split(" ")
        if status == "installed":
            address = PackageURL("deb", "debian", name, version, {"arch": architecture})
            yield Component(
                type=ComponentType.LIBRARY,
                name=name,
                version=version,
                purl=address,
                bom_ref=str(address),
            )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def make(*, system: bool = False) -> str:
    """Make the whole list, as JSON of CycloneDX 1.6."""
    ours = Component(
        type=ComponentType.APPLICATION,
        name=OUR_NAME,
        version=distribution(OUR_NAME).version,
        bom_ref=OUR_NAME,
    )
    bom = Bom()
    bom.metadata.component = ours
    found = [*packages(distributions()), *jars(), *images()]
    if system:
        found += system_packages()
    for component in found:
        bom.components.add(component)
    bom.register_dependency(ours, bom.components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the list to the file, or to standard output for ``-``."""
    parser = argparse.ArgumentParser(description="write a software bill of materials")
    parser.add_argument("file", type=Path)
    parser.add_argument("--system", action="store_true", help="with Debian's packages")
    options = parser.parse_args(arguments)
    text = make(system=options.system)
    if options.file == Path("-"):
        print(text)
    else:
        options.file.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
