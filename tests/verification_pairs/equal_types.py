"""Pairs that are equal but for rounding: other types, deep networks, sums in another order."""

from __future__ import annotations

from tests.verification_pairs.pair import Pair, drawn, one, pair

__all__ = ["EQUAL_ROUNDED", "EQUAL_TYPES"]


def _typed(name: str, kind: str, body: str, made: str = "", opset: int = 18, **own: object) -> Pair:
    """Return a pair of models of (N, 8); `T` in the body stands for the type."""
    text = one(f"{kind}[N,8]", body.replace("#T", f"#{kind}"), f"{kind}{made or '[N,8]'}")
    return pair(name, text, opset=opset, x=drawn(3, 8), **own)


_NORM = (
    "f = Cast <to = 1> (x) q = Mul (f, f) m = ReduceMean (q, #int64[1]{-1}) "
    "e = Add (m, #float{1e-5}) r = Sqrt (e) n = Div (f, r)"
)
_SOFTMAX = (
    "m = ReduceMax (x, #int64[1]{-1}) d = Sub (x, m) e = Exp (d) "
    "s = ReduceSum (e, #int64[1]{-1}) y = Div (e, s)"
)

EQUAL_TYPES: list[Pair] = [
    _typed("a Gemm of float16 in parts", "float16", "[[y = Gemm (x, #T[8,5]~1, #T[5]~2)|"
        "a = MatMul (x, #T[8,5]~1) y = Add (a, #T[5]~2)]]", "[N,5]"),
    _typed("doubled float16", "float16", "y = [[Add (x, x)|Mul (x, #T{2})]]"),
    _typed("a swish of float16 in parts", "float16", "[[s = Sigmoid (x) y = Mul (x, s)|"
        "n = Neg (x) e = Exp (n) d = Add (e, #T{1}) y = Div (x, d)]]", apart=1e-2),
    _typed("a softmax of float16 in parts", "float16", f"[[y = Softmax (x)|{_SOFTMAX}]]",
        apart=1e-2),
    _typed("a product of float16 in float32", "float16", "[[y = MatMul (x, #T[8,5]~1)|"
        "f = Cast <to = 1> (x) w = Cast <to = 1> (#T[8,5]~1) a = MatMul (f, w) "
        "y = Cast <to = 10> (a)]]", "[N,5]", apart=1e-2),
    _typed("an RMSNormalization of float16 in float32", "float16",
        f"[[y = RMSNormalization (x, #T[8]~1)|{_NORM} o = Cast <to = 10> (n) "
            f"y = Mul (o, #T[8]~1)]]",
        opset=23, apart=1e-2),
    _typed("a Relu of bfloat16", "bfloat16", "y = [[Relu (x)|Max (x, #T{0})]]",
        runtime="reference"),
    _typed("a product of bfloat16 in float32", "bfloat16", "[[y = MatMul (x, #T[8,5]~1)|"
        "f = Cast <to = 1> (x) w = Cast <to = 1> (#T[8,5]~1) a = MatMul (f, w) "
        "y = Cast <to = 16> (a)]]", "[N,5]", runtime="reference", apart=2e-2),
    _typed("a product of double", "double", "[[y = Gemm (x, #T[8,5]~1, #T[5]~2)|"
        "a = MatMul (x, #T[8,5]~1) y = Add (a, #T[5]~2)]]", "[N,5]"),
    _typed("a softmax of double in parts", "double", f"[[y = Softmax (x)|{_SOFTMAX}]]"),
    _typed("an exponential of double", "double", "[[y = Exp (x)|a = Div (x, #T{2}) e = Exp (a) "
        "y = Mul (e, e)]]"),
    pair("a quantised product in parts", "(uint8[N,4] x) => (uint8[N,3] y) { [[y = QLinearMatMul "
        "(x, #float{0.1}, #uint8{7}, #uint8[4,3]{0..11}, #float{0.1}, #uint8{5}, #float{0.9}, "
        "#uint8{100})|a = DequantizeLinear (x, #float{0.1}, #uint8{7}) b = DequantizeLinear "
        "(#uint8[4,3]{0..11}, #float{0.1}, #uint8{5}) c = MatMul (a, b) "
        "y = QuantizeLinear (c, #float{0.9}, #uint8{100})]] }", x=[[1, 2, 3, 200]]),
    pair("a rounded activation in parts", one("float[N,8]",
        "[[q = QuantizeLinear (x, #float{0.05}, "
        "#int8{0}) y = DequantizeLinear (q, #float{0.05}, #int8{0})|a = Div (x, #float{0.05}) "
        "r = Round (a) c = Clip (r, #float{-128}, #float{127}) y = Mul (c, #float{0.05})]]"),
        x=drawn(3, 8)),
    pair("a quantised weight that is folded", one("float[N,4]", "[[w = DequantizeLinear "
        "(#int8[4,3]{-5..6}, #float{0.5}, #int8{1})|c = Cast <to = 1> (#int8[4,3]{-5..6}) "
        "d = Sub (c, #float{1}) w = Mul (d, #float{0.5})]] y = MatMul (x, w)", "float[N,3]"),
        x=drawn(3, 4), runtime="reference"),
]  # fmt: skip


def _rounded(name: str, body: str, made: str = "float[N,8]", opset: int = 18) -> Pair:
    return pair(name, one("float[N,8]", body, made), opset=opset, x=drawn(3, 8))


