"""What goes wrong: one class for each result of the C library, with the sentence of psc_error."""

from __future__ import annotations


class Error(Exception):
    """A call of libpsclient failed. str() is its sentence; `result` is the enum psc_result, such as -3."""

    result = 0
    name = "PSC_OK"


class Drained(Error):
    """The server ends its job and lets nobody in. A drain in the middle of a job is no exception: Worker.steps."""

    result, name = 1, "PSC_DRAINED"


class InvalidArgument(Error, ValueError):
    """An argument is not allowed, or a call came out of order."""

    result, name = -1, "PSC_EINVAL"


class OutOfMemory(Error, MemoryError):
    """There is no memory."""

    result, name = -2, "PSC_ENOMEM"


class ServerGone(Error, ConnectionError):
    """The server did not answer within timeout_ms, reconnecting included."""

    result, name = -3, "PSC_EGONE"


class Evicted(Error):
    """The server ended this session. A new Worker may go on."""

    result, name = -4, "PSC_EEVICTED"


class NotFinite(Error, ArithmeticError):
    """The values to send hold NaN or infinity: nothing of them was sent. Worker.pull takes the center anew."""

    result, name = -5, "PSC_EVALUE"


class ManifestMismatch(Error, ValueError):
    """The tensors differ from the job's; the sentence names the first that does."""

    result, name = -6, "PSC_EMANIFEST"


class RankTaken(Error):
    """The rank wanted is taken or out of range."""

    result, name = -7, "PSC_ERANK"


class Refused(Error):
    """The server refused the request; the sentence says why."""

    result, name = -8, "PSC_EREFUSED"


class Unsupported(Error, NotImplementedError):
    """Server and library have no such feature, or differ in version."""

    result, name = -9, "PSC_EUNSUPPORTED"


class OperatingSystemRefused(Error, OSError):
    """No descriptors, no threads, no such file."""

    result, name = -10, "PSC_ESYSTEM"


class DamagedState(Error):
    """A file of Worker.save is damaged, or is none."""

    result, name = -11, "PSC_EDAMAGED"


class CliqueError(Error, ConnectionError):
    """A member of the clique is gone or silent, or members disagree."""

    result, name = -12, "PSC_ECLIQUE"


class AuthError(Error, PermissionError):
    """The server does not let this key in, or the key file cannot be used."""

    result, name = -13, "PSC_EAUTH"


class Interrupted(Error):
    """A signal's handler raised while a call waited. Users see what it raised, such as KeyboardInterrupt."""

    result, name = -14, "PSC_EINTERRUPTED"


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
    )
}


def error_of(result: int, sentence: str) -> Error:
    """The exception of a negative result."""
    return OF_RESULT.get(result, Error)(sentence or f"result {result} of a newer library")
