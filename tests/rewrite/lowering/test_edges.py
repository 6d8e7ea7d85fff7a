"""Lowered models at the edges: sizes of zero, values that nodes share, signs of zeros, bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool import ReferenceEvaluator
from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from tests.grids import each, part

Feeds = dict[str, np.ndarray]


def array(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Return numbers that are all different."""
    return np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) - 3).astype(dtype)


def lowers(
    text: str,
    source: int,
    target: int,
    feeds: Feeds,
    *,
    in_onnxruntime: bool = True,
    **options: Any,
) -> None:
    """Demand that a lowered model gives the bits of its source, in onnxruntime as well."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {source}]> {text}')
    expected = ReferenceEvaluator(model).run(None, feeds)
    lowered, _ = lower(model, opset=target, verify=False, **options)
    onnx.checker.check_model(ir.to_proto(lowered), full_check=True)
    data = serialize(lowered)
    found = {"kvtool": ReferenceEvaluator(onnx.ModelProto.FromString(data)).run(None, feeds)}
    if in_onnxruntime:
        found["onnxruntime"] = list(Session(data, "").run(feeds).values())
    for name, got in found.items():
        for one, other in zip(expected, got, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), name
            assert one.tobytes() == other.tobytes(), (name, one, other)


_TWO_CACHES = """
g (float[2,3,7,5] a, float[2,3,7,5] b, float[2,3,N,5] u, int64[2] w)
=> (float[2,3,7,5] x, float[2,3,7,5] y) <int64[2] c = {1, 5}> {
    x = TensorScatter <mode = "circular"> (a, u, c)
    y = TensorScatter <mode = "circular"> (b, u, w)
}"""


@pytest.mark.long
@part(2)
@each("target", [23, 18, 13, 11, 9])
@pytest.mark.parametrize("length", ["N", "2", "1"])
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
def test_a_shared_constant_that_only_the_second_node_reads(
    via: str, length: str, target: int
) -> None:
    feeds = {name: array((2, 3, 7, 5)) for name in "ab"}
    feeds["u"] = array((2, 3, 1 if length == "1" else 2, 5)) + 0.5
    feeds["w"] = np.array([6, 2], np.int64)
    lowers(_TWO_CACHES.replace("N", length), 24, target, feeds, via=via)


_ONE_NUMBER = {
    "DequantizeLinear of a scalar": (
        "g (int8 x, float[1] s, int8[1] z) => (float y) { y = DequantizeLinear (x, s, z) }",
        13,
    ),
    "DequantizeLinear of an unknown rank": (
        (
            "g (int8[n] v, float[1] s, int8[1] z, int64[0] none) => (float y)"
            "{ x = Reshape (v, none) y = DequantizeLinear (x, s, z) }"
        ),
        10,
    ),
    "QuantizeLinear of a scalar": (
        "g (float s, float[1] t, int8[1] z) => (int8 y) { y = QuantizeLinear (s, t, z) }",
        13,
    ),
    "Clip of a scalar": (
        "g (int64 i, int64[1] k) => (int64 y) { y = Clip (i, , k) }",
        15,
    ),
    "GatherND of one row, from the back": (
        "g (float[5,3] d, int64[1] k) => (float[3] y) { y = GatherND (d, k) }",
        15,
    ),
    "QLinearMatMul of vectors": (
        (
            "g (int8[3] v, float[1] s, int8[1] z) => (int8 y)"
            "{ y = QLinearMatMul (v, s, z, v, s, z, s, z) }"
        ),
        10,
    ),
}


@pytest.mark.parametrize("name", _ONE_NUMBER)
def test_one_number_in_a_vector_adds_no_axis(name: str) -> None:
    text, source = _ONE_NUMBER[name]
    given = {
        "x": np.array(5, np.int8),
        "v": np.array([5], np.int8) if "none" in text else np.array([5, 2, 3], np.int8),
        "s": np.float32([0.5]) if "float[1] s" in text else np.array(1.25, np.float32),
        "t": np.float32([0.5]),
        "i": np.array(5),
        "k": np.array([-2]),
        "d": array((5, 3)),
        "z": np.array([1], np.int8),
        "none": np.zeros(0, np.int64),
    }
    inputs = {value.name for value in onnx.parser.parse_graph(text).input}
    feeds = {name: given[name] for name in inputs}
    lowers(text, source, 9, feeds, in_onnxruntime=False)  # which has no opset 9 of some types


@pytest.mark.parametrize(
    "options", [{"only": ["MeanVarianceNormalization"]}, {"target": "onnxruntime"}]
)
@pytest.mark.parametrize("axes", ["", "<axes = [1, -1]>"])
@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
def test_a_mean_variance_normalization_in_a_function_loads(
    dtype: str, axes: str, options: dict[str, Any]
) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 18, "local": 1]>
    g ({dtype}[2,3,5,7] x) => ({dtype}[2,3,5,7] y) {{ y = local.F (x) }}
    <opset_import: ["": 18], domain: "local">
    F (a) => (b) {{ b = MeanVarianceNormalization {axes} (a) }}"""
    model = onnx.parser.parse_model(text)
    kind = {"float": np.float32, "float16": np.float16, "double": np.float64}[dtype]
    feeds = {"x": np.random.default_rng(7).normal(9, 2, (2, 3, 5, 7)).astype(kind)}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    lowered, _ = lower(model, verify=False, **options)
    onnx.checker.check_model(ir.to_proto(lowered), full_check=True)
    (found,) = Session(serialize(lowered), "").run(feeds).values()
    np.testing.assert_allclose(
        found, expected, rtol=1e-2 if dtype == "float16" else 1e-4, atol=1e-4
    )


