"""Which outputs are the same bits in every right evaluation."""

from __future__ import annotations

import pytest

from onnx_kvtool.verification.comparison.rounded_values import arithmetic
from tests.grids import each
from tests.runtime.recorded import model, native

LOCAL = '<ir_version: 10, opset_import: ["": 24, "local": 1, "com.microsoft": 1]>'
SIGNATURE = "g (float[N, M] x, int64[N, M] i, float[N, M] u, bool c) => ({} y)"
FLOATS = "float[N, M]"


@each(
    ("output", "body", "is_moved"),
    [
        pytest.param(FLOATS, "y = Identity (x)", True, id="a copy"),
        pytest.param(FLOATS, "y = Add (x, u)", False, id="a sum of floats"),
        pytest.param("int64[N, M]", "y = Add (i, i)", True, id="a sum of integers"),
        pytest.param(FLOATS, "z = Mul (x, u) y = Transpose (z)", False, id="a moved product"),
        pytest.param("int64[2]", "z = Mul (x, u) y = Shape (z)", True, id="the shape of a product"),
        pytest.param(
            FLOATS, "y = ScatterElements (x, i, u)", True, id="an update without reduction"
        ),
        pytest.param(
            FLOATS,
            'y = ScatterElements <reduction = "none"> (x, i, u)',
            True,
            id="an update with the reduction none",
        ),
        pytest.param(
            FLOATS,
            'y = ScatterElements <reduction = "add"> (x, i, u)',
            False,
            id="an update that adds",
        ),
        pytest.param(
            FLOATS, "z = Less (x, u) y = Where (z, x, u)", True, id="a choice by exact floats"
        ),
        pytest.param(
            FLOATS,
            "s = Add (x, u) z = Less (s, u) y = Where (z, x, u)",
            False,
            id="a choice by rounded floats",
        ),
        pytest.param(
            "uint8[N, M]",
            "s = Constant <value_float = 0.1> () y = QuantizeLinear (x, s)",
            False,
            id="rounding to integers after a division",
        ),
        pytest.param(FLOATS, "y = RandomNormalLike (x)", False, id="random numbers"),
        pytest.param(FLOATS, "y = com.microsoft.Gelu (x)", False, id="an operator that is unknown"),
        pytest.param(
            FLOATS,
            "n = Constant <value_ints = [-1]> () k = Cast <to = 7> (i) l = Neg (k)"
            "y = GatherElements (x, l)",
            True,
            id="values whose type only attributes tell",
        ),
        pytest.param(
            FLOATS,
            "y = If (c) < then_branch = t () => (float[N, M] a) { a = Identity (x) },"
            "else_branch = e () => (float[N, M] b) { b = Transpose (u) } >",
            True,
            id="branches that move",
        ),
        pytest.param(
            FLOATS,
            "y = If (c) < then_branch = t () => (float[N, M] a) { a = Identity (x) },"
            "else_branch = e () => (float[N, M] b) { b = Relu (u) } >",
            False,
            id="one branch that computes",
        ),
        pytest.param(
            FLOATS,
            "s = Add (x, u)"
            "y = If (c) < then_branch = t () => (float[N, M] a) { a = Identity (s) },"
            "else_branch = e () => (float[N, M] b) { b = Identity (u) } >",
            False,
            id="a branch that moves what was rounded outside",
        ),
        pytest.param(
            FLOATS,
            "n = Constant <value_int = 3> () y = Loop (n, c, x) < body = l (int64 k, bool d, "
            "float[N, M] a) => (bool e, float[N, M] b) { e = Identity (d) b = Transpose (a) } >",
            True,
            id="a loop that moves",
        ),
        pytest.param(
            FLOATS,
            "n = Constant <value_int = 3> () y = Loop (n, c, x) < body = l (int64 k, bool d, "
            "float[N, M] a) => (bool e, float[N, M] b) { e = Identity (d) b = Mul (a, a) } >",
            False,
            id="a loop that computes",
        ),
    ],
)
def test_outputs(output: str, body: str, is_moved: bool) -> None:
    found = arithmetic(model(f"{LOCAL} {SIGNATURE.format(output)} {{ {body} }}")).moved
    assert found == ({"y"} if is_moved else set())


