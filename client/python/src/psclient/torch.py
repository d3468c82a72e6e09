"""psclient.torch: any PyTorch model as a worker of psd.

    worker = psclient.torch.Trainer(model, optimizer, server="@endpoint")
    for images, labels in worker.steps(loader):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        worker.step(len(labels))                       # in place of optimizer.step()

Parameters and buffers become views of one flat vector, and gradients views of another: exchanges update them in
place. The model is on the CPU, or on one GPU. The server chooses the method. Under rules whose workers step (elastic, add,
outer-nesterov, delayed-nesterov), psd runs with `optimizer: external` and `optimizer` makes the step; without an optimizer
here, psd's own does. Rules that take gradients make the step at the server: Trainer then takes no optimizer."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, TypeVar, Union, overload

import numpy as np
import torch
from torch import nn

from psclient._checkpoint import export_checkpoint, load_checkpoint
from psclient._errors import DamagedState, Drained, Error, NotFinite, RankTaken, Unsupported
from psclient._manifest import Role
from psclient._model import Entry, Watch, entries_of, local_buffers
from psclient._place import Gpu, HostPlace, device_of, places_of, through_the_host
from psclient._ring import Ring
from psclient._worker import Info, Worker

_log = logging.getLogger("psclient")
_T = TypeVar("_T")
_Path = Union[str, "os.PathLike[str]"]


_RANK_PAUSE_S = 0.5
_SAMPLED = 4096  # values of g
_PARTS_WERE_SENT = "have been sent, and the session ends"  # in libpsclient's sentence


def _before(state: _Path) -> str:
    """Where Trainer moves a state when it saves the next."""
    return f"{os.fspath(state)}.before"


def _mark(state: _Path) -> tuple[int, int] | None:
    """Inode and time of the file, which differ if another process has replaced it; None: there is none."""
    try:
        found = os.stat(state)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _check_folder(state: _Path) -> None:
    folder = os.path.dirname(os.path.abspath(state))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OSError(f"state {os.fspath(state)!r} cannot be saved: the folder {folder!r} is not there, or not writable")


def _open(server: str | None, rank: int | None, options: dict[str, Any]) -> Worker:
    """Opens a Worker. If `rank` is None it is torchrun's RANK if that is set, otherwise any. The rank of a process that
    torchrun has restarted is taken until psd evicts the old process (limits.silence_s): retries for up to timeout_ms."""
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


def _open_at(places: list[HostPlace], server: str | None, rank: int | None, options: dict[str, Any]) -> tuple[HostPlace, Worker]:
    """Opens a Worker for the first of the places that libpsclient can serve. It says that it cannot before it connects."""
    *better, last = places
    for place in better:
        try:
            with place.scope():
                return place, _open(server, rank, {**options, **place.options()})
        except Unsupported as why:
            _log.info("the vectors do not lie in memory '%s', but in '%s': %s", place.memory, last.memory, why)
    with last.scope():
        return last, _open(server, rank, {**options, **last.options()})


def _check_optimizer(optimizer: torch.optim.Optimizer, entries: list[Entry]) -> None:
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; allowed is a torch.optim.Optimizer, or None")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS computes several gradients in one step, which psd does not support: use another optimizer")
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
    """Copies a gradient; a sparse one becomes dense, with 0 for unused rows of an embedding."""
    if grad.layout == torch.strided:
        view.copy_(grad)
    else:
        view.zero_().add_(grad)


def _land(view: torch.Tensor, told: Callable[[], None]) -> Callable[[torch.Tensor], None]:
    """A hook that moves a parameter's gradient into the flat vector as soon as backward has computed it, then calls told."""

    def hook(parameter: torch.Tensor) -> None:
        grad = parameter.grad
        if grad is None:
            return
        if grad is not view:
            _copy(view, grad)
            parameter.grad = view
        told()

    return hook


