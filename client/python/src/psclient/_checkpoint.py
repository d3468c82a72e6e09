"""psd's checkpoints and PyTorch models. Both sides are safetensors files: a header in JSON, then the tensors' bytes."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, BinaryIO, Union

import numpy as np
import torch
from torch import nn

from psclient._model import Entry, entries_of

_Path = Union[str, "os.PathLike[str]"]

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def _read_head(file: BinaryIO, path: _Path) -> dict[str, Any]:
    size, room = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size - 8
    try:
        head = json.loads(file.read(size)) if size <= room else None
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise ValueError(f"{path}: not a safetensors file, or one that is incomplete")
    return head


def _is_state(name: str) -> bool:
    """Whether psd has the name for itself: the average, and state of the rule."""
    return name == "psd.average" or name.startswith("psd.state.") or name == "__metadata__"


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _begin_of(found: object, entry: Entry, room: int, path: _Path) -> int:
    """Where a tensor of the header begins; ValueError: it is not the model's, or lies outside the file."""
    wanted = entry.described.shape
    if not isinstance(found, dict) or not _are_sizes(found.get("shape")) or not _are_sizes(found.get("data_offsets")):
        raise ValueError(f"{path}: not a safetensors file: '{entry.name}' is no tensor with a shape and data_offsets")
    if found.get("dtype") != "F32":
        raise ValueError(f"{path}: '{entry.name}' is of type {found.get('dtype')}; allowed is F32")
    if tuple(found["shape"]) != wanted:
        raise ValueError(f"{path}: '{entry.name}' has shape {tuple(found['shape'])}; the model's has {wanted}")
    offsets, size = found["data_offsets"], 4 * entry.tensor.numel()
    if len(offsets) != 2 or offsets[1] - offsets[0] != size:
        raise ValueError(f"{path}: '{entry.name}' has data_offsets {offsets}; allowed are two that are {size} bytes apart")
    if offsets[1] > room:
        raise ValueError(f"{path}: the file ends within '{entry.name}': it is incomplete")
    return int(offsets[0])


def _read(model: nn.Module, path: _Path) -> list[tuple[Entry, torch.Tensor]]:
    """The center of a checkpoint, for each of the model's tensors; strictly by name."""
    with open(path, "rb") as file:
        head = _read_head(file, path)
        tensors = {name: found for name, found in head.items() if not _is_state(name)}
        begin = file.tell()
        room = os.fstat(file.fileno()).st_size - begin
        entries = entries_of(model)
        strangers = set(tensors).symmetric_difference(e.name for e in entries)
        if strangers:
            raise ValueError(f"{path}: model and checkpoint differ in {', '.join(sorted(strangers)[:5])}")
        out = []
        for entry in entries:
            file.seek(begin + _begin_of(tensors[entry.name], entry, room, path))
            values = np.fromfile(file, np.float32, entry.tensor.numel())
            if values.size < entry.tensor.numel():
                raise ValueError(f"{path}: the file was shortened while it was read")
            out.append((entry, torch.from_numpy(values).view(entry.tensor.shape)))
    return out


def load_checkpoint(model: nn.Module, path: _Path) -> None:
    """Copies the center in a checkpoint of psd into `model`, strictly by name: ValueError names tensors that only one of
    them has, or a file that is incomplete. A checkpoint has tied parameters once, and no counters such as
    num_batches_tracked. It is a safetensors file; its other tensors, psd.average and psd.state.…, are not the model's."""
    with torch.no_grad():
        for entry, values in _read(model, path):
            entry.tensor.copy_(values)


def export_checkpoint(model: nn.Module, path: _Path, out: _Path) -> None:
    """Writes the center in a checkpoint of psd to `out`, a safetensors file with exactly the entries of model.state_dict():

        model.load_state_dict(safetensors.torch.load_file(out))

    Tied parameters are there under each of their names. What a checkpoint lacks, such as num_batches_tracked, has the
    values of `model`, which does not change. Errors as of load_checkpoint; TypeError names an entry that is no tensor, or
    has a type that safetensors lacks. The file is replaced atomically."""
    center = {id(entry.tensor): values for entry, values in _read(model, path)}
    head: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor) or value.dtype not in _DTYPES:
            raise TypeError(f"'{name}' of the model's state_dict has no place in a safetensors file")
        tensor = center.get(id(value), value).detach().cpu().contiguous()
        parts.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        end = at + len(parts[-1])
        head[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{os.fspath(out)}.new"
    file = open(temporary, "wb")  # noqa: SIM115 # a failure to open it leaves another's file
    try:
        with file:
            file.writelines([len(text).to_bytes(8, "little"), text, *parts])
        os.replace(temporary, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