@pytest.mark.parametrize(
    ("call", "is_moved"),
    [
        pytest.param("y, z = local.Both (x, u)", True, id="the output that moves"),
        pytest.param("z, y = local.Both (x, u)", False, id="the output that computes"),
        pytest.param("s = Add (x, u) y, z = local.Both (s, u)", False, id="a rounded argument"),
    ],
)
def test_functions_are_judged_by_output_and_call(call: str, is_moved: bool) -> None:
    text = f"""{LOCAL} {SIGNATURE.format(FLOATS)} {{ {call} }}
    <domain: "local", opset_import: ["": 24]>
    Both (a, b) => (moved, computed) {{ moved = Identity (a) computed = Mul (a, b) }}
    """
    assert arithmetic(model(text)).moved == ({"y"} if is_moved else set())


def test_a_function_that_calls_itself_moves_nothing() -> None:
    text = f"""{LOCAL} {SIGNATURE.format(FLOATS)} {{ y = local.Again (x) }}
    <domain: "local", opset_import: ["": 24, "local": 1]>
    Again (p) => (q) {{ r = local.Again (p) q = local.Again (r) }}
    """
    assert arithmetic(model(text)).moved == set()


def test_the_outputs_of_real_models() -> None:
    assert arithmetic(native("llama_static")).moved == set()
    assert arithmetic(native("mobius_block_bias_int64_2d")).moved == {"attention_bias"}


_PATHS = {
    "float32 alone": ("y = Mul (x, x)", "float32 from `y`"),
    "a weight that is not read": ("y = Mul (x, x)", "float32 from `y`"),
    "a weight that is widened": ("v = Cast <to = 1> (w) y = Mul (x, v)", "float32 from `y`"),
    "a product in float16": (
        "h = Cast <to = 10> (x) p = Mul (h, h) z = Cast <to = 1> (p) y = Neg (z)",
        "float16 from `p`",
    ),
    "an input that is rounded in one way only": (
        "h = Cast <to = 10> (x) z = Cast <to = 1> (h) y = Neg (z)",
        "float32 from `y`",
    ),
    "a product that is rounded": (
        "p = Mul (x, x) h = Cast <to = 16> (p) z = Cast <to = 1> (h) y = Neg (z)",
        "bfloat16 from `h`",
    ),
    "beside the path": (
        "p = Mul (x, x) h = Cast <to = 16> (p) z = Cast <to = 10> (p) y = Neg (x)",
        "float32 from `y`",
    ),
    "the coarsest of two": (
        (
            "p = Mul (x, x) h = Cast <to = 16> (p) hh = Cast <to = 1> (h) k = Cast <to = 10> (p)"
            "kk = Cast <to = 1> (k) y = Add (kk, hh)"
        ),
        "bfloat16 from `h`",
    ),
    "a size": (
        "p = Mul (x, x) h = Cast <to = 16> (p) s = Shape (h) y = Expand (x, s)",
        None,
    ),
    "a body": (
        (
            "c = Constant <value_int = 1> () b = Cast <to = 9> (c) t = If (b) <"
            "then_branch = t () => (float[N] e) { h = Cast <to = 16> (x) g = Mul (h, h)"
            " e = Cast <to = 1> (g) },"
            "else_branch = f () => (float[N] e) { e = Neg (x) }> y = Neg (t)"
        ),
        "bfloat16 from `g`",
    ),
    "a function": ("z = local.f (x) y = Neg (z)", "float16 from `z`"),
    "an argument of a function": (
        "p = Mul (x, x) h = Cast <to = 16> (p) z = Cast <to = 1> (h) y = local.g (z)",
        "bfloat16 from `h`",
    ),
    "an operator that computes float64 in float32": (
        "d = Cast <to = 11> (x) e = Shrink (d) y = Cast <to = 1> (e)",
        "float32 from `Shrink`, which computes in it",
    ),
}
"""The nodes between `x` and `y`, and the coarsest type on the path to `y`."""


@pytest.mark.long
@each("name", [*_PATHS])
def test_the_coarsest_type_on_the_path_of_an_output_is_named(name: str) -> None:
    body, expected = _PATHS[name]
    text = f"""{LOCAL} main (float[N] x) => (float[N] y) <bfloat16[1] w = {{1}}> {{ {body} }}
    <domain: "local", opset_import: ["": 24]>
    f (a) => (b) {{ h = Cast <to = 10> (a) p = Mul (h, h) b = Cast <to = 1> (p) }}
    <domain: "local", opset_import: ["": 24]>
    g (a) => (b) {{ b = Neg (a) }}"""
    found = arithmetic(model(text)).of("y")
    assert (None if found is None else str(found)) == expected
