"""KV001 axis-is-batch."""

from __future__ import annotations

from tests.lint.cases import Case, cases, check_case


def scatter(attributes: str, shape: str = "[2, 3, 7, 5]") -> str:
    update = shape.replace("7", "1")
    return f"""
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float{shape} past, float{update} update, int64[2] start) => (float[] present) {{
            [cache] present = TensorScatter <{attributes}> (past, update, start)
        }}
    """


@cases(
    [
        Case(
            "axis 0 is the batch",
            scatter("axis: int = 0"),
            at=["cache"],
            says="`axis` is 0, which is the batch dimension of a cache of rank 4",
        ),
        Case(
            "axis -4 of a cache of rank 4 is the batch",
            scatter("axis: int = -4"),
            at=["cache"],
            says="`axis` is -4",
        ),
        Case(
            "axis 0 is the batch whatever the rank",
            scatter("axis: int = 0", shape="[]"),
            at=["cache"],
        ),
        Case("an unknown rank leaves axis -2 alone", scatter("axis: int = -2", shape="[]")),
        Case("the default axis is the last but one", scatter('mode: string = "linear"')),
        Case("the last axis is no batch", scatter("axis: int = 3")),
        Case("an axis outside the rank is for another rule", scatter("axis: int = -5")),
    ]
)
def test_axis_is_batch(case: Case) -> None:
    check_case("KV001", case)