def test_top_k_of_nothing() -> None:
    text = """g (float[5,3] x) => (float[0,3] y, int64[0,3] i) <int64[1] k = {0}> {
        y, i = TopK <axis = 0> (x, k)
    }"""
    lowers(text, 13, 9, {"x": array((5, 3))})


_BODIES: dict[str, tuple[str, int, Feeds]] = {
    "a Loop that carries nothing": (
        """g (float[2,3] x, int64 n) => (float[T,2,3] y) <bool go = {1}> {
            y = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[2,3] z) {
                d = Identity (c)
                f = Cast <to = 1> (i)
                z = Add (x, f)
            }>
        }""",
        21,
        {"x": array((2, 3)), "n": np.array(5)},
    ),
    "a Loop of no turn that carries nothing, in a branch": (
        """g (float[2,3] x, int64 n, bool p) => (float[T,2,3] y) <bool go = {1}> {
            y = If (p) <then_branch = t () => (float[T,2,3] a) {
                a = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[2,3] z) {
                    d = Identity (c)
                    z = Neg (x)
                }>
            }, else_branch = e () => (float[T,2,3] k) {
                k = Loop (n, p) <body = b2 (int64 i2, bool c2) => (bool d2, float[2,3] z2) {
                    d2 = Constant <value = bool {0}> ()
                    z2 = Abs (x)
                }>
            }>
        }""",
        11,
        {"x": array((2, 3)), "n": np.array(5), "p": np.array(False)},
    ),
    "a Scan that carries nothing": (
        """g (float[5,2,3] x) => (float[5,2,3] y) {
            y = Scan <num_scan_inputs = 1, body = b (float[2,3] i) => (float[2,3] z) {
                z = Neg (i)
            }> (x)
        }""",
        21,
        {"x": array((5, 2, 3))},
    ),
    "an If of a constant whose branches differ in shape": (
        """g (float[2,3] x) => (float[M,N] y) <bool p = {0}> {
            y = If (p) <then_branch = t () => (float[2,3] a) { a = Neg (x) },
            else_branch = e () => (float[3,2] k) { k = Transpose (x) }>
        }""",
        21,
        {"x": array((2, 3))},
    ),
    "an If whose branches declare no sizes, and have equal ones": (
        """g (float[a, b, 4] x, bool p) => (float[n, m, k] y) {
            y = If (p) <then_branch = t () => (float[?, ?, ?] u) {
                u = Transpose <perm = [1, 0, 2]> (x)
            }, else_branch = e () => (float[?, ?, ?] v) {
                w = Neg (x)
                v = Transpose <perm = [1, 0, 2]> (w)
            }>
        }""",
        20,
        {"x": array((2, 3, 4)), "p": np.array(False)},
    ),
    "an If of a size, in the body of another one": (
        """g (float[2,3] x, bool q) => (float[M,N] y) {
            s = Shape (x)
            two = Constant <value = int64[2] {2,3}> ()
            same = Equal (s, two)
            whole = Cast <to = 7> (same)
            least = ReduceMin <keepdims = 0> (whole)
            p = Cast <to = 9> (least)
            y = If (q) <then_branch = t () => (float[2,3] a) {
                a = If (p) <then_branch = t2 () => (float[2,3] a2) { a2 = Neg (x) },
                else_branch = e2 () => (float[2,3,1] k2) { k2 = Unsqueeze <axes = [2]> (x) }>
            }, else_branch = e () => (float[2,3] k) { k = Abs (x) }>
        }""",
        11,
        {"x": array((2, 3)), "q": np.array(True)},
    ),
}


