"""ON613 to ON617: IR versions, opsets of functions, and what onnx's inference refuses."""

from __future__ import annotations

from tests.lint.cases import Case, cases, check_case

LOCAL = '<opset_import: ["": {}], domain: "local"> f (a) => (b) {{ {} }}'


def calling(ir: int, body: str = "[inner] b = Relu (a)", opset: int = 18, of: int = 18) -> str:
    return f"""
        <ir_version: {ir}, opset_import: ["": {opset}, "local": 1]>
        main (float[2, 5] x) => (float[2, 5] y) {{ [call] y = local.f (x) }}
        {LOCAL.format(of, body)}
    """


def plain(
    nodes: str,
    ir: int = 10,
    opset: int = 18,
    inputs: str = "float[2, 5] x",
    outputs: str = "float[2, 5] y",
    constants: str = "",
) -> str:
    return f"""
        <ir_version: {ir}, opset_import: ["": {opset}]>
        main ({inputs}) => ({outputs}) {constants} {{ {nodes} }}
    """


@cases(
    [
        Case(
            "a function at IR 7",
            calling(7),
            at=[""],
            says="is a function, which came with IR version 8; the model states IR version 7",
        ),
        Case(
            "an 8-bit float at IR 8",
            plain("y = Identity (x)", 8, 19, "float8e4m3fn[2, 5] x", "float8e4m3fn[2, 5] y"),
            at=["x"],
            says="`x` is of type float8e4m3fn, which came with IR version 9; the model states IR "
            "version 8",
        ),
        Case(
            "an 8-bit float inside",
            plain("[c] p = Cast <to: int = 17> (x)\n y = Cast <to: int = 1> (p)", 8, 19),
            at=["c"],
            says="`p` is of type float8e4m3fn",
        ),
        Case(
            "a 4-bit weight at IR 9",
            plain("y = Identity (x)", 9, 21, constants="<int4[2] w = {1, 2}>"),
            at=["w"],
            says="`w` is of type int4, which came with IR version 10",
        ),
        Case(
            "an initializer that is no input at IR 3",
            plain("y = Add (x, w)", 3, 7, constants="<float[5] w = {1, 2, 3, 4, 5}>"),
            at=["w"],
            says="initializer `w` of the graph: no input, as IR version 3 demands",
            severity="warning",
        ),
        Case(
            "many initializers of one graph are one finding",
            plain(
                "z = Add (x, w) y = Add (z, v)",
                3,
                7,
                constants="<float[5] w = {1, 2, 3, 4, 5}, float[5] v = {1, 2, 3, 4, 5}>",
            ),
            at=["w"],
            says="initializer `w` and 1 other of the graph",
        ),
        Case("a function at IR 8", calling(8)),
        Case(
            "an 8-bit float at IR 9",
            plain("y = Identity (x)", 9, 19, "float8e4m3fn[2] x", "float8e4m3fn[2] y"),
        ),
        Case(
            "an initializer at IR 4",
            plain("y = Add (x, w)", 4, 7, constants="<float[5] w = {1, 2, 3, 4, 5}>"),
        ),
        Case("old types", plain("y = Cast <to: int = 1> (x)", 4, 13, "bfloat16[2, 5] x")),
    ]
)
def test_ir_feature(case: Case) -> None:
    check_case("ON613", case)


@cases(
    [
        Case(
            "Softmax changed in between",
            calling(10, "[inner] b = Softmax (a)", 18, 12),
            at=["inner"],
            says="`Softmax` has version 11 at opset 12 of the function and version 13 at opset 18",
        ),
        Case(
            "the model does not have the operator",
            calling(10, "[inner] b = Gelu (a)", 18, 20),
            at=["inner"],
            says="version 20 at opset 20 of the function and no version at opset 18",
        ),
        Case(
            "each operator once",
            calling(10, "p = Softmax (a) \n b = Softmax (p)", 18, 12),
            at=["#0"],
        ),
        Case("the same opset", calling(10, "b = Softmax (a)", 18, 18)),
        Case("nothing changed in between", calling(10, "b = Softmax (a)", 18, 13)),
    ]
)
def test_function_opset(case: Case) -> None:
    check_case("ON614", case)


TWO_BRANCHES = """
    <ir_version: 10, opset_import: ["": 18]>
    main (bool flag, float[2, 5] x, float[3, 7] w) => (float[] y) {
        [branch] y = If (flag) <
            then_branch = one () => (float[] p) { p = MatMul (x, x) },
            else_branch = two () => (float[] q) { unused = Relu (x) p = MatMul (x, w) q = Relu (p) }
        >
    }
"""


