"""Sizes as people write them: `512MiB`, `2GB`, `1.5 GiB`, or plain bytes."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {"": 1, "b": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("kmgt", start=1)
    for unit, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Bytes. `MiB` and `M` are 2²⁰, `MB` is 10⁶, likewise for k, G and T; the case does not matter.

    Raises:
        ValueError: when it is not a size, or less than one byte.
    """
    written = _WRITTEN.fullmatch(text)
    unit = written and _UNITS.get(written[2].lower())
    size = int(Decimal(written[1]) * unit) if written and unit else 0
    if size < 1:
        raise ValueError(
            f"{text!r} is not a size; expected bytes, or a number with a unit, such as 512MiB, 2GB or 1GiB"
        )
    return size


def show_size(size: int) -> str:
    """A size in the largest binary unit that leaves at least 1 of it, with up to three decimals."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.3f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} bytes"
