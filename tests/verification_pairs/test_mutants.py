"""Models that were changed in one place: `verify` notices, or says what it did not cover.

`KVTOOL_SEED` draws other graphs and other changes.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.verification_pairs.mutants import bases, survivors

SEED = int(os.environ.get("KVTOOL_SEED", "0"))

_SHARE = 0.02
"""Mutants that may go by, of those that some inputs tell apart: less than one in fifty."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "tries"), [(2, 3), pytest.param(30, 6, marks=pytest.mark.exhaustive)]
)
def test_nearly_every_change_that_shows_is_seen(count: int, tries: int) -> None:
    counts: Counter[str] = Counter()
    found = [
        survivor
        for base in bases(count, SEED + 3000)
        for survivor in survivors(base, SEED, tries, counts)
    ]
    gone = [f"{s.base}: {s.what}, shown {s.scale}" for s in found if s.found == "equal"]
    print(f"KVTOOL_SEED={SEED}: {counts}")  # noqa: T201
    assert len(found) >= count
    assert len(gone) <= _SHARE * len(found), "\n".join(gone)
