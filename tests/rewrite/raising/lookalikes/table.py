"""All sound updates in odd forms, by what is odd."""

from __future__ import annotations

from tests.rewrite.raising.lookalikes import bodies, caches, layouts, masks, starts
from tests.rewrite.raising.lookalikes.case import Case

__all__ = ["CASES"]

CASES: dict[str, Case] = {}
for _group in (bodies, caches, layouts, masks, starts):
    assert not CASES.keys() & _group.CASES.keys()
    CASES.update(_group.CASES)
