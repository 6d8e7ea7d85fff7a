"""Both runtimes behind one interface: what they return and how they fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.guard.onnxruntime_faults import known_wrong
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.errors import ModelRejected, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import RuntimeName, open_session
from onnx_kvtool.targets.target import limit_reasons
from onnx_kvtool.verification.comparison.differences import compare
from tests.grids import each
from tests.runtime.recorded import NAMES, native, needs_24, recorded_run, serialized

both = pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
both_at_24 = pytest.mark.parametrize(
    "runtime", [pytest.param("onnxruntime", marks=needs_24), "reference"]
)

UPDATE = """
g (float[B, S, D] past, float[B, L, D] update, int64[B] start) => (float[B, S, D] present)
{ present = TensorScatter <axis = 1> (past, update, start) }
"""


def operands(start: list[int]) -> dict[str, np.ndarray]:
    return {
        "past": np.zeros((2, 5, 3), np.float32),
        "update": np.ones((2, 2, 3), np.float32),
        "start": np.array(start, np.int64),
    }


@pytest.mark.long
@both_at_24
@pytest.mark.parametrize("name", NAMES)
def test_recorded_inputs_give_recorded_outputs(name: str, runtime: RuntimeName) -> None:
    inputs, expected = recorded_run(name)
    outputs = open_session(runtime, serialize(native(name)), "").run(inputs)
    assert list(outputs) == list(expected)
    for output, value in outputs.items():
        # float16 models end in float16 values that each kernel rounds at other places.
        assert compare(output, expected[output], value).within


@both_at_24
def test_a_session_runs_any_number_of_times(runtime: RuntimeName) -> None:
    session = open_session(runtime, serialized(UPDATE), "")
    sums = [
        session.run(operands(start))["present"][0].sum(axis=1).tolist()
        for start in [[0, 3], [2, 0]]
    ]
    assert sums == [[3, 3, 0, 0, 0], [0, 0, 3, 3, 0]]


@both_at_24
def test_arrays_need_not_be_contiguous(runtime: RuntimeName) -> None:
    session = open_session(runtime, serialized(UPDATE), "")
    inputs = operands([0, 3])
    inputs["update"] = np.arange(12, dtype=np.float32).reshape(3, 2, 2).T
    expected = np.zeros((2, 5, 3), np.float32)
    expected[0, 0:2], expected[1, 3:5] = inputs["update"]
    np.testing.assert_array_equal(session.run(inputs)["present"], expected)


@both_at_24
@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda x: x.update(start=np.array([0, -1])), r"write_indices\[1\]", id="start"
        ),
        pytest.param(lambda x: x.update(start=np.array([0, 4])), r"write_indices\[1\]", id="end"),
        pytest.param(lambda x: x.pop("update"), "update.*missing", id="a missing input"),
        pytest.param(
            lambda x: x.update(update=np.ones((2, 2), np.float32)), "rank", id="another rank"
        ),
    ],
)
def test_a_failing_run_says_why_in_one_line(
    change: Callable[[dict[str, Any]], object], message: str, runtime: RuntimeName
) -> None:
    inputs = operands([0, 3])
    change(inputs)
    session = open_session(runtime, serialized(UPDATE), "")
    with pytest.raises(RunFailed, match=message) as caught:
        session.run(inputs)
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith(session.runtime)


@pytest.mark.parametrize(
    ("text", "runtime", "kind", "message"),
    [
        pytest.param(
            "g (float8e4m3fn[B, S, D] p, float8e4m3fn[B, L, D] u) => (float8e4m3fn[B, S, D] q)"
            "{ q = TensorScatter <axis = 1> (p, u) }",
            "onnxruntime",
            RuntimeUnavailable,
            "Could not find an implementation for TensorScatter",
            marks=needs_24,
            id="onnxruntime has no kernel for the type",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 99]> g (float[B] p) => (float[B] q)'
            "{ q = Identity (p) }",
            "onnxruntime",
            RuntimeUnavailable,
            "Current official support for domain ai.onnx is till opset",
            id="onnxruntime does not know the opset",
        ),
        pytest.param(
            '<ir_version: 99, opset_import: ["": 18]> g (float[B] p) => (float[B] q)'
            "{ q = Identity (p) }",
            "onnxruntime",
            RuntimeUnavailable,
            "Unsupported model IR version: 99",
            id="onnxruntime does not know the IR version",
        ),
        pytest.param(
            "g (float[B] p, int64[B] i) => (float[B] q) { q = Add (p, i) }",
            "onnxruntime",
            ModelRejected,
            "Type Error",
            id="onnxruntime finds types that contradict each other",
        ),
        pytest.param(
            "g (float[2] p, float[3] i) => (float[2] q) { q = Add (p, i) }",
            "onnxruntime",
            ModelRejected,
            "Incompatible dimensions",
            id="onnxruntime finds shapes that contradict each other",
        ),
        pytest.param(
            "g (float[B] p) => (float[B] q) { q = Swash (p) }",
            "onnxruntime",
            ModelRejected,
            "No Op registered for Swash",
            id="onnxruntime finds an operator that does not exist",
        ),
        pytest.param(
            '<ir_version: 10, opset_import: ["": 24, "far.away": 1]>'
            "g (float[B] p) => (float[B] q) { q = far.away.Swash (p) }",
            "reference",
            RuntimeUnavailable,
            "'far.away' is unknown",
            id="the reference has no operators of other domains",
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_is_told_from_an_invalid_one(
    text: str, runtime: RuntimeName, kind: type[Exception], message: str
) -> None:
    with pytest.raises(RuntimeUnavailable, match=message) as caught:
        open_session(runtime, serialized(text), "")
    assert type(caught.value) is kind
    assert "\n" not in caught.value.message


@both
@pytest.mark.parametrize("data", [b"", b"no model"], ids=["no bytes", "other bytes"])
def test_bytes_that_are_no_model_are_refused(data: bytes, runtime: RuntimeName) -> None:
    with pytest.raises(RuntimeUnavailable, match="cannot load the model"):
        open_session(runtime, data, "")


def with_external_weight(location: str) -> bytes:
    """Return x + w where w is 2 floats at byte 4 of the file `location`."""
    weight = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": location, "offset": "4", "length": "8"}.items():
        weight.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return model.SerializeToString()


@both
def test_external_data_is_found_in_the_directory_given(
    tmp_path: Path, runtime: RuntimeName, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    np.array([9, 3, 5], np.float32).tofile(tmp_path / "sub" / "w.bin")
    monkeypatch.chdir(tmp_path)  # where the data is not
    session = open_session(runtime, with_external_weight("w.bin"), str(tmp_path / "sub"))
    outputs = session.run({"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(outputs["y"], np.array([3, 5], np.float32))


@both_at_24
@pytest.mark.parametrize("location", ["../w.bin", "missing.bin"])
def test_external_data_that_leaves_the_directory_or_is_missing_is_refused(
    tmp_path: Path, location: str, runtime: RuntimeName
) -> None:
    (tmp_path / "sub").mkdir()
    np.array([9, 3, 5], np.float32).tofile(tmp_path / "w.bin")
    with pytest.raises(RuntimeUnavailable):
        open_session(runtime, with_external_weight(location), str(tmp_path / "sub"))


@pytest.mark.parametrize("level", [0, 1, 4])
def test_products_of_few_bits_are_computed_in_float32(level: int) -> None:
    """At level 4 onnxruntime rounds the other operand to 8 bits, unless it is told not to."""
    rng = np.random.default_rng(0)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft",
        K=64, N=48, bits=4, block_size=32, accuracy_level=level,
    )  # fmt: skip
    packed = rng.integers(0, 255, (48, 2, 16), np.uint8, endpoint=True)
    scales = rng.uniform(0.5, 1.5, 96).astype(np.float32)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 48])],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    inputs = {"x": rng.standard_normal((3, 64)).astype(np.float32)}
    ours, theirs = (
        open_session(runtime, made, "").run(inputs)["y"] for runtime in ("reference", "onnxruntime")
    )
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-3)


TRANSPOSED = [
    (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    (TensorProto.INT4, ml_dtypes.int4),
    (TensorProto.UINT4, ml_dtypes.uint4),
    (TensorProto.FLOAT16, np.float16),
    (TensorProto.BOOL, np.bool_),
    (TensorProto.STRING, object),
]


@pytest.mark.long
@both
@each("columns", [5, 4, 0])
@each(
    ("element_type", "dtype"),
    [pytest.param(*t, id=TensorProto.DataType.Name(t[0])) for t in TRANSPOSED],
)
def test_every_element_type_goes_in_and_comes_out(
    element_type: int, dtype: Any, columns: int, runtime: RuntimeName
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", element_type, [3, "n"]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, [1]),
        ],
        [helper.make_tensor_value_info("y", element_type, ["n", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    numbers = np.arange(3 * columns).reshape(3, columns) - 7
    x = numbers.astype(str).astype(object) if dtype is object else numbers.astype(dtype)
    inputs = {"x": x, "flag": np.array([True])}
    y = open_session(runtime, model.SerializeToString(), "").run(inputs)["y"]
    assert y.dtype == x.dtype
    assert y.shape == (columns, 3)
    assert compare("y", x.T, y, exact=True).bit_equal


def test_onnxruntime_takes_no_strings_beside_types_that_numpy_lacks() -> None:
    text = "g (string[N] s, bfloat16[N] x) => (bfloat16[N] y) { y = Identity (x) }"
    with pytest.raises(RuntimeUnavailable, match="takes no strings"):
        open_session("onnxruntime", serialized(text), "")


@needs_24
def test_onnxruntime_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    session = open_session("onnxruntime", serialized(UPDATE), "")
    session.run(operands([0, 3]))  # warns of a copied cache when it may
    with pytest.raises(RunFailed):
        session.run(operands([0, 4]))
    with pytest.raises(RuntimeUnavailable):
        open_session("onnxruntime", serialized("g (float[B] p) => (float[B] q) { q = X (p) }"), "")
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_the_reference_is_silent_about_overflow(recwarn: pytest.WarningsRecorder) -> None:
    text = "g (float[N] x) => (float[N] y) { z = Exp (x) y = Div (z, z) }"
    y = open_session("reference", serialized(text), "").run({"x": np.array([1e3], np.float32)})["y"]
    assert np.isnan(y).all()
    assert not recwarn.list


def test_the_reference_takes_our_tensor_scatter_in_functions_and_bodies() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 24, "local": 1]>
    g (float[B, S, D] p, float[B, L, D] u, int64[B] w, bool c) => (float[B, S, D] q)
    {
      q = If (c) <
        then_branch = t () => (float[B, S, D] x) { x = local.Update (p, u, w) },
        else_branch = e () => (float[B, S, D] y) { y = TensorScatter <axis = 1> (p, u, w) }
      >
    }
    <domain: "local", opset_import: ["": 24]>
    Update (p, u, w) => (q) { q = TensorScatter <axis = 1> (p, u, w) }
    """
    session = open_session("reference", serialized(text), "")
    given = operands([0, -1])
    inputs = {"p": given["past"], "u": given["update"], "w": given["start"]}
    for condition in (True, False):
        # onnx's own kernel would wrap the negative start in silence.
        with pytest.raises(RunFailed, match=r"write_indices\[1\] is -1"):
            session.run({**inputs, "c": np.array(condition)})


