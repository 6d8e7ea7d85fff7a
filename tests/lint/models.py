"""Small models for what stands around the rules."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

__all__ = ["BAD_MODE", "CLEAN", "POINTER", "save", "scatter"]


def scatter(attributes: str, header: str = "", node: str = "[cache]") -> str:
    """Return a decoder of one TensorScatter, whose node is called `cache`."""
    return f"""
        <ir_version: 12, opset_import: ["": 24]{header}>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {{
            {node} present = TensorScatter <{attributes}> (past, update, start)
        }}
    """


CLEAN = scatter('mode: string = "linear"')
BAD_MODE = scatter('mode: string = "ring"')
"""KV003 at node `cache`."""

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
"""A file that is no model."""


def save(text: str, path: Path) -> Path:
    """Write a model in ONNX text as a file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(text), path)
    return path
