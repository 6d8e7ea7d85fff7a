"""Two axes of one size are two axes: `raise` without a run is right where a mistake would fit.

`KVTOOL_SEED` starts at another seed; a failure prints it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from tests.grids import part, rest
from tests.rewrite.raising.square_decoders import (
    FORMS,
    SIZES,
    Form,
    Layer,
    build,
    exchanges,
    feeds,
    padded,
)

SEED = int(os.environ.get("KVTOOL_SEED", "0"))
Arrays = dict[str, np.ndarray[Any, Any]]


def _layers(form: Form, seed: int) -> Iterator[Layer]:
    """Yield layers of all sizes, the rest drawn, in any order.

    Every exchange of axes is in two or three of the five forms.
    """
    rng = random.Random(f"{form} {seed}")
    places = [(sizes, exchanged) for sizes in SIZES.values() for exchanged in exchanges(sizes)]
    places = places[(FORMS.index(form) + 1) % 2 :: 2]
    rng.shuffle(places)
    for sizes, exchanged in places:
        yield Layer(
            form,
            sizes,
            exchanged,
            symbolic=rng.random() < 0.5,
            rows_first=rng.random() < 0.5,
            repeats=rng.choice(["each", "all"]),
            packed=rng.choice(["no", "rows first", "heads first"]),
            product=rng.choice(["MatMul", "Einsum"]),
            masked=rng.choice(["positions", "fed"]),
            attention=rng.choice(["auto", "full"]),
        )


def _run(model: onnx.ModelProto, given: Arrays) -> Arrays:
    with np.errstate(all="ignore"):
        return dict(Evaluator(ir.from_proto(model)).run(given).values)


def _outcome(layer: Layer) -> str:
    """Raise a layer without a run, run both, and return what became of it."""
    source = build(layer)
    given = feeds(layer, SEED)
    try:
        wanted = _run(source, given)
    except KvtoolError:
        return "no model"
    raised, report = kv.raise_(
        source, capacity=layer.capacity, attention=layer.attention, partial=True, verify=False
    )
    if not report.raised and not report.attention:
        return "kept"
    result = ir.to_proto(raised)
    onnx.checker.check_model(result, full_check=True)
    got = _run(result, padded(layer, given, result))
    for name in ("y", "present_k", "present_v"):
        rows = tuple(slice(0, size) for size in wanted[name].shape)
        old, new = wanted[name], got[name][rows]
        known = ~np.isnan(old)  # else every key is hidden from a query
        np.testing.assert_allclose(new[known], old[known], atol=1e-4, err_msg=str(layer))
    return "raised" if not report.attention else "fused"


@part(2)
@pytest.mark.long
@pytest.mark.parametrize("valid", [8, *rest(None)], ids=["8 layers", "all layers"])
@pytest.mark.parametrize("form", FORMS)
def test_what_becomes_of_a_layer_is_equal(form: Form, valid: int | None) -> None:
    print(f"KVTOOL_SEED={SEED}")  # noqa: T201
    found: Counter[str] = Counter()
    for layer in _layers(form, SEED):
        found[_outcome(layer)] += 1
        if valid is not None and found.total() - found["no model"] >= valid:
            break
    assert found["fused"]
    assert found["fused"] + found["raised"] > found["kept"]


@pytest.mark.long
@pytest.mark.parametrize("product", ["MatMul", "Einsum"])
@pytest.mark.parametrize("rows_first", [False, True], ids=["heads first", "rows first"])
def test_keys_that_are_not_transposed_are_not_taken_for_transposed_ones(
    product: Any, rows_first: bool
) -> None:
    sizes = {"B": 2, "H": 3, "KV": 3, "L": 5, "D": 11, "C": 11}
    for exchanged in (None, ("turned", 2, 3)):
        layer = Layer("tensor_scatter", sizes, exchanged, True, rows_first, product=product)
        assert _outcome(layer) == "fused"
        _, report = kv.raise_(build(layer), verify=False)
        (done,) = report.attention
        (said,) = (text for text in done.proof if text.startswith("the keys are"))
        assert exchanged is None or "in the order" in said
