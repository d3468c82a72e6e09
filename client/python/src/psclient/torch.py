"""psclient.torch: any PyTorch model as a worker of psd.

    worker = psclient.torch.Trainer(model, optimizer, server="@endpoint")
    for images, labels in worker.steps(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        worker.step(len(labels))                       # in place of optimizer.step()

Parameters and buffers become views of one flat vector, and gradients of another: an exchange moves them where they
lie. The method is the server's. Where its workers step (elastic, add, outer-nesterov, delayed-nesterov), psd runs with
`optimizer: external` and the step is `optimizer`'s, or, without an optimizer here, psd's own. Rules that take gradients
make the step themselves: there Trainer takes none."""

from __future__ import annotations

import ctypes as C
import io
import json
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, TypeVar, Union, overload

import numpy as np
import torch
from torch import nn

from psclient._errors import NotFinite, RankTaken, Unsupported
from psclient._model import Entry, Watch, entries_of, local_buffers
from psclient._ring import Ring
from psclient._worker import Info, Role, Worker

_T = TypeVar("_T")
_Path = Union[str, "os.PathLike[str]"]


_RANK_PAUSE_S = 0.5


def _open(server: str | None, rank: int | None, options: dict[str, Any]) -> Worker:
    """With torchrun's RANK where there is one and no other is asked for; any without. A process that torchrun has started again
    finds its rank taken until psd has given up the one before (limits.silence_s): it waits, as long as for a server."""
    patient = rank is None and "RANK" in os.environ
    wanted = int(os.environ.get("RANK", "-1")) if rank is None else rank
    end = time.monotonic() + options.get("timeout_ms", 60000) / 1e3
    while True:
        try:
            return Worker(server, rank=wanted, **options)
        except RankTaken:
            if not patient or time.monotonic() > end:
                raise
            time.sleep(_RANK_PAUSE_S)


def _check_optimizer(optimizer: torch.optim.Optimizer, entries: list[Entry]) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS computes gradients inside its step, which is one step of psd's: take another optimizer")
    trained = {id(e.tensor): e.name for e in entries if e.role == Role.PARAM}
    known = {id(e.tensor) for e in entries}
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for i, group in enumerate(optimizer.param_groups):
        for j, p in enumerate(group["params"]):
            if id(p) not in known:
                raise ValueError(
                    f"the optimizer's parameter {j} of group {i}, of shape {tuple(p.shape)}, is not the model's: make the "
                    "optimizer from model.parameters()"
                )
    for at, name in trained.items():
        if at not in stepped:
            raise ValueError(
                f"parameter '{name}' is not in the optimizer: give it to the optimizer, or freeze it by requires_grad_(False)"
            )


def _copy(view: torch.Tensor, grad: torch.Tensor) -> None:
    """A sparse gradient becomes dense: an embedding's rows that were not used get 0."""
    if grad.layout == torch.strided:
        view.copy_(grad)
    else:
        view.zero_().add_(grad)


