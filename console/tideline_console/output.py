"""Prints the output of commands: lines for people, and texts for programs.

Names of tables and columns, reasons and server messages are foreign text. All output goes through
this module, `tideline_console.tables` or, for errors, `tideline_console.errors`, so that foreign
text cannot clear the screen or imitate a line of ours.
"""

from __future__ import annotations

import sys

import msgspec

from tideline.contract.printable import printable, printable_json


def say(line: str = "", *, error: bool = False) -> None:
    """Print one line at once, `printable`; ``error``: on standard error."""
    print(printable(line), file=sys.stderr if error else sys.stdout, flush=True)


def write_document(document: object, *, indent: int = 0) -> None:
    """Print a document as JSON, in one line or indented."""
    text = msgspec.json.encode(document)
    if indent:
        text = msgspec.json.format(text, indent=indent)
    write_json(text.decode())


def write_json(text: str) -> None:
    """Print JSON: the same values, in printable characters."""
    sys.stdout.write(printable_json(text) + "\n")


def write_text(text: str) -> None:
    """Print a text for a program (SQL, CSV, metrics) unchanged; on a terminal, line by line as
    `say` does."""
    if sys.stdout.isatty():
        text = "".join(printable(line) + "\n" for line in text.rstrip("\n").split("\n"))
    sys.stdout.write(text)
    sys.stdout.flush()
