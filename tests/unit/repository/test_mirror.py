"""tests/unit mirrors the source: a module's tests are found by its folder and name."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "tests" / "unit"
PACKAGES = {
    "capture": "capture/tideline_capture",
    "console": "console/tideline_console",
    "devtools": "devtools",
    "publish": "publish/tideline_publish",
    "spark": "spark_jobs/tideline_spark",
}
"""Folders of tests by the package that they mirror; any other mirrors one of `tideline`'s."""
OF_ALL = "repository"
"""The tests of the repository itself."""


def mirrored(folder: Path) -> Path:
    """The source folder that a folder of tests stands for."""
    first, *rest = folder.relative_to(UNIT).parts or ("",)
    return ROOT / PACKAGES.get(first, f"tideline/{first}") / Path(*rest)


def unit_tests() -> list[Path]:
    found = [path for path in UNIT.rglob("test_*.py") if OF_ALL not in path.parts]
    assert len(found) > 150
    return found


def test_each_folder_is_one_of_the_source() -> None:
    folders = {path.parent for path in unit_tests()}
    assert {folder for folder in folders if not mirrored(folder).is_dir()} == set()


def test_tests_with_a_modules_name_are_in_its_folder() -> None:
    homes: defaultdict[tuple[Path, str], list[Path]] = defaultdict(list)
    for package in (*map(ROOT.joinpath, PACKAGES.values()), ROOT / "tideline"):
        for path in package.rglob("*.py"):
            homes[package, path.stem].append(path.parent)
    astray = {}
    for test in unit_tests():
        first = test.relative_to(UNIT).parts[0]
        package = ROOT / PACKAGES.get(first, "tideline")
        known = homes[package, test.stem.removeprefix("test_")]
        if known and mirrored(test.parent) not in known:
            astray[str(test.relative_to(ROOT))] = [str(one.relative_to(ROOT)) for one in known]
    assert astray == {}
