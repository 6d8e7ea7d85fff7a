"""onnx's own test of backends, run on ours."""

from __future__ import annotations

import importlib.util
import re
import unittest
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test import BackendTest

import onnx_kvtool as kv
from onnx_kvtool import backend
from tests.conformance.corpus import Case, cases, few

pytestmark = pytest.mark.long


NOT_RUN = {
    "OnnxBackendRealModelTest": "downloads its models",
}
"""Groups of cases, and why none of them is run."""

ACCEPTED = {
    r"test_bernoulli(_double|_seed)?(_expanded)?_cpu": "draws numbers, and any draw is right",
    r"test_attention_4d_causal_fp16_expanded_cpu": (
        "two of 192 float16 values are one unit in the last place away, which is 1.2e-3 of the"
        " value, and the case grants 1e-3"
    ),
    r"test_loop16_seq_none_cpu": "the comparison takes the length of a scalar, and fails on any",
    r"test_gradient_of_\w+_cpu": "ai.onnx.preview.training has no implementation anywhere",
}
"""Cases that fail, and why that is accepted."""

WITHOUT_PILLOW = {r"test_image_decoder_\w+_cpu": "needs Pillow, which is not installed"}

FEW = r"(tensorscatter|rotary|if_|scan|loop1|optional|sequence_|cast_FLOAT_to)\w*"
"""Cases outside of the slow set: those of caches, and of everything that is no plain tensor."""


def failures() -> dict[str, str]:
    """Run every case, and return the end of what is said of each failure."""
    suite = unittest.TestSuite()
    for name, group in BackendTest(backend.KvtoolBackend, __name__).test_cases.items():
        if name not in NOT_RUN:
            for case in unittest.defaultTestLoader.getTestCaseNames(group):
                if case.endswith("_cpu"):
                    suite.addTest(group(case))
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, in the functions that the cases call
        suite.run(result)
    assert result.testsRun > 1900
    bad = [*result.failures, *result.errors]
    return {str(case.id()).rsplit(".", 1)[1]: text.strip()[-300:] for case, text in bad}


def unexpected(found: dict[str, str]) -> dict[str, str]:
    patterns = [*ACCEPTED]
    if importlib.util.find_spec("PIL") is None:
        patterns += WITHOUT_PILLOW
    return {
        name: why
        for name, why in found.items()
        if not any(re.fullmatch(pattern, name) for pattern in patterns)
    }


@pytest.mark.parametrize(
    ("some", "count"),
    [
        pytest.param(few, 15, id="two of each operator"),
        pytest.param(cases, 40, id="all", marks=pytest.mark.exhaustive),
    ],
)
def test_the_cases_of_caches_and_containers_pass(
    some: Callable[[], tuple[Case, ...]], count: int
) -> None:
    found = [case for case in some() if re.match(FEW, case.name)]
    assert len(found) > count
    for case in found:
        if f"test_{case.name}_cpu" not in ACCEPTED:
            outputs = backend.run_model(case.model, [*case.feeds.values()])
            BackendTest.assert_similar_outputs(case.expected, outputs, case.rtol, 1e-7)


@pytest.mark.slow
def test_every_case_passes_but_those_that_are_accepted() -> None:
    found = failures()
    assert unexpected(found) == {}
    idle = [p for p in ACCEPTED if not any(re.fullmatch(p, name) for name in found)]
    assert idle == [], "these pass: take them off the list"


ADD = helper.make_node("Add", ["a", "b"], ["c"])


def test_a_node_runs_by_itself() -> None:
    values = [np.array([1, 2], np.int64), np.array([3], np.int64)]
    (total,) = backend.run_node(ADD, values)
    assert total.tolist() == [4, 5]
    (total,) = backend.run_node(ADD, dict(zip("ab", values, strict=True)), opset_version=14)
    assert total.tolist() == [4, 5]


def test_an_input_that_stands_twice_is_given_once() -> None:
    (square,) = backend.run_node(helper.make_node("Mul", ["a", "a"], ["b"]), np.float32([3]))
    assert square.tolist() == [9]


def test_a_prepared_model_takes_a_list_a_mapping_or_an_array() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
    )
    rep = backend.prepare(model, "CPU")
    x = np.float32([1, -2])
    for inputs in ([x], {"x": x}, x):
        assert rep.run(inputs)[0].tolist() == [-1, 2]
    assert backend.run_model(model, [x])[0].tolist() == [-1, 2]
    with pytest.raises(kv.UsageError, match="got 2 inputs, expected at most 1"):
        rep.run([x, x])


@pytest.mark.parametrize(("device", "is_there"), [("CPU", True), ("CPU:0", True), ("CUDA", False)])
def test_models_run_on_the_cpu(device: str, is_there: bool) -> None:
    assert backend.supports_device(device) is is_there
    if not is_there:
        with pytest.raises(kv.UsageError, match="the device is `CUDA`, expected `CPU`"):
            backend.prepare(onnx.ModelProto(), device)


def test_bad_input_raises_a_kvtool_error() -> None:
    with pytest.raises(kv.UsageError, match="got 1 input, expected 2"):
        backend.run_node(ADD, [np.float32([1])])
    with pytest.raises(kv.KvtoolError, match="Frobnicate"):
        backend.run_node(helper.make_node("Frobnicate", ["a"], ["b"]), [np.float32([1])])
