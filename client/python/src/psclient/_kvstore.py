"""KVStore: MXNet's calls on a psd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Union

import numpy as np

from psclient._arrays import Floats, take
from psclient._errors import InvalidArgument, Unsupported
from psclient._ring import Ring
from psclient._worker import Tensor, Worker

Key = Union[str, int]
Keys = Union[Key, "list[Any]", "tuple[Any, ...]"]


class KVStore:
    """A store of named arrays, with the calls of MXNet's distributed KVStore. What push does is the job's rule:
    `method: async-sgd` at learning rate 1 subtracts, rule add adds (docs/METHODS.md).

    init names every key with its first value; the first other call brings them to the server together, and from
    then on keys are fixed. Values are float32 arrays; keys are strings, or integers as MXNet has them. `workers`
    is how many call barrier; other options are Worker's."""

    def __init__(self, server: str, *, workers: int | None = None, **options: Any) -> None:
        self._server, self._workers, self._options = server, workers, options
        self._first: dict[str, Floats] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._ring: Ring | None = None
        self._worker = Worker(server, **options)

    @property
    def type(self) -> str:
        """The server's method; MXNet has "dist_sync" and others here."""
        return self._worker.info.method

    @property
    def rank(self) -> int:
        return self._worker.rank

    @property
    def num_workers(self) -> int:
        """Workers in the job, as the server last said."""
        return self._worker.size

    def init(self, key: Keys, value: Any) -> None:
        """Names keys and their first values, which become the center if this worker is the job's first."""
        if isinstance(key, (list, tuple)):
            for one, its in zip(key, self._as_many(key, value)):
                self.init(one, its)
            return
        name = str(key)
        if self._shapes:
            raise InvalidArgument(
                f"init: key '{name}' comes after the first push or pull, when keys are fixed: name all of them first"
            )
        if name in self._first:
            raise InvalidArgument(f"init: key '{name}' has been initialised before")
        self._first[name] = take(f"the value of '{name}'", value, None, writes=False)

    @staticmethod
    def _as_many(keys: Sequence[Key], values: Any) -> Sequence[Any]:
        if not isinstance(values, (list, tuple)) or len(values) != len(keys):
            raise InvalidArgument(f"{len(keys)} keys want a list of as many values")
        return values

    def _begin(self) -> None:
        if self._shapes:
            return
        if not self._first:
            raise InvalidArgument("init comes first: it names the keys")
        names = sorted(self._first)  # whatever the order of init, workers agree
        shapes = {name: self._first[name].shape or (1,) for name in names}
        x = np.concatenate([self._first[name].reshape(-1) for name in names])
        self._worker.begin([Tensor(name, shape) for name, shape in shapes.items()], x)
        self._shapes, self._first = shapes, {}

    def _name(self, key: Key) -> str:
        self._begin()
        if str(key) not in self._shapes:
            raise InvalidArgument(f"key '{key}' was not initialised; there are {', '.join(self._shapes)}")
        return str(key)

    @staticmethod
    def _sum(name: str, value: Any) -> Any:
        """MXNet sums a list of values for one key: those of a machine's devices."""
        if not isinstance(value, (list, tuple)):
            return value
        parts = [take(f"a value of '{name}'", part, None, writes=False) for part in value]
        return np.sum(parts, axis=0, dtype=np.float32)

    def push(self, key: Keys, value: Any, n_samples: int = 1) -> None:
        """Moves the center's value by the rule. A list of values for one key is summed first."""
        if isinstance(key, (list, tuple)):
            for one, its in zip(key, self._as_many(key, value)):
                self.push(one, its, n_samples)
            return
        name = self._name(key)
        self._worker.push(name, self._sum(name, value), n_samples)

    def pull(self, key: Keys, out: Any = None) -> Any:
        """The center's value, into `out` where one is given."""
        if isinstance(key, (list, tuple)):
            outs = self._as_many(key, out) if out is not None else [None] * len(key)
            return [self.pull(one, its) for one, its in zip(key, outs)]
        name = self._name(key)
        out = np.empty(self._shapes[name], np.float32) if out is None else out
        self._worker.pull(name, out)
        return out

    def pushpull(self, key: Keys, value: Any, out: Any = None, n_samples: int = 1) -> Any:
        """push, and what the rule answers into `out`: the center after, under elastic before."""
        if isinstance(key, (list, tuple)):
            values = self._as_many(key, value)
            outs = self._as_many(key, out) if out is not None else [None] * len(key)
            return [self.pushpull(one, v, o, n_samples) for one, v, o in zip(key, values, outs)]
        name = self._name(key)
        out = np.empty(self._shapes[name], np.float32) if out is None else out
        self._worker.pushpull(name, self._sum(name, value), out, n_samples)
        return out

    def set_optimizer(self, optimizer: object) -> NoReturn:
        """Always Unsupported: a psd's update rule is its configuration's, for all workers alike."""
        raise Unsupported(
            f"set_optimizer({optimizer!r}): the rule is the server's configuration: start psd with --method and --set, "
            "or change it while it runs by `psctl reload`"
        )

    def barrier(self) -> None:
        """Returns when all workers have called it: as many as the constructor's `workers`, else as are in the job.
        They meet at psd and then talk among themselves; CliqueError when one does not come."""
        self._begin()
        members = self._workers or self.num_workers
        if self._ring is None or self._ring.size != members:
            if self._ring is not None:
                self._ring.close()
            keys = {k: v for k, v in self._options.items() if k in ("timeout_ms", "key_file", "server_key")}
            self._ring = Ring(f"psd:{self._server}", members, name="kvstore", **keys)
        self._ring.barrier()

    def close(self) -> None:
        if self._ring is not None:
            self._ring.close()
        self._worker.close()

    def __enter__(self) -> KVStore:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()
