"""Real decoders with a defect planted into them, and small ones made of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import onnx

from tests.grids import each
from tests.lint.cases import Case
from tests.lint.example import example_message

__all__ = ["FIRST_KEY", "FIRST_VALUE", "coded", "graph", "node", "planted", "written"]

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"
FIRST_KEY = "model/layers.0/self_attn/TensorScatter_node_12"
FIRST_VALUE = "model/layers.0/self_attn/TensorScatter_node_13"
Edit = Callable[[onnx.ModelProto], None]


def planted(edit: Edit, name: str = "native/llama_static.onnx") -> Callable[[], onnx.ModelProto]:
    """Return what makes the message of a real decoder with an edit."""

    def make() -> onnx.ModelProto:
        message = onnx.load(MODELS / name)
        edit(message)
        return message

    return make


def node(message: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """Return the node of the main graph that has this name."""
    return next(n for n in message.graph.node if n.name == name)


def graph(body: str, inputs: str, outputs: str, *, opset: int = 24, more: str = "") -> str:
    """Return a model in ONNX text."""
    return f"""
        <ir_version: 12, opset_import: ["": {opset}, "local": 1]>
        decoder ({inputs}) => ({outputs}) {{ {body} }}
        {more}
    """


def written(text: str) -> Callable[[], onnx.ModelProto]:
    """Return what makes the message of an example in protobuf text."""
    return lambda: example_message(text)


def coded(lines: dict[str, Iterable[Case]]) -> Any:
    """Hold all lines in one test, as `code` and `case`."""
    return each(
        ("code", "case"),
        {f"{code}: {case.name}": (code, case) for code, cases in lines.items() for case in cases},
    )
