"""Arrays for the C library: float32, C-contiguous, in host memory. They are used in place. Nothing is copied or converted:
other arrays are refused with an error that names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

# DLPack's device types for memory that a CPU can read: its own, and pinned memory of GPUs.
_ON_HOST = {1, 3, 11}


def as_numpy(name: str, array: Any) -> npt.NDArray[Any]:
    """Returns a NumPy array on the same memory. TypeError, with `name`, if that is not possible."""
    if isinstance(array, np.ndarray):
        return array
    if not hasattr(array, "__dlpack__"):
        raise TypeError(
            f"{name} is a {type(array).__name__}; allowed are NumPy arrays and arrays with __dlpack__, such as PyTorch's tensors"
        )
    device = int(array.__dlpack_device__()[0])
    if device not in _ON_HOST:
        raise TypeError(f"{name} is on a device (DLPack type {device}): copy it to the CPU first")
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as why:
        raise TypeError(f"{name}: {why}") from why


def check(name: str, array: npt.NDArray[Any], n_floats: int | None, writes: bool) -> Floats:
    """Returns the array if the library can use it. TypeError and ValueError name the array and a remedy."""
    if array.dtype != np.float32 or not array.dtype.isnative:
        raise TypeError(f"{name} has type {array.dtype}; psd needs float32: convert it with .astype(numpy.float32)")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{name}, of shape {array.shape}, is not contiguous: pass numpy.ascontiguousarray({name}), "
            "or an array that owns its layout"
        )
    if not array.flags.aligned:
        raise ValueError(f"{name} is not aligned to 4 bytes: pass {name}.copy()")
    if n_floats is not None and array.size != n_floats:
        raise ValueError(f"{name} has {array.size} values, in shape {array.shape}; allowed here are {n_floats}")
    if writes and not array.flags.writeable:
        raise ValueError(f"{name} is read-only, and the call writes it: pass {name}.copy()")
    return array


def take(name: str, array: Any, n_floats: int | None, *, writes: bool) -> Floats:
    """check(as_numpy(...)). Before version 2.1 NumPy marks all arrays from DLPack as read-only, so that is not checked."""
    given = as_numpy(name, array)
    return check(name, given, n_floats, writes and given is array)
