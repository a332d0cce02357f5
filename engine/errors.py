"""Every error that the engine raises on purpose.

::

    TokenwalkError
    ├── RequestError          the caller's request is wrong: HTTP 400, exit status 2
    ├── ModelError            the model cannot be found, read or run
    │   ├── ModelNotFound     nothing at that path or under that name
    │   └── ModelUnsupported  read, but of an architecture or tensor type that is not supported
    ├── TraceError            a file is not a trace, or not a whole one
    ├── QueueFull             too many requests wait: HTTP 429
    └── EngineStopped         the engine thread is not running: HTTP 503

A message is one or two sentences: what was given, what was expected, what to do.
"""

from __future__ import annotations

MAX_SHOWN = 200


def shown(value: object) -> str:
    """What was given, for a message: as Python writes it, cut short when it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class TokenwalkError(Exception):
    """Base of all errors whose message is meant for the person at the keyboard."""


class RequestError(TokenwalkError):
    """A field of a request is wrong.

    Args:
        message: what is wrong and what to do.
        param: the field's name as the caller wrote it, or None when it is the whole body.
        code: a stable word for programs, such as ``context_length_exceeded``.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ModelError(TokenwalkError):
    """A model cannot be loaded or run."""


class ModelNotFound(ModelError):
    """Nothing is at that path or under that name."""


class ModelUnsupported(ModelError):
    """The file was read, but its architecture or a tensor type is not supported."""


class TraceError(TokenwalkError):
    """A file is not a trace, is damaged, or lacks what was asked of it."""


class QueueFull(TokenwalkError):
    """As many requests wait as the queue may hold."""


class EngineStopped(TokenwalkError):
    """The engine thread is not running, so nothing can be generated."""


def explained(failure: BaseException) -> BaseException:
    """A failure to start, in words for the person where it is known what it comes from."""
    said = str(failure)
    if "Compile::eval_cpu" not in said:
        return failure
    why = " ".join(said.rpartition("error: ")[2].replace("compilation terminated.", "").split())[-200:]
    return ModelError(
        f"MLX could not compile a part of the model with g++ ({why}); make room in the folder for "
        "temporary files (TMPDIR), or set MLX_DISABLE_COMPILE=1, which does without"
    )
