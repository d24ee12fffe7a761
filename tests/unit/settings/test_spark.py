"""Keys of ``[merge]`` that Spark takes: a wrong one is named, with an example."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from tideline.contract.errors import Misconfigured
from tideline.settings import Merge, make_settings
from tideline.settings.spark import heap_bytes


def merge_of(**keys: Any) -> Merge:
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": "s3://lake/segments"},
            "warehouse": {"url": "s3://lake/tables"},
            "merge": keys,
        }
    ).merge


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("master", "local[two]", r"must be local\[2\], local\[\*\], spark://host:7077 "),
        ("master", "local[0]", r"must be local\[2\]"),
        ("master", "local[ 2 ]", r"must be local\[2\]"),
        ("master", "Local[2]", r"must be local\[2\]"),
        ("master", "sparc://h", r"spark://host:7077 \(several: .*yarn or k8s://https://host:6443"),
        ("master", "yarn-client", "must be .*yarn or k8s://"),
        ("master", "mesos://h:5050", "must be .*yarn or k8s://"),
        ("master", "", "must be .*yarn or k8s://"),
        ("master", "spark://h", "must have a port with each host: spark://host:7077"),
        ("master", "spark://h:7077,i", "must have a port with each host"),
        ("master", "spark://h:0", "must have a port"),
        ("master", "spark://h:70770", "must have a port"),
        ("master", "spark://h:7077/", "must have a port"),
        ("master", "spark://h:7077, i:7077", "has a host that Spark does not read"),
        ("master", "spark://::1:7077", r"\[2001:db8::7\]"),
        ("master", "spark://spark_master:7077", "letters, digits, hyphens and dots"),
        ("master", "spark://user:canary@h:7077", "has a host that Spark does not read"),
        ("master", "k8s://", "k8s://https://host:6443"),
        ("master", "k8s://ftp://h", "k8s://https://host:6443"),
        ("master", "k8s://https://h:port", "has a port that is not a number"),
        ("driver_memory", "2 gigs", r"whole number and a unit \(k, m, g or t\): 512m, 2g"),
        ("driver_memory", "2.5g", "whole number"),
        ("driver_memory", "-2g", "whole number"),
        ("driver_memory", "", "whole number"),
        ("driver_memory", "2048", "must have a unit.*Java reads bytes and Spark MiB"),
        ("driver_memory", "2048k", "from 450m, which Spark needs at least, to 64t"),
        ("driver_memory", "65t", "from 450m, which Spark needs at least, to 64t"),
        ("driver_memory", "9" * 30 + "g", "whole number"),
        ("executor_memory", "1 g", "whole number"),
        ("executor_memory", "\uff11g", "whole number"),
        ("executor_memory", "1", "must have a unit"),
        ("driver_host", "host:4040", "must be a name or an address, without a port: .*10.0.0.7"),
        ("driver_host", "https://host", "must be a name or an address"),
        ("driver_host", "", "must be a name or an address"),
        ("driver_bind_address", "0.0.0", "must be a name or an address"),
        ("driver_bind_address", "my_host", "letters, digits, hyphens and dots"),
        ("authenticate_secret", " ", "is empty: give the secret of the cluster's master"),
        ("jars", "", "names no file: /path/one.jar,/path/two.jar, or leave it out"),
        ("py_files", " , ", "names no file"),
    ],
)
def test_a_wrong_value_is_named_with_an_example(key: str, value: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=rf"\n  merge\.{key}: .*{reason}") as caught:
        merge_of(**{key: value})
    assert "has a mistake:" in str(caught.value)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[2,3]",
        "local[*, 4]",
        "local-cluster[2,1,1024]",
        "spark://h:7077",
        "spark://one:7077,two.example.org:7078",
        "spark://10.0.0.7:7077",
        "spark://[::1]:7077",
        "yarn",
        "k8s://https://10.0.0.1:6443",
        "k8s://kubernetes.default.svc",
    ],
)
def test_a_master_is_taken_as_it_is(master: str) -> None:
    assert merge_of(master=master).master == master


@pytest.mark.parametrize(
    ("text", "java", "size"),
    [
        ("512m", "512m", 512 << 20),
        ("2g", "2g", 2 << 30),
        ("2G", "2g", 2 << 30),
        (" 2gb ", "2g", 2 << 30),
        ("1048576K", "1048576k", 1 << 30),
        ("1073741824b", "1048576k", 1 << 30),
        ("1t", "1t", 1 << 40),
    ],
)
def test_memory_is_written_as_java_takes_it(text: str, java: str, size: int) -> None:
    merge = merge_of(driver_memory=text, executor_memory=text)
    assert merge.driver_memory == merge.executor_memory == java
    assert heap_bytes(text) == heap_bytes(java) == size


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("merges.example.org", "merges.example.org"),
        ("localhost", "localhost"),
        ("0.0.0.0", "0.0.0.0"),
        ("::1", "[::1]"),
        ("[2001:db8::7]", "[2001:db8::7]"),
    ],
)
def test_a_drivers_host_is_a_name_or_an_address(text: str, taken: str) -> None:
    merge = merge_of(driver_host=text, driver_bind_address=text)
    assert (merge.driver_host, merge.driver_bind_address) == (taken, taken)


def test_files_are_named_without_the_space_around_them() -> None:
    """To Spark it is part of the name, of a file that is not there."""
    merge = merge_of(jars=" /jars/*.jar, https://h/b.jar,", py_files="/one.whl")
    assert (merge.jars, merge.py_files) == ("/jars/*.jar,https://h/b.jar", "/one.whl")
