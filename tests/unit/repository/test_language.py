"""The language of the code: import circles, class names, and words that the field does not have."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.support.code import nodes, tokens

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = (
    "tideline",
    "capture/tideline_capture",
    "publish/tideline_publish",
    "spark_jobs/tideline_spark",
    "console/tideline_console",
    "plugins/tideline_airflow",
    "dags/tideline_dags",
    "devtools",
)

BANNED = {
    "anew": "again, restart, recreate",
    "announced": "observed",
    "asker": "client",
    "askers": "clients",
    "beside": "shadow",
    "crew": "runtime",
    "desk": "control thread",
    "nobody": "no one",
    "parked": "quarantined",
    "pulse": "probe",
    "pulses": "probes",
    "said": "reported, observed",
    "somebody": "someone",
    "spill": "partial flush",
    "steer": "control",
    "stretch": "range",
    "told": "reported, logged",
    "unproven": "in doubt, needs-resnapshot",
    "upkeep": "maintenance",
    "upto": "end, delete-before",
    "worn": "fragmented",
}
"""Words that once were Tideline's own for what the field has a name for, and that name."""
NAMES_ONLY = {"announced", "beside", "said", "stretch"}
"""English words in a sentence; as a name they are a term that no reader knows."""
ALLOWED_NAMES = {"_STRETCH"}
CLASS_NAME = re.compile(r"[A-Z][a-z0-9]+([A-Z][a-z0-9]+)+")
BEGINNING = re.compile(r'(?:"""|# )([A-Z]\w+)\s+[a-z`]')
MARK_AS_NAME = re.compile(r'"""Watermark (?:`|that |tables |in )')
IMPERATIVE = re.compile(
    r"(?!(The|An?|One|Its?|All|Each|Every|No|Never)\b)[A-Z][a-z]*([a-rt-z]|ss)\b"
)
"""No article or the like, and no third person, though some verbs end in -ss."""
NOT_A_VERB = re.compile(r"(What|Which|Whoever|Whatever|Where|When|Why|How|Who|Whose|Whether)\b")


@cache
def modules() -> dict[str, str]:
    """The text of every module of ours by the name that it is imported under."""
    found: dict[str, str] = {}
    for folder in PRODUCT:
        package = ROOT / folder
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found[name] = path.read_text()
    assert len(found) > 450
    return found


def imported(text: str, known: set[str]) -> set[str]:
    """The modules of ours that ``text`` imports, for annotations alone too."""
    names: set[str] = set()
    for node in nodes(text):
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
    texts = modules()
    known = set(texts)
    graph = {name: imported(text, known) - {name} for name, text in texts.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        raise AssertionError(f"a circle of imports: {circle.args[1]}") from None


def test_a_class_name_means_one_thing() -> None:
    """In the product those of one module too, whose names begin with an underscore: it makes no
    other word of one."""
    homes = defaultdict(list)
    for name, text in modules().items():
        tool = name.startswith("devtools.")
        for node in nodes(text):
            if isinstance(node, ast.ClassDef) and not (tool and node.name.startswith("_")):
                homes[node.name.lstrip("_")].append((name, node.name))
    assert {
        word: found for word, found in homes.items() if len(found) > 1 and _means_two(found)
    } == {}


def _means_two(found: list[tuple[str, str]]) -> bool:
    """Whether two public classes have the name, or two of the product."""
    public = [name for _, name in found if not name.startswith("_")]
    product = [module for module, _ in found if not module.startswith("devtools.")]
    return len(public) > 1 or len(product) > 1


@cache
def words_of(name: str) -> set[str]:
    """The words of an identifier, in lower case."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def sources() -> Iterator[tuple[str, str]]:
    """Each module of the product with its text."""
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def names_in(text: str) -> set[str]:
    return {string for kind, string, _ in tokens(text) if kind == tokenize.NAME}


def sentences_in(text: str) -> Iterator[str]:
    """Docstrings, comments and messages: what has a space in it. A single word may be stored."""
    for kind, string, _ in tokens(text):
        inside = string.strip("rfbRFB\"'# \n")
        if kind in (tokenize.STRING, tokenize.COMMENT) and " " in inside:
            yield re.sub(r"``?[^`]*`?`", "", inside)


def banned_in(sentence: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[\w-]+", sentence)} & (set(BANNED) - NAMES_ONLY)


def test_names_are_the_fields_own_words() -> None:
    found = {
        f"{path}: {name}"
        for path, text in sources()
        for name in names_in(text) - ALLOWED_NAMES
        if words_of(name) & set(BANNED)
    }
    modules_found = {path for path, _ in sources() if words_of(Path(path).stem) & set(BANNED)}
    assert found | modules_found == set(), BANNED


def test_messages_docstrings_and_comments_are_plain() -> None:
    found = [
        (path, sentence)
        for path, text in sources()
        for sentence in sentences_in(text)
        if banned_in(sentence)
    ]
    assert found == [], BANNED


def test_docs_are_plain() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    prose = {
        str(page.relative_to(ROOT)): re.sub(r"`[^`]*`", "", page.read_text()) for page in pages
    }
    assert {name: words for name, text in prose.items() if (words := banned_in(text))} == {}


def test_docstrings_begin_with_a_verb_or_a_thing() -> None:
    found = [
        f"{name}: {docstring[:60]}"
        for name, text in modules().items()
        for node in nodes(text)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and NOT_A_VERB.match(docstring := ast.get_docstring(node) or "")
    ]
    assert found == []


def test_a_functions_docstring_begins_with_a_verb() -> None:
    """In the imperative, unlike a property's: "Return", not "The", "Returns" or a name."""
    found = [
        f"{name}: {docstring[:60]}"
        for name, text in modules().items()
        for node in nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and "property" not in " ".join(map(ast.unparse, node.decorator_list))
        and (docstring := ast.get_docstring(node))
        and not IMPERATIVE.match(docstring)
    ]
    assert found == []


def test_no_docstring_begins_with_a_class_in_a_words_place() -> None:
    """A rename of classes by script changes a first word too: "StartPoints a program".
    Of one word are classes that are also verbs; `Watermark` is the one that none begins with."""
    texts = [
        *sources(),
        *((str(path), path.read_text()) for path in (ROOT / "tests").rglob("*.py")),
    ]
    classes = {
        name for _, text in texts for name in re.findall(r"^\s*class (\w+)", text, re.MULTILINE)
    }
    found = [
        (path, first)
        for path, text in texts
        for first in BEGINNING.findall(text)
        if first in classes and CLASS_NAME.fullmatch(first)
    ]
    marks = [path for path, text in texts if MARK_AS_NAME.search(text)]
    assert (found, marks) == ([], [])
