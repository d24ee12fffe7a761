"""What a session of ours asks Java for."""

from __future__ import annotations

from collections import Counter

from tideline_spark.session import remember


class Package:
    """Py4J's view of Java's names: it asks for each part of each name that it is asked for."""

    def __init__(self, name: str, asked: Counter[str]) -> None:
        self._name = name
        self._asked = asked

    def __getattr__(self, part: str) -> Package:
        name = f"{self._name}.{part}"
        self._asked[name] += 1
        return Package(name, self._asked)


def test_names_that_are_remembered_are_asked_for_once() -> None:
    asked = Counter[str]()
    jvm = Package("", asked)
    remember(jvm, ("functions", "org.apache.hadoop.fs", "org.apache.spark"))
    remembered = {".functions", ".org", ".org.apache", ".org.apache.hadoop", ".org.apache.spark"}
    assert asked == dict.fromkeys({*remembered, ".org.apache.hadoop.fs"}, 1)
    assert jvm.functions is jvm.functions
    assert jvm.org.apache.hadoop.fs.Path is not jvm.org.apache.hadoop.fs.Path
    assert asked[".org.apache.hadoop.fs.Path"] == 2
    assert set(asked.values()) == {1, 2}
