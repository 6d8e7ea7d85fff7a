"""Decoders of true dimensions: sizes are fixed without their weights, in time linear in nodes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.real_models import CONFIGURATIONS, DATA, tiny, write
from onnx_kvtool.commands.lower import lower
from tests.rewrite.fixing.test_fixtures import assert_static

pytestmark = pytest.mark.slow

_DIMS = {"batch": 1, "sequence_len": 1}


def _lowered_without_weights(path: Path) -> None:
    model, report = lower(path, opset=18, dims=_DIMS, static=True, verify=False)
    assert_static(model)
    assert not report.refused


def test_a_decoder_of_a_billion_parameters_is_static_without_its_weights(tmp_path: Path) -> None:
    path = write(CONFIGURATIONS["llama-1b-fp16"], tmp_path, sparse=True)
    (tmp_path / DATA).unlink()
    _lowered_without_weights(Path(path))


def test_the_work_is_linear_in_layers(tmp_path: Path) -> None:
    """Calls are counted, since time depends on what else the machine does."""
    calls = []
    for layers in (2, 6, 10, 14):
        folder = tmp_path / str(layers)
        path = write(replace(tiny(CONFIGURATIONS["llama-1b-fp16"]), layers=layers), folder)
        count = 0

        def profile(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(profile)
        try:
            _lowered_without_weights(Path(path))
        finally:
            sys.setprofile(None)
        calls.append(count)
    # The first one fills what is remembered for all.
    assert calls[3] - calls[2] < 1.1 * (calls[2] - calls[1])
