"""Vectors of psc_alloc as NumPy arrays that may outlive their Worker."""

from __future__ import annotations

import ctypes as C
import weakref

import numpy as np

from psclient import _native
from psclient._arrays import Floats


class _Memory:
    """The memory of an array; through __array_interface__ NumPy keeps it alive as long as any view of it."""

    def __init__(self, address: int, n_floats: int, memory: int) -> None:
        self.__array_interface__ = {
            "shape": (n_floats,),
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
        }
        # Valid before and after psc_close: libpsclient handles both.
        weakref.finalize(self, _native.lib.psc_memory_free, memory).atexit = False


def array_at(address: int, n_floats: int, memory: C.c_void_p) -> Floats:
    """An array of the n_floats values at `address`. `memory`, from psc_keep, is freed when its last view is gone."""
    assert memory.value is not None
    array: Floats = np.asarray(_Memory(address, n_floats, memory.value))
    return array
