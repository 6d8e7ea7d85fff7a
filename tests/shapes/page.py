"""The page that compares what three inferences know of each model."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime

from tests.shapes.comparison import counts

__all__ = ["MODELS", "page", "rows"]

MODELS = Path(__file__).resolve().parent.parent.parent / "fixtures" / "models"


def rows(folder: Path) -> list[str]:
    """Return one row of the table for each model in a folder and those below."""
    found = []
    for path in sorted(folder.rglob("*.onnx")):
        count = counts(path)
        cells = [count.declared, *(count.by[name] for name in ("onnx", "symbolic", "kvtool"))]
        text = " | ".join("fails" if n is None else str(n) for n in cells)
        found.append(f"| {path.relative_to(folder).with_suffix('')} | {count.values} | {text} |")
    return found


def page(folder: Path) -> str:
    """Return the text of `docs/inference.md`."""
    return _HEAD.format(
        onnx=onnx.__version__,
        onnxruntime=onnxruntime.__version__,
        rows="\n".join(rows(folder)),
    )


_HEAD = """# Inference compared

How many values of a model are fully known: those with an element type, and with sizes that are
numbers or expressions over names that inputs of the model declare. A name that a tool made up does
not count. Values are the inputs of the model and the outputs of nodes, those of bodies included;
initializers are left out.

`declared` is what the file says by itself, `onnx` is `onnx.shape_inference` with data propagation,
`symbolic` is onnxruntime's `symbolic_shape_infer` with its defaults, and `kvtool` is the model that
[`kvtool infer -o`](commands/infer.md) writes. `fails` is an exception. The models are decoders and
cache updates as exporters write them; their folder says which exporter.

`python -m tests.shapes` writes this page; it was written with onnx {onnx} and onnxruntime
{onnxruntime}.

| model | values | declared | onnx | symbolic | kvtool |
| --- | --- | --- | --- | --- | --- |
{rows}

What stays unknown depends on the elements of an input, or on which of two names is 1; the reason is
in the report of `kvtool infer`. Every known shape of the models with recorded inputs has been
compared with the values of a run, and those of the single-operator cases of onnx with the recorded
outputs.
"""
