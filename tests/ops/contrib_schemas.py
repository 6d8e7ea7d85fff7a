"""The schemas of operators of onnxruntime: `python -m tests.ops.contrib_schemas` writes them anew.

They are those that the installed onnxruntime registers. An operator with a rule has its schema; the
others are named, so that the page of the operators can say which have a kernel for CPUs.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import onnx
import onnx.defs
import onnx.helper
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from onnx_kvtool.contrib.table import CONTRIB_RULES
from onnx_kvtool.ops import contrib
from onnx_kvtool.ops.contrib import DOMAIN, OperatorName

__all__ = ["PATH", "registered", "schema_line", "text"]

PATH = Path(contrib.__file__).parent / contrib.DATA

_MARKS = {"Single": "", "Optional": "?", "Variadic": "*"}


@functools.cache
def registered() -> dict[OperatorName, Any]:
    """Return the schemas of version 1 that onnxruntime has and ONNX has not, but for layouts."""
    standard = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    standard.remove("LayerNormalization")  # of ONNX from opset 17 on
    return {
        (schema.domain, schema.name): schema
        for schema in state.get_all_operator_schema()
        if schema.since_version == 1
        and (schema.domain == DOMAIN or (schema.domain == "" and schema.name not in standard))
    }


def text() -> str:
    """Return the file for the installed release."""
    kernels = {(k.domain, k.op_name) for k in state.get_all_opkernel_def()}
    lines = [f'"": "onnxruntime {ort.__version__}"']
    for key, schema in sorted(registered().items()):
        line = {"cpu": key in kernels, **(schema_line(schema) if key in CONTRIB_RULES else {})}
        lines.append(f"{json.dumps('::'.join(filter(None, key)))}: {json.dumps(line)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def schema_line(schema: Any) -> dict[str, Any]:
    """Return a schema as the file has it; see `published`."""
    return {
        "inputs": [_formal(p) for p in schema.inputs],
        "outputs": [_formal(p) for p in schema.outputs],
        "types": {
            c.type_param_str: " ".join(sorted(c.allowed_type_strs)) for c in schema.type_constraints
        },
        "attributes": {name: _attribute(a) for name, a in sorted(schema.attributes.items())},
    }


def _formal(parameter: Any) -> str:
    assert parameter.isHomogeneous == (parameter.option.name != "Variadic"), parameter.name
    return f"{parameter.name}{_MARKS[parameter.option.name]}:{parameter.typeStr}"


def _attribute(attribute: Any) -> list[Any]:
    given = onnx.AttributeProto.FromString(attribute._default_value)
    if not given.name:
        return [attribute.type.name + ("!" if attribute.required else "")]
    value = onnx.helper.get_attribute_value(given)
    return [attribute.type.name, value.decode() if isinstance(value, bytes) else value]


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
