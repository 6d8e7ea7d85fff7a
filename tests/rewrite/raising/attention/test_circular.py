"""Attention over windows, which reads circular caches as they lie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.choices import AttentionChoice
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import onnxruntime, reference
from onnx_kvtool.runtime.sessions import Array
from tests.grids import part
from tests.rewrite.fixing.test_fixtures import assert_static

pytestmark = pytest.mark.needs_onnxruntime("1.28")

WINDOW, HEADS, GROUP, WIDTH = 6, 2, 3, 5

_MODEL = """
<ir_version: 10, opset_import: ["": 18]>
g (float[B, 2, P, 5] past_k, float[B, 2, R, 5] past_v, float[B, 6, S, 5] queries,
   float[B, 2, S, 5] keys, float[B, 2, S, 5] values)
  => (float[B, 2, Q, 5] present_k, float[B, 2, V, 5] present_v, float[B, 6, S, 5] y) {
  zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
  nought = Constant <value_ints = [0]> () step = Constant <value_ints = [1]> ()
  two = Constant <value_ints = [2]> () from = Constant <value_ints = [-5]> ()
  far = Constant <value_ints = [9223372036854775807]> ()
  new_k = Neg (keys) new_v = Neg (values)
  kept_k = Slice (past_k, from, far, two, step) all_k = Concat <axis = 2> (kept_k, new_k)
  kept_v = Slice (past_v, from, far, two, step) all_v = Concat <axis = 2> (kept_v, new_v)
  present_k = Slice (all_k, from, far, two, step) present_v = Slice (all_v, from, far, two, step)
  up_k = Unsqueeze (all_k, two) up_v = Unsqueeze (all_v, two)
  group = Constant <value_ints = [1, 1, 3, 1, 1]> ()
  many_k = Expand (up_k, group) many_v = Expand (up_v, group)
  heads = Constant <value_ints = [0, 6, -1, 5]> ()
  rep_k = Reshape (many_k, heads) rep_v = Reshape (many_v, heads)
  turned = Transpose <perm = [0, 1, 3, 2]> (rep_k)
  products = MatMul (queries, turned)
  MASK
  weights = Softmax <axis = -1> (masked)
  y = MatMul (weights, rep_v)
}
"""
"""Grouped heads over the last five rows and new ones; MASK makes `masked` of `products`."""

_PLACES = """
  whole = Shape (all_k) length = Gather (whole, two) total = Squeeze (length)
  count = Shape <start = 2, end = 3> (queries) many = Squeeze (count)
  columns = Range (zero, total, one) before = Sub (total, many)
  positions = Range (before, total, one) rows = Unsqueeze (positions, step)
  back = Sub (rows, columns)
