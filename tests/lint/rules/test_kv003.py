"""KV003 bad-mode."""

from __future__ import annotations

from tests.lint.cases import Case, cases, check_case


def scatter(mode: str) -> str:
    return f"""
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update, int64[2] start)
            => (float[2, 3, 7, 5] present) {{
            present = TensorScatter <mode: string = "{mode}"> (past, update, start)
        }}
    """


BRANCHES = """
    <ir_version: 10, opset_import: ["": 24]>
    decoder (bool full, float[2, 3, 7, 5] past, float[2, 3, 1, 5] update) => (float[] present) {
        [choice] present = If (full) <
            then_branch = wrapped () => (float there) {
                [inner] there = TensorScatter <mode: string = "wrap"> (past, update)
            },
            else_branch = plain () => (float here) {
                [fine] here = TensorScatter <mode: string = "linear"> (past, update)
            }
        >
    }
"""


@cases(
    [
        Case(
            "another word is no mode",
            scatter("ring"),
            at=["#0"],
            says="`mode` is `ring`, expected `linear` or `circular`",
        ),
        Case("an empty word is no mode", scatter(""), at=["#0"]),
        Case("modes are written in lower case", scatter("Linear"), at=["#0"]),
        Case("linear is a mode", scatter("linear")),
        Case("circular is a mode", scatter("circular")),
        Case("a node in a branch is found there", BRANCHES, at=["inner"]),
    ]
)
def test_bad_mode(case: Case) -> None:
    check_case("KV003", case)
