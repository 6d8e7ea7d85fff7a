"""Bodies beside each other that name their values alike."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from onnx_kvtool.guard.distinct_names import infer_with_distinct_names
from onnx_kvtool.guard.inference import infer_with_data
from onnx_kvtool.guard.small_constants import Contents

_HEAD = '<ir_version: 10, opset_import: ["": 18, "local": 1]>'

# The target of the Reshape is made of the sizes of `x` or `z`, and called alike in every body.
_OF_X = "t = Shape (x) r = Reshape (w, t)"
_OF_Z = "t = Shape (z) r = Reshape (w, t)"

CASES = [
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w) => (float[A, B] a) {"
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        f"             else_branch = q () => (float[C, D] r) {{ {_OF_Z} }}> }}",
        [[2, 15], [3, 10]],
        id="both branches of an If",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w)"
        "  => (float[A, B] a, float[C, D] b) {"
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        "              else_branch = q () => (float[A, B] x2) { x2 = Identity (x) }>"
        f"  b = If (c) <then_branch = p () => (float[C, D] r) {{ {_OF_Z} }},"
        "              else_branch = q () => (float[C, D] x2) { x2 = Identity (z) }> }",
        [[2, 15], [3, 10]],
        id="one If behind another",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w, int64[2] u) => (float[A, B] a) {"
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        "    else_branch = q () => (float[C, D] r) { t = Identity (u) r = Reshape (w, t) }> }",
        [[2, 15], [None, None]],
        id="a second one of which no elements are known",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w) => (float[A, B] a) {"
        "  a = If (c) <then_branch = p () => (float[A, B] o) {"
        f"    o = If (c) <then_branch = s () => (float[E, F] r) {{ {_OF_X} }},"
        f"                else_branch = i () => (float[E, F] r) {{ {_OF_X} }}> }},"
        "    else_branch = q () => (float[C, D] o) {"
        f"    o = If (c) <then_branch = s () => (float[G, H] r) {{ {_OF_Z} }},"
        f"                else_branch = i () => (float[G, H] r) {{ {_OF_Z} }}> }}> }}",
        [[2, 15], [2, 15], [3, 10], [3, 10]],
        id="an If in each branch of another",
    ),
    pytest.param(
        "g (int64 n, bool c, float[2, 15] x, float[3, 10] z, float[30] w)"
        "  => (float[T, A, B] a, float[U, C, D] b) {"
        "  a = Loop (n, c) <body = p (int64 i, bool k) => (bool m, float[A, B] r)"
        f"    {{ m = Identity (k) {_OF_X} }}>"
        "  b = Loop (n, c) <body = p (int64 i, bool k) => (bool m, float[C, D] r)"
        f"    {{ m = Identity (k) {_OF_Z} }}> }}",
        [[2, 15], [3, 10]],
        id="two loops",
    ),
    pytest.param(
        "g (bool c, float[2, 15] x, float[3, 10] z, float[30] w) => (float[A, B] a) {"
        "  a = local.pick (c, x, z, w) }"
        '<domain: "local", opset_import: ["": 18]> pick (c, x, z, w) => (a) {'
        f"  a = If (c) <then_branch = p () => (float[A, B] r) {{ {_OF_X} }},"
        f"             else_branch = q () => (float[C, D] r) {{ {_OF_Z} }}> }}",
        None,
        id="branches in a function",
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_bodies_that_name_their_values_alike_do_not_mix(
    text: str, expected: list[list[int | None]] | None
) -> None:
    model = onnx.parser.parse_model(_HEAD + text)
    before = model.SerializeToString(deterministic=True)
    inferred = infer_with_data(model, strict=True)
    assert model.SerializeToString(deterministic=True) == before
    assert [node.output for node in _every(inferred.graph)] == [
        node.output for node in _every(model.graph)
    ]
    if expected is None:  # bodies of functions are inferred, and not written down
        return
    found = [
        [
            dim.dim_value if dim.HasField("dim_value") else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for graph in _bodies(inferred.graph)
        for value in graph.output
        if value.name == "r"
    ]
    assert found == expected


def test_a_name_that_hides_an_outer_one_is_its_own() -> None:
    """onnx's checker refuses it; what is inferred of the outer value must be left alone."""
    model = onnx.parser.parse_model(
        _HEAD + "g (bool c, float[2] x) => (float[A] a) { t = Relu (x) a = If (c) <"
        "  then_branch = p () => (float[B] t) { t = Identity (x) },"
        "  else_branch = q () => (float[B] e) { e = Relu (t) }> }"
    )
    seen: list[str] = []

    def look(contents: Contents) -> onnx.ModelProto:
        for graph in _bodies(contents.message.graph):
            seen.extend(f"{n.input[0]} -> {n.output[0]}" for n in graph.node)
        result = onnx.ModelProto()
        result.CopyFrom(contents.message)
        return result

    result = infer_with_distinct_names(Contents(model), look)
    assert seen == ["x -> t~0", "t -> e"]
    assert result == model


def _bodies(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    found = []
    for node in graph.node:
        for attribute in sorted(node.attribute, key=lambda a: a.name, reverse=True):
            if attribute.HasField("g"):
                found += [attribute.g, *_bodies(attribute.g)]
    return found


def _every(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return [node for one in (graph, *_bodies(graph)) for node in one.node]