"""
"""How far back each key stands from each query; the number of keys is read off a Shape."""

MASKS = {
    "none": "masked = Identity (products)",
    "a number for each distance": _PLACES
    + "far_back = Cast <to = 1> (back) rate = Constant <value_float = -0.37> ()"
    " bias = Mul (far_back, rate) masked = Add (products, bias)",
    "a window and no later key": _PLACES
    + "six = Constant <value_int = 6> () late = Less (back, zero) early = Less (back, six)"
    " no = Not (late) shown = And (no, early) low = Constant <value_float = -3.4028235e38> ()"
    " nothing = Constant <value_float = 0.0> () bias = Where (shown, nothing, low)"
    " masked = Add (products, bias)",
    "every second key": _PLACES
    + "both = Constant <value_int = 2> () odd = Mod (back, both) is_odd = Equal (odd, one)"
    " at = Less (back, zero) hidden = Or (is_odd, at) low = Constant <value_float = -inf> ()"
    " masked = Where (hidden, low, products)",
}

CHUNKS = {
    "one token each": [1] * 15,
    "a prompt longer than the window": [9, *[1] * 8],
    "as long as the window": [6, 1, 1, 6, 1],
    "chunks in mid-sequence": [3, 1, 1, 1, 1, 4, 1, 2, 7, 1, 1],
}

RUNTIMES = {"onnxruntime": onnxruntime.Session, "reference": reference.Session}


def model(mask: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(_MODEL.replace("MASK", MASKS[mask])))


def raised(mask: str, attention: AttentionChoice) -> ir.Model:
    assume = ["rotated-rows"]
    found = kv.raise_(model(mask), capacity=64, attention=attention, assume=assume, verify=False)
    return found[0]


def operators(of: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in of.graph.all_nodes())


def apart(source: bytes, circular: bytes, chunks: list[int], batch: int, runtime: str) -> float:
    """Return how far the results are apart, and fail where a cache holds other rows."""
    a, b = (RUNTIMES[runtime](one, "") for one in (source, circular))
    rng = np.random.default_rng(11)
    caches = {n: np.zeros((batch, HEADS, 0, WIDTH), np.float32) for n in ("k", "v")}
    buffers = {n: np.zeros((batch, HEADS, WINDOW, WIDTH), np.float32) for n in ("k", "v")}
    before, worst = 0, 0.0
    for count in chunks:
        shape = (batch, HEADS, count, WIDTH)
        rest: dict[str, Array] = {
            "queries": rng.normal(size=(batch, HEADS * GROUP, count, WIDTH)).astype(np.float32),
            "keys": rng.normal(size=shape).astype(np.float32),
            "values": rng.normal(size=shape).astype(np.float32),
        }
        expected = a.run({**rest, **{f"past_{n}": caches[n] for n in caches}})
        counted = {"past_length": np.array([before])}
        found = b.run({**rest, **counted, **{f"past_{n}": buffers[n] for n in buffers}})
        worst = max(worst, float(np.abs(found["y"] - expected["y"]).max()))
        before += count
        caches = {name: expected[f"present_{name}"] for name in caches}
        buffers = {name: found[f"present_{name}"] for name in buffers}
        for name, rows in caches.items():
            places = np.arange(before - rows.shape[2], before) % WINDOW
            assert np.array_equal(buffers[name][:, :, places], rows)
    return worst


@pytest.mark.long
@part(6)
@pytest.mark.parametrize("attention", ["auto", "full", "keep"])
@pytest.mark.parametrize("mask", MASKS)
def test_it_computes_the_same(mask: str, attention: AttentionChoice) -> None:
    """Over the edge of the window several times, in both runtimes and at older opsets."""
    source = serialize(model(mask))
    result = raised(mask, attention)
    expected = {} if attention == "keep" else {"If": 1, "Attention": 2}
    assert {k: operators(result)[k] for k in expected} == expected
    assert operators(result)["TensorScatter"] == 2
    forms = [serialize(result)]
    forms += [serialize(kv.lower(result, opset=opset, verify=False)[0]) for opset in (18, 13)]
    for number, chunks in enumerate(CHUNKS.values()):
        for form in forms if number in (1, 3) else forms[:1]:
            assert apart(source, form, chunks, 1 + 2 * (number % 2), "onnxruntime") < 1e-5
        assert apart(source, forms[0], chunks, 2, "reference") < 1e-5


@pytest.mark.long
def test_steps_of_one_token_ask_nothing() -> None:
    """With `full` and a fixed length there is nothing to decide at run time."""
    assume = ["rotated-rows"]
    result, report = kv.raise_(
        model("every second key"), capacity=64, attention="full", assume=assume, dims={"S": 1}
    )
    assert (operators(result)["If"], operators(result)["Attention"]) == (0, 1)
    assert report.verification.status == "equal"
    (attention,) = (node for node in result.graph if node.op_type == "Attention")
    keys, values = attention.inputs[1:3]
    assert keys in result.graph.outputs and values in result.graph.outputs


_PRINT = """
import hashlib, sys
import onnx_kvtool as kv
from tests.rewrite.raising.attention.test_circular import model, serialize
fixed = {"B": 2, "S": 3}
options = {"capacity": 64, "assume": ["rotated-rows"], "static": True, "verify": False}
for _ in range(int(sys.argv[1])):  # what is new stands elsewhere each time
    result, _ = kv.raise_(model("a window and no later key"), dims=fixed, **options)
    print(hashlib.sha256(serialize(result)).hexdigest())
"""


@pytest.mark.exhaustive
def test_each_process_writes_the_same_bytes() -> None:
    """A set of comparisons has another order in each process, and the nodes may not follow it."""
    found = [
        subprocess.run(
            [sys.executable, "-c", _PRINT, seed],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert len({digest for each in found for digest in each}) == 1


@pytest.mark.long
@part(8)
@pytest.mark.parametrize("length", [1, 3, 6, 8])
@pytest.mark.parametrize("mask", MASKS)
def test_fixed_sizes(mask: str, length: int) -> None:
    """Where it is known which keys the mask shows, also with more tokens than the window has."""
    options: dict[str, object] = {"capacity": 64, "assume": ["rotated-rows"], "static": True}
    if mask in ("a number for each distance", "every second key"):
        with pytest.raises(kv.Refused) as refused:
            kv.raise_(model(mask), dims={"B": 2, "S": length}, verify=False, **options)
        assert {one.code for one in refused.value.report.reasons} == {"dynamic-size"}
        return
    result, report = kv.raise_(model(mask), dims={"B": 2, "S": length}, **options)
    assert report.verification.status == "equal"
    assert [done.form for done in report.attention] == ["full"]
    assert_static(result)
    chunks = [length] * (20 // length)
    source = serialize(model(mask))
    for form in (result, kv.lower(result, opset=13, verify=False)[0]):
        for runtime in RUNTIMES:
            assert apart(source, serialize(form), chunks, 2, runtime) < 1e-5
