"""ON616: shapes of scales and zero points."""

from __future__ import annotations

from tests.lint.cases import Case, cases, check_case


def dequantize(
    scale: str,
    attributes: str = "axis: int = 1, block_size: int = 2",
    zero: str = "",
    x: str = "4, 8",
) -> str:
    given = f", int8[{zero}] zero" if zero else ""
    named = ", zero" if zero else ""
    declared = f"float[{scale}]" if scale else "float"
    return f"""
        <ir_version: 10, opset_import: ["": 21]>
        main (int8[{x}] w, {declared} scale{given}) => (float[{x}] y) {{
            [node] y = DequantizeLinear <{attributes}> (w, scale{named})
        }}
    """


AXIS = "axis: int = 1"


@cases(
    [
        Case("as many as blocks", dequantize("4, 4"), at=[]),
        Case(
            "a last block that is shorter",
            dequantize("4, 3", "axis: int = 1, block_size: int = 3"),
            at=[],
        ),
        Case("a symbolic size", dequantize("n, 4", x="b, 8"), at=[]),
        Case("an unknown number of blocks", dequantize("4, n"), at=[]),
        Case(
            "one block in 1-D", dequantize("1", "axis: int = 0, block_size: int = 8", x="5"), at=[]
        ),
        Case("per axis", dequantize("8", AXIS), at=[]),
        Case("one number in 1-D", dequantize("1", AXIS), at=[]),
        Case("a zero point in 1-D for a scalar", dequantize("", AXIS, zero="1"), at=[]),
        Case(
            "too few blocks",
            dequantize("4, 3"),
            at=["node"],
            says="`scale` has shape (4, 3), expected (4, 4): blocks of 2 along axis 1 of `x` with "
            "shape (4, 8)",
        ),
        Case(
            "one number for all blocks",
            dequantize("1"),
            at=["node"],
            says="`scale` has shape (1,), expected (4, 4): blocks of 2 along axis 1",
        ),
        Case(
            "a scalar for all blocks",
            dequantize(""),
            at=["node"],
            says="has shape (), expected (4, 4)",
        ),
        Case(
            "another rank",
            dequantize("4, 4, 1"),
            at=["node"],
            says="has shape (4, 4, 1), expected (4, 4)",
        ),
        Case("blocks along another axis", dequantize("2, 8"), at=["node"], says="expected (4, 4)"),
        Case(
            "blocks without a size",
            dequantize("4, 4", AXIS),
            at=["node"],
            says="expected () or (8,)",
        ),
        Case(
            "per axis, another axis", dequantize("4", AXIS), at=["node"], says="expected () or (8,)"
        ),
        Case(
            "a zero point of another shape",
            dequantize("4, 4", zero="4, 2"),
            at=["node"],
            says="`zero` has shape (4, 2), expected (4, 4) as `scale`",
        ),
        Case(
            "a negative block size",
            dequantize("4, 4", "axis: int = 1, block_size: int = -2"),
            at=["node"],
            says="`block_size` is -2, expected a positive number",
        ),
    ]
)
def test_scale_shape(case: Case) -> None:
    check_case("ON616", case)
