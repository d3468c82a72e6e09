"""psclient: the client of psd, a parameter server, for NumPy and (psclient.torch) for PyTorch.

    with psclient.Worker("@endpoint") as worker:
        x = worker.alloc(7850)                        # float32, in memory shared with a psd on this machine
        worker.begin({"w": (10, 784), "b": (10,)}, x)
        for _ in worker.steps():                      # until the server drains
            worker.step(x, gradient_at(x), n_samples=64)

The server chooses the method: what a step does, and when and how to exchange (docs/METHODS.md). docs/PYTHON.md turns a
plain PyTorch loop into a job of many workers."""

from psclient._errors import (
    AuthError,
    CliqueError,
    DamagedState,
    DeviceError,
    Drained,
    Error,
    Evicted,
    Interrupted,
    InvalidArgument,
    ManifestMismatch,
    NotFinite,
    OperatingSystemRefused,
    OutOfMemory,
    RankTaken,
    Refused,
    ServerGone,
    Unsupported,
)
from psclient._kvstore import KVStore
from psclient._manifest import Role, Tensor
from psclient._ring import Ring, Shrunk
from psclient._worker import Info, Local, Transfer, Worker

__all__ = [
    "AuthError",
    "CliqueError",
    "DamagedState",
    "DeviceError",
    "Drained",
    "Error",
    "Evicted",
    "Info",
    "Interrupted",
    "InvalidArgument",
    "KVStore",
    "Local",
    "ManifestMismatch",
    "NotFinite",
    "OperatingSystemRefused",
    "OutOfMemory",
    "RankTaken",
    "Refused",
    "Ring",
    "Role",
    "ServerGone",
    "Shrunk",
    "Tensor",
    "Transfer",
    "Unsupported",
    "Worker",
]
