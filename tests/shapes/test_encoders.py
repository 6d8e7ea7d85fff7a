"""Encoders: what is known of models without caches, whose sizes go through windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_kvtool.core.model import read
from onnx_kvtool.shapes.everything import infer_everything

ENCODERS = Path(__file__).resolve().parent.parent.parent / "fixtures" / "encoders"
UNKNOWN = {"swin": 64}
"""How many values stay unknown: swin reads pads out of a table that it reverses."""


@pytest.mark.parametrize("path", sorted(ENCODERS.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_value_of_an_encoder_is_known(path: Path) -> None:
    report = infer_everything(read(path)).report
    assert len(report.unknown) <= UNKNOWN.get(path.stem, 0)
    assert report.conflicts == ()
