"""What a stranger counts first: import circles, and class names that mean two things."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = (
    "tideline",
    "capture/tideline_capture",
    "spark_jobs/tideline_spark",
    "console/tideline_console",
    "plugins/tideline_airflow",
    "dags/tideline_dags",
    "devtools",
)


def modules() -> dict[str, ast.Module]:
    """Every module of ours by the name that it is imported under."""
    found: dict[str, ast.Module] = {}
    for folder in PRODUCT:
        package = ROOT / folder
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found[name] = ast.parse(path.read_text())
    assert len(found) > 450
    return found


def imported(tree: ast.Module, known: set[str]) -> set[str]:
    """The modules of ours that ``tree`` imports, for annotations alone too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in known else node.module)
    return names & known


def test_no_module_imports_itself_in_a_circle() -> None:
    """Imports under ``TYPE_CHECKING`` are counted: what needs each other cannot be read apart."""
    trees = modules()
    graph = {name: imported(tree, set(trees)) - {name} for name, tree in trees.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        raise AssertionError(f"a circle of imports: {circle.args[1]}") from None


def test_a_class_name_means_one_thing() -> None:
    homes = defaultdict(list)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
