"""Sizes at which a model that looks at its inputs through windows runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import onnx_kvtool as kv
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.inputs.symbols import attempts
from onnx_kvtool.verification.inputs.window_sizes import Windows, windows_of
from tests.grids import each
from tests.runtime.recorded import model

PATCHES = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, C, H, W] picture) => (float[N, T, 5] tokens)
<float[5, 3, 16, 16] kernel, float[1, 13, 5] positions>
{
  scaled = Mul (picture, picture)
  patches = Conv <strides = [16, 16]> (scaled, kernel)
  shape = Constant <value_ints = [0, 5, 12]> ()
  flat = Reshape (patches, shape)
  rows = Transpose <perm = [0, 2, 1]> (flat)
  class = Constant <value_floats = [0.0]> ()
  padding = Constant <value_ints = [0, 1, 0, 0, 0, 0]> ()
  joined = Pad (rows, padding)
  tokens = Add (joined, positions)
}
"""

SOUND = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, L] samples) => (float[N, 3, M] frames) <float[3, 1, 10] one, float[3, 3, 3] two>
{
  axes = Constant <value_ints = [1]> ()
  wave = Unsqueeze (samples, axes)
  first = Conv <strides = [5]> (wave, one)
  second = Conv <strides = [2]> (first, two)
  pooled = MaxPool <kernel_shape = [2], strides = [2]> (second)
  frames = Conv <strides = [2]> (pooled, two)
}
"""


def windows(text: str) -> Windows:
    found = model(text)
    return windows_of(found, list(found.graph.inputs))


def filled(text: str) -> str:
    """Give the weights that stand in `text` without values some."""
    for declared in ("[5, 3, 16, 16]", "[1, 13, 5]", "[3, 1, 10]", "[3, 3, 3]", "[7, 2, 3, 3]"):
        size = int(np.prod([int(n) for n in declared.strip("[]").split(",")]))
        numbers = ", ".join(str(round(x, 3)) for x in np.random.default_rng(0).normal(size=size))
        for name in ("kernel", "positions", "one", "two"):
            text = text.replace(
                f"float{declared} {name}", f"float{declared} {name} = {{{numbers}}}"
            )
    return text


def test_channels_strides_and_tables_are_read_from_the_model() -> None:
    found = windows(filled(PATCHES))
    assert found.channels == {"C": 3}
    assert found.extents == ("H", "W")
    assert (found.strides, found.first) == ((1, 16), (16, 16))
    assert found.tables == (13,)
    assert {5, 12, 13} <= set(found.numbers)


@pytest.mark.parametrize(
    ("stored", "converted"),
    [
        ("float16[5, 3, 16, 16] stored", "kernel = Cast <to = 1> (stored)"),
        (
            "int8[5, 3, 16, 16] stored, float scale = {0.5}",
            "real = DequantizeLinear (stored, scale) kernel = Identity (real)",
        ),
    ],
    ids=["another type", "codes"],
)
def test_channels_are_read_of_weights_that_are_converted(stored: str, converted: str) -> None:
    text = PATCHES.replace("float[5, 3, 16, 16] kernel", stored)
    found = windows(text.replace("  scaled =", f"  {converted}\n  scaled ="))
    assert (found.channels, found.first) == ({"C": 3}, windows(PATCHES).first)


def test_strides_multiply_along_the_way() -> None:
    found = windows(filled(SOUND))
    assert (found.extents, found.channels) == (("L",), {})
    assert found.strides == (1, 5, 10, 20, 40)


def test_a_branch_that_is_made_to_fit_another_strides_no_further() -> None:
    found = windows("""
    <ir_version: 10, opset_import: ["": 18]>
    g (float[N, 3, H, W] x) => (float[N, 3, P, Q] y)
    {
      a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
      b = MaxPool <kernel_shape = [8, 8], strides = [8, 8]> (a)
      k = Constant <value_floats = [1.0, 1.0, 8.0, 8.0]> ()
      c = Resize <mode = "nearest"> (b, , k)
      d = Add (a, c)
      y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
    }
    """)
    assert found.strides == (1, 2, 4, 16)


def test_channels_at_the_end_are_found_behind_a_transpose() -> None:
    found = windows(
        filled("""
    <ir_version: 10, opset_import: ["": 18]>
    g (float[N, H, W, C] x) => (float[N, 7, P, Q] y) <float[7, 2, 3, 3] kernel>
    { t = Transpose <perm = [0, 3, 1, 2]> (x) y = Conv <group = 2> (t, kernel) }
    """)
    )
    assert (found.channels, found.extents) == ({"C": 4}, ("H", "W"))


def test_windows_inside_a_function_are_found() -> None:
    found = windows("""
    <ir_version: 10, opset_import: ["": 18, "local": 1]>
    g (float[N, 3, H, W] x) => (float[N, 3, P, Q] y) { a = local.half (x) y = local.half (a) }
    <domain: "local", opset_import: ["": 18]>
    half (x) => (y) { y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x) }
    """)
    assert (found.extents, found.strides) == (("H", "W"), (1, 2, 4))


def test_a_model_without_windows_has_no_extents() -> None:
    text = "g (float[N, F] x) => (float[N, F] y) { y = Relu (x) }"
    assert windows(text).extents == ()
    assert list(windows(text).candidates()) == []


@each(
    ("found", "sizes"),
    [
        (Windows({}, ("H", "W"), (1, 4, 32), (4, 4)), {"H": 64, "W": 96}),
        (Windows({}, ("H", "W"), (1, 16), (16, 16), (197,)), {"H": 224, "W": 224}),
        (Windows({}, ("H", "W"), (1, 16), (16, 16), (198,)), {"H": 224, "W": 224}),
        (Windows({}, ("H", "W"), (1, 16), (16, 16), (10, 46)), {"H": 96, "W": 96}),
        (Windows({}, ("H", "W"), (1, 10), (16, 10), (12,)), {"H": 26, "W": 56}),
        (Windows({}, ("H", "W"), (1, 10), (16, 10), (12,)), {"H": 56, "W": 26}),
        (Windows({}, ("H", "W"), (1, 4, 16), (4, 4)), {"H": 112, "W": 112}),
        (Windows({}, ("L",), (1, 2), (3, 1), (1500,)), {"L": 1502}),
        (Windows({}, ("L",), (1, 320), (10, 5)), {"L": 16_000}),
        (Windows({}, ("H", "W"), (1,), (1, 1), (), (21,)), {"H": 21, "W": 21}),
    ],
)
def test_the_sizes_that_a_model_demands_are_among_those_tried(
    found: Windows, sizes: dict[str, int]
) -> None:
    assert sizes in list(itertools.islice(found.candidates(), 60))


def test_no_size_takes_absurdly_many_steps() -> None:
    found = Windows({}, ("H", "W"), (1, 4), (4, 4), (4_000_000,), (100_000,))
    assert max(max(sizes.values()) for sizes in found.candidates()) < 4 * 120


def test_sizes_that_ran_once_are_tried_first_and_one_step_further() -> None:
    found = plan(model(filled(PATCHES)))
    sizes = [s for _, s in attempts(found, CASES[1], {}, {"H": 48, "W": 64})]
    tried = [(s["C"], s["H"], s["W"]) for s in sizes[:4]]
    assert tried == [(3, 50, 66), (3, 64, 64), (3, 48, 80), (3, 48, 64)]


def test_sizes_that_the_user_binds_stay() -> None:
    found = plan(model(filled(PATCHES)))
    for _, sizes in attempts(found, CASES[0], {"H": 40}):
        assert sizes["H"] == 40


@pytest.mark.long
@pytest.mark.parametrize("text", [PATCHES, SOUND])
def test_a_model_that_demands_sizes_is_verified(text: str) -> None:
    source = model(filled(text))
    _, report = kv.lower(source, opset=13)
    assert report.verification.status == "equal", report.verification.detail


def test_a_size_that_only_a_weight_tells_is_found() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 18]>
    g (float[N, F] x) => (float[N, 2] y) <float[5, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}>
    { y = MatMul (x, w) }
    """
    found = kv.verify(model(text), model(text))
    assert found.status == "equal"


@pytest.mark.long
def test_a_case_is_called_by_its_shapes() -> None:
    text = "g (float[N, 5] x, float[5] w) => (float[N, 5] y) { z = Mul (x, w) y = OP (z) }"
    found = kv.verify(model(text.replace("OP", "Sin")), model(text.replace("OP", "Cos")))
    assert (found.detail or "").endswith("in case 1 with `x` of shape (2, 5)")
    text = "g (float[5] x) => (float[5] y) { y = OP (x) }"
    found = kv.verify(model(text.replace("OP", "Sin")), model(text.replace("OP", "Cos")))
    assert (found.detail or "").endswith("in case 1")