@pytest.mark.long
@each("target", [11, 10, 9])
@pytest.mark.parametrize(("text", "source", "feeds"), list(_BODIES.values()), ids=list(_BODIES))
def test_a_body_is_as_the_opset_wants_it(text: str, source: int, feeds: Feeds, target: int) -> None:
    lowers(text, source, target, feeds)


def _attention(rank: int, heads: int, sizes: dict[str, int], named: bool) -> tuple[str, Feeds]:
    """Return an Attention of two key/value heads, and inputs for it."""
    b, n, s = ("B", "L", "S") if named else (sizes[name] for name in "BLS")
    batch, rows, keys = (sizes[name] for name in "BLS")
    if rank == 4:
        q, k = f"{b},{heads},{n},5", f"{b},2,{s},5"
        of_q, of_k, given = (batch, heads, rows, 5), (batch, 2, keys, 5), ""
    else:
        q, k = f"{b},{n},{heads * 5}", f"{b},{s},10"
        of_q, of_k = (batch, rows, heads * 5), (batch, keys, 10)
        given = f", q_num_heads = {heads}, kv_num_heads = 2"
    text = f"""g (float[{q}] q, float[{k}] k, float[{k}] v) => (float[{q}] y) {{
        y = Attention <is_causal = 1{given}> (q, k, v)
    }}"""
    return text, {"q": array(of_q), "k": array(of_k), "v": array(of_k)}


@pytest.mark.long
@part(4)
@each("target", [18, 13, 9])
@pytest.mark.parametrize("empty", ["B", "L", "S", "BL"])
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("rank", [3, 4])
def test_attention_of_nothing(rank: int, heads: int, empty: str, target: int) -> None:
    sizes = {"B": 2, "L": 3, "S": 7} | dict.fromkeys(empty, 0)
    for named in (False, True):
        text, feeds = _attention(rank, heads, sizes, named)
        if not named or empty != "S":
            lowers(text, 24, target, feeds)


_TYPES: dict[str, tuple[str, str, Any]] = {
    "the largest of int8": ("ReduceMax <axes = [1]>", "[N, 1]", np.int8),
    "the least of uint8": ("ReduceMin <keepdims = 0>", "", np.uint8),
    "Relu of int64": ("Relu", "[N, M]", np.int64),
    "Relu of int32": ("Relu", "[N, M]", np.int32),
    "Relu of int8": ("Relu", "[N, M]", np.int8),
}


@pytest.mark.long
@each("target", [13, 11, 10, 9])
@pytest.mark.parametrize(("node", "shape", "dtype"), list(_TYPES.values()), ids=list(_TYPES))
def test_a_type_that_older_opsets_lack(node: str, shape: str, dtype: Any, target: int) -> None:
    x = np.array([[-128, 127, -3], [0, 5, -1]], np.int64).astype(dtype)
    kind = np.dtype(dtype).name
    text = f"g ({kind}[N, M] x) => ({kind}{shape} y) {{ y = {node} (x) }}"
    lowers(text, 14, target, {"x": x})


