"""A tiny random model of each architecture that mlx-lm ships, built from the names of its configuration's fields.

Most configurations name the same things the same way, so that one table of values fills them all (`tiny_fields`).
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
import sys
import types
from typing import Any

from engine.device import mx

import mlx.nn as nn
import mlx_lm.models
from mlx.utils import tree_map

from tests.engine.tiny_fields import COMMON, HIDDEN, PARTICULAR, SKIPPED, TEXT_MODEL

__all__ = ["SKIPPED", "architectures", "build", "fields"]


def architectures() -> list[str]:
    """The names of mlx-lm's files that hold a model."""
    names = sorted(module.name for module in pkgutil.iter_modules(mlx_lm.models.__path__))
    return [name for name in names if _source_has_model(name)]


def build(name: str) -> nn.Module:
    """A tiny model of one architecture, with random weights."""
    # olmo only looks whether this package, which it does not use, is there.
    sys.modules.setdefault("hf_olmo", types.ModuleType("hf_olmo"))
    module = importlib.import_module(f"mlx_lm.models.{name}")
    arguments = module.ModelArgs(**fields(module.ModelArgs, name))
    mx.random.seed(1)
    model: nn.Module = module.Model(arguments)
    model.eval()
    model.update(tree_map(_not_naught, model.parameters()))
    mx.eval(model.parameters())
    return model


def fields(configuration: type, name: str) -> dict[str, Any]:
    """What to call a configuration with: the table's values, the particular ones, and small ones for the rest."""
    particular = PARTICULAR.get(name, {})
    values: dict[str, Any] = {}
    for field in dataclasses.fields(configuration):
        if not field.init:
            continue
        if field.name == "text_config" and name in TEXT_MODEL:
            holder, kind = TEXT_MODEL[name].split(".")
            inner = getattr(importlib.import_module(f"mlx_lm.models.{holder}"), kind)
            values[field.name] = fields(inner, name) | ({"model_type": holder} if kind == "ModelArgs" else {})
        elif field.name in particular:
            values[field.name] = particular[field.name]
        elif field.name == "model_type":
            values[field.name] = name
        elif field.name in COMMON:
            values[field.name] = COMMON[field.name]
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = _guess(str(field.type))
        elif isinstance(field.default, int) and not isinstance(field.default, bool) and field.default > 512:
            values[field.name] = HIDDEN  # a size that no model this small needs
    return values


def _not_naught(weights: mx.array) -> mx.array:
    """Gains and biases that begin at 0 would hide what they are multiplied with, or added to."""
    if not mx.issubdtype(weights.dtype, mx.floating) or bool(mx.any(weights != 0)):
        return weights
    return (0.1 * mx.random.normal(weights.shape)).astype(weights.dtype)


def _guess(kind: str) -> object:
    """A value of a required field whose name says nothing."""
    for sign, value in (("Dict", {}), ("dict", {}), ("List", []), ("list", []), ("bool", False), ("int", 4)):
        if sign in kind:
            return value
    if "float" in kind:
        return 1.0
    return "silu" if "str" in kind else None


def _source_has_model(name: str) -> bool:
    spec = importlib.util.find_spec(f"mlx_lm.models.{name}")
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as source:
        return "\nclass Model(" in source.read()