def test_an_output_that_is_no_tensor_is_a_failed_run() -> None:
    text = "g (float[N] x) => (seq(float[N]) y) { y = SequenceConstruct (x, x) }"
    for runtime in ("onnxruntime", "reference"):
        session = open_session(runtime, serialized(text), "")
        with pytest.raises(RunFailed, match="expected a tensor"):
            session.run({"x": np.zeros(3, np.float32)})


MASKED = "Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v, , , , n)"
UNMASKED = "Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v)"
INPUTS = "(float[B, L, D] q, float[B, S, D] k, float[B, S, D] v, int64[B] n, bool c)"
BRANCHES = """
    y = If (c) < then_branch = t () => (float[B, L, D] a) {{ a = {} }},
                 else_branch = e () => (float[B, L, D] b) {{ b = {} }} >
"""
SEARCH = """
    y = com.microsoft.BeamSearch (q) < init_decoder = t () => (float[B, L, D] a) {{ a = {} }},
                                       decoder = e () => (float[B, L, D] b) {{ b = {} }} >
"""
CONTRIB = '<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]>'
STRINGS = UPDATE.replace("float", "string")
LOCAL = '<ir_version: 10, opset_import: ["": 24, "local": 1]>'


@each(
    ("version", "text", "is_wrong"),
    [
        pytest.param(
            "1.23.2",
            f"g {INPUTS} => (float[B, L, D] y) {{ y = {MASKED} }}",
            False,
            id="1.23, which does not know opset 24",
        ),
        pytest.param(
            "1.24.4", f"g {INPUTS} => (float[B, L, D] y) {{ y = {MASKED} }}", True, id="1.24"
        ),
        pytest.param(
            "1.27.0", f"g {INPUTS} => (float[B, L, D] y) {{ y = {MASKED} }}", True, id="1.27"
        ),
        pytest.param(
            "1.28.0", f"g {INPUTS} => (float[B, L, D] y) {{ y = {MASKED} }}", False, id="1.28"
        ),
        pytest.param(
            "2.0.0", f"g {INPUTS} => (float[B, L, D] y) {{ y = {MASKED} }}", False, id="2.0"
        ),
        pytest.param(
            "1.24.4",
            f"g {INPUTS} => (float[B, L, D] y) {{ y = {UNMASKED} }}",
            False,
            id="without nonpad_kv_seqlen",
        ),
        pytest.param(
            "1.24.4",
            f"g {INPUTS} => (float[B, L, D] y) {{ {BRANCHES.format(UNMASKED, MASKED)} }}",
            True,
            id="in a branch",
        ),
        pytest.param(
            "1.24.4",
            f"{CONTRIB} g {INPUTS} => (float[B, L, D] y) {{ {SEARCH.format(UNMASKED, MASKED)} }}",
            True,
            id="in the second body of an operator of onnxruntime",
        ),
        pytest.param(
            "1.24.4",
            f"{CONTRIB} g {INPUTS} => (float[B, L, D] y) {{ {SEARCH.format(UNMASKED, UNMASKED)} }}",
            False,
            id="nowhere in bodies of an operator of onnxruntime",
        ),
        pytest.param(
            "1.24.4",
            f"{LOCAL} g {INPUTS} => (float[B, L, D] y) {{ y = local.Masked (q, k, v, n) }}"
            f'<domain: "local", opset_import: ["": 24]> Masked (q, k, v, n) => (y)'
            f"{{ y = {MASKED} }}",
            True,
            id="in a function",
        ),
        pytest.param("1.24.4", STRINGS, False, id="strings before there was a TensorScatter"),
        *(
            pytest.param(
                "1.32.0",
                f"g (float[B, 2, {query}, 4] q, float[B, 2, {key}, 4] k, float[B, 2, P, 4] p) => "
                "(float[B, 2, Q, 4] y, float[B, 2, R, 4] nk, float[B, 2, R, 4] nv) "
                f"{{ y, nk, nv = Attention <is_causal = {causal}> (q, k, k, , p, p) }}",
                is_wrong,
                id=f"{query} queries and {key} keys behind a past, is_causal {causal}",
            )
            for query, key, causal, is_wrong in (
                ("1", "4", 1, True),
                ("1", "T", 1, True),
                ("S", "T", 1, True),
                ("1", "4", 0, False),
                ("1", "1", 1, False),
                ("3", "5", 1, False),
                ("S", "S", 1, False),
            )
        ),
        pytest.param("1.25.0", STRINGS, True, id="strings that 1.25 dies of"),
        pytest.param("1.28.0", STRINGS, True, id="strings that 1.28 dies of"),
        pytest.param("1.29.0", STRINGS, False, id="strings that 1.29 refuses by itself"),
        pytest.param("1.28.0", UPDATE, False, id="no strings"),
        *(
            pytest.param(
                "1.32.0",
                '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> '
                "g (float[T, H] x, float[T, E] r, float[E, I, H] a, float[E, H, I] b) => "
                "(float[T, H] y) "
                f"{{ y = com.microsoft.MoE <k = 2, use_sparse_mixer = {sparse}> (x, r, a, , b) }}",
                bool(sparse),
                id=f"a sparse mixer, {sparse}",
            )
            for sparse in (0, 1)
        ),
        pytest.param(
            "1.28.0",
            "g (int64[B, S] i, int64[B, L] u) => (string[B, S] y)"
            "{ a = Cast <to = 8> (i) b = Cast <to = 8> (u) y = TensorScatter <axis = 1> (a, b) }",
            True,
            id="strings that are made inside",
        ),
        pytest.param(
            "1.28.0",
            "g (string[N] x) => (string[N] y) { y = Identity (x) }",
            False,
            id="strings without a TensorScatter",
        ),
    ],
)
def test_releases_that_are_wrong_are_known(version: str, text: str, is_wrong: bool) -> None:
    assert (known_wrong(version, serialized(text), limit_reasons) is not None) is is_wrong


def test_a_release_that_is_wrong_is_no_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_kvtool.runtime import onnxruntime

    monkeypatch.setattr(onnxruntime, "VERSION", "1.26.0")
    text = f"g {INPUTS} => (float[B, L, D] y) {{ y = {MASKED} }}"
    with pytest.raises(RuntimeUnavailable, match=r"1\.26\.0 computes this model wrongly: it"):
        onnxruntime.Session(serialized(text), "")
