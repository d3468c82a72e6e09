"""Exceptions: one class for each result of the C library, with the message of psc_error."""

from __future__ import annotations


class Error(Exception):
    """A call of libpsclient failed. str() is the message; `result` is the enum psc_result, such as -3."""

    result = 0
    name = "PSC_OK"


class Drained(Error):
    """The server is draining and accepts no new sessions, or has ended before an explicit call, such as Worker.pull, took
    effect. Otherwise a drain during a job does not raise: see Worker.steps."""

    result, name = 1, "PSC_DRAINED"


class InvalidArgument(Error, ValueError):
    """An argument is not allowed, or a call is out of order."""

    result, name = -1, "PSC_EINVAL"


class OutOfMemory(Error, MemoryError):
    """Out of memory."""

    result, name = -2, "PSC_ENOMEM"


class ServerGone(Error, ConnectionError):
    """The server did not answer within timeout_ms, including reconnects."""

    result, name = -3, "PSC_EGONE"


class Evicted(Error):
    """The server ended this session. A new Worker may continue."""

    result, name = -4, "PSC_EEVICTED"


class NotFinite(Error, ArithmeticError):
    """The values to send contain NaN or infinity: nothing was sent. Worker.pull restarts from the center."""

    result, name = -5, "PSC_EVALUE"


class ManifestMismatch(Error, ValueError):
    """The tensors differ from the job's; the message names the first difference."""

    result, name = -6, "PSC_EMANIFEST"


class RankTaken(Error):
    """The requested rank is taken or out of range."""

    result, name = -7, "PSC_ERANK"


class Refused(Error):
    """The server refused the request; the message says why."""

    result, name = -8, "PSC_EREFUSED"


class Unsupported(Error, NotImplementedError):
    """The server or the library lacks the feature, or their versions differ."""

    result, name = -9, "PSC_EUNSUPPORTED"


class OperatingSystemRefused(Error, OSError):
    """The system refused a descriptor, a thread or a file."""

    result, name = -10, "PSC_ESYSTEM"


class DamagedState(Error):
    """The file is corrupt, or not a file of Worker.save."""

    result, name = -11, "PSC_EDAMAGED"


class CliqueError(Error, ConnectionError):
    """A member of the clique is gone or silent, or members disagree."""

    result, name = -12, "PSC_ECLIQUE"


class AuthError(Error, PermissionError):
    """The server does not allow this key, or the key file cannot be used."""

    result, name = -13, "PSC_EAUTH"


class Interrupted(Error):
    """A signal handler raised while a call waited. Users see its exception, such as KeyboardInterrupt."""

    result, name = -14, "PSC_EINTERRUPTED"


class DeviceError(Error):
    """The device of the vectors has failed."""

    result, name = -15, "PSC_EDEVICE"


OF_RESULT: dict[int, type[Error]] = {
    c.result: c
    for c in (
        Drained,
        InvalidArgument,
        OutOfMemory,
        ServerGone,
        Evicted,
        NotFinite,
        ManifestMismatch,
        RankTaken,
        Refused,
        Unsupported,
        OperatingSystemRefused,
        DamagedState,
        CliqueError,
        AuthError,
        Interrupted,
        DeviceError,
    )
}


def error_of(result: int, sentence: str) -> Error:
    """The exception of a negative result."""
    return OF_RESULT.get(result, Error)(sentence or f"result {result} of a newer library")
