"""Looking around a module's call by swapping its instance's class: reversible, and invisible to everything else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import engine.device  # noqa: F401  (the fast BLAS comes before MLX)

import mlx.nn as nn

Call = Callable[..., Any]
Around = Callable[..., Any]
"""`around(call, *args, **kwargs)` may call `call`, the module's own `__call__`; it returns what the caller gets."""

METHODS = ("__call__", "as_linear")
"""What can be looked around: a module's call, and an embedding's use as the head that it is tied to."""


class ClassSwap:
    """Wraps the calls of single module instances.

    Each tapped instance gets a subclass of its own class that differs in METHODS alone, so that parameter paths,
    `isinstance` and quantisation are untouched. Calls from another thread than `thread` pass straight through.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._around: dict[tuple[int, str], Around] = {}
        self._originals: dict[int, tuple[nn.Module, type]] = {}
        self._subclasses: dict[type, type] = {}

    def tap(self, module: nn.Module, around: Around, method: str = "__call__") -> None:
        """Call `around` instead of one of the module's METHODS. One that is tapped already stays as it is."""
        if (id(module), method) in self._around:
            return
        self._around[id(module), method] = around
        if id(module) not in self._originals:
            cls = type(module)
            self._originals[id(module)] = (module, cls)
            module.__class__ = self._subclass(cls)

    def remove(self) -> None:
        """Give every module its own class back."""
        for module, original in reversed(self._originals.values()):
            module.__class__ = original
        self._originals.clear()
        self._around.clear()

    def _subclass(self, cls: type) -> type:
        if cls not in self._subclasses:
            body: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
            body |= {method: self._tapped(cls, method) for method in METHODS if hasattr(cls, method)}
            self._subclasses[cls] = type(cls.__name__, (cls,), body)
        return self._subclasses[cls]

    def _tapped(self, cls: type, method: str) -> Any:
        swap, original = self, cls.__dict__.get(method) or getattr(cls, method)

        def tapped(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            around = swap._around.get((id(module), method))
            if around is None or threading.get_ident() != swap.thread:
                return original(module, *args, **kwargs)
            return around(lambda *a, **k: original(module, *a, **k), *args, **kwargs)

        return tapped


def hidden_states(out: Any) -> Any:
    """The array of a module's result: some layers return it in a tuple with other things."""
    return out[0] if isinstance(out, (tuple, list)) else out


def given_states(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a module was given first, by place or by name; None when it was given nothing."""
    return next(iter((*args, *kwargs.values())), None)
