"""A cache that is given up is updated where it lies, with the results of the functional form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.stepping import advance
from tests.grids import each
from tests.runtime.recorded import NAMES, native
from tests.runtime.text_models import evaluator

STEPS = 4

B, H, S, D, L = 2, 3, 7, 5, 1

CACHE = f"float[{B}, {H}, {S}, {D}]"
UPDATE = f"float[{B}, {H}, {L}, {D}]"
SIGNATURE = f"g ({CACHE} past, {UPDATE} update, int64[{B}] start)"


def feeds() -> dict[str, Any]:
    """Return a cache of its own, and rows for position 2 and 5."""
    rng = np.random.default_rng(5)
    return {
        "past": rng.normal(size=(B, H, S, D)).astype(np.float32),
        "update": rng.normal(size=(B, H, L, D)).astype(np.float32),
        "start": np.array([2, 5]),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_decode_steps_are_those_of_the_functional_form(name: str) -> None:
    """All fixtures, each output bit for bit; the loop that gives its caches up keeps no copy."""
    model = native(name)
    known, run = plan(model), Evaluator(model).run
    inputs = draw(known, CASES[0], 11)
    functional, in_place = run(inputs).values, run(inputs).values
    pasts = {pair.past for pair in known.pairs}
    fed, given_up = inputs, inputs
    for step in range(STEPS if pasts else 0):
        following = advance(known, fed, functional, seed=step)
        other = advance(known, given_up, in_place, seed=step)
        assert following is not None and other is not None
        fed, given_up = following, other
        before = {name: fed[name].copy() for name in pasts}
        functional = run(fed).values
        in_place = run(given_up, give_up=pasts).values
        assert list(functional) == list(in_place)
        for output, value in functional.items():
            assert value.tobytes() == in_place[output].tobytes(), (output, step)
        for past, array in before.items():
            assert fed[past].tobytes() == array.tobytes(), (
                "a cache was written that is not given up"
            )
        for pair in known.pairs:
            reused = np.shares_memory(given_up[pair.past], in_place[pair.present])
            assert reused == (pair.kind == "fixed"), pair


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_are_kept_are_not_changed(name: str) -> None:
    model = native(name)
    inputs = draw(plan(model), CASES[0], 11)
    before = {key: array.copy() for key, array in inputs.items()}
    Evaluator(model).run(inputs)
    for key, array in before.items():
        assert inputs[key].tobytes() == array.tobytes()


REUSED = [
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present) {{ present = TensorScatter (past, update, start) }}",
        id="nothing else reads the cache",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, int64[4] shape)"
        "{ shape = Shape (past) present = TensorScatter (past, update, start) }",
        id="its shape was read before",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, float first)"
        "{ first = ReduceSum <keepdims = 0> (past)"
        "present = TensorScatter (past, update, start) }",
        id="its elements were read before",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present)"
        "{ one = TensorScatter (past, update, start)"
        "present = TensorScatter (one, update, start) }",
        id="two writes in a row",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present)"
        "{ same = Identity (past) present = TensorScatter (same, update, start) }",
        id="through an Identity",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present) {{ present = local.Write (past, update, start) }}"
        '<domain: "local", opset_import: ["": 24]> Write (a, b, c) => (d)'
        "{ d = TensorScatter (a, b, c) }",
        id="in a function",
    ),
]

KEPT = [
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, {CACHE} old)"
        "{ present = TensorScatter (past, update, start) old = Identity (past) }",
        id="it is an output, too",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, float sum)"
        "{ present = TensorScatter (past, update, start) sum = ReduceSum <keepdims = 0> (past) }",
        id="it is read after the write",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, float[{B}, {H}, {D}, {S}] turned)"
        "{ turned = Transpose <perm = [0, 1, 3, 2]> (past)"
        "present = TensorScatter (past, update, start) }",
        id="a view of it is an output",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, {CACHE} other)"
        "{ present = TensorScatter (past, update, start)"
        "other = TensorScatter (past, update, start) }",
        id="two nodes write into it",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present, float sum) <bool yes = {{1}}>"
        "{ present = TensorScatter (past, update, start) sum = If (yes) <"
        "then_branch = a () => (float s) { s = ReduceSum <keepdims = 0> (past) },"
        "else_branch = b () => (float t) { t = ReduceMax <keepdims = 0> (past) } > }",
        id="a body reads it after the write",
    ),
    pytest.param(
        f"{SIGNATURE} => ({CACHE} present) <int64[1] zero = {{0}}, int64[1] one = {{1}},"
        "int64[1] axis = {2}> { cut = Slice (past, zero, one, axis)"
        "present = TensorScatter (past, cut, start) }",
        id="the update is a part of it",
    ),
]


@each("text", REUSED)
def test_the_buffer_is_reused(text: str) -> None:
    run = evaluator(text).run
    expected = run(feeds()).values
    inputs = feeds()
    found = run(inputs, give_up=["past"]).values
    assert np.shares_memory(inputs["past"], found["present"])
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


@each("text", KEPT)
def test_the_buffer_is_kept_where_it_is_still_read(text: str) -> None:
    run = evaluator(text).run
    expected = run(feeds()).values
    inputs = feeds()
    found = run(inputs, give_up=["past"]).values
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name
    fresh = feeds()["past"]
    if "other" in found:
        # The second write is the last reader and may have the buffer; the first may not.
        assert not np.shares_memory(found["present"], found["other"])
        return
    assert not np.shares_memory(inputs["past"], found["present"])
    assert inputs["past"].tobytes() == fresh.tobytes()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda past: past[:, :, :, ::1][:], id="a view of the caller's array"),
        pytest.param(lambda past: np.broadcast_to(past[:1], past.shape), id="a broadcast view"),
        pytest.param(lambda past: (past.setflags(write=False), past)[1], id="a read-only array"),
    ],
)
def test_an_array_that_cannot_be_written_safely_is_copied(spoil: Any) -> None:
    (text,) = REUSED[0].values
    run = evaluator(str(text)).run
    owner = feeds()["past"]
    before = owner.copy()
    past = spoil(owner)
    expected = run({**feeds(), "past": np.array(past)}).values["present"]
    found = run({**feeds(), "past": past}, give_up=["past"]).values["present"]
    assert found.tobytes() == expected.tobytes()
    if past.shape == before.shape and past.strides != before.strides:
        assert owner.tobytes() == before.tobytes()


def test_two_caches_in_one_array_are_not_mixed_up() -> None:
    text = (
        f"g ({CACHE} past, {CACHE} twin, {UPDATE} update, int64[{B}] start)"
        f"=> ({CACHE} present, {CACHE} other)"
        "{ present = TensorScatter (past, update, start)"
        "other = TensorScatter (twin, update, zero) }"
    ).replace("{ present", f"<int64[{B}] zero = {{0, 0}}> {{ present")
    run = evaluator(text).run
    inputs = feeds()
    apart = run({**inputs, "twin": inputs["past"].copy()}).values
    shared = run({**inputs, "twin": inputs["past"]}, give_up=["past", "twin"]).values
    for name, value in apart.items():
        assert shared[name].tobytes() == value.tobytes(), name
