"""Runtimes beyond onnxruntime and OpenVINO compute what `--target` wrote for them.

Run it with `pytest -m compat`; they are installed from the indexes of Python and npm on first use.
A runtime that cannot be installed, or dies, fails: nothing is left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.targets.target import find_target
from tests.compat.decoders import STEPS, allowed, comparing
from tests.compat.environments import RuntimeFailed, run_in
from tests.compat.fixtures import difference, limit_of, lowered_file
from tests.compat.forms import BATCHES, forms
from tests.targets.size_cases import INDEXED, INDEXED_BY, SIZE_CASES

pytestmark = pytest.mark.compat

_FAST = ("tract", "onnxruntime-node", "opencv")

CASES = [
    *(
        (runtime, f"{name}, Native")
        for runtime in _FAST
        for name in ("llama", "llama fp16", "gemma")
    ),
    *(
        (runtime, "qwen2, Raised from optimum")
        for runtime in ("tract", "onnxruntime-node", "opencv")
    ),
]
"""tinygrad, which compiles a kernel for every node, has its own in test_tinygrad.py."""


@pytest.mark.parametrize(("runtime", "decoder"), CASES)
def test_a_decoder_lowered_for_a_runtime_answers_as_its_source(
    runtime: str, decoder: str, tmp_path: Path
) -> None:
    """In a prompt and the step after it, of one sequence and of two."""
    release, count = find_target(runtime).release, 0
    for form in forms(decoder, f"{runtime}@{release.version}", tmp_path):
        with comparing(runtime, release.version, form.path) as apart:
            for step, batch, fed in form.runs:
                assert apart(fed) <= allowed(decoder), (step, batch)
                count += 1
    assert count == len(STEPS) * len(BATCHES)


@pytest.mark.parametrize("runtime", ["tract", "onnxruntime-node", "opencv", "tinygrad"])
def test_a_mask_lowered_for_a_runtime_is_the_recorded_one(runtime: str, tmp_path: Path) -> None:
    fixture, release = "mobius_block_bias_int64_2d", find_target(runtime).release
    model = lowered_file(fixture, runtime, tmp_path)
    assert difference(fixture, model, runtime, release.version) <= limit_of(fixture)


@pytest.mark.parametrize("runtime", ["openvino", "tract", "opencv", "tinygrad", "iree"])
def test_a_condition_of_where_may_have_size_1_on_an_axis(runtime: str, tmp_path: Path) -> None:
    """As docs/developing/dialect.md says: what lowered Attention asks of rows that see no key."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (bool[2, 1, 1, 5, 1] c, float[2, 3, 2, 5, 7] x) '
        "=> (float[2, 3, 2, 5, 7] y) <float zero = {0}> { y = Where (c, zero, x) }"
    )
    rng = np.random.default_rng(3)
    data = rng.standard_normal((2, 3, 2, 5, 7)).astype(np.float32)
    feeds = {"c": rng.random((2, 1, 1, 5, 1)) > 0.5, "x": data}
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    (found,) = run_in(runtime, find_target(runtime).release.version, path, feeds)
    assert np.array_equal(found, np.where(feeds["c"], np.float32(0), data))


@pytest.mark.parametrize("reads", INDEXED.values(), ids=INDEXED)
def test_tract_takes_indices_that_are_sizes_through_int32(reads: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]>'
        + INDEXED_BY.format(start="p = Sub (b, a)", reads=reads)
    )
    data = np.random.default_rng(3).standard_normal((5, 3)).astype(np.float32)
    rows = {"y": np.ones((2, 2), np.float32), "w": np.ones((5, 2), np.float32)}
    feeds = {"x": data, **rows, "k": np.array([1])}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    path, release = tmp_path / "model.onnx", find_target("tract").release
    onnx.save(model, path)
    with pytest.raises(RuntimeFailed):
        run_in("tract", release.version, path, feeds)
    path.write_bytes(serialize(kv.lower(model, target="tract", verify=False)[0]))
    (found,) = run_in("tract", release.version, path, feeds)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("element", ["float", "bool"])
