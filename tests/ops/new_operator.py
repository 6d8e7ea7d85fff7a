"""Two made-up operators, added to kvtool by their lines alone; then every command meets them.

A process of its own runs this: tables are made when their modules are imported, and the lines have
to stand in them before.

`Halve` is elementwise: a trait, a kernel, a lowering. `EveryOther` takes every other element of the
last axis: a trait, a shape rule and a kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper
from onnx.defs import OpSchema

NEWEST = onnx.defs.onnx_opset_version()

TYPES = ("T", ["tensor(float)"], "")


def schema(name: str) -> OpSchema:
    x, y = OpSchema.FormalParameter("X", "T"), OpSchema.FormalParameter("Y", "T")
    return OpSchema(name, "", NEWEST, inputs=[x], outputs=[y], type_constraints=[TYPES])


def halve(X: Any) -> Any:
    return X / np.float32(2)


def every_other(X: Any) -> Any:
    return X[..., ::2]


def lower_halve(view: Any, em: Any) -> Any:
    half = em.constant(np.array(0.5, np.float32))
    return em.op("Mul", view.required("X"), half)


def every_other_shape(site: Any) -> Sequence[Any]:
    from onnx_kvtool.symbolic.expressions import integer
    from onnx_kvtool.symbolic.simplification import Facts, divided

    *rest, last = site.shape(0)
    return ((*rest, divided(last + 1, integer(2), Facts())),)


def add_lines() -> None:
    """Add one line to each table that has to know the operators."""
    from onnx_kvtool.ops.trait_table import TRAITS
    from onnx_kvtool.ops.traits import Trait, Traits

    TRAITS._lines["", "Halve"] = Traits.of(Trait.ELEMENTWISE)
    TRAITS._lines["", "EveryOther"] = Traits.of(Trait.PART, Trait.KEEPS_AXES)

    from onnx_kvtool.runtime.kernels.elementwise import unary
    from onnx_kvtool.runtime.kernels.movement import slicing

    unary.LINES = {**unary.LINES, "Halve": {NEWEST: halve}}
    slicing.LINES = {**slicing.LINES, "EveryOther": {NEWEST: every_other}}

    from onnx_kvtool.symbolic.rules.table import OPERATOR_RULES, OperatorRules

    OPERATOR_RULES._lines["EveryOther"] = OperatorRules("EveryOther", every_other_shape)

    from onnx_kvtool.rewrite.lowering.table import LOWERINGS, Lowering

    LOWERINGS._lines["Halve"] = Lowering("halve", NEWEST, lower_halve)  # type: ignore[attr-defined]


def model(body: str, output: str) -> onnx.ModelProto:
    ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", NEWEST)])
    return onnx.parser.parse_model(f"""
        <ir_version: {ir_version}, opset_import: ["": {NEWEST}]>
        made_up (float[B, S, 7] x) => (float[B, S, {output}] y) {{ {body} }}
    """)


def main(directory: Path) -> None:
    for name in ("Halve", "EveryOther"):
        onnx.defs.register_schema(schema(name))
    add_lines()
    import onnx_kvtool
    from onnx_kvtool.verification.shrinking.relations import SIZE_RULES

    halving, other = directory / "halve.onnx", directory / "other.onnx"
    onnx.save(model("h = Halve (x) y = Relu (h)", "7"), halving)
    onnx.save(model("y = EveryOther (x)", "4"), other)
    x = np.arange(2 * 3 * 7, dtype=np.float32).reshape(2, 3, 7)

    for path in (halving, other):
        found = list(onnx_kvtool.check(path))
        assert found == [], found
        assert {"Halve", "EveryOther"} & onnx_kvtool.inspect(path).ops.keys()
        _, inferred = onnx_kvtool.infer(path)
        assert inferred.known_after == inferred.values, inferred
    feeds = {"x": x}
    assert onnx_kvtool.evaluate(halving, feeds)["y"].tobytes() == (x / 2).tobytes()
    assert onnx_kvtool.evaluate(other, feeds)["y"].tobytes() == x[..., ::2].tobytes()

    lowered, report = onnx_kvtool.lower(halving, opset=18)
    assert {node.op_type for node in lowered.graph} - {"Constant"} == {"Mul", "Relu"}
    assert report.verification.status == "equal", report.verification
    assert ("", "Halve") in SIZE_RULES, "a copy of smaller sizes knows it by its trait"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
