"""All decoys, by what they do."""

from __future__ import annotations

from tests.rewrite.raising.decoys import (
    arithmetic,
    concat,
    masks,
    modulus,
    others,
    parts,
    positions,
    reductions,
)
from tests.rewrite.raising.decoys.decoy import Decoy

__all__ = ["DECOYS"]

_GROUPS = (reductions, positions, parts, modulus, masks, concat, others, arithmetic)

DECOYS: dict[str, Decoy] = {}
for _group in _GROUPS:
    assert not DECOYS.keys() & _group.DECOYS.keys()
    DECOYS.update(_group.DECOYS)
