"""What the copies that are run in place of models have less of."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.core.record import Key, Record

__all__ = ["Shrunken"]


@dataclass(frozen=True, slots=True)
class Shrunken(Record):
    """Something that copies have less of than the models.

    Attributes:
        what: What it is, in the plural (`widths`, `rows of tables`).
        before: How many the models have, or how large it is there.
        after: How many the copies have.
    """

    what: str
    before: int
    after: int

    JSON = ("what", Key("before", "from"), Key("after", "to"))
