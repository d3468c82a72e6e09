"""Checked values for the C library. ctypes cuts integers that do not fit and ends texts at their first NUL, silently; here
they are refused with an error that names them."""

from __future__ import annotations

import ctypes as C
import operator
import os
from typing import Any

from psclient._errors import InvalidArgument

_LIMITS: dict[object, tuple[int, int]] = {
    C.c_int32: (-(2**31), 2**31 - 1),
    C.c_uint32: (0, 2**32 - 1),
    C.c_uint64: (0, 2**64 - 1),
    C.c_size_t: (0, 2**64 - 1),
}


def whole(name: str, value: Any, low: int = 0, high: int = 2**64 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}, {value!r}; allowed are whole numbers") from None
    if not low <= number <= high:
        raise InvalidArgument(f"{name} is {number}; allowed are whole numbers from {low} to {high}")
    return number


def real(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is a {type(value).__name__}, {value!r}; allowed are numbers") from None


def text(name: str, value: Any) -> bytes | None:
    """A str, or a path; None: NULL."""
    if value is None:
        return None
    try:
        given = value.encode() if isinstance(value, str) else os.fsencode(value)
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}; allowed are a str or a path") from None
    if b"\0" in given:
        raise InvalidArgument(f"{name} is {value!r}; allowed are texts without NUL")
    return given


def fill(structure: C.Structure, **values: Any) -> None:
    """Sets fields of a structure."""
    kinds = {name: kind for name, kind, *_ in structure._fields_}
    for name, value in values.items():
        kind = kinds[name]
        if kind is C.c_char_p:
            value = text(name, value)
        elif kind is C.c_double:
            value = real(name, value)
        elif kind in _LIMITS:
            value = whole(name, value, *_LIMITS[kind])
        setattr(structure, name, value)