@each("target", [11, 9])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_the_extreme_of_no_number_is_that_of_the_type(op: str, dtype: Any, target: int) -> None:
    kind, axes = np.dtype(dtype).name, "<int64[1] axes = {0}>"
    text = f"g ({kind}[N, 3] x) => ({kind}[K, 3] y) {axes} {{ y = {op} (x, axes) }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}')
    lowered, _ = lower(model, opset=target, verify=False)
    (found,) = ReferenceEvaluator(ir.to_proto(lowered)).run(None, {"x": np.zeros((0, 3), dtype)})
    info = np.iinfo(dtype)
    np.testing.assert_array_equal(found, np.full((1, 3), info.min if "Max" in op else info.max))


def test_round_keeps_the_sign_of_a_zero() -> None:
    x = np.array([-0.0, 0.0, -0.3, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan], np.float32)
    text = "g (float[N] x) => (float[N] y, float[N] z) { z = Round (x) y = Reciprocal (z) }"
    for target in (10, 9):
        lowers(text, 11, target, {"x": x})


@pytest.mark.long
@part(3)
@each("target", [23, 13, 11, 10, 9])
@pytest.mark.parametrize("empty", ["B", "L", "BL"])
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("via", ["scatternd", "scatterelements"])
def test_an_update_of_nothing(via: str, mode: str, empty: str, target: int) -> None:
    sizes = {"B": 2, "L": 2} | dict.fromkeys(empty, 0)
    for names in ({"B": "B", "L": "L"}, sizes):
        b, n = names["B"], names["L"]
        text = f"""g (float[{b},3,7,5] p, float[{b},3,{n},5] u, int64[{b}] w)
        => (float[{b},3,7,5] y) {{ y = TensorScatter <mode = "{mode}"> (p, u, w) }}"""
        feeds = {"p": array((sizes["B"], 3, 7, 5)), "u": array((sizes["B"], 3, sizes["L"], 5))}
        feeds["w"] = np.arange(sizes["B"])
        lowers(text, 24, target, feeds, via=via)


_INDEXED: dict[str, tuple[str, Feeds]] = {
    "one place of a vector": (
        "g (float[7] x, int64[1] i, float u) => (float[7] y) { y = ScatterND (x, i, u) }",
        {"x": array((7,)), "i": np.array([-2]), "u": array(())},
    ),
    "no place of a matrix": (
        (
            "g (float[7, 3] x, int64[0, 1] i, float[0, 3] u) => (float[7, 3] y)"
            " { y = ScatterND (x, i, u) }"
        ),
        {"x": array((7, 3)), "i": np.zeros((0, 1), np.int64), "u": array((0, 3))},
    ),
    "places of nothing": (
        (
            "g (float[7, 0] x, int64[2, 1] i, float[2, 0] u) => (float[7, 0] y)"
            " { y = ScatterND (x, i, u) }"
        ),
        {"x": array((7, 0)), "i": np.array([[1], [3]]), "u": array((2, 0))},
    ),
    "no tuple of places is gathered": (
        "g (float[7, 3, 2] x, int64[N, 2] i) => (float[N, 2] y) { y = GatherND (x, i) }",
        {"x": array((7, 3, 2)), "i": np.zeros((0, 2), np.int64)},
    ),
    "tuples of places of nothing are gathered": (
        "g (float[7, 3, 0] x, int64[2, 2] i) => (float[2, 0] y) { y = GatherND (x, i) }",
        {"x": array((7, 3, 0)), "i": np.array([[1, 2], [3, 0]])},
    ),
}


@pytest.mark.long
@each("target", [10, 9])
@pytest.mark.parametrize(("text", "feeds"), list(_INDEXED.values()), ids=list(_INDEXED))
def test_places_of_nothing(text: str, feeds: Feeds, target: int) -> None:
    lowers(text, 11, target, feeds)


