"""Arrays for the C library: float32, C-contiguous, in the worker's memory. They are used in place. Nothing is copied or
converted: other arrays are refused with an error that names them. `Host` takes arrays of the host; `Gpu` in _device.py takes
those of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

# DLPack's device types for memory that a CPU can read: its own, and pinned memory of GPUs.
ON_HOST = {1, 3, 11}


class Vector:
    """An array as the C library gets it: `size` floats at `address`. `owner` keeps its memory. `fixed`: the object that was
    passed stays there, and need not be taken again. `device`: the number of its GPU, if that is known."""

    __slots__ = ("address", "device", "fixed", "owner", "size")

    def __init__(self, address: int, size: int, owner: object, *, fixed: bool = True, device: int | None = None) -> None:
        self.address, self.size, self.owner = address, size, owner
        self.fixed, self.device = fixed, device


def as_numpy(name: str, array: Any) -> npt.NDArray[Any]:
    """Returns a NumPy array on the same memory. TypeError, with `name`, if that is not possible."""
    if isinstance(array, np.ndarray):
        return array
    if not hasattr(array, "__dlpack__"):
        if hasattr(array, "__cuda_array_interface__"):
            raise TypeError(f"{name} is in memory of a GPU: copy it to the CPU first, or open the worker with memory='cuda'")
        raise TypeError(
            f"{name} is a {type(array).__name__}; allowed are NumPy arrays and arrays with __dlpack__, such as PyTorch's tensors"
        )
    device = int(array.__dlpack_device__()[0])
    if device not in ON_HOST:
        raise TypeError(
            f"{name} is on a device (DLPack type {device}): copy it to the CPU first"
            + (", or open the worker with memory='cuda'" if device == 2 else "")
        )
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
    check_size(name, array.shape, array.size, n_floats)
    if writes and not array.flags.writeable:
        raise ValueError(f"{name} is read-only, and the call writes it: pass {name}.copy()")
    return array


def check_size(name: str, shape: tuple[int, ...], size: int, n_floats: int | None) -> None:
    if n_floats is not None and size != n_floats:
        raise ValueError(f"{name} has {size} values, in shape {shape}; allowed here are {n_floats}")


def take(name: str, array: Any, n_floats: int | None, *, writes: bool) -> Floats:
    """check(as_numpy(...)). Before version 2.1 NumPy marks all arrays from DLPack as read-only, so that is not checked."""
    given = as_numpy(name, array)
    return check(name, given, n_floats, writes and given is array)


class Host:
    """Takes arrays in memory of the host."""

    stream: int | None = None

    def take(self, name: str, array: Any, n_floats: int | None, *, writes: bool) -> Vector:
        """NumPy arrays keep their memory while they are referenced. Other tensors may get new memory, so they are checked
        every time."""
        taken = take(name, array, n_floats, writes=writes)
        return Vector(taken.ctypes.data, taken.size, taken, fixed=taken is array)

    def starts_at(self, x: Vector) -> None:
        """x is the vector of begin."""