@pytest.mark.parametrize(
    ("data", "given", "result", "batch", "places"),
    [
        ("2, a, 5", "2, 2", "2, 5", 0, [[-1, -2], [1, 0]]),
        ("2, a, 5", "2, 2", "2", 1, [[-1, -5], [0, 4]]),
        ("a, 5", "2, 1", "2, 5", 0, [[-1], [0]]),
    ],
    ids=["two sizes", "behind a batch", "rows"],
)
def test_opencv_gathers_what_is_counted_from_the_end(
    data: str,
    given: str,
    result: str,
    batch: int,
    places: list[object],
    element: str,
    tmp_path: Path,
) -> None:
    """By indices that kvtool counts from the front: it reads what lies before the data else."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({element}[{data}] x, int64[{given}] i) '
        f"=> ({element}[{result}] z) {{ z = GatherND <batch_dims: int = {batch}> (x, i) }}"
    )
    sizes = [_NUMBERS.get(size) or int(size) for size in data.split(", ")]
    array = np.random.default_rng(3).standard_normal(sizes).astype(np.float32)
    feeds = {"x": array > 0 if element == "bool" else array, "i": np.array(places)}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    path, release = tmp_path / "model.onnx", find_target("opencv").release
    path.write_bytes(serialize(kv.lower(model, target="opencv", verify=False)[0]))
    (found,) = run_in("opencv", release.version, path, feeds)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(("op_type", "hidden"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
@pytest.mark.parametrize("element", ["float", "float16"])
@pytest.mark.parametrize("runtime", ["opencv", "tract"])
def test_rows_of_infinities_keep_them(
    runtime: str, element: str, op_type: str, hidden: float, tmp_path: Path
) -> None:
    """As TopK: the reduction gives the largest finite number, and a query that sees no key NaN."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({element}[b, 3, 1, s] x) => '
        f"({element}[b, 3, 1] y) <int64[1] a = {{-1}}> {{ y = {op_type} <keepdims = 0> (x, a) }}"
    )
    array = np.full((2, 3, 1, 5), hidden, np.float32 if element == "float" else np.float16)
    array[1, 2, 0, 3] = 4
    (expected,) = ReferenceEvaluator(model).run(None, {"x": array})
    lowered, _ = kv.lower(model, target=runtime, verify=False)
    release = find_target(runtime).release
    for content, is_right in ((model.SerializeToString(), False), (serialize(lowered), True)):
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        (found,) = run_in(runtime, release.version, path, {"x": array})
        assert np.array_equal(found, expected) == is_right


_NUMBERS = {"a": 2, "b": 3, "c": 5, "d": 4, "m": 2, "n": 2, "s": 14, "w": 7}
"""Sizes of the names in the cases."""

_ELEMENTS: dict[tuple[str, str], list[int]] = {
    ("reshape-values", "s"): [3, 4],
    ("constants-Split.split", "s"): [2, 4],
    ("slice-start-values", "o"): [3],
    ("slice-end-values", "e"): [3],
}
"""What inputs hold that are told sizes; 3 elsewhere."""


@pytest.mark.parametrize(("name", "affected", "free"), SIZE_CASES, ids=lambda one: one)
def test_what_a_limit_of_tract_strikes_it_does_not_compute(
    name: str, affected: str, free: str, tmp_path: Path
) -> None:
    """As it is, without kvtool; and it computes what the limit spares.

    At opset 19: the reference has no DequantizeLinear of before.
    """
    release = find_target("tract").release
    for text, is_right in ((affected, False), (free, True)):
        model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 19]> ' + text)
        feeds = {value.name: _given(name, value) for value in model.graph.input}
        expected = ReferenceEvaluator(model).run(None, feeds)
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        try:
            found = run_in("tract", release.version, path, feeds)
        except RuntimeFailed:
            assert not is_right
            continue
        pairs = zip(found, expected, strict=True)
        assert is_right == all(
            a.shape == e.shape and np.allclose(a, e, rtol=0, atol=1e-4) for a, e in pairs
        )


def _given(name: str, value: onnx.ValueInfoProto) -> np.ndarray:
    rng, type_ = np.random.default_rng(3), value.type.tensor_type
    shape = [_NUMBERS.get(dim.dim_param, dim.dim_value) for dim in type_.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(type_.elem_type)
    if (name, value.name) in _ELEMENTS:
        return np.array(_ELEMENTS[name, value.name])
    if value.name in ("s", "d") and dtype == np.int64:
        return np.full(shape, 3)
    if dtype == np.float32:
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


@pytest.mark.parametrize("runtime", ["tract", "onnxruntime-node", "opencv", "tinygrad"])
def test_a_model_that_a_runtime_cannot_load_is_a_failure(runtime: str, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeFailed):
        run_in(runtime, find_target(runtime).release.version, tmp_path / "broken.onnx", {})
