"""Operators of onnxruntime that are inferred through their standard form."""

from __future__ import annotations

import pytest

from onnx_kvtool.shapes.inference import infer_model
from tests.grids import each
from tests.shapes.test_cases import model, shapes

CASES = {
    "a present is as long as past and new together": (
        (
            "m (float[B, L, 10] x, float[10, 72] w, float[72] b, float[2, B, 3, P, 8] past) "
            "=> (o, y) { o, y = com.microsoft.Attention <num_heads = 3> (x, w, b, , past) }"
        ),
        {"o": ("B", "L", 24), "y": (2, "B", 3, "L + P", 8)},
    ),
    "a state of a convolution": (
        (
            "m (float[B, 6, L] x, float[6, 1, 4] w) => (o, y) "
            "{ o, y = com.microsoft.CausalConvWithState (x, w) }"
        ),
        {"o": ("B", 6, "L"), "y": ("B", 6, 3)},
    ),
    "a state of a recurrence": (
        (
            "m (float[B, L, 24] q, float[B, L, 12] k, float[B, L, 21] v) => (o, y) { o, y = "
            "com.microsoft.LinearAttention <q_num_heads = 6, kv_num_heads = 3, "
            'update_rule = "linear"> (q, k, v) }'
        ),
        {"o": ("B", "L", 42), "y": ("B", 3, 4, 7)},
    ),
    "sizes that an input holds": (
        (
            "m (float[32, 3] t, float[B, L] x) => (y) { n = Shape <start = 1> (x) "
            "y = com.microsoft.RelativePositionBias <max_distance = 128> (t, n, n) }"
        ),
        {"y": (1, 3, "L", "L")},
    ),
    "codes of several parts": (
        (
            "m (float s, uint8 z, uint8[B, L] x) => (y) "
            "{ y = com.microsoft.QLinearConcat <axis = 1> (s, z, x, s, z, x, s, z) }"
        ),
        {"y": ("B", "2 * L")},
    ),
    "a size that nobody names": (
        (
            "m (float[N, ?, 7] x, float[7] b, float r) => (y, z) "
            "{ y, z = com.microsoft.BiasDropout (x, b, , r) }"
        ),
        {"y": ("N", None, 7), "z": ("N", None, 7)},
    ),
}


@pytest.mark.long
@each(("text", "expected"), CASES)
def test_shapes_follow(text: str, expected: dict[str, tuple[int | str | None, ...]]) -> None:
    found = shapes(infer_model(model(text)))
    assert {name: found[name] for name in expected} == expected


def test_what_has_no_form_says_why() -> None:
    found = infer_model(model("m (float[2, 7] x) => (y) { [node] y = com.microsoft.SwiGLU (x) }"))
    (lost,) = found.run.knowledge.lost.values()
    assert lost.location.node == "node"
    assert "7 wide, expected an even number" in lost.why


def test_nodes_that_are_alike_share_a_form_and_its_result() -> None:
    text = "m (float[B, L, 24] x, float[24, 24] w) => (e) { " + " ".join(
        f"{b} = com.microsoft.FusedMatMul <alpha = 0.5> ({a}, w)"
        for a, b in zip("xabcd", "abcde", strict=True)
    )
    run = infer_model(model(text + " }")).run
    assert len(run.forms) == len(run.made) == 1


def test_constants_that_differ_have_forms_of_their_own() -> None:
    text = (
        "m (float[32, 3] t) => (y, z) <int64[1] a = {5}, int64[1] b = {7}> { "
        "y = com.microsoft.RelativePositionBias <max_distance = 128> (t, a, a) "
        "z = com.microsoft.RelativePositionBias <max_distance = 128> (t, a, b) }"
    )
    found = shapes(infer_model(model(text)))
    assert (found["y"], found["z"]) == ((1, 3, 5, 5), (1, 3, 5, 7))
