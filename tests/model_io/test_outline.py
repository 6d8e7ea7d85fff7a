"""The names in a file are those that onnx reads, and a file that is none has none."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnx_kvtool.model_io.wire import Outline, outline
from tests.grids import each

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"


@each("path", sorted(MODELS.rglob("*.onnx"))[::7])
def test_names_are_those_that_onnx_reads(path: Path) -> None:
    graph = onnx.load(path, load_external_data=False).graph
    found = outline(str(path))
    assert found.inputs == [value.name for value in graph.input]
    assert found.nodes == [node.name for node in graph.node if node.name]
    made = [name for node in graph.node for name in node.output if name]
    assert found.values == [*found.inputs, *made]
    dims = {d.dim_param for v in graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
    assert {dim for dim in dims if dim.isidentifier()} <= set(found.dims)
    assert len(set(found.dims)) == len(found.dims)


@pytest.mark.parametrize("content", [b"", b"text, and no model", b"\x3a\xff\xff\xff\xff\x0f"])
def test_what_is_no_model_has_no_names(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert outline(str(path)) == outline(str(tmp_path)) == outline("missing") == Outline()


def test_a_truncated_model_has_the_names_up_to_there(tmp_path: Path) -> None:
    """The graph is one field, so that nothing of it is read unless all of it is there."""
    whole = (MODELS / "native" / "llama_static.onnx").read_bytes()
    (tmp_path / "m.onnx").write_bytes(whole[: len(whole) // 2])
    assert outline(str(tmp_path / "m.onnx")) == Outline()
