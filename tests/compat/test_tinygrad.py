"""tinygrad computes the forms that `--target` gives it, which it spoils as they are in the source.

Run it with `pytest -m compat`. Each kernel is compiled when it is first run: all models of a few
nodes run in one process, and a decoder is asked for one step.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.target import find_target
from tests.compat.decoders import allowed, comparing
from tests.compat.environments import RuntimeFailed, run_several
from tests.compat.forms import forms
from tests.targets.tinygrad_cases import CASES, HEAD, expected_of, feeds_of

pytestmark = pytest.mark.compat

_RIGHT_ALREADY = {"an unknown size"}
"""A case that is right with the sizes of this run, and refused for others."""


def test_what_a_limit_strikes_is_wrong_before_and_right_after(tmp_path: Path) -> None:
    release = find_target("tinygrad").release
    models, wanted, names = [], [], []
    for number, (limit, words, opset, text, _) in enumerate(CASES):
        source = onnx.parser.parse_model(HEAD.format(opset) + text)
        feeds = feeds_of(source)
        expected = expected_of(source, text, opset, feeds)
        forms = {"as it is": source.SerializeToString()}
        with suppress(Refused):
            forms["lowered"] = serialize(kv.lower(source, target="tinygrad", verify=False)[0])
        for form, content in forms.items():
            path = tmp_path / f"{number}-{form}.onnx"
            path.write_bytes(content)
            models.append((path, feeds))
            wanted.append(expected)
            names.append((limit, words, form))
    found = run_several("tinygrad", release.version, models)
    surprises = [
        name
        for name, actual, expected in zip(names, found, wanted, strict=True)
        if _equal(actual, expected) != (name[2] == "lowered" or name[1] in _RIGHT_ALREADY)
    ]
    assert surprises == []


def _equal(actual: list[np.ndarray] | RuntimeFailed, expected: list[np.ndarray]) -> bool:
    if isinstance(actual, RuntimeFailed):
        return False
    return all(
        (a.shape, a.dtype) == (e.shape, e.dtype)
        and np.allclose(a, e, *((1e-5, 1e-5) if e.dtype.kind == "f" else (0, 0)))
        for a, e in zip(actual, expected, strict=True)
    )


DECODERS = [
    ("llama, Raised from optimum", "prompt", 2),
    ("llama fp16, Native", "step", 2),
    ("bloom, Raised from optimum", "prompt", 2),
    ("t5, Raised from optimum", "step", 2),
]
"""A decoder, and the step and the number of sequences that it is asked for."""


@pytest.mark.parametrize(("decoder", "step", "batch"), DECODERS)
def test_a_decoder_lowered_for_tinygrad_answers_as_its_source(
    decoder: str, step: str, batch: int, tmp_path: Path
) -> None:
    release = find_target("tinygrad").release
    (form,) = forms(decoder, f"tinygrad@{release.version}", tmp_path)
    (fed,) = [fed for one, size, fed in form.runs if (one, size) == (step, batch)]
    with comparing("tinygrad", release.version, form.path) as apart:
        assert apart(fed) <= allowed(decoder)
