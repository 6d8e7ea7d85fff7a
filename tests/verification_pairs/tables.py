"""All pairs, by what goes by (items 1 to 9 of the promise that `verify` makes)."""

from __future__ import annotations

from collections.abc import Mapping

from tests.verification_pairs import (
    different_caches,
    different_forms,
    different_values,
    equal,
    equal_types,
)
from tests.verification_pairs.pair import Pair

__all__ = ["DIFFERENT", "EQUAL"]


def _tables(*modules: object) -> Mapping[str, list[Pair]]:
    return {name: getattr(module, name) for module in modules for name in module.__all__}


DIFFERENT = _tables(different_values, different_forms, different_caches)
EQUAL = _tables(equal, equal_types)
