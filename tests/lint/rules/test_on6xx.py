"""ON601 to ON612: what the schema of an operator does not allow about a node."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.parser
import pytest

from tests.grids import each
from tests.lint.cases import Case, check_case


def model(
    nodes: str,
    opset: int = 18,
    inputs: str = "float[2, 5] x",
    outputs: str = "float[] y",
    imports: str = "",
    functions: str = "",
) -> str:
    return f"""
        <ir_version: 10, opset_import: ["": {opset}{imports}]>
        main ({inputs}) => ({outputs}) {{
            {nodes}
        }}
        {functions}
    """


FUNCTION = '<opset_import: ["": {}], domain: "local"> f (a) => (b) {{ [inner] b = {} (a) }}'


def in_function(operator: str, opset: int) -> str:
    return model(
        "y = local.f (x)",
        opset,
        imports=', "local": 1',
        functions=FUNCTION.format(opset, operator),
    )


def in_body(nodes: str) -> str:
    return model(
        f"""[branch] y = If (flag) <
            then_branch = one () => (float[2, 5] p) {{ {nodes} }},
            else_branch = two () => (float[2, 5] q) {{ q = Identity (x) }}
        >""",
        inputs="bool flag, float[2, 5] x",
    )


def changed(text: str, change: Callable[[onnx.NodeProto], object]) -> Callable[[], onnx.ModelProto]:
    """Return a maker of a model whose last node was changed to what ONNX text cannot say."""

    def make() -> onnx.ModelProto:
        message = onnx.parser.parse_model(text)
        change(message.graph.node[-1])
        return message

    return make


def empty_concat(node: onnx.NodeProto) -> None:
    del node.input[:]


FUSED = model(
    "[f] y = com.microsoft.FusedMatMul <NAME: int = 1> (x, x)", imports=', "com.microsoft": 1'
)


CASES: dict[str, list[Case]] = {
    "ON601": [
        Case(
            "Gelu at opset 18",
            model("[act] y = Gelu (x)"),
            at=["act"],
            says="`Gelu` came with opset 20 and is used at opset 18",
        ),
        Case(
            "a name that nobody knows",
            model("[act] y = Reluu (x)"),
            at=["act"],
            says="the default domain has no operator `Reluu` at any opset",
        ),
        Case(
            "every node is named",
            model("p = Gelu (x)\n q = Relu (p)\n y = Swish (q)"),
            at=["#0", "#2"],
        ),
        Case("in the body of an If", in_body("[inner] p = Gelu (x)"), at=["inner"]),
        Case("in a function", in_function("Gelu", 18), at=["inner"]),
        Case(
            "an operator that onnxruntime put there",
            model("[norm] y = SimplifiedLayerNormalization <axis: int = -1> (x, x)"),
            at=["norm"],
            says="`SimplifiedLayerNormalization` is no operator of ONNX at opset 18: onnxruntime's",
            severity="info",
        ),
        Case(
            "an operator of onnxruntime, which shall run it",
            model("[norm] y = SimplifiedLayerNormalization <axis: int = -1> (x, x)"),
            at=["norm"],
            severity="info",
            targets=["onnxruntime@1.22"],
        ),
        Case(
            "an operator of onnxruntime for another runtime",
            model("[norm] y = SimplifiedLayerNormalization <axis: int = -1> (x, x)"),
            at=["norm"],
            says="onnxruntime alone runs it; tensorrt 11.0 does not run it",
            severity="error",
            targets=["onnxruntime", "tensorrt"],
        ),
        Case(
            "LayerNormalization before opset 17",
            model("[a] p = LayerNormalization (x, x)\n [b] y = LayerNormalization (p, p)", 15),
            at=["a"],
            says="(1 more node)",
            severity="info",
        ),
        Case("Gelu at opset 20", model("[act] y = Gelu (x)", 20)),
        Case("LayerNormalization at opset 17", model("y = LayerNormalization (x, x)", 17)),
        Case("another domain", model("y = com.microsoft.Gelu (x)", imports=', "com.microsoft": 1')),
        Case("a domain that nobody knows", model("y = my.Own (x)", imports=', "my": 3')),
        Case("the call of a function", in_function("Relu", 18)),
        Case(
            "TensorScatter is for another rule",
            model("y = TensorScatter <axis: int = 1> (x, x)"),
        ),
        Case("a deprecated operator is for another rule", model("y = Upsample (x, x)", 10)),
    ],
    "ON602": [
        Case(
            "reduction before it came",
            model(
                '[cache] y = ScatterND <reduction: string = "none"> (x, i, x)',
                13,
                "float[2, 5] x, int64[2, 1] i",
            ),
            at=["cache"],
            says="`ScatterND` has no attribute `reduction` at opset 13; it came with opset 16",
        ),
        Case(
            "misspelt",
            model("[s] y = Softmax <axes: int = 1> (x)"),
            at=["s"],
            says="`Softmax` has no attribute `axes` at opset 18",
        ),
        Case(
            "two in one node",
            model("[s] y = Softmax <axes: int = 1, keep: int = 1> (x)"),
            at=["s", "s"],
        ),
        Case(
            "one that became an input", model("y = Squeeze <axes: ints = [0]> (x)", 13), at=["#0"]
        ),
        Case("one that it has", model("y = Softmax <axis: int = 1> (x)")),
        Case("one that is an attribute still", model("y = Squeeze <axes: ints = [0]> (x)", 12)),
        Case("a private note", model("y = Relu <__mark: int = 1> (x)")),
        Case("another domain", model("y = my.Relu <any: int = 1> (x)", imports=', "my": 1')),
        Case(
            "one that an operator of onnxruntime does not have",
            FUSED.replace("NAME", "transpose"),
            at=["f"],
            says="`FusedMatMul` of `com.microsoft` has no attribute `transpose`",
            severity="warning",
        ),
        Case(
            "the same where onnxruntime has to load it",
            FUSED.replace("NAME", "transpose"),
            at=["f"],
            severity="error",
            targets=["onnxruntime"],
        ),
        Case("one that an operator of onnxruntime has", FUSED.replace("NAME", "transA")),
        Case(
            "an attribute of the function around",
            model(
                "y = local.f <k: int = 1> (x)",
                imports=', "local": 1',
                functions='<opset_import: ["": 18], domain: "local"> f <k> (a) => (b) '
                "{ b = Softmax <axis: int = @k> (a) }",
            ),
        ),
    ],
    "ON603": [
        Case(
            "a float for an integer",
            model("[s] y = Softmax <axis: float = 1.0> (x)"),
            at=["s"],
            says="attribute `axis` is of type FLOAT, expected INT",
        ),
        Case(
            "one integer for a list",
            model("[t] y = Transpose <perm: int = 1> (x)"),
            at=["t"],
            says="is of type INT, expected INTS",
        ),
        Case("an integer", model("y = Softmax <axis: int = 1> (x)")),
        Case("an unknown attribute is for another rule", model("y = Relu <z: float = 1.0> (x)")),
    ],
    "ON604": [
        Case(
            "a perm with a place twice, of an input without a shape",
            model("[t] y = Transpose <perm: ints = [0, 2, -7]> (x)", inputs="float[] x"),
            at=["t"],
            says="attribute `perm` is [0, 2, -7], expected each of 0 to 2 once",
        ),
        Case(
            "an axis that the input does not have",
            model("[n] y = LayerNormalization <axis: int = 99> (x, x)"),
            at=["n"],
            says="axis 99 is out of range: `x` has rank 2, expected -2 to 1",
        ),
        *(
            Case(
                f"an equation that no operands fit: {equation}",
                model(
                    f"a = Reshape (x, s) b = Reshape (x, s) [e] y = Einsum <equation: string = "
                    f'"{equation}"> (a, b)',
                    inputs="float[2, 5] x, int64[n] s",
                ),
                at=["e"],
                says=says,
            )
            for equation, says in (
                ("ij", "has 1 term, expected 2"),
                ("i.j,jk->ik", "has the term `i.j`, expected letters and at most one `...`"),
                ("......,jk", "has the term `......`"),
                ("i1,jk->ik", "has the term `i1`"),
                ("ij,jk->ik->k", "has the term `ik->k`"),
                ("ij,jk->iz", "the output of the equation `ij,jk->iz` has `z` that no operand has"),
                ("ij,jk->ii", "has `i` twice"),
            )
        ),
        *(
            Case(
                f"an equation that operands fit: {equation}",
                model(f'y = Einsum <equation: string = "{equation}"> (x, x)'),
            )
            for equation in ("i j, kj -> ik", "ij,ij->", "...,...", "ij,kj->...ik", "ij,...ij")
        ),
        Case(
            "one of several axes",
            model("[n] y = MeanVarianceNormalization <axes: ints = [0, -3]> (x)"),
            at=["n"],
        ),
        Case(
            "the axis of a scale for each channel",
            model(
                "y = Relu (x) [q] z = QuantizeLinear <axis: int = 2> (x, s)",
                inputs="float[2, 5] x, float[5] s",
            ),
            at=["q"],
        ),
        Case(
            "the axis of one scale counts nothing",
            model(
                "y = Relu (x) z = QuantizeLinear <axis: int = 2> (x, s)",
                inputs="float[2, 5] x, float s",
            ),
        ),
        Case(
            "an axis of an input of unknown rank",
            model("y = LayerNormalization <axis: int = 99> (x, x)", inputs="float[] x"),
        ),
        Case(
            "max before it came",
            model(
                '[cache] y = ScatterND <reduction: string = "max"> (x, i, x)',
                16,
                "float[2, 5] x, int64[2, 1] i",
            ),
            at=["cache"],
            says="`reduction=max` does not exist before opset 18, the node stands at opset 16",
        ),
        Case(
            "a reduction that nobody knows",
            model(
                '[cache] y = ScatterND <reduction: string = "mean"> (x, i, x)',
                18,
                "float[2, 5] x, int64[2, 1] i",
            ),
            at=["cache"],
            says="`reduction` is `mean`, expected one of `add`, `max`, `min`, `mul`, `none`",
        ),
        Case("in lower case", model('[c] y = Conv <auto_pad: string = "valid"> (x, x)'), at=["c"]),
        Case("another word", model('y = Gelu <approximate: string = "erf"> (x)', 20), at=["#0"]),
        Case(
            "no type", model("[c] y = Cast <to: int = 99> (x)"), at=["c"], says="is 99, which is no"
        ),
        Case(
            "a type that came later",
            model("[c] y = Cast <to: int = 17> (x)"),
            at=["c"],
            says="`to` is 17 (FLOAT8E4M3FN), a type that `Cast` does not give at opset 18",
        ),
        Case("a type that is there", model("y = Cast <to: int = 17> (x)", 19)),
        Case(
            "the type of a window",
            model("[c] y = HannWindow <output_datatype: int = 9> (n)", 18, "int64 n"),
            at=["c"],
            says="`output_datatype` is 9 (BOOL), a type that `HannWindow` does not give",
        ),
        Case("bits of no type", model("[c] y = BitCast <to: int = 99> (x)", 26), at=["c"]),
        Case("known words", model('y = Gelu <approximate: string = "tanh"> (x)', 20)),
        Case(
            "a mode is for another rule", model('y = TensorScatter <mode: string = "m"> (x, x)', 24)
        ),
        Case("free text", model('y = Einsum <equation: string = "ij->ji"> (x)')),
    ],
    "ON605": [
        Case(
            "an input of a later opset",
            model("[c] y = Clip (x, x)", 10),
            at=["c"],
            says="2 inputs, `Clip` takes at most 1 at opset 10",
        ),
        Case(
            "four inputs of a TensorScatter",
            model("[c] y = TensorScatter <axis: int = 1> (x, x, x, x)", 24),
            at=["c"],
            says="4 inputs, `TensorScatter` takes at most 3",
        ),
        Case("two results", model("[r] y, z = Relu (x)"), at=["r"], says="2 outputs, `Relu` has 1"),
        Case(
            "a sum of nothing",
            changed(model("[s] y = Sum (x)"), empty_concat),
            at=["s"],
            says="`Sum` has 0 inputs, expected at least 1",
        ),
        Case("a sum of one", model("y = Sum (x)")),
        Case("many", model("y = Concat <axis: int = 0> (x, x, x, x, x)")),
        Case("a later opset", model("y = Clip (x)", 11)),
        Case("too few are for another rule", model("y = Add (x)")),
    ],
    "ON606": [
        Case(
            "an empty name",
            model('[a] y = Add (x, "")'),
            at=["a"],
            says="input 1, `B`, of `Add` is required and has an empty name",
        ),
        Case(
            "too few",
            model("[a] y = Add (x)"),
            at=["a"],
            says="input 1, `B`, of `Add` is required and absent: the node has 1 input",
        ),
        Case("both", changed(model("[a] y = Add (x, x)"), empty_concat), at=["a", "a"]),
        Case(
            "the update of a TensorScatter",
            model(
                '[c] y = TensorScatter <axis: int = 1> (x, "", i)', 24, "float[2, 5] x, int64[2] i"
            ),
            at=["c"],
            says="input 1, `update`",
        ),
        Case(
            "one of a list of inputs",
            model('[m] y = Min (x, "", x)'),
            at=["m"],
            says="input 1, one of `data_0`, of `Min` has an empty name",
        ),
        Case("an optional input", model('y = Clip (x, "", m)', 18, "float[2, 5] x, float m")),
        Case("starts are optional", model('y = TensorScatter <axis: int = 1> (x, x, "")', 24)),
        Case("another domain", model('y = my.Add (x, "")', imports=', "my": 1')),
    ],
    "ON607": [
        Case(
            "int32 indices",
            model("[c] y = ScatterND (x, i, x)", 18, "float[2, 5] x, int32[2, 1] i"),
            at=["c"],
            says="input `i` is tensor(int32), which `ScatterND` does not take at opset 18",
        ),
        Case(
            "strings", model("[a] y = Add (x, x)", 18, "string[2] x", "string[2] y"), at=["a", "a"]
        ),
        Case("an inferred type", model("p = Shape (x)\n [e] y = Exp (p)"), at=["e"], says="`p` is"),
        Case("bfloat16 too early", model("y = Add (x, x)", 12, "bfloat16[2] x"), at=["#0"]),
        Case("bfloat16", model("y = Add (x, x)", 13, "bfloat16[2] x", "bfloat16[2] y")),
        Case(
            "starts are for another rule",
            model("y = TensorScatter <axis: int = 1> (x, x, i)", 24, "float[2, 5] x, int32[2] i"),
        ),
        Case(
            "data of scatters are for another rule",
            model(
                "y = ScatterND (x, i, x)", 11, "bfloat16[2, 5] x, int64[2, 1] i", "bfloat16[2, 5] y"
            ),
        ),
        Case("inside a function types are unknown", in_function("Exp", 18)),
    ],
    "ON608": [
        Case(
            "a domain without an import",
            model("[a] p = my.F (x)\n [b] y = my.G (p)"),
            at=["a"],
            says="the model imports no version of the domain `my` of the operator (1 more node)",
        ),
        Case(
            "two domains",
            model("[a] p = my.F (x)\n [b] y = your.G (p)"),
            at=["a", "b"],
        ),
        Case(
            "a function without an import",
            model(
                "y = local.f (x)",
                imports=', "local": 1, "my": 1',
                functions=FUNCTION.format(18, "my.F"),
            ),
            at=["inner"],
            says="the function imports no version of the domain `my`",
        ),
        Case("imported", model("y = my.F (x)", imports=', "my": 1')),
        Case(
            "the default domain in its long form",
            model("y = Relu (x)").replace('"": 18', '"ai.onnx": 18'),
        ),
    ],
    "ON609": [
        Case(
            "Scatter at opset 11",
            model("[c] y = Scatter (x, i, x)", 11, "float[2, 5] x, int64[2, 5] i"),
            at=["c"],
            says="`Scatter` was removed in opset 11 and is used at opset 11",
        ),
        Case(
            "Upsample at opset 18",
            model("[u] y = Upsample (x, x)"),
            at=["u"],
            says="removed in opset 10",
        ),
        Case("Upsample at opset 9", model("y = Upsample (x, s)", 9, "float[2, 5] x, float[2] s")),
    ],
    "ON610": [
        Case(
            "Concat without an axis",
            model("[c] y = Concat (x, x)"),
            at=["c"],
            says="attribute `axis` of `Concat` is required at opset 18 and missing",
        ),
        Case("Cast without a type", model("[c] y = Cast (x)"), at=["c"], says="`to`"),
        Case("with an axis", model("y = Concat <axis: int = 0> (x, x)")),
        Case("an axis that has a default", model("y = Softmax (x)")),
    ],
    "ON611": [
        Case(
            "a float and a half",
            model("[a] y = Add (x, h)", 18, "float[2, 5] x, float16[2, 5] h"),
            at=["a"],
            says="input `h` is tensor(float16), but `x` is tensor(float): `Add` wants one type T",
        ),
        Case(
            "a result that is declared otherwise",
            model("[r] y = Relu (x)", outputs="float16[2, 5] y"),
            at=["r"],
            says="output `y` is tensor(float16)",
        ),
        Case(
            "a Concat of two types",
            model("[c] y = Concat <axis: int = 0> (x, x, h)", 18, "float[2, 5] x, float16[2, 5] h"),
            at=["c"],
        ),
        Case(
            "data and updates",
            model(
                "[c] y = ScatterND (x, i, h)", 18, "float[2, 5] x, float16[2, 5] h, int64[2, 1] i"
            ),
            at=["c"],
        ),
        Case(
            "parameters of two types", model("y = Gather (x, i)", 18, "float[2, 5] x, int64[2] i")
        ),
        Case(
            "a Loop carries values of any types",
            model(
                """y, z = Loop (m, c, x, k) <body = b (int64 i, bool go, float[2, 5] p, int64 q)
                => (bool on, float[2, 5] r, int64 s) {
                on = Identity (go)
                r = Identity (p)
                s = Identity (q)
            }>""",
                18,
                "int64 m, bool c, float[2, 5] x, int64 k",
                "float[2, 5] y, int64 z",
            ),
        ),
        Case(
            "TensorScatter is for another rule",
            model("y = TensorScatter <axis: int = 1> (x, h)", 24, "float[2, 5] x, float16[2, 1] h"),
        ),
        Case("unknown types", in_function("Relu", 18)),
    ],
    "ON612": [
        Case(
            "the values of a TopK",
            model('[t] "", y = TopK (x, k)', 18, "float[2, 5] x, int64[1] k", "int64[] y"),
            at=["t"],
            says="output `Values` of `TopK` is not optional and has no name",
        ),
        Case(
            "the result of a Dropout beside its mask",
            model('[d] "", y = Dropout (x)', outputs="bool[2, 5] y"),
            at=["d"],
        ),
        Case(
            "the mean of a normalisation",
            model('y, "", d = LayerNormalization (x, x)', 17, outputs="float[] y, float[] d"),
        ),
    ],
}


@each(
    ("code", "case"),
    [pytest.param(code, case, id=f"{code} {case.name}") for code in CASES for case in CASES[code]],
)
def test_use_of_operators(code: str, case: Case) -> None:
    check_case(code, case)