def _plain(value: Any) -> Any:
    """The value with Python's numbers in place of NumPy's, which torch.save takes and torch.load refuses."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {_plain(key): _plain(its) for key, its in value.items()}
    return value


def _load(saved: io.BytesIO) -> dict[Any, Any]:
    """Runs no code of the file."""
    loaded: dict[Any, Any] = torch.load(saved, map_location="cpu", weights_only=True)
    return loaded


def _plain_user(user: Mapping[str, Any] | None) -> dict[Any, Any]:
    """TypeError: it has something that torch.save may take, but no resume can read."""
    plain: dict[Any, Any] = _plain(dict(user or {}))
    for key, value in plain.items():
        out = io.BytesIO()
        try:
            torch.save({key: value}, out)
            out.seek(0)
            _load(out)
        except MemoryError:
            raise
        except Exception as why:
            raise TypeError(
                f"Trainer.save: user[{key!r}] is, or holds, what PyTorch cannot read again without running code of the file; "
                "allowed are plain values and tensors, such as torch.from_numpy makes of a NumPy array"
            ) from why
    return plain


class _Reported:
    """A step that has begun: what Trainer.backward has reported of it."""

    def __init__(self, worker: Worker, entries: list[Entry], place: HostPlace, n_samples: int) -> None:
        self.n_samples = n_samples
        x = self._x = place.x
        self.left: tuple[int, list[torch.Tensor | None], torch.Tensor] = (-1, [], x)  # what backward has left
        self._entries, self._reports = entries, place.reports(worker)
        self._told: set[int] = set()
        self._twice = ""
        self._buffers = [(e, e.of(x).clone()) for e in entries if e.role == Role.BUFFER]
        for i, entry in enumerate(entries):
            if entry.role != Role.PARAM:  # of which the worker reads x alone
                self._told.add(i)
                worker.ready(entry.offset, entry.tensor.numel())

    def tell(self, i: int) -> None:
        """The gradient of entry i is final."""
        entry = self._entries[i]
        if i in self._told:
            self._twice = self._twice or entry.name
            return
        self._told.add(i)
        self._reports.tell(entry.offset, entry.tensor.numel())

    def finish(self) -> None:
        """Reports parameters that this backward has not reached, and checks that what was reported was final."""
        for i in reversed(range(len(self._entries))):
            if i not in self._told:
                self.tell(i)
        self._reports.finish()
        todo = "it was reported and may have been sent before: call loss.backward() and step(n) for this model"
        if self._twice:
            raise RuntimeError(f"backward computed the gradient of '{self._twice}' in several parts: {todo}")
        for entry, before in self._buffers:
            if not torch.equal(entry.of(self._x).view(torch.int32), before.view(torch.int32)):
                raise RuntimeError(f"backward changed the buffer '{entry.name}': {todo}")


class Trainer:
    """Makes `model` a worker of `server`'s job. The model is set to the center; the first worker's weights become the
    center.

    optimizer: makes the local step if the job's optimizer is external; None: psd's optimizer or rule makes the step.
    Unsupported is raised if this does not match the job; its message says what to pass. rank: the requested rank; None:
    torchrun's RANK if set, otherwise any. state: a file with this worker's part of the job: resumed from if it exists, and
    saved at each checkpoint of psd and in the step, wait or pull in which psd says that it drains; the one saved before it is
    FILE.before, which a psd that resumed from an older checkpoint is resumed with. Each worker needs a file of its own; of a
    clique either all members have one or none, and ValueError names states that were not saved in the same step. A state
    that cannot be saved, as on a full disk, is a warning of the logger "psclient"; OSError if its folder is not there or not
    writable at the start. Other options are those of Worker, but for its stream.

    A model on a GPU: memory="cuda" lets libpsclient compute on the GPU, and memory="pinned" on the host, with copies of the
    model's vectors and the gradients in pinned memory. None: "cuda" where libpsclient has it for this worker, else "pinned"; a
    message of the logger "psclient" says why. The work is ordered with the stream that is current at each call. TypeError
    names a parameter on another device than the first.

    `worker` is the underlying Worker, whose own calls are not ordered with a GPU's streams, and `memory` the memory of its
    vectors. A `with` statement closes it; the model remains usable."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        server: str | None = None,
        rank: int | None = None,
        state: _Path | None = None,
        memory: str | None = None,
        **options: Any,
    ) -> None:
        if "stream" in options:
            raise TypeError("Trainer has no stream: it orders its work with the stream that is current at each call")
        if state is not None:
            _check_folder(state)
        self.model, self.optimizer = model, optimizer
        self._entries = entries_of(model)
        if optimizer is not None:
            _check_optimizer(optimizer, self._entries)
        self._n = self._entries[-1].offset + self._entries[-1].tensor.numel()
        places = places_of(device_of(self._entries), memory)
        # The callback must not keep this object alive.
        me = weakref.ref(self)

        def own_step(_x: int, g: int, _learning_rate: float) -> None:
            trainer = me()
            if trainer is not None:
                trainer._own_step(g)

        options.setdefault("own_step", own_step if optimizer is not None else None)
        self._place, self.worker = _open_at(places, server, rank, options)
        self.memory = self._place.memory
        try:
            self._join()
            self._watch = Watch(model, self._entries)
        except BaseException:
            with self._place.scope():
                self.worker.close()
            raise
        self._take_over()
        self._state = state
        self._saved = self.info.save_version
        self._mine: tuple[int, int] | None = None  # _mark of the state that this worker has saved
        # A psd that drains as the worker joins lets it in no more: the state stays as it is, for the next run.
        self._saved_last = self.worker.clock if self.draining else -1  # t of the state that was saved in a drain
        if state is not None and not self.draining:
            try:
                self._resume_state(state, options.get("clique"))
            except BaseException:
                self.close()
                raise

    # -- Beginning --

    def _join(self) -> None:
        place = self._place
        place.make(self.worker, self._n)
        self._x, self._g, self._x_array, self._g_array = place.x, place.g, place.x_array, place.g_array
        with torch.no_grad():
            for entry in self._entries:
                if not torch.isfinite(entry.tensor).all():
                    raise NotFinite(
                        f"'{entry.name}' holds values that are not finite. If it is a mask or a similar buffer, register it "
                        "with persistent=False to leave it out of the job"
                    )
                entry.of(self._x).copy_(entry.tensor)
        with place.call():
            self.worker.begin([entry.described for entry in self._entries], self._x_array)
        self._check_who_steps(self.info)

    def _check_who_steps(self, info: Info) -> None:
        if self.optimizer is None or info.optimizer == "external":
            return
        theirs = type(self.optimizer).__name__
        if info.optimizer == "none":
            raise Unsupported(
                f"under method {info.method} the server makes the step with the gradients, so {theirs} would not be used: pass "
                "optimizer=None, or use a method whose workers step (docs/METHODS.md) with optimizer: external"
            )
        raise Unsupported(
            f"the job's workers step with psd's {info.optimizer}, so {theirs} would not be used: pass optimizer=None, or start "
            "psd with --set optimizer=external"
        )

    def _take_over(self) -> None:
        """Makes the model's tensors views of the vectors."""
        self._grads: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._hooks = []
        self._open: _Reported | None = None
        self._n_samples: int | None = None  # of a backward that has reported nothing
        self._scaler: Any = None
        self._called = self._warned = False  # the optimizer in this step, and that it is not
        self._backward = False
        with torch.no_grad():
            for i, entry in enumerate(self._entries):
                entry.tensor.data = entry.of(self._x)
                if entry.role != Role.PARAM:
                    continue
                view = entry.of(self._g)
                if entry.tensor.grad is not None:
                    view.copy_(entry.tensor.grad)
                entry.tensor.grad = view
                self._grads.append((entry.tensor, view))
                self._hooks.append(entry.tensor.register_post_accumulate_grad_hook(_land(view, self._teller(i))))
        self._watch.moved()

    def _teller(self, i: int) -> Callable[[], None]:
        """What the hook of entry i calls. The hook must not keep this object alive."""
        me = weakref.ref(self)

        def told() -> None:
            trainer = me()
            if trainer is not None and trainer._backward and trainer._open is not None:
                trainer._open.tell(i)

        return told

    # -- Training --

    def backward(self, loss: torch.Tensor, n_samples: int = 1) -> None:
        """loss.backward(), the last before step(): reports each gradient as soon as it is final, so that it travels while
        the others are computed: to the other members of a clique, or to a server whose rule takes gradients. The step has
        the same bits as after loss.backward(). Where nothing can leave early (Worker.early) it is loss.backward(), and step
        uses n_samples all the same.

        Gradients must stay as they are until step(): use loss.backward() if they are unscaled or clipped. For gradient
        accumulation, use loss.backward() for all batches but the last; n_samples counts all of them. If backward
        raises after the step began, the session ends, because a part of the gradient may have been sent."""
        if self._open is not None or self._n_samples is not None:
            raise RuntimeError(
                "backward: step() must follow the previous Trainer.backward; for gradient accumulation, only the last is "
                "Trainer.backward and the others are loss.backward()"
            )
        self._watch.check()
        if not self.worker.early or not self._step_begin(n_samples):
            loss.backward()
            self._n_samples = n_samples
            return
        try:
            self._open = _Reported(self.worker, self._entries, self._place, n_samples)
            self._gather()
            self._backward = True
            loss.backward()
            self._backward = False
            self._gather()
            self._open.finish()
            self._open.left = self._sample()
        except BaseException:
            self._backward = False
            self.close()
            raise

    def _step_begin(self, n_samples: int) -> bool:
        with self._place.call(back=False):
            return self.worker.step_begin(self._x_array, self._g_array, n_samples)

    def step(self, n_samples: int | None = None, *, scaler: Any = None) -> None:
        """Makes one training step with the current gradients, averaged over n_samples samples (1, or those of
        Trainer.backward); replaces optimizer.step(). A drain does not raise: see steps.

        scaler: the torch.amp.GradScaler that scaled the loss. scaler.step(optimizer) then takes the place of
        optimizer.step(): it leaves the model as it is where a gradient has overflowed. Call scaler.update() afterwards.
        Unsupported, before anything is sent: the job's optimizer is no longer external. Without a scaler that is a warning of
        the logger "psclient".

        RuntimeError names a tensor of the model that is no longer a view of the vector. NotFinite names a parameter whose
        gradient or value is NaN or infinite: nothing was sent."""
        if scaler is not None and self.optimizer is None:
            raise ValueError("step: a scaler needs an optimizer to step with; here the server or libpsclient makes the step")
        self._watch.check()
        if scaler is not None:
            self._unscale(scaler)
        self._scaler, self._called = scaler, False
        try:
            if self._open is not None:
                self._end_step(self._open, n_samples)
            else:
                n_samples = self._agree(n_samples, self._n_samples)
                self._n_samples = None
                self._gather()
                with self._place.call(g=True):
                    self.worker.step(self._x_array, self._g_array, n_samples)
        except NotFinite as why:
            raise self._name_bad(why) from why
        if self.optimizer is not None and not self._called:
            self._warn_uncalled(self.optimizer)
        self._save_last()
        if self._state is not None and self.worker.save_version != self._saved:
            self._save_state(self._state)

    def _unscale(self, scaler: Any) -> None:
        """Comes before the step: if the job changes to another optimizer within it, that one gets no scaled gradient."""
        self._check_who_steps(self.info)
        if self._open is None:
            with contextlib.suppress(RuntimeError):  # the program has called it, or will be told by scaler.step
                scaler.unscale_(self.optimizer)

    def _warn_uncalled(self, optimizer: torch.optim.Optimizer) -> None:
        """Says once that the job has another optimizer now. In a drain, and where a pipeline begins, a step calls none."""
        if self._warned or self.draining or self.info.optimizer == "external":
            return
        self._warned = True
        _log.warning(
            "the job's method is %s now, with optimizer %s: %s is not called any more",
            self.info.method,
            self.info.optimizer,
            type(optimizer).__name__,
        )

    def _save_last(self) -> None:
        """Saves the state where psd drains: the next step may never come."""
        clock = self.worker.clock
        if self._state is not None and self.draining and self._saved_last != clock:
            self._saved_last = clock
            self._save_state(self._state)

    def _sample(self) -> tuple[int, list[torch.Tensor | None], torch.Tensor]:
        """What shows that gradients have changed. GradScaler.unscale_ does not count as a change of a tensor's version, so
        some values are compared."""
        stride = -(-self._n // _SAMPLED)
        return self._g._version, [p.grad for p, _ in self._grads], self._g.view(torch.int32)[::stride].clone()  # NaN too

    @staticmethod
    def _agree(n_samples: int | None, before: int | None) -> int:
        """The samples of a step whose Trainer.backward, if any, was given `before`."""
        if before is None:
            return 1 if n_samples is None else n_samples
        if n_samples not in (None, before):
            raise ValueError(f"step: n_samples is {n_samples}, and Trainer.backward of this step was given {before}")
        return before

    def _end_step(self, opened: _Reported, n_samples: int | None) -> None:
        """Ends the step that backward began."""
        self._agree(n_samples, opened.n_samples)
        (version, grads, values), (now_version, now_grads, now_values) = opened.left, self._sample()
        if version != now_version or list(map(id, grads)) != list(map(id, now_grads)) or not torch.equal(values, now_values):
            self.close()
            raise RuntimeError(
                "gradients were changed between Trainer.backward, which had reported them, and step(). The session is closed. "
                "Where gradients are clipped, unscaled or zeroed before the step, call loss.backward() in place of "
                "Trainer.backward"
            )
        self._open = None
        with self._place.call(x=False):
            self.worker.step_end()

    def _gather(self) -> None:
        """Copies gradients that the hooks did not move: those set by hand, and missing ones, which are 0."""
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
        self._called, self._warned = True, False
        with self._place.own_step(g) as is_mean:
            for parameter, view in self._grads if is_mean else ():
                parameter.grad = view
            if self._scaler is not None:
                self._scaler.step(self.optimizer)
            else:
                self.optimizer.step()

    def _name_bad(self, why: NotFinite) -> NotFinite:
        then = "nothing was sent; worker.pull() restarts from the center; a smaller learning rate may help"
        if _PARTS_WERE_SENT in str(why):
            self.close()
            then = (
                "parts of the gradient that were ready before have been sent, and the session is closed; start another Trainer. "
                "A smaller learning rate may help"
            )
        for entry in self._entries:
            if entry.role == Role.PARAM and not torch.isfinite(entry.of(self._g)).all():
                return NotFinite(f"the gradient of '{entry.name}' is not finite: {then}")
        for entry in self._entries:
            if not torch.isfinite(entry.of(self._x)).all():
                return NotFinite(f"'{entry.name}' has become NaN or infinite: {then}")
        return why

    def zero_grad(self) -> None:
        """Zeroes all gradients in place in one pass. It replaces optimizer.zero_grad(set_to_none=False)."""
        self._g.zero_()
        for parameter, view in self._grads:
            parameter.grad = view

    @overload
    def steps(self) -> Iterator[int]: ...
    @overload
    def steps(self, of: Iterable[_T]) -> Iterator[_T]: ...

    def steps(self, of: Iterable[Any] | None = None) -> Iterator[Any]:
        """Iterates over the batches of `of`, or over step numbers without `of`, until the server drains."""
        return self.worker.steps(of) if of is not None else self.worker.steps()

    @property
    def draining(self) -> bool:
        """Whether the server is draining: the training loop should stop."""
        return self.worker.draining

    def pull(self) -> None:
        """Copies the center into the model; the next step restarts from it. Drained: psd has ended before."""
        self._call(lambda: self.worker.pull(None, self._x_array))

    def wait(self) -> None:
        """Waits for transfers that the last step started. Call it before reading the model after the last step. Drained: psd
        ended before one took effect."""
        self._call(self.worker.wait)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            with self._place.call():
                call()
        except Drained:
            self._save_last()
            raise
        self._save_last()

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
        """Saves this worker's part of the job: its vector, the state of psd's method, the optimizer's state, PyTorch's
        generators of the CPU and of the model's GPU, counters of the model, and `user`, which holds plain values and tensors;
        NumPy's scalars become Python's. TypeError: it holds something else, such as a NumPy array. The file is replaced
        atomically. One that was saved on a GPU can be resumed from on the CPU, and the other way round."""
        out = io.BytesIO()
        torch.save(
            {
                "optimizer": _plain(self.optimizer.state_dict()) if self.optimizer is not None else None,
                "generator": torch.get_rng_state(),
                "device_generator": self._place.generator_state(),
                "buffers": local_buffers(self.model),
                "user": _plain_user(user),
            },
            out,
        )
        with self._place.call(back=False):
            self.worker.save(path, self._x_array, out.getvalue())
        if self._state is not None and os.fspath(path) == os.fspath(self._state):
            self._mine = _mark(path)

    def _save_state(self, state: _Path) -> None:
        """Saves what psd has asked for, or the last state. The step is made: an exception would say that it is not."""
        self._saved = self.worker.save_version
        mine, found = self._mine, _mark(state)
        if mine is not None and found is not None and mine[0] != found[0] and mine[1] != found[1]:
            _log.warning(
                "another process has saved to the state %r since this worker did: a resume would take the state of one for "
                "both; allowed: a file for each worker",
                os.fspath(state),
            )
        self._mine = None
        try:
            if found is not None:
                os.replace(state, _before(state))
            self.save(state)
        except (MemoryError, OSError, NotFinite) as why:
            then = "training goes on; the next checkpoint of psd saves it"
            if self.draining:
                then = "a resume uses the one before it, if any"
            _log.warning("the state is not saved, and %s: %s", then, why)

    def _resume_state(self, state: _Path, clique: Ring | None) -> None:
        found = self._states_to_resume(state)
        if clique is not None and clique.size > 1:
            found = self._choose_together(clique, found)
        if found:
            self.resume(found[0])
        if clique is None or clique.size == 1:
            return
        clocks, resumed = clique._gather(self.worker.clock), clique._gather(int(bool(found)))
        for rank in range(clique.size):  # from other points they would go on apart
            if (clocks[rank], resumed[rank]) != (self.worker.clock, int(bool(found))):
                mine = f"the state {os.fspath(found[0])!r}" if found else "no state"
                theirs = "a state" if resumed[rank] else "no state"
                raise ValueError(
                    f"{mine}: this member has made {self.worker.clock} steps, and member {rank} of the clique, with {theirs}, "
                    f"{clocks[rank]}: their states were not saved together; allowed: states of the same step, or none"
                )

    def _version_of(self, path: _Path) -> int:
        """-1: damaged. resume says so, if there is no other."""
        try:
            return self.worker.saved_version(path)
        except Error:
            return -1

    def _states_to_resume(self, state: _Path) -> list[_Path]:
        """The newest one first, unless only that before it belongs to the center: psd, or this process, ended while it saved."""
        files: list[_Path] = [path for path in (state, _before(state)) if os.path.exists(path)]
        versions, center = [self._version_of(path) for path in files], self.info.center_version
        return files[::-1] if center in versions[1:] and center != versions[0] else files

    def _choose_together(self, clique: Ring, files: list[_Path]) -> list[_Path]:
        """The second first, where only of its version every member has a state: the clique ended while it saved."""
        versions = [self._version_of(path) for path in files] + [-1, -1]
        theirs = list(zip(clique._gather(versions[0]), clique._gather(versions[1])))
        have = [version >= 0 and all(version in pair for pair in theirs) for version in versions[:2]]
        return files[::-1] if have[1] and not have[0] else files

    def resume(self, path: _Path) -> dict[str, Any]:
        """Restores what save saved; call it before the first step. Returns `user`. After DamagedState, which says why the file
        cannot be read, all is as before."""
        extra = self._read_extra(path)
        with self._place.call(x=False):
            self.worker.load(path, self._x_array)
        if self.optimizer is not None and extra["optimizer"] is not None:
            self.optimizer.load_state_dict(extra["optimizer"])
        torch.set_rng_state(extra["generator"])
        if extra.get("device_generator") is not None:
            self._place.set_generator_state(extra["device_generator"])
        mine = local_buffers(self.model)
        for name, values in extra["buffers"].items():
            if name in mine:
                mine[name].copy_(values)
        user: dict[str, Any] = extra["user"]
        return user

    def _read_extra(self, path: _Path) -> dict[str, Any]:
        saved = self.worker._saved_extra(path)
        try:
            extra = _load(io.BytesIO(saved))
            return {**extra, **{name: extra[name] for name in ("optimizer", "generator", "buffers", "user")}}
        except Exception as why:
            raise DamagedState(f"{os.fspath(path)!r} is not of Trainer.save, or PyTorch cannot read it: {why}") from why

    # -- Leaving --

    def close(self) -> None:
        """Leaves the job. The model keeps its values."""
        self._watch.stop()
        for hook in self._hooks:
            hook.remove()
        with self._place.scope():
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
    """Copies the job's center, or its average, into `model`, which need not belong to a worker, and reports the
    "test_loss" and "test_accuracy" that score(model) returns. With both, a server that keeps the best center considers this
    one, unless it is the average. Waits for the first worker of the job; Drained: the server drained before it came."""
    entries = entries_of(model)
    x = np.zeros(entries[-1].offset + entries[-1].tensor.numel(), np.float32)
    with Worker(server, observer=True, **options) as observer:
        observer.begin([entry.described for entry in entries], x)
        if observer.draining:
            raise Drained("evaluate: the server drained before a worker had begun: there is no center; the model is as before")
        version = observer.info.center_version
        if average:
            observer.pull_average(None, x)
        flat = torch.from_numpy(x)
        with torch.no_grad():
            for entry in entries:
                entry.tensor.copy_(entry.of(flat))
        scored = score(model)
        if not isinstance(scored, Mapping):
            raise TypeError(f'score returned a {type(scored).__name__}; allowed is a mapping, such as {{"test_accuracy": 0.99}}')
        result = dict(scored)
        known = {k: v for k, v in result.items() if k in ("test_loss", "test_accuracy")}
        observer.report(center_version=version, vector=None if average else x, **known)
    return result


_side_streams: dict[torch.device, tuple[Gpu, Any]] = {}


def _sum_on_the_host(ring: Ring, values: torch.Tensor, codec: str | None) -> None:
    """ring.allreduce of a GPU's values."""
    if values.device not in _side_streams:
        gpu = Gpu(values.device)
        _side_streams[values.device] = gpu, gpu.stream()
    gpu, stream = _side_streams[values.device]
    through_the_host(gpu, stream, values, lambda host: ring.allreduce(host, codec))


def ddp_hook(ring: Ring, bucket: Any, *, codec: str | None = None) -> Any:
    """A communication hook for DistributedDataParallel that averages gradients over `ring` instead of the process group.

    ddp.register_comm_hook(ring, psclient.torch.ddp_hook)

    codec: the encoding of the gradients, such as "fp16": functools.partial(psclient.torch.ddp_hook, codec="fp16"). Buckets
    are float32; those of a GPU are summed in pinned memory of the host."""
    buffer = bucket.buffer()
    if buffer.device.type == "cpu":
        ring.allreduce(buffer.detach(), codec)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    else:
        _sum_on_the_host(ring, buffer.detach(), codec)
        future = torch.futures.Future(devices=[buffer.device])  # DDP's stream waits for the current one
    future.set_result(buffer.div_(ring.size))
    return future


ddp_hook.__annotations__.clear()  # DDP accepts no annotations or its own classes; these are strings

__all__ = ["Trainer", "ddp_hook", "evaluate", "export_checkpoint", "load_checkpoint"]