def _layers(form: str) -> str:
    """Return six layers with what is added to each again, as `form` writes one."""
    return " ".join(
        form.replace("IN", "x" if number == 0 else f"o{number - 1}").replace("#", str(number))
        for number in range(6)
    )


_FUSED = "n# = LayerNormalization (IN, g) h# = Gemm (n#, w, b) t# = Tanh (h#) o# = Add (IN, t#)"
_LOOSE = (
    "m# = ReduceMean (IN, ax) d# = Sub (IN, m#) q# = Mul (d#, d#) v# = ReduceMean (q#, ax) "
    "e# = Add (v#, ep) r# = Sqrt (e#) k# = Div (d#, r#) n# = Mul (k#, g) p# = MatMul (n#, w) "
    "h# = Add (p#, b) t# = Tanh (h#) o# = Add (t#, IN)"
)
_GIVEN = (
    "w = Identity (#float[8,8]~1) b = Identity (#float[8]~2) g = Identity (#float[8]~3) "
    "ax = Identity (#int64[1]{-1}) ep = Identity (#float{1e-5})"
)

EQUAL_ROUNDED: list[Pair] = [
    _rounded("six layers, fused and in parts",
        f"{_GIVEN} [[{_layers(_FUSED)}|{_layers(_LOOSE)}]] y = Identity (o5)"),
    _rounded("a sum by a product",
        "[[y = ReduceSum (x, #int64[1]{1})|y = MatMul (x, #float[8,1]{1, 1, 1, 1, 1, 1, 1, 1})]]",
        "float[N,1]"),
    _rounded("a sum of halves", "[[y = ReduceSum (x, #int64[1]{1})|a, b = Split <axis = 1, "
        "num_outputs = 2> (x) c = Add (a, b) y = ReduceSum (c, #int64[1]{1})]]", "float[N,1]"),
    _rounded("products in another order", "[[a = MatMul (x, #float[8,8]~1) y = MatMul (a, "
        "#float[8,5]~2)|w = MatMul (#float[8,8]~1, #float[8,5]~2) y = MatMul (x, w)]]",
        "float[N,5]"),
    _rounded("a sigmoid by a Tanh", "[[y = Sigmoid (x)|a = Mul (x, #float{0.5}) t = Tanh (a) "
        "b = Mul (t, #float{0.5}) y = Add (b, #float{0.5})]]"),
    _rounded("a Tanh by a sigmoid", "[[y = Tanh (x)|a = Mul (x, #float{2}) s = Sigmoid (a) "
        "b = Mul (s, #float{2}) y = Sub (b, #float{1})]]"),
    _rounded("a logarithm of a sum of exponentials in parts",
        "[[y = ReduceLogSumExp (x, #int64[1]{1})|m = ReduceMax (x, #int64[1]{1}) d = Sub (x, m) "
        "e = Exp (d) s = ReduceSum (e, #int64[1]{1}) l = Log (s) y = Add (l, m)]]", "float[N,1]"),
    _rounded("a cube by products", "y = [[Pow (x, #float{3})|Mul (a, x)]]".replace("y = ",
        "a = Mul (x, x) y = ")),
    _rounded("a quotient by a reciprocal",
        "a = Abs (x) b = Add (a, #float{1}) [[y = Div (x, b)|r = Reciprocal (b) y = Mul (x, r)]]"),
    _rounded("a reciprocal root", "q = Mul (x, x) m = ReduceMean (q, #int64[1]{1}) "
        "e = Add (m, #float{1e-5}) s = Sqrt (e) [[y = Div (x, s)|r = Reciprocal (s) "
        "y = Mul (x, r)]]"),
    _rounded("a mean of a sum", "[[y = ReduceMean (x, #int64[1]{1})|s = ReduceSum (x, "
        "#int64[1]{1}) y = Mul (s, #float{0.125})]]", "float[N,1]"),
    _rounded("a variance by a norm", "m = ReduceMean (x, #int64[1]{1}) d = Sub (x, m) "
        "[[q = Mul (d, d) y = ReduceMean (q, #int64[1]{1})|l = ReduceSumSquare (d, #int64[1]{1}) "
        "y = Div (l, #float{8})]]", "float[N,1]"),
    _rounded("a softmax of a softmax's logarithm",
        "[[y = Softmax (x)|l = LogSoftmax (x) y = Exp (l)]]"),
    _rounded("an interpolation", "s = Sigmoid (x) [[a = Mul (x, s) r = Sub (#float{1}, s) "
        "b = Mul (#float[8]~1, r) y = Add (a, b)|d = Sub (x, #float[8]~1) e = Mul (d, s) "
        "y = Add (#float[8]~1, e)]]"),
    _rounded("an angle that is doubled", "[[s = Sin (x) c = Cos (x) p = Mul (s, c) "
        "y = Mul (p, #float{2})|a = Mul (x, #float{2}) y = Sin (a)]]"),
    _rounded("a Conv over a sequence as products", "u = Unsqueeze (x, #int64[1]{1}) "
        "[[c = Conv (u, #float[1,1,2]{2, 3}) y = Squeeze (c, #int64[1]{1})|a = Slice (x, "
        "#int64[1]{0}, #int64[1]{7}, #int64[1]{1}) b = Slice (x, #int64[1]{1}, #int64[1]{8}, "
        "#int64[1]{1}) p = Mul (a, #float{2}) q = Mul (b, #float{3}) y = Add (p, q)]]",
        "float[N,7]"),
]  # fmt: skip
