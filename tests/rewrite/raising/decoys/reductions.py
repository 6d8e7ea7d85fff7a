"""Rows that are combined with the old ones."""

from __future__ import annotations

from tests.rewrite.raising.decoys.decoy import Decoy
from tests.rewrite.raising.forms import elements, shared, tuples

__all__ = ["DECOYS"]

DECOYS = {
    "rows are added": Decoy(
        elements(scatter='present = ScatterElements <axis=2, reduction="add"> (cache, index, upd)')
    ),
    "rows are multiplied": Decoy(
        elements(scatter='present = ScatterElements <axis=2, reduction="mul"> (cache, index, upd)')
    ),
    "the larger row stays": Decoy(
        elements(scatter='present = ScatterElements <axis=2, reduction="max"> (cache, index, upd)')
    ),
    "the smaller row stays, by tuples": Decoy(
        tuples(scatter='present = ScatterND <reduction="min"> (cache, index, upd)')
    ),
    "rows are added between transposes": Decoy(
        shared(scatter='s = ScatterND <reduction="add"> (c, index, u)')
    ),
}
