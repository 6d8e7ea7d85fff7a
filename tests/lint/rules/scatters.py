"""Models of one TensorScatter, for the cases of its rules."""

from __future__ import annotations

__all__ = ["tensor_scatter"]


def tensor_scatter(
    past: str = "float[2, 3, 7, 5]",
    update: str = "float[2, 3, 1, 5]",
    start: str | None = "int64[2]",
    attributes: str = "axis: int = 2",
    *,
    present: str | None = None,
    before: str = "",
    inputs: str = "",
    initializers: str = "",
    opset: int = 24,
) -> str:
    """Return a model in ONNX text whose node `cache` writes `update` into `past`.

    Args:
        past: Type of `past_cache`.
        update: Type of the update.
        start: Type of the input `start`; None where `before` or `initializers` define `start`.
        attributes: Attributes of the node.
        present: Type of the result; None for that of the past.
        before: Nodes before it.
        inputs: Further inputs of the model.
        initializers: What stands between the angle brackets of the graph.
        opset: Version of the default domain.
    """
    given = [f"{past} past", f"{update} update"]
    given += [] if start is None else [f"{start} start"]
    given += [inputs] if inputs else []
    constants = f"<{initializers}>" if initializers else ""
    return f"""
        <ir_version: 10, opset_import: ["": {opset}]>
        decoder ({", ".join(given)}) => ({present or past} present) {constants} {{
            {before}
            [cache] present = TensorScatter <{attributes}> (past, update, start)
        }}
    """
