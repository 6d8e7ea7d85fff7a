"""`verify` calls no two models equal that differ, and nearly none different that are equal.

Each pair is judged twice: as it is, and with its second model disguised by a node more, for which
no part of the engine can rely on the graphs to be the same. `KVTOOL_SEED` draws other weights and
inputs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.grids import each, thinned
from tests.verification_pairs.judging import agreement, verdicts, witness
from tests.verification_pairs.not_yet import FALSE_ALARMS, NOT_YET
from tests.verification_pairs.pair import Pair, one, pair
from tests.verification_pairs.tables import DIFFERENT, EQUAL

SEED = int(os.environ.get("KVTOOL_SEED", "0"))


def _named(tables: Mapping[str, list[Pair]], marked: Mapping[str, str], keep: int) -> list[object]:
    lines = {f"{table}: {pair}": pair for table, pairs in tables.items() for pair in pairs}
    assert len({pair.name for pair in lines.values()}) == len(lines), "a name stands twice"
    assert {*marked} <= {pair.name for pair in lines.values()}, "a name that no pair has"
    found = thinned(lines, keep)
    return [
        pytest.param(
            *param.values,
            id=param.id,
            marks=[
                *param.marks,
                pytest.mark.xfail(strict=marked is NOT_YET, reason=marked[param.values[0].name]),
            ],
        )
        if param.values[0].name in marked
        else param
        for param in found
    ]


def test_the_tables_are_as_large_as_was_asked_for() -> None:
    assert sum(map(len, DIFFERENT.values())) >= 150
    assert sum(map(len, EQUAL.values())) >= 100
    assert len(FALSE_ALARMS) <= 1


@pytest.mark.long
@each("models", [models for pairs in DIFFERENT.values() for models in pairs])
def test_the_inputs_of_a_pair_tell_its_models_apart(models: Pair) -> None:
    assert witness(models, SEED) is None


@pytest.mark.long
@each("models", [models for pairs in EQUAL.values() for models in pairs])
def test_equal_models_agree(models: Pair) -> None:
    assert agreement(models, SEED) is None


@pytest.mark.long
@pytest.mark.parametrize("models", _named(DIFFERENT, NOT_YET, 8))
def test_what_differs_is_not_called_equal_without_a_word(models: Pair) -> None:
    print(f"KVTOOL_SEED={SEED}")  # noqa: T201
    assert "equal" not in verdicts(models, SEED).values()


@pytest.mark.long
@pytest.mark.parametrize("models", _named(EQUAL, FALSE_ALARMS, 8))
def test_what_is_equal_is_called_so(models: Pair) -> None:
    print(f"KVTOOL_SEED={SEED}")  # noqa: T201
    assert {*verdicts(models, SEED).values()} <= {"equal", "equal with a word"}


def test_a_pair_is_wrong_if_its_inputs_show_nothing() -> None:
    """Neither table proves anything if what judges it takes everything."""
    bounded = "y = [[Min (x, #float{4})|Identity (x)]]"
    hidden = pair("hidden", one("float[N]", bounded), x=[3, 2])
    shown = pair("shown", one("float[N]", bounded), x=[5, 2])
    assert "show no difference" in str(witness(hidden))
    assert witness(shown) is None
    assert agreement(hidden) is None
    assert "differ" in str(agreement(shown))


@pytest.mark.long
def test_models_that_are_the_same_are_called_equal() -> None:
    same = pair("same", one("float[N]", "y = Sin (x)"), x=[3, 2])
    assert verdicts(same) == {"as they are": "equal", "disguised": "equal"}