@pytest.mark.long
@each(
    ("op", "source", "target"),
    [("CumSum", 14, 10), ("CumSum", 14, 9), ("CumProd", 26, 13), ("CumProd", 26, 9)],
)
@pytest.mark.parametrize(("declared", "shape"), [("N", (0,)), ("0, 3", (0, 3)), ("N, 3", (0, 3))])
def test_sums_and_products_of_nothing(
    declared: str, shape: tuple[int, ...], op: str, source: int, target: int
) -> None:
    kind, axis = f"float[{declared}]", "<int64 axis = {0}>"
    text = f"g ({kind} x) => ({kind} y) {axis} {{ y = {op} (x, axis) }}"
    # onnxruntime 1.32 runs no Scan without slices.
    lowers(text, source, target, {"x": array(shape)}, in_onnxruntime=False)


def test_a_sum_keeps_the_sign_of_a_zero() -> None:
    x = np.array([-0.0, -0.0, 3.0, -3.0, -0.0], np.float32)
    text = "g (float[N] x) => (float[N] y) <int64 axis = {0}> { y = CumSum (x, axis) }"
    lowers(text, 14, 9, {"x": x})


_NO_KERNEL: dict[str, tuple[str, int, str, tuple[int, ...]]] = {
    "LeakyRelu of float64": ("LeakyRelu <alpha = 0.25> (x)", 16, "double", (15, 13, 9)),
    "PRelu of float64": ("PRelu (x, x)", 16, "double", (15, 13, 9)),
    "PRelu of int64": ("PRelu (x, x)", 16, "int64", (15, 13, 9)),
    "Max of uint64": ("Max (x, x)", 13, "uint64", (11, 9)),
    "Trilu of uint16": ("Trilu (x)", 14, "uint16", (13, 9)),
    "Trilu of uint64": ("Trilu (x)", 14, "uint64", (13, 9)),
    "Clip of uint64": ("Clip (x)", 12, "uint64", (11, 9)),
}
"""Operators and types of which onnxruntime has a kernel or a body at the source alone."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("node", "source", "kind", "targets"), list(_NO_KERNEL.values()), ids=list(_NO_KERNEL)
)
def test_a_form_that_onnxruntime_loads_is_taken(
    node: str, source: int, kind: str, targets: tuple[int, ...]
) -> None:
    dtype = np.float64 if kind == "double" else np.dtype(kind)
    x = (array((2, 3), np.int64) * 3).astype(dtype)
    for target in targets:
        text = f"g ({kind}[N, 3] x) => ({kind}[N, 3] y) {{ y = {node} }}"
        lowers(text, source, target, {"x": x})


@pytest.mark.long
@each("target", [18, 13, 9])
def test_a_scale_of_another_type_than_the_input(target: int) -> None:
    text = """g (double[2, 3] x, float[3] s) => (float[2, 3] y) {
        y = RMSNormalization <epsilon = 0.0> (x, s)
    }"""
    x, s = array((2, 3), np.float64) * 0 + 4, array((3,))
    lowers(text, 23, target, {"x": x, "s": s})


def test_values_of_another_type_than_the_queries_are_refused() -> None:
    text = """g (double[1, 2, 3, 5] q, float[1, 2, 7, 5] v, double[1, 2, 7, 5] k)
    => (double[1, 2, 3, 5] y) { y = Attention (q, k, v) }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 24]> {text}')
    with pytest.raises(Refused, match="the queries are DOUBLE and the values FLOAT"):
        lower(model, opset=18, verify=False)


_RANGES = {
    "zeros": np.zeros(3, np.float32),
    "nothing": np.zeros(0, np.float32),
    "positive numbers": np.array([1.0, 2.0, 5.0], np.float32),
    "both signs": np.array([-3.0, 0.5, 7.25], np.float32),
}


@pytest.mark.long
@each("target", [10, 9])
@pytest.mark.parametrize("x", list(_RANGES.values()), ids=list(_RANGES))
def test_the_scale_of_a_range(x: np.ndarray, target: int) -> None:
    text = """g (float[N] x) => (uint8[N] y, float s, uint8 z) {
        y, s, z = DynamicQuantizeLinear (x)
    }"""
    lowers(text, 11, target, {"x": x})
