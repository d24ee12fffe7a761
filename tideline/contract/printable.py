"""Makes text of others (names, comments, server messages) safe to show: on a terminal, in a log, in
an error, on a page.

A name may hold whatever a database lets it hold: an escape sequence that clears the screen, a line
break followed by what looks like a line of ours, characters that turn the reading direction or are
invisible. What stores or compares names never uses these functions.
"""

from __future__ import annotations

import re
import shlex

_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters without any shape that Unicode counts as marks, letters or symbols."""
_BACKTICKS = re.compile("`+")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""Return ``text`` as one line in which every character is visible, the others as ``\n``,
    ``\x1b`` or ``\u202e``. A text without these, such as a result of this function, is unchanged.

    For reading, not for storing: two names may become the same, as ``a`` with a line break and
    ``a`` with a backslash and an ``n``.
    """
    if text.isprintable() and _UNSEEN.search(text) is None:
        return text
    return "".join(map(_seen, text))


def printable_json(document: str) -> str:
    r"""Return equivalent JSON, whose texts have ``\u202e`` instead of invisible characters; line
    breaks between values stay."""
    return "\n".join(
        line if line.isprintable() and _UNSEEN.search(line) is None else _json_line(line)
        for line in document.split("\n")
    )


def as_code(text: str) -> str:
    """Return ``text`` as a code span of Markdown: it makes neither links nor images nor HTML."""
    shown = printable(text)
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(shown)), default=0))
    # A space at both ends of more than spaces is taken off again; without it a backtick there would
    # be the fence's.
    space = " " if shown.strip(" ") and {shown[0], shown[-1]} & {"`", " "} else ""
    return f"{fence}{space}{shown or ' '}{space}{fence}"


def shell_word(text: str) -> str:
    r"""Quote ``text`` as one word of a command that is shown, to be pasted into a shell: nothing in
    it is a variable, a pattern or a command there. Invisible characters stand as ``$'\\x1b'``,
    which bash, zsh and ksh read; every other text is quoted for any POSIX shell, if it has to be.
    """
    if printable(text) == text:
        return shlex.quote(text)
    return "$" + _in_quotes(text, "'")


def command(*words: str) -> str:
    """Format a command of ours for an error or a screen, in backticks, to be pasted into a shell.
    ``words`` are the arguments of ``tideline``; one may be the name of a table."""
    return f"`{' '.join(map(shell_word, ('tideline', *words)))}`"


def toml_text(text: str) -> str:
    """Quote ``text`` for TOML, in one line in which every character is visible."""
    if "'" not in text and printable(text) == text:
        return f"'{text}'"
    return _in_quotes(text, '"')


def _in_quotes(text: str, quote: str) -> str:
    """Put ``text`` between two of ``quote``, with the escapes that shells and TOML have in
    common."""

    def escaped(character: str) -> str:
        if character in (quote, "\\"):
            return f"\\{character}"
        seen = _seen(character)
        # Behind \x a shell reads a byte, and TOML 1.0 has no such escape.
        return f"\\u00{seen[2:]}" if seen.startswith("\\x") else seen

    return f"{quote}{''.join(map(escaped, text))}{quote}"


def _seen(character: str) -> str:
    if character.isprintable() and _UNSEEN.match(character) is None:
        return character
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_line(line: str) -> str:
    return "".join(
        one
        if one.isprintable() and _UNSEEN.match(one) is None
        else "".join(f"\\u{unit:04x}" for unit in _utf16(one))
        for one in line
    )


def _utf16(character: str) -> tuple[int, ...]:
    """Return the code units of a character, as JSON has them."""
    raw = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2))
