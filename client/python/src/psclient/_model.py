"""A PyTorch model as named tensors of one flat vector, with roles."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import nn

from psclient._manifest import Role, Tensor


@dataclasses.dataclass(frozen=True)
class Entry:
    """One tensor of the vector. `tensor` is the model's object."""

    name: str
    tensor: torch.Tensor
    role: Role
    decays: bool
    offset: int

    @property
    def described(self) -> Tensor:
        return Tensor(self.name, tuple(self.tensor.shape) or (1,), self.role, self.decays)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor's part of a flat vector, in its shape."""
        return flat[self.offset : self.offset + self.tensor.numel()].view(self.tensor.shape)


def kind_of(entry: Entry) -> str:
    return "buffer" if entry.role == Role.BUFFER else "parameter"


def _named(model: nn.Module) -> Iterator[tuple[str, torch.Tensor, bool, nn.Module]]:
    """Yields every tensor of the job once, in the order of modules: name, tensor, whether it is a parameter, its module."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        dot = prefix + ("." if prefix else "")
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield dot + name, parameter, True, module
        for name, buffer in module._buffers.items():
            if buffer is None or id(buffer) in seen or name in module._non_persistent_buffers_set:
                continue
            if buffer.is_floating_point():  # counters are local to each worker
                seen.add(id(buffer))
                yield dot + name, buffer, False, module


def _check(name: str, tensor: torch.Tensor, is_parameter: bool) -> None:
    what = f"{'parameter' if is_parameter else 'buffer'} '{name}'"
    if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer)):
        raise ValueError(f"{what} has no shape yet: run the model once on a batch, then begin")
    if tensor.dtype != torch.float32:
        raise TypeError(
            f"{what} has type {tensor.dtype}; psd's vectors are float32: keep the model in float32 and compute in "
            "another type with torch.autocast"
            + ("" if is_parameter else ", or register the buffer with persistent=False to keep it to this worker")
        )
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{what} is on {tensor.device}; allowed are the CPU, and a GPU of CUDA: model.cpu()")
    if tensor.layout != torch.strided:
        raise TypeError(f"{what} is {tensor.layout}; allowed are dense tensors")


def entries_of(model: nn.Module) -> list[Entry]:
    """The model's tensors in the order of its modules. Parameters that need no gradient are frozen. Persistent buffers of
    floats, such as those of batch normalisation, are averaged over the workers. Tensors of at most one dimension (biases,
    normalisation) do not decay. TypeError and ValueError name an unsupported tensor."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; allowed is a torch.nn.Module")
    out: list[Entry] = []
    offset = 0
    for name, tensor, is_parameter, _ in _named(model):
        _check(name, tensor, is_parameter)
        role = Role.BUFFER if not is_parameter else Role.PARAM if tensor.requires_grad else Role.FROZEN
        out.append(Entry(name, tensor, role, is_parameter and tensor.dim() > 1, offset))
        offset += tensor.numel()
    if not out:
        raise ValueError("the model has no parameters")
    return out


def local_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Persistent buffers that are local to this worker, such as num_batches_tracked."""
    shared = {id(tensor) for _, tensor, _, _ in _named(model)}
    persistent = model.state_dict(keep_vars=True)
    return {n: b for n, b in model.named_buffers() if n in persistent and id(b) not in shared}


class Watch:
    """Detects when tensors of the model no longer are those of the vector. `changed` is a message, or "".

    PyTorch calls these hooks when a module gets a parameter, a buffer or a module, so that a step only has to compare
    addresses."""

    def __init__(self, model: nn.Module, entries: list[Entry]) -> None:
        self.changed = ""
        self._names = {id(module): name for name, module in model.named_modules()}
        self._known = {id(e.tensor) for e in entries}
        self._entries = entries
        self._tensors = [e.tensor for e in entries]
        self._addresses = [t.data_ptr() for t in self._tensors]
        self._trains = [t.requires_grad for t in self._tensors]
        register = nn.modules.module
        self._hooks = [
            register.register_module_parameter_registration_hook(self._on_parameter),
            register.register_module_buffer_registration_hook(self._on_buffer),
            register.register_module_module_registration_hook(self._on_module),
        ]

    def moved(self) -> None:
        """Call it after the tensors became views of the vector."""
        self._addresses = [t.data_ptr() for t in self._tensors]

    def _say(self, what: str, name: str) -> None:
        self.changed = self.changed or (
            f"{what} '{name}' was set after the start, and the job uses the tensors from before: change values in "
            "place (with torch.no_grad(): p.copy_(…)), or close this worker and start one with the complete model"
        )

    def _on_parameter(self, module: nn.Module, name: str, value: object) -> None:
        if id(module) in self._names and value is not None and id(value) not in self._known:
            self._say("parameter", f"{self._names[id(module)]}.{name}".lstrip("."))

    def _on_buffer(self, module: nn.Module, name: str, value: object) -> None:
        prefix = self._names.get(id(module))
        if prefix is None or id(value) in self._known:
            return
        full = f"{prefix}.{name}".lstrip(".")
        if any(e.name == full for e in self._entries):
            self._say("buffer", full)

    def _on_module(self, module: nn.Module, name: str, value: object) -> None:
        if id(module) not in self._names or not isinstance(value, nn.Module):
            return
        for inner, parameter in value.named_parameters():
            if id(parameter) not in self._known:
                self._say("parameter", f"{self._names[id(module)]}.{name}.{inner}".lstrip("."))

    def check(self) -> None:
        """Raises a RuntimeError that names the changed tensor."""
        if self.changed:
            raise RuntimeError(self.changed)
        if list(map(torch.Tensor.data_ptr, self._tensors)) != self._addresses:
            for entry, address in zip(self._entries, self._addresses):
                if entry.tensor.data_ptr() != address:
                    raise RuntimeError(
                        f"{kind_of(entry)} '{entry.name}' is no longer in the worker's vector (.data = …, "
                        ".to(…)): change its values in place, with torch.no_grad(): p.copy_(…)"
                    )
        if [t.requires_grad for t in self._tensors] != self._trains:
            for entry, trains in zip(self._entries, self._trains):
                if entry.tensor.requires_grad != trains:
                    raise RuntimeError(
                        f"parameter '{entry.name}' was {'trained' if trains else 'frozen'} when the job began, and its "
                        f"role is fixed: requires_grad_({trains}), or close this worker and start another"
                    )

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