@cases(
    [
        Case(
            "two matrices that do not fit",
            plain(
                "[m] y = MatMul (x, w)", inputs="float[2, 5] x, float[3, 7] w", outputs="float[] y"
            ),
            at=["m"],
            says="onnx's inference refuses `MatMul`: Incompatible dimensions for matrix "
            "multiplication (inputs `x` float32[2, 5], `w` float32[3, 7])",
        ),
        Case(
            "every node, those without a name too",
            plain(
                "p = MatMul (x, x)\n q = Relu (x)\n r = Concat <axis: int = 7> (x, x)"
                "\n y = Relu (x)"
            ),
            at=["#0", "#2"],
        ),
        Case("in both branches of an If", TWO_BRANCHES, at=["#0", "#1"]),
        Case(
            "in a function, once",
            calling(10, "p = MatMul (a, a)\n b = MatMul (p, p)"),
            at=["#0"],
        ),
        Case(
            "an output of the model that is declared otherwise",
            plain("[r] y = Relu (x)", outputs="float[2, 9] y"),
            at=["r"],
            says="differ in dimension 1: (5) vs (9)",
        ),
        Case(
            "an inner value that is declared otherwise",
            plain("[r] p = Relu (x)\n y = Relu (p)", constants="<float[9] p>", outputs="float[] y"),
            at=["r"],
            severity="info",
        ),
        Case(
            "two nodes of one name",
            plain("[n] p = MatMul (x, x)\n [n] q = Relu (x)\n [n] y = Softmax <axis: int = 4> (x)"),
            at=["n", "n"],
        ),
        Case(
            "names that may be equal",
            plain("y = MatMul (x, w)", inputs="float[2, a] x, float[b, 5] w"),
        ),
        Case(
            "TensorScatter has rules of its own",
            plain("y = TensorScatter <axis: int = 0> (x, x)", opset=24),
        ),
        Case("a node that is illegal anyway", plain("y = Concat (x, x)", outputs="float[] y")),
        Case("an operator of onnxruntime", plain("y = SimplifiedLayerNormalization (x, x)")),
        Case(
            "behind an operator that nobody knows",
            plain("p = Foo (x)\n q = my.Bar (x)\n [m] y = MatMul (x, x)"),
            at=["m"],
        ),
        Case("a domain without an import", plain("y = my.F (x)")),
        Case(
            "what stands beside a default that contradicts its input",
            plain(
                "p = Relu (w)\n [m] y = MatMul (x, v)",
                inputs="float[2, 5] x, float[3, 7] v, float[2] w",
                outputs="float[2, 7] y",
                constants="<float[3] w = {1, 2, 3}>",
            ),
            at=["m"],
        ),
        Case(
            "what stands beside a constant that is described wrongly",
            plain(
                "p = Relu (w)\n [m] y = MatMul (x, v)",
                inputs="float[2, 5] x, float[3, 7] v",
                outputs="float[2, 7] y",
                constants="<int64[9] w, float[3] w = {1, 2, 3}>",
            ),
            at=["m"],
        ),
        Case(
            "what reads a Constant that is described wrongly",
            plain(
                "c = Constant <value = int64[2] {5, 2}> ()\n y = Reshape (x, c)",
                outputs="float[5, 2] y",
                constants="<int64[5] c>",
            ),
        ),
        Case(
            "results that are described wrongly, and what reads them",
            plain(
                "[a] p = Relu (x)\n [b] q = Transpose (p)\n y = Neg (q)",
                outputs="float[5, 2] y",
                constants="<float[7, 7] p, float[1] q>",
            ),
            at=["a", "b"],
            severity="info",
        ),
        *(
            Case(
                f"a product at opset {opset}, said once",
                plain(
                    "[m] y = MatMul (x, w)",
                    opset=opset,
                    inputs="float[2, 3] x, float[5, 7] w",
                    outputs="float[2, 7] y",
                ),
                at=["m"],
            )
            for opset in (1, 6, 8, 9, 10, 11, 12, 13, 24)
        ),
    ]
)
def test_shape_conflict(case: Case) -> None:
    check_case("ON615", case)


@cases(
    [
        Case(
            "a reference in the main graph",
            plain("[n] y = LeakyRelu <alpha: float = @slope> (x)"),
            at=["n"],
            says="attribute `alpha` refers to the parameter `slope`, and stands in no function",
        ),
        Case(
            "a reference in a branch",
            plain(
                "y = If (c) <then_branch = t () => (float[2, 5] a) "
                "{ [n] a = LeakyRelu <alpha: float = @slope> (x) }, "
                "else_branch = e () => (float[2, 5] b) { b = Relu (x) }>",
                inputs="bool c, float[2, 5] x",
            ),
            at=["n"],
        ),
        Case(
            "a parameter that the function lacks",
            calling(8, "[n] b = LeakyRelu <alpha: float = @slope> (a)"),
            at=["n"],
            says="refers to the parameter `slope`, which the function does not have",
        ),
        Case(
            "a parameter of the function",
            calling(8, "[n] b = LeakyRelu <alpha: float = @slope> (a)").replace(
                "f (a)", "f <slope> (a)"
            ),
        ),
        Case("a value", plain("y = LeakyRelu <alpha: float = 0.1> (x)")),
    ]
)
def test_unbound_parameter(case: Case) -> None:
    check_case("ON617", case)
