"""The schemas of operators that onnx lacks, against what onnxruntime registers."""

from __future__ import annotations

import dataclasses
import re

import pytest

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.ops.contrib import OperatorName, contrib_facts, facts_of
from tests.grids import each
from tests.ops.contrib_schemas import PATH, registered, schema_line, text
from tests.runtime.kernels.contrib.node import RELEASE, needs_onnxruntime

WRITTEN = PATH.read_text(encoding="utf-8")
WRITTEN_FROM = tuple(map(int, re.findall(r"\d+", WRITTEN)[:2]))


@pytest.mark.long
@pytest.mark.skipif(RELEASE != WRITTEN_FROM, reason="the file is of another release")
def test_the_file_is_what_onnxruntime_registers() -> None:
    said = '"": "onnxruntime '
    assert text().partition(said)[2].splitlines()[1:] == WRITTEN.partition(said)[2].splitlines()[1:]


@pytest.mark.long
@needs_onnxruntime
@each("name", list(CONTRIB_RULES))
def test_a_release_adds_to_an_operator_and_changes_nothing(name: OperatorName) -> None:
    """onnxruntime adds inputs, attributes and types without a new version of the operator."""
    if name not in registered():
        assert RELEASE < WRITTEN_FROM, "it is gone"
        return
    ours, theirs = contrib_facts(*name), facts_of(name[1], schema_line(registered()[name]))
    assert ours is not None
    older, newer = (theirs, ours) if RELEASE < WRITTEN_FROM else (ours, theirs)
    for before, after in ((older.inputs, newer.inputs), (older.outputs, newer.outputs)):
        assert all(formal.optional for formal in after[len(before) :])
        for one, other in zip(before, after, strict=False):
            assert one.types <= other.types
            same = dataclasses.replace(other, types=one.types, type_parameter=one.type_parameter)
            assert one == same
    assert older.attributes.items() <= newer.attributes.items()