def _land(view: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """The hook that puts a parameter's gradient where psd reads it, as backward makes it."""

    def hook(parameter: torch.Tensor) -> None:
        grad = parameter.grad
        if grad is view or grad is None:
            return
        _copy(view, grad)
        parameter.grad = view

    return hook


class Trainer:
    """`model` as a worker of the job of `server`; its state is the job's from here on: the center, unless this worker is
    the first, whose weights start the job.

    optimizer: makes the local step where the job's optimizer is external; None: psd's own, or the rule, steps. Unsupported
    says which is wanted. rank: wanted; None: torchrun's RANK, else any. state: a file that this worker's part of the job is
    resumed from if it is there, and saved to whenever psd takes a checkpoint. Other options are Worker's.

    `worker` is the Worker beneath. A `with` statement closes it; the model stays usable."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        server: str | None = None,
        rank: int | None = None,
        state: _Path | None = None,
        **options: Any,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._entries = entries_of(model)
        if optimizer is not None:
            _check_optimizer(optimizer, self._entries)
        self._n = self._entries[-1].offset + self._entries[-1].tensor.numel()
        # What the worker calls must not keep this object from being collected.
        me = weakref.ref(self)

        def own_step(_x: int, g: int, _learning_rate: float) -> None:
            trainer = me()
            if trainer is not None:
                trainer._own_step(g)

        options.setdefault("own_step", own_step if optimizer is not None else None)
        self.worker = _open(server, rank, options)
        try:
            self._join()
            self._watch = Watch(model, self._entries)
        except BaseException:
            self.worker.close()
            raise
        self._take_over()
        self._state = state
        self._saved = self.info.save_version
        if state is not None and os.path.exists(state):
            try:
                self.resume(state)
            except BaseException:
                self.close()
                raise

    # -- Beginning --

    def _join(self) -> None:
        self._x_array = self.worker.alloc(self._n)
        self._x = torch.from_numpy(self._x_array)
        self._g = torch.zeros(self._n)
        self._g_array = self._g.numpy()
        self._g_at = self._g.data_ptr()
        with torch.no_grad():
            for entry in self._entries:
                if not torch.isfinite(entry.tensor).all():
                    raise NotFinite(
                        f"'{entry.name}' holds values that are not finite. A mask or the like is no part of the job: register "
                        "it with persistent=False"
                    )
                entry.of(self._x).copy_(entry.tensor)
        self.worker.begin([entry.described for entry in self._entries], self._x_array)
        self._check_who_steps(self.info)

    def _check_who_steps(self, info: Info) -> None:
        if self.optimizer is None or info.optimizer == "external":
            return
        theirs = type(self.optimizer).__name__
        if info.optimizer == "none":
            raise Unsupported(
                f"under method {info.method} the server makes the step with the gradients, and {theirs} would not be used: pass "
                "optimizer=None, or take a method whose workers step (docs/METHODS.md) with optimizer: external"
            )
        raise Unsupported(
            f"the job's workers step by psd's {info.optimizer}, and {theirs} would not be used: pass optimizer=None, or start "
            "psd with --set optimizer=external"
        )

    def _take_over(self) -> None:
        """The model's tensors become views of the vectors."""
        self._grads: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._hooks = []
        with torch.no_grad():
            for entry in self._entries:
                entry.tensor.data = entry.of(self._x)
                if entry.role != Role.PARAM:
                    continue
                view = entry.of(self._g)
                if entry.tensor.grad is not None:
                    view.copy_(entry.tensor.grad)
                entry.tensor.grad = view
                self._grads.append((entry.tensor, view))
                self._hooks.append(entry.tensor.register_post_accumulate_grad_hook(_land(view)))
        self._watch.moved()

    # -- Training --

    def step(self, n_samples: int = 1) -> None:
        """One training step with the gradients that are there, averaged over n_samples samples: in place of optimizer.step().
        A drain is no exception: see steps.

        RuntimeError names a tensor of the model that is no longer the vector's. NotFinite names a parameter whose gradient or
        value is NaN or infinite: nothing of it was sent."""
        self._watch.check()
        self._gather()
        try:
            self.worker.step(self._x_array, self._g_array, n_samples)
        except NotFinite as why:
            raise self._name_bad(why) from why
        if self._state is not None and self.worker.save_version != self._saved:
            self.save(self._state)

    def _gather(self) -> None:
        """What did not land as backward ran: gradients that were set by hand, and those that are not there, which are 0."""
        for parameter, view in self._grads:
            if parameter.grad is not view:
                with torch.no_grad():
                    if parameter.grad is None:
                        view.zero_()
                    else:
                        _copy(view, parameter.grad)
                        parameter.grad = view

    def _own_step(self, g: int) -> None:
        assert self.optimizer is not None
        if g != self._g_at:  # the members' mean, of a clique
            mean = np.ctypeslib.as_array((C.c_float * self._n).from_address(g))
            self._g_array[:] = mean
            for parameter, view in self._grads:
                parameter.grad = view
        self.optimizer.step()

    def _name_bad(self, why: NotFinite) -> NotFinite:
        todo = "worker.pull() takes the center to go on from; a smaller learning rate may help"
        for entry in self._entries:
            if entry.role == Role.PARAM and not torch.isfinite(entry.of(self._g)).all():
                return NotFinite(f"the gradient of '{entry.name}' is not finite: nothing was sent; {todo}")
        for entry in self._entries:
            if not torch.isfinite(entry.of(self._x)).all():
                return NotFinite(f"'{entry.name}' has become NaN or infinite: nothing was sent; {todo}")
        return why

    def zero_grad(self) -> None:
        """Zeroes all gradients where they lie, in one pass: what optimizer.zero_grad(set_to_none=False) does one by one."""
        self._g.zero_()
        for parameter, view in self._grads:
            parameter.grad = view

    @overload
    def steps(self) -> Iterator[int]: ...
    @overload
    def steps(self, of: Iterable[_T]) -> Iterator[_T]: ...

    def steps(self, of: Iterable[Any] | None = None) -> Iterator[Any]:
        """What to loop over: the batches of `of`, or step numbers without, in either case until the server drains."""
        return self.worker.steps(of) if of is not None else self.worker.steps()

    @property
    def draining(self) -> bool:
        """Whether the server ends the job in good order: the loop should stop."""
        return self.worker.draining

    def pull(self) -> None:
        """Takes the center into the model; the next step starts over from there."""
        self.worker.pull(None, self._x_array)

    def wait(self) -> None:
        """Lets what the last step has left on its way land, before the model is looked at after the last step."""
        self.worker.wait()

    def report(self, **metrics: float) -> None:
        """Worker.report."""
        self.worker.report(**metrics)  # type: ignore[arg-type]

    @property
    def info(self) -> Info:
        return self.worker.info

    @property
    def rank(self) -> int:
        return self.worker.rank

    # -- Saving --

    def save(self, path: _Path, user: Mapping[str, Any] | None = None) -> None:
        """Saves this worker's part of the job: its vector and what psd's method keeps beside it, the optimizer's state,
        PyTorch's generator on the CPU, counters of the model, and `user`, of plain values and tensors. The file is replaced
        atomically."""
        out = io.BytesIO()
        torch.save(
            {
                "optimizer": self.optimizer.state_dict() if self.optimizer is not None else None,
                "generator": torch.get_rng_state(),
                "buffers": local_buffers(self.model),
                "user": dict(user or {}),
            },
            out,
        )
        self.worker.save(path, self._x_array, out.getvalue())
        self._saved = self.worker.save_version

    def resume(self, path: _Path) -> dict[str, Any]:
        """Takes up what save left, before the first step; returns its `user`."""
        extra = torch.load(io.BytesIO(self.worker.load(path, self._x_array)), weights_only=True)
        if self.optimizer is not None and extra["optimizer"] is not None:
            self.optimizer.load_state_dict(extra["optimizer"])
        torch.set_rng_state(extra["generator"])
        mine = local_buffers(self.model)
        for name, values in extra["buffers"].items():
            if name in mine:
                mine[name].copy_(values)
        user: dict[str, Any] = extra["user"]
        return user

    # -- Leaving --

    def close(self) -> None:
        """Says goodbye to the server. The model keeps its values."""
        self._watch.stop()
        for hook in self._hooks:
            hook.remove()
        self.worker.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


def evaluate(
    model: nn.Module,
    server: str,
    score: Callable[[nn.Module], Mapping[str, float]],
    *,
    average: bool = False,
    **options: Any,
) -> dict[str, float]:
    """Copies the job's center, or its average, into `model`, which need not be a worker's, and reports what score(model)
    returns: "test_loss" and "test_accuracy". With both, a server that keeps the best center has this one, unless it is the
    average. Waits for a first worker where there is none yet."""
    entries = entries_of(model)
    x = np.zeros(entries[-1].offset + entries[-1].tensor.numel(), np.float32)
    with Worker(server, observer=True, **options) as observer:
        observer.begin([entry.described for entry in entries], x)
        version = observer.info.center_version
        if average:
            observer.pull_average(None, x)
        flat = torch.from_numpy(x)
        with torch.no_grad():
            for entry in entries:
                entry.tensor.copy_(entry.of(flat))
        result = dict(score(model))
        known = {k: v for k, v in result.items() if k in ("test_loss", "test_accuracy")}
        observer.report(center_version=version, vector=None if average else x, **known)
    return result


def load_checkpoint(model: nn.Module, path: _Path) -> None:
    """Copies the center of a psd's checkpoint into `model`, strictly by name: what one has and the other lacks is a ValueError
    that names it. Tied parameters are there once, and counters, such as num_batches_tracked, not at all. The file is a
    safetensors file, whose other tensors, psd.…, are the rule's."""
    with open(path, "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        tensors = {n: t for n, t in head.items() if not n.startswith("psd.") and n != "__metadata__"}
        begin = file.tell()
        entries = entries_of(model)
        strangers = set(tensors).symmetric_difference(e.name for e in entries)
        if strangers:
            raise ValueError(f"{path}: model and checkpoint differ in {', '.join(sorted(strangers)[:5])}")
        with torch.no_grad():
            for entry in entries:
                found, wanted = tuple(tensors[entry.name]["shape"]), entry.described.shape
                if found != wanted or tensors[entry.name]["dtype"] != "F32":
                    raise ValueError(f"{path}: '{entry.name}' has shape {found}; the model's has {wanted}")
                file.seek(begin + tensors[entry.name]["data_offsets"][0])
                values = np.fromfile(file, np.float32, entry.tensor.numel())
                entry.tensor.copy_(torch.from_numpy(values).view(entry.tensor.shape))


def ddp_hook(ring: Ring, bucket: Any, *, codec: str | None = None) -> Any:
    """A communication hook of DistributedDataParallel: gradients are averaged over `ring` instead of the process group.

    ddp.register_comm_hook(ring, psclient.torch.ddp_hook)

    `codec` is how they travel, such as "fp16": functools.partial(psclient.torch.ddp_hook, codec="fp16"). Buckets are of
    float32, on the CPU."""
    buffer = bucket.buffer()
    ring.allreduce(buffer.detach(), codec)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(buffer.div_(ring.size))
    return future


ddp_hook.__annotations__.clear()  # DDP wants none, or its own classes; these are text

__all__ = ["Trainer", "ddp_hook", "evaluate", "load_checkpoint"]
