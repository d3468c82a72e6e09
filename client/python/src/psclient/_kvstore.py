"""KVStore: MXNet's KVStore interface on psd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from psclient._arrays import Floats, take
from psclient._errors import CliqueError, InvalidArgument, Unsupported
from psclient._manifest import Tensor
from psclient._ring import Ring
from psclient._worker import Worker

Key = Union[str, int]
Keys = Union[Key, "list[Any]", "tuple[Any, ...]"]


class KVStore:
    """A store of named arrays, with the calls of MXNet's distributed KVStore. The job's rule defines what push does:
    `method: async-sgd` at learning rate 1 subtracts, rule add adds (docs/METHODS.md).

    init names a key with its initial value. The first other call sends all keys to the server; afterwards the keys are
    fixed. Values are float32 arrays; keys are strings, or integers as in MXNet. `workers` is the number of workers that call
    barrier; other options are those of Worker."""

    def __init__(self, server: str, *, workers: int | None = None, **options: Any) -> None:
        if options.get("memory") not in (None, "host"):
            raise Unsupported(f"KVStore: memory {options['memory']!r}; its values are arrays of the host: use Worker for a GPU's")
        self._server, self._workers, self._options = server, workers, options
        self._first: dict[str, Floats] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._ring: Ring | None = None
        self._worker = Worker(server, **options)

    @property
    def type(self) -> str:
        """The server's method. In MXNet it is "dist_sync" or similar."""
        return self._worker.info.method

    @property
    def rank(self) -> int:
        return self._worker.rank

    @property
    def num_workers(self) -> int:
        """Workers in the job, as last reported by the server."""
        return self._worker.size

    def init(self, key: Keys, value: Any) -> None:
        """Names keys and their initial values, which become the center if this worker is the first of the job."""
        if isinstance(key, (list, tuple)):
            for one, its in zip(key, self._as_many(key, value)):
                self.init(one, its)
            return
        name = str(key)
        if self._shapes:
            raise InvalidArgument(
                f"init: key '{name}' comes after the first push or pull, when keys are fixed: call init for all keys first"
            )
        if name in self._first:
            raise InvalidArgument(f"init: key '{name}' is already initialised")
        self._first[name] = take(f"the value of '{name}'", value, None, writes=False).copy()

    @staticmethod
    def _as_many(keys: Sequence[Key], values: Any) -> Sequence[Any]:
        if not isinstance(values, (list, tuple)) or len(values) != len(keys):
            raise InvalidArgument(f"{len(keys)} keys need a list of {len(keys)} values")
        return values

    def _begin(self) -> None:
        if self._shapes:
            return
        if not self._first:
            raise InvalidArgument("call init first: it names the keys")
        names = sorted(self._first)  # independent of the order of init, so that workers agree
        shapes = {name: self._first[name].shape or (1,) for name in names}
        x = np.concatenate([self._first[name].reshape(-1) for name in names])
        self._worker.begin([Tensor(name, shape) for name, shape in shapes.items()], x)
        self._shapes, self._first = shapes, {}

    def _name(self, key: Key) -> str:
        self._begin()
        if str(key) not in self._shapes:
            raise InvalidArgument(f"key '{key}' was not initialised; initialised are {', '.join(self._shapes)}")
        return str(key)

    @staticmethod
    def _sum(name: str, value: Any) -> Any:
        """Sums a list of values for one key, as MXNet does with the values of a machine's devices."""
        if not isinstance(value, (list, tuple)):
            return value
        parts = [take(f"a value of '{name}'", part, None, writes=False) for part in value]
        return np.asarray(np.sum(parts, axis=0, dtype=np.float32))  # of values without dimensions it is no array

    @staticmethod
    def _in_order(keys: Sequence[Key]) -> list[int]:
        """The positions of the keys in the order of the manifest, in which a round takes them; each key once."""
        names = [str(key) for key in keys]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(f"key '{name}' is in the list {names.count(name)} times")
        return sorted(range(len(names)), key=names.__getitem__)

    def push(self, key: Keys, value: Any, n_samples: int = 1) -> None:
        """Updates the center's value by the rule. A list of values for one key is summed first."""
        if isinstance(key, (list, tuple)):
            values = self._as_many(key, value)
            for i in self._in_order(key):
                self.push(key[i], values[i], n_samples)
            return
        name = self._name(key)
        self._worker.push(name, self._sum(name, value), n_samples)

    def pull(self, key: Keys, out: Any = None) -> Any:
        """Returns the center's value, in `out` if given."""
        if isinstance(key, (list, tuple)):
            outs = self._as_many(key, out) if out is not None else [None] * len(key)
            return [self.pull(one, its) for one, its in zip(key, outs)]
        name = self._name(key)
        out = np.empty(self._shapes[name], np.float32) if out is None else out
        self._worker.pull(name, out)
        return out

    def pushpull(self, key: Keys, value: Any, out: Any = None, n_samples: int = 1) -> Any:
        """push, and returns the rule's answer, in `out` if given: the center after the update; under elastic before it."""
        if isinstance(key, (list, tuple)):
            values = self._as_many(key, value)
            outs = list(self._as_many(key, out)) if out is not None else [None] * len(key)
            for i in self._in_order(key):
                outs[i] = self.pushpull(key[i], values[i], outs[i], n_samples)
            return outs
        name = self._name(key)
        out = np.empty(self._shapes[name], np.float32) if out is None else out
        self._worker.pushpull(name, self._sum(name, value), out, n_samples)
        return out

    def set_optimizer(self, optimizer: str, **parameters: object) -> None:
        """Sets the server's rule while the job runs. All workers call it, and the values of rank 0 count; afterwards all use
        it. All are those that have joined, or the constructor's `workers`, of whom it waits for the last.

        optimizer: a rule of psd, such as "sgd", "momentum", "adagrad" or "adam"; parameters: its keys (docs/METHODS.md), and
        others of the method: set_optimizer("momentum", learning_rate=0.1, momentum=0.9). Refused names a wrong one."""
        if not isinstance(optimizer, str):
            raise TypeError(
                f"set_optimizer: {optimizer!r} is a {type(optimizer).__name__}; allowed is the name of a rule of psd, such as "
                '"sgd", with its parameters: set_optimizer("momentum", learning_rate=0.1, momentum=0.9)'
            )
        self._begin()
        if self._workers is not None:
            self.barrier()
        if self.rank == 0:
            self._worker.set_method({"rule": optimizer, **parameters})
        self._worker.workers_barrier()

    def barrier(self) -> None:
        """Returns when all workers have called it: the constructor's `workers`, otherwise the workers in the job. They find
        each other through psd and then communicate directly. CliqueError if a worker does not call it; the next call finds them
        anew."""
        self._begin()
        members = self._workers or self.num_workers
        if self._ring is None or self._ring.size != members:
            if self._ring is not None:
                self._ring.close()
            keys = {k: v for k, v in self._options.items() if k in ("timeout_ms", "key_file", "server_key")}
            self._ring = Ring(f"psd:{self._server}", members, name="kvstore", **keys)
        try:
            self._ring.barrier()
        except CliqueError:
            self._ring.close()
            self._ring = None
            raise

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
        self._worker.close()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()
