"""Debian packages, unpacked into the cache without root and without installing anything.

Servers that no wheel brings come from here: MariaDB from the machine's own release, MySQL 9 from
Debian's unstable suite with all the libraries it was linked against. The machine's own package
lists, keys and mirrors are used; its state is never changed. What apt fetches is checked by it: the
lists by their signature, each package by its hash in them. Settings of the machine that let
unsigned lists pass do not count.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tideline.cache import cache_folder, fetch, rename_into_place
from tideline.contract.errors import Unavailable

_SOURCES = (Path("/etc/apt/sources.list.d"), Path("/etc/apt/sources.list"))
_NEEDLESS = ("perl", "libperl")
"""Beginnings of packages that only maintainer scripts use."""

SIGNED: tuple[str, ...] = (
    *("-o", "APT::Get::AllowUnauthenticated=false"),
    *("-o", "Acquire::AllowInsecureRepositories=false"),
)
"""apt's options without which the machine's own settings could let unsigned lists pass."""
_OLD = "Acquire::Check-Valid-Until=false"

Fetch = Callable[[Path], None]


def packages_folder(name: str, packages: Sequence[str]) -> Path:
    """Return the folder of ``packages`` unpacked together, as files of this machine's release.

    Compliance in the cache as ``name``. Unavailable when it is not a Debian-like machine or the
    packages cannot be fetched.
    """

    def fetch(work: Path) -> None:
        command = ["apt-get", "download", "-q", *packages]
        try:
            _run(command, work)
        except Unavailable:  # the machine's lists may be missing, or older than the archive
            options = _private_options(work)
            _run(["apt-get", *options, "update", "-q"], work)
            _run(["apt-get", *options, "download", "-q", *packages], work)

    return _unpacked(name, fetch)


def suite_folder(name: str, package: str, suite: str) -> Path:
    """Return the folder of ``package`` of another Debian ``suite`` with every library it needs.

    As `packages_folder`; the programs in it run through the dynamic loader in it. The suite drifts:
    what was fetched once is kept, a later fetch may bring a newer version.
    """

    def fetch(work: Path) -> None:
        sources = work / "sources"
        sources.mkdir()
        (sources / f"{suite}.sources").write_text(_suite_source(suite))
        (work / "status").touch()  # nothing is installed, so everything is wanted
        options = [
            *_private_options(work),
            *("-o", "Dir::Etc::SourceList=/dev/null", "-o", f"Dir::Etc::SourceParts={sources}"),
            *("-o", f"Dir::State::status={work / 'status'}", "-o", "Acquire::Languages=none"),
        ]
        _update(options, work)
        install = ["install", "-q", "-y", "--no-install-recommends", "--download-only", package]
        _run(["apt-get", *options, *install], work)

    return _unpacked(name, fetch)


def _update(options: Sequence[str], work: Path) -> None:
    """Fetch the lists; expired ones only where the mirror has no newer ones.

    A mirror that shows an old snapshot of the archive can hide newer packages, not alter one.
    """
    try:
        _run(["apt-get", *options, "update", "-q"], work)
    except Unavailable as error:
        if "is expired" not in str(error):
            raise
        print("setup: the mirror has an old snapshot of the archive, signed and out of date")
        _run(["apt-get", "-o", _OLD, *options, "update", "-q"], work)


def install(package: str) -> None:
    """Install ``package`` by the system's apt; Unavailable where that fails, or without root.

    For packages that need more of the system than files: all others are unpacked into the cache.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Unavailable(f"root installs it: apt-get install {package}")
    _run(["apt-get", "update", "-q"], Path("/"))
    _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", package], Path("/"))


def _unpacked(name: str, fetch: Fetch) -> Path:
    target = cache_folder() / name
    if target.is_dir():
        return target
    for program in ("apt-get", "dpkg-deb", "tar"):
        if shutil.which(program) is None:
            raise Unavailable(f"{name} cannot be fetched: there is no {program}")
    work = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache_folder()))
    try:
        fetch(work)
        root = work / "root"
        root.mkdir(mode=0o755)
        _extract(sorted(work.rglob("*.deb")), root)
        rename_into_place(root, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _extract(packages: Iterable[Path], root: Path) -> None:
    # Debian's /lib and /bin are links into /usr; the packages agree only if these come first.
    for folder in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / folder).mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    for package in packages:
        if package.name.startswith(_NEEDLESS):
            continue
        unpack = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(root)]
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
        ) as files:
            done = subprocess.run(unpack, stdin=files.stdout, capture_output=True, check=False)
        if done.returncode != 0 or files.returncode != 0:
            raise Unavailable(f"{package.name} cannot be unpacked: {done.stderr.decode()[-300:]}")


def _private_options(work: Path) -> list[str]:
    """Return apt's options for lists and archives in ``work`` only."""
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    # As root, apt would fetch as a separate user, who cannot write into our folder.
    options = {
        "Dir::State::lists": f"{work / 'lists'}",
        "Dir::Cache": f"{work}",
        "Dir::Cache::archives": f"{work / 'archives'}",
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "Debug::NoLocking": "1",
    }
    return [word for key, value in options.items() if value for word in ("-o", f"{key}={value}")]


def _suite_source(suite: str) -> str:
    """Call `derive_source` with the machine's files."""
    files = [
        file
        for path in _SOURCES
        for file in (sorted(path.glob("*")) if path.is_dir() else [path])
        if file.suffix in (".list", ".sources") and file.is_file()
    ]
    texts = {file.name: file.read_text(errors="replace") for file in files}
    return derive_source(texts, release=_codename(), suite=suite)


def derive_source(files: Mapping[str, str], *, release: str, suite: str) -> str:
    """Return a source of ``suite`` in deb822 form, with the mirror and the key of ``release``.

    ``files`` are apt's own, by name (``….list`` or ``….sources``). Unavailable when none of them
    has the release.
    """
    for name, text in files.items():
        for uri, suites, key in _stanzas(text) if name.endswith(".sources") else _lines(text):
            if release in suites:
                signed = f"Signed-By: {key}\n" if key else ""
                return f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\n{signed}"
    raise Unavailable(f"no package source of Debian {release} was found to derive {suite} from")


def _stanzas(text: str) -> list[tuple[str, list[str], str]]:
    """Return (address, suites, key) of every stanza of a ``.sources`` file."""
    found = []
    for block in text.split("\n\n"):
        fields = {
            name.strip().lower(): value.strip()
            for name, colon, value in (
                line.partition(":") for line in block.splitlines() if not line.startswith("#")
            )
            if colon
        }
        if "deb" in fields.get("types", "").split():
            suites = fields.get("suites", "").split()
            found.append((fields.get("uris", ""), suites, fields.get("signed-by", "")))
    return found


def _lines(text: str) -> list[tuple[str, list[str], str]]:
    """Return (address, suites, key) of every ``deb`` line of a ``.list`` file."""
    found = []
    for line in text.splitlines():
        options, words = "", line.split("#")[0].split()
        if words[:1] == ["deb"] and "[" in line:
            options, _, rest = line.partition("[")[2].partition("]")
            words = ["deb", *rest.split()]
        if words[:1] == ["deb"]:
            keys = [word[10:] for word in options.split() if word.startswith("signed-by=")]
            found.append((words[1], words[2:3], "".join(keys[:1])))
    return found


def _codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise Unavailable("this machine's release has no codename in /etc/os-release")


def _run(command: list[str], work: Path) -> None:
    program, *words = command
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    fetch("packages", [program, *SIGNED, *words], work, quiet)
