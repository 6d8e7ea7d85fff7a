"""Operators of onnxruntime that run as their standard form says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.runtime.engine import derived
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.errors import RunFailed
from tests.grids import each

B, H, D = 2, 3, 5
W = H * D

Arrays = dict[str, "np.ndarray[Any, Any]"]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def evaluator(
    op_type: str,
    inputs: list[str],
    outputs: list[str],
    constants: Arrays | None = None,
    **attributes: Any,
) -> Evaluator:
    """Return a runtime for one node, of which inputs that are no constants have any shape."""
    stored = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    fed = [n for n in inputs if n and n not in (constants or {})]
    fed = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in fed]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    node = helper.make_node(op_type, inputs, outputs, "n", domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", fed, made, stored)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return Evaluator(ir.from_proto(helper.make_model(graph, opset_imports=imports)))


def action_of(runs: Evaluator) -> derived.Derived:
    (program,) = runs._programs.values()
    action = program.steps[0].action
    assert isinstance(action, derived.Derived)
    return action


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Return the sizes of the forms that are written from here on."""
    found: list[tuple[object, ...]] = []
    write = derived.Derived._write

    def noted(self: Any, inputs: Any, sizes: Any, constants: Any) -> Any:
        found.append(sizes)
        return write(self, inputs, sizes, constants)

    monkeypatch.setattr(derived.Derived, "_write", noted)
    return found


@pytest.mark.long
def test_a_cache_that_grows_needs_three_forms(written: list[object]) -> None:
    names = ["q", "k", "v", "", "", "", "past_k", "past_v"]

    def decoder() -> Evaluator:
        outputs = ["y", "present_k", "present_v"]
        return evaluator("MultiHeadAttention", names, outputs, num_heads=H)

    one = decoder()
    past = np.zeros((B, H, 0, D), np.float32)
    cache = {"past_k": past, "past_v": past}
    for step, length in enumerate([4, 1, 1, 1, 1]):
        feeds: Arrays = {n: normal(B, length, W) + step for n in "qkv"} | cache
        count = len(written)
        found = one.run(feeds).values
        assert len(written) - count == (step < 3), step
        for name, value in decoder().run(feeds).values.items():
            np.testing.assert_array_equal(found[name], value)
        del written[count + (step < 3) :]
        cache = {f"past_{n}": found[f"present_{n}"] for n in "kv"}


@pytest.mark.long
def test_forms_of_one_node_are_bounded() -> None:
    runs = evaluator("BiasGelu", ["x", "b"], ["y"])
    for width in range(2, 40):
        for batch in (1, 3):
            found = runs.run({"x": normal(batch, width), "b": normal(width)}).values["y"]
            assert found.shape == (batch, width)
    for rank in range(1, 12):
        runs.run({"x": normal(*[1] * rank, 7), "b": normal(7)})
    assert sum(map(len, action_of(runs)._forms.values())) <= derived._KEPT


@each(
    ("before", "now", "expected"),
    {
        "equal": ((2, 5), (2, 5), (2, 5)),
        "a length": ((2, 5), (2, 7), (2, "5_7")),
        "equal lengths": ((5, 5), (7, 7), ("5_7", "5_7")),
        "lengths that no longer are": (("5_7", "5_7"), (7, 8), ("5_7_7", "5_7_8")),
        "one beside more": ((2, 1), (2, 7), None),
        "none beside more": ((2, 5), (2, 0), None),
    },
)
def test_what_serves_two_calls(before: Any, now: Any, expected: Any) -> None:
    assert derived._wider(before, now) == expected


@each(
    ("pattern", "sizes", "fits"),
    {
        "the same": ((2, 5), (2, 5), True),
        "another": ((2, 5), (2, 7), False),
        "a name": ((2, "a"), (2, 7), True),
        "a name of two sizes": (("a", "a"), (2, 7), False),
        "two names of one size": (("a", "b"), (2, 2), True),
    },
)
def test_which_form_serves(pattern: Any, sizes: Any, fits: bool) -> None:
    assert derived._fits(pattern, sizes) is fits


def test_sizes_that_were_equal_may_differ_later() -> None:
    runs = evaluator("FusedMatMul", ["a", "b"], ["y"], alpha=0.5)
    for rows, columns in [(3, 3), (4, 4), (4, 7)]:
        a, b = normal(rows, columns), normal(columns, 2)
        np.testing.assert_allclose(runs.run({"a": a, "b": b}).values["y"], a @ b / 2, rtol=1e-5)


def test_weights_are_not_kept_a_second_time() -> None:
    codes = np.random.default_rng(1).integers(0, 256, (6, 2, 8), np.uint8)
    constants = {"codes": codes, "scales": normal(6, 2)}
    sizes = {"K": 32, "N": 6, "bits": 4, "block_size": 16}
    runs = evaluator("MatMulNBits", ["x", *constants], ["y"], constants, **sizes)
    for shape in [(1, 32), (5, 32), (2, 3, 32)]:
        assert runs.run({"x": normal(*shape)}).values["y"].shape == (*shape[:-1], 6)
    held = action_of(runs)._scope.graph.initializers.values()
    assert sum(v.const_value.size for v in held if v.const_value is not None) < codes.size


def test_a_refusal_names_the_node_and_the_reason() -> None:
    runs = evaluator("FusedMatMul", ["a", "b"], ["y"], transBatchA=1)
    with pytest.raises(RunFailed, match=r"`n` \(com.microsoft::FusedMatMul\): `a` .*2 dimensions"):
        runs.run({"a": normal(5, 4), "b": normal(4, 7)})


def test_a_failure_inside_names_the_node_and_the_step() -> None:
    runs = evaluator("BiasGelu", ["x", "b"], ["y"])
    with pytest.raises(RunFailed, match=r"`n` \(com.microsoft::BiasGelu\).*\(Add\)"):
        runs.run({"x": normal(B, 7), "b": normal(5)})
