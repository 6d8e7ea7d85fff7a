"""onnx's own tests, with kvtool beside onnx: what it infers and refuses, kvtool does too.

Each model that they give to shape inference or to the checker is given to kvtool. What they give
to the version converter is lowered to its target (23 for later ones), and compared with what the
converter makes; what compose and the inliner make is lowered to 11.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.onnx_suite.comparison import differences
from tests.onnx_suite.sources import onnx_tests

SUITES = (
    *("shape_inference", "data_propagation", "function_inference", "model_inference"),
    *("symbolic_shape", "version_converter", "checker", "compose", "inliner", "function"),
    *("reference_evaluator_model", "training_tool", "utils", "helper"),
    "version_converter/automatic_downgrade",
)
ACCEPTED = {
    "test_slice_with_input_shape_axes": "`steps` is an input, which onnx takes for 1",
    "test_slice_with_input_shape_steps": "`axes` is an input, which onnx takes for all axes",
    "test_invalid_field_in_inference_func": "the test registers an operator of its own",
    "test_get_symbolic_input_returns_tensor_shape_proto": "the test registers an operator",
    "test_model_metadata_props": "a key that stands twice is a warning, MD436: runtimes load it",
    "test_add_overflow": "the sum wraps when it runs, and no runtime refuses it",
    "test_quantize_21_20": "the scales have the length of another axis, so that it does not run",
    "test_dequantize_21_20": "the scales have the length of another axis, so that it does not run",
    "test_expand_out_dim": "compose writes an Unsqueeze of opset 13 into a model of opset 10",
    "test_resize_18_17_rejects_antialias": "`antialias` says nothing of `nearest`; nobody runs it",
    "test_resize_scale_precision_large_dim": "the size is one that runtimes round in float32",
    "test_inline_ignores_constant_without_outputs": "a Constant that has no outputs",
}
"""Tests of onnx about which kvtool says something else, with the reason.

Besides, no default of an input is taken for a constant (see `comparison`).
"""


@pytest.mark.slow
def test_kvtool_says_what_onnx_says(tmp_path: Path) -> None:
    recording = tmp_path / "records.pickle"
    folder = onnx_tests()
    files = [f"{name}_test.py" for name in SUITES if (folder / f"{name}_test.py").exists()]
    assert len(files) == len(SUITES)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "recorder", "--noconftest", *files],
        cwd=folder,
        env={
            **os.environ,
            "KVTOOL_RECORDING": str(recording),
            "PYTHONPATH": str(Path(__file__).parent),
        },
        check=False,  # what onnx's tests think of onnx is not asked here
        capture_output=True,
    )
    records: list[dict[str, Any]] = pickle.loads(recording.read_bytes())
    assert len(records) > 2000
    found: dict[str, list[str]] = {}
    for record in records:
        name = record["test"].rpartition("::")[2].partition("[")[0]
        if said := list(differences(record)):
            found.setdefault(name, []).extend(said)
    assert {name: said for name, said in found.items() if name not in ACCEPTED} == {}
    assert found.keys() == ACCEPTED.keys()
