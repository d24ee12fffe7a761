"""Decimals as Connect has them: the unscaled number's bytes, big-endian and as few as hold it, in
Base64."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_BYTES = 16
_DIGITS_MAX = 38
_NO_TEXT = pa.scalar(None, pa.string())
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?$"


def base64_decimals(column: pa.Array) -> pa.StringArray:
    """Return the Base64 texts of a column of decimal128, in quotes; NULL stays NULL."""
    rows = len(column)
    if rows == 0:
        return pa.array([], pa.string())
    held = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _BYTES)
    whole = held[column.offset : column.offset + rows, ::-1]
    found = np.empty(rows, dtype=object)
    sizes = _sizes(whole)
    for size in np.unique(sizes):
        at = np.flatnonzero(sizes == size)
        found[at] = _quoted_base64(whole[at, _BYTES - int(size) :])
    return pa.array(found, pa.string(), mask=column.is_null().to_numpy(zero_copy_only=False))


def decimals_of_texts(texts: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the Base64 texts, and the scales, of numbers of any length written plainly; both are
    NULL for what is no number (NaN and infinities)."""
    plain = pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False)
    numbers = pc.if_else(plain, texts, _NO_TEXT)
    point = pc.find_substring(numbers, ".")
    scales = pc.if_else(
        pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.utf8_length(numbers), point), 1)
    )
    digits = pc.replace_substring(numbers, ".", "", max_replacements=1)
    fits = pc.less_equal(pc.utf8_length(digits), _DIGITS_MAX)
    if pc.all(fits, min_count=0).as_py():
        return base64_decimals(digits.cast(pa.decimal128(_DIGITS_MAX, 0))), scales
    found = [None if one is None else base64_integer(int(one)) for one in digits.to_pylist()]
    return pa.array(found, pa.string()), scales


def variable_scale(texts: pa.StringArray) -> pa.StringArray:
    """Return objects of scale and number, without zeros at the end of a fraction; NULL for what is
    no number."""
    trimmed = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    values, scales = decimals_of_texts(pc.if_else(pc.match_substring(texts, "."), trimmed, texts))
    return pc.binary_join_element_wise(
        pa.scalar('{"scale":'),
        scales.cast(pa.string()),
        pa.scalar(',"value":'),
        values,
        pa.scalar("}"),
        "",
    )


def base64_integer(number: int) -> str:
    """Return the Base64 text of an unscaled number, in quotes."""
    size = (number + (number < 0)).bit_length() // 8 + 1
    return f'"{base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()}"'


def _sizes(whole: np.ndarray) -> np.ndarray:
    """Return how many bytes each number needs: the first ones that only repeat its sign do not
    count."""
    signs = np.where(whole[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    leading = np.argmax(np.hstack([whole != signs, np.ones_like(signs, dtype=bool)]), axis=1)
    first = np.minimum(leading, _BYTES - 1)
    at = np.arange(len(whole))
    # The first byte that counts must show the sign itself.
    wrong = (whole[at, first] >= 0x80) != (signs[:, 0] == 0xFF)
    sizes: np.ndarray = _BYTES - first + wrong
    return np.minimum(sizes, _BYTES)


def _quoted_base64(rows: np.ndarray) -> np.ndarray:
    """Return Base64 texts, in quotes, of rows of as many bytes."""
    count, size = rows.shape
    groups = -(-size // 3)
    padded = np.zeros((count, groups * 3), np.uint32)
    padded[:, :size] = rows
    triples = padded.reshape(count, groups, 3)
    bits = (triples[:, :, 0] << 16) | (triples[:, :, 1] << 8) | triples[:, :, 2]
    shifts = np.array([18, 12, 6, 0], np.uint32)
    letters = _ALPHABET[(bits[:, :, None] >> shifts) & 63].reshape(count, groups * 4)
    missing = groups * 3 - size
    if missing:
        letters[:, -missing:] = ord("=")
    quote = np.full((count, 1), ord('"'), np.uint8)
    whole = np.ascontiguousarray(np.hstack([quote, letters, quote]))
    texts: np.ndarray = whole.view(f"S{whole.shape[1]}")[:, 0].astype(str)
    return texts.astype(object)
