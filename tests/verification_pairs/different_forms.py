"""Pairs that differ in attributes, bounds, axes and shapes."""

from __future__ import annotations

from tests.verification_pairs.pair import Pair, drawn, one, pair

__all__ = ["AXES", "BOUNDS", "FORMULAS", "PICTURES", "TIES"]

_F = "float[N]"


def _pictures(name: str, body: str, *x: int, channels: int = 3, made: str = "") -> Pair:
    """Return a pair of models of pictures whose height and width are free."""
    kind = f"float[N,{channels},H,W]"
    made = made or f"float[N,{channels},P,Q]"
    return pair(name, one(kind, body, made), x=drawn(1, channels, *x))


PICTURES: list[Pair] = [
    _pictures("ceil_mode of MaxPool at odd sizes",
        "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = [[0|1]]> (x)", 5, 7),
    _pictures("ceil_mode of AveragePool at odd sizes",
        "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = [[0|1]]> (x)", 5, 7),
    _pictures("ceil_mode with kernels of 3",
        "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = [[0|1]]> (x)", 6, 6),
    _pictures("SAME_UPPER for pads that fit even sizes", "y = Conv <kernel_shape = [3, 3], "
        "strides = [2, 2], [[auto_pad = \"SAME_UPPER\"|pads = [0, 0, 1, 1] ]]> "
        "(x, #float[5,3,3,3]~1)", 5, 7, made="float[N,5,P,Q]"),
    _pictures("SAME_UPPER for pads that fit odd sizes", "y = Conv <kernel_shape = [3, 3], "
        "strides = [2, 2], [[auto_pad = \"SAME_UPPER\"|pads = [1, 1, 1, 1] ]]> "
        "(x, #float[5,3,3,3]~1)", 6, 8, made="float[N,5,P,Q]"),
    _pictures("SAME_LOWER for SAME_UPPER", "y = MaxPool <kernel_shape = [2, 2], strides = [1, "
        "1], auto_pad = \"SAME_[[UPPER|LOWER]]\"> (x)", 5, 7),
    _pictures("SAME_LOWER for SAME_UPPER with strides, alike at odd sizes",
        "y = Conv <kernel_shape = [3, 3], strides = [2, 2], auto_pad = \"SAME_[[UPPER|LOWER]]\"> "
        "(x, #float[5,3,3,3]~1)", 6, 8, made="float[N,5,P,Q]"),
    _pictures("padding that counts in a mean", "y = AveragePool <kernel_shape = [3, 3], pads = "
        "[1, 1, 1, 1], count_include_pad = [[0|1]]> (x)", 5, 7),
    _pictures("dilations of a Conv", "y = Conv <kernel_shape = [3, 3], dilations = [1, [[1|2]]], "
        "pads = [1, 1, 1, [[1|3]]]> (x, #float[5,3,3,3]~1)", 5, 7, made="float[N,5,P,Q]"),
    _pictures("a kernel that is turned", "y = Conv (x, #float[5,3,3,3]~1[[|.r3]])", 5, 7,
        made="float[N,5,P,Q]"),
    _pictures("a kernel whose height and width are swapped",
        "[[w = Identity (#float[5,3,3,3]~1)|w = Transpose <perm = [0, 1, 3, 2]> "
        "(#float[5,3,3,3]~1)]] y = Conv (x, w)", 5, 7, made="float[N,5,P,Q]"),
    _pictures("a step of subsampling that starts at 1", "y = Slice (x, #int64[2]{0, [[0|1]]}, "
        "#int64[2]{999, 999}, #int64[2]{2, 3}, #int64[2]{1, 2})", 5, 7),
    _pictures("a halving that rounds down instead of up", "y = Resize <mode = \"nearest\", "
        "nearest_mode = \"[[floor|ceil]]\", coordinate_transformation_mode = \"asymmetric\"> "
        "(x, , #float[4]{1, 1, 0.4, 0.4})", 5, 7),
    _pictures("ties of Resize", "y = Resize <mode = \"nearest\", nearest_mode = "
        "\"round_prefer_[[floor|ceil]]\"> (x, , #float[4]{1, 1, 2, 0.5})", 5, 6),
    _pictures("half pixels for aligned corners", "y = Resize <mode = \"linear\", "
        "coordinate_transformation_mode = \"[[half_pixel|align_corners]]\"> "
        "(x, , #float[4]{1, 1, 2, 2})", 5, 7),
    _pictures("pixels moved to depth in another order",
        "y = DepthToSpace <blocksize = 2, mode = \"[[DCR|CRD]]\"> (x)", 5, 7, channels=8,
        made="float[N,2,P,Q]"),
    _pictures("a global mean over the wrong axes of squares",
        "y = ReduceMean <keepdims = 1> (x, #int64[1]{[[2|3]]})", 5, 5),
    _pictures("pads of a mirror for those of an edge",
        "y = Pad <mode = \"[[reflect|edge]]\"> (x, #int64[8]{0, 0, 1, 2, 0, 0, 1, 2})", 5, 7),
    _pictures("a mean divided by the size of odd pictures", "[[y = GlobalAveragePool (x)|s = "
        "ReduceSum <keepdims = 1> (x, #int64[2]{2, 3}) n = Shape <start = 2, end = 3> (x) "
        "h = Div (n, #int64{2}) d = Mul (h, #int64{2}) m = Shape <start = 3, end = 4> (x) "
        "e = Mul (d, m) f = Cast <to = 1> (e) y = Div (s, f)]]", 5, 7),
    _pictures("the order of channels", "y = [[Gather <axis = 1> (x, #int64[3]{0, 1, 2})|Gather "
        "<axis = 1> (x, #int64[3]{2, 1, 0})]]", 5, 7),
    _pictures("an axis of a flip",
        "y = Slice (x, #int64[1]{-1}, #int64[1]{-9999}, #int64[1]{[[2|3]]}, #int64[1]{-1})", 5, 5),
]  # fmt: skip


def _scalar(name: str, body: str, *x: float) -> Pair:
    return pair(name, one(_F, body), x=x)


BOUNDS: list[Pair] = [
    _scalar("a Clip at 6 for a Relu", "y = [[Clip (x, #float{0}, #float{6})|Relu (x)]]", 7, -2),
    _scalar("a Clip at 10", "y = [[Clip (x, #float{-10}, #float{10})|Identity (x)]]", -11, 2),
    _scalar("a Clip at 1,000", "y = [[Clip (x, , #float{1000})|Identity (x)]]", 1001.5, 2000),
    _scalar("a minimum of 4", "y = [[Min (x, #float{4})|Identity (x)]]", 5, 2),
    _scalar("a maximum of -30", "y = [[Max (x, #float{-30})|Identity (x)]]", -31, 2),
    _scalar("an exponential of at most 5",
        "[[a = Identity (x)|a = Min (x, #float{5})]] y = Exp (a)", 6, 2),
    _scalar("a hard swish from 8 on",
        "[[y = Identity (x)|c = Greater (x, #float{8}) y = Where (c, #float{8}, x)]]", 9, 2),
    _scalar("a softplus that is linear from 20 on, but from 6",
        "a = Softplus (x) c = Greater (x, #float{[[20|6]]}) b = Mul (x, #float{1.01}) "
        "y = Where (c, b, a)", 8, 2),
    _scalar("a bound that another bound hides",
        "a = Clip (x, #float{-3}, #float{[[3|5]]}) y = Clip (a, #float{-2}, #float{[[4|4]]})", 9,
        2),
    _scalar("a step at 12.5", "c = Less (x, #float{[[12.5|13]]}) y = Where (c, x, #float{0})", 12.7,
        2),
    _scalar("values that are nearly zero",
        "a = Abs (x) c = Less (a, #float{0.0001}) y = Where (c, #float{[[0|1]]}, x)", 0.00005, 2),
    _scalar("exactly zero", "c = Equal (x, #float{0}) y = Where (c, #float{[[0|1]]}, x)", 0, 2),
    _scalar("a floor above 100", "a = Floor (x) b = Min (a, #float{100}) y = Add ([[a|b]], x)", 150,
        2),
    _scalar("a remainder of 16", "[[y = Abs (x)|a = Abs (x) y = Mod <fmod = 1> (a, #float{16})]]",
        17, 2),
    pair("a Relu6 in a network", one("float[N,4]", "a = MatMul (x, #float[4,8]~1) "
        "[[b = Relu (a)|b = Clip (a, #float{0}, #float{60})]] y = MatMul (b, #float[8,3]~2)",
        "float[N,3]"), x=drawn(2, 4, scale=100.0)),
    pair("a Relu6 behind a norm and a weight", one("float[N,4]",
        "a = LayerNormalization (x, #float[4]{1, 2, 3, 1}) [[b = Relu (a)|b = Clip (a, "
        "#float{0}, #float{5})]] y = MatMul (b, #float[4,3]~2)", "float[N,3]"), x=[[-0.1, 0, 10,
        0.1]]),
    pair("a softcap of 50 that no score reaches", one("float[N,7]",
        "[[a = Identity (x)|b = Div (x, #float{50}) c = Tanh (b) a = Mul (c, #float{50})]] "
        "y = Relu (a)"), x=drawn(2, 7, scale=30.0)),
    pair("a default that can be overridden", "(float[N,3] x, float[3] scale) => (float[N,3] y) "
        "<float[3] scale = {1, 1, 1}> { [[y = Mul (x, scale)|y = Identity (x)]] }", x=drawn(2, 3),
        scale=[1, 2, 3]),
    pair("a default of ids that can be overridden", "(float[N,3] x, int64[2] ids) => (float[N,2] "
        "y) <int64[2] ids = {2, 0}> { [[y = Gather <axis = 1> (x, ids)|y = Gather <axis = 1> "
        "(x, #int64[2]{2, 0})]] }", x=drawn(2, 3), ids=[1, 1]),
    pair("a default of a bound that can be overridden", "(float[N,3] x, float most) => "
        "(float[N,3] y) <float most = {30}> { y = Min (x, [[most|#float{30}]]) }", x=drawn(2, 3),
        most=0.5),
    pair("a size that was the batch when it was exported", one("float[N,6]",
        "y = Reshape (x, [[#int64[3]{-1, 2, 3}|#int64[3]{2, -1, 3}]])", "float[P,Q,3]"), x=drawn(5,
        6)),
    pair("a sequence of 8 at most", one("float[N,L,3]", "[[a = Identity (x)|a = Slice (x, "
        "#int64[1]{0}, #int64[1]{8}, #int64[1]{1})]] y = ReduceSum <keepdims = 0> "
        "(a, #int64[1]{1})", "float[N,3]"), x=drawn(2, 9, 3)),
    pair("a mean of sequences of 4", one("float[N,L,3]", "[[y = ReduceMean <keepdims = 0> "
        "(x, #int64[1]{1})|a = ReduceSum <keepdims = 0> (x, #int64[1]{1}) "
        "y = Mul (a, #float{0.25})]]", "float[N,3]"), x=drawn(2, 9, 3)),
    pair("the last of 32 rows at most", one("float[N,L,3]", "[[y = Gather <axis = 1> "
        "(x, #int64{-1})|n = Shape <start = 1, end = 2> (x) m = Sub (n, #int64[1]{1}) "
        "j = Min (m, #int64[1]{31}) k = Squeeze (j) y = Gather <axis = 1> (x, k)]]", "float[N,3]"),
        x=drawn(1, 40, 3)),
]  # fmt: skip


def _norm(name: str, op: str, least: float) -> Pair:
    return pair(name, one("float[N,4]", op), x=drawn(3, 4, scale=least))


FORMULAS: list[Pair] = [
    _norm("epsilon of a LayerNormalization",
        "y = LayerNormalization <epsilon = [[0.00001|0.000001]]> (x, #float[4]{1, 2, 3, 1})", 1e-3),
    _norm("epsilon of a norm in small operators", "a = Mul (x, x) m = ReduceMean (a, "
        "#int64[1]{-1}) e = Add (m, #float{[[1e-5|1e-6]]}) r = Sqrt (e) y = Div (x, r)", 1e-3),
    _norm("no epsilon at all", "a = Mul (x, x) m = ReduceMean (a, #int64[1]{-1}) "
        "[[e = Add (m, #float{1e-5})|e = Identity (m)]] r = Sqrt (e) y = Div (x, r)", 1e-3),
    _norm("epsilon outside of the root", "a = Mul (x, x) m = ReduceMean (a, #int64[1]{-1}) "
        "[[e = Add (m, #float{0.0001}) r = Sqrt (e)|s = Sqrt (m) r = Add (s, #float{0.0001})]] "
        "y = Div (x, r)", 1e-2),
    _norm("epsilon as a bound", "a = ReduceL2 (x, #int64[1]{-1}) [[e = Add (a, #float{1e-6})|e = "
        "Max (a, #float{1e-6})]] y = Div (x, e)", 1e-6),
    pair("epsilon of an RMSNormalization", one("float[N,4]",
        "y = RMSNormalization <epsilon = [[0.00001|0.000001]]> (x, #float[4]{1, 2, 3, 1})"),
        opset=23, x=drawn(3, 4, scale=1e-3)),
    pair("epsilon of an InstanceNormalization", one("float[N,3,5]",
        "y = InstanceNormalization <epsilon = [[0.00001|0.000001]]> "
        "(x, #float[3]{1, 2, 3}, #float[3]{0, 0, 0})"), x=drawn(2, 3, 5, scale=1e-3)),
    pair("epsilon of a BatchNormalization", one("float[N,3,5]",
        "y = BatchNormalization <epsilon = [[0.00001|0.000001]]> "
        "(x, #float[3]{1, 2, 3}, #float[3]{0, 0, 0}, #float[3]{1, 2, 3}, #float[3]{1, 1, "
        "0.00001})"), x=drawn(2, 3, 5)),
    pair("a softmax without subtraction of the maximum", one("float[N,5]",
        "[[y = Softmax (x)|e = Exp (x) s = ReduceSum (e, #int64[1]{-1}) y = Div (e, s)]]"),
        x=drawn(2, 5, scale=200.0)),
    pair("a softmax of small numbers alone", one("float[N,5]",
        "[[y = Softmax (x)|m = Clip (x, #float{-80}, #float{80}) y = Softmax (m)]]"), x=drawn(2, 5,
        scale=200.0)),
    pair("a logarithm of a sum of exponentials", one("float[N,5]",
        "[[y = ReduceLogSumExp (x, #int64[1]{-1})|e = Exp (x) s = ReduceSum (e, #int64[1]{-1}) "
        "y = Log (s)]]", "float[N,1]"), x=drawn(2, 5, scale=200.0)),
    _scalar("a softplus that overflows",
        "[[y = Softplus (x)|e = Exp (x) a = Add (e, #float{1}) y = Log (a)]]", 100, 2),
    _scalar("the root of a square for an absolute value",
        "[[y = Abs (x)|a = Mul (x, x) y = Sqrt (a)]]", 1e25, 2),
    _scalar("a sigmoid by a quotient that is not a number",
        "[[y = Sigmoid (x)|e = Exp (x) a = Add (e, #float{1}) y = Div (e, a)]]", 100, 2),
    _scalar("a tanh by exponentials", "[[y = Tanh (x)|a = Mul (x, #float{2}) e = Exp (a) "
        "n = Sub (e, #float{1}) d = Add (e, #float{1}) y = Div (n, d)]]", 100, 2),
    _scalar("a product for a quotient, at zero",
        "[[a = Mul (x, x) b = Div (a, x)|b = Identity (x)]] y = Identity (b)", 0, 2),
    pair("a variance by squares", one("float[N,4]", "m = ReduceMean (x, #int64[1]{-1}) "
        "[[d = Sub (x, m) s = Mul (d, d) y = ReduceMean (s, #int64[1]{-1})|s = Mul (x, x) "
        "t = ReduceMean (s, #int64[1]{-1}) q = Mul (m, m) y = Sub (t, q)]]", "float[N,1]"),
        x=[[3001.0, 3002.3, 3003.1, 3004.7]]),
    pair("the approximation of Gelu", one("float[N]",
        "y = Gelu <approximate = \"[[none|tanh]]\"> (x)"), opset=20, x=[-3.0], apart=3e-2),
    pair("Gelu by a Sigmoid", one("float[N]",
        "[[y = Gelu (x)|a = Mul (x, #float{1.702}) b = Sigmoid (a) y = Mul (x, b)]]"), opset=20,
        x=[-2.0, 1.0]),
    pair("a norm of zeros", one("float[N,3]", "n = ReduceL2 (x, #int64[1]{-1}) "
        "[[e = Max (n, #float{1e-12})|e = Identity (n)]] y = Div (x, e)"), x=[[0, 0, 0], [1, 2,
        2]]),
]  # fmt: skip


TIES: list[Pair] = [
    pair("the last of equal maxima", one("float[N,4]",
        "y = ArgMax <axis = 1, select_last_index = [[0|1]]> (x)", "int64[N,1]"), x=[[1, 3, 3, 0]]),
    pair("the last of equal minima", one("float[N,4]",
        "y = ArgMin <axis = 1, select_last_index = [[0|1]]> (x)", "int64[N,1]"), x=[[1, 0, 0, 3]]),
    pair("the greatest two, equal ones from the end", one("float[N,4]",
        "[[v, y = TopK (x, #int64[1]{2})|r = Slice (x, #int64[1]{-1}, #int64[1]{-99}, "
        "#int64[1]{1}, #int64[1]{-1}) v, i = TopK (r, #int64[1]{2}) y = Sub (#int64{3}, i)]]",
        "int64[N,2]"), x=[[1, 3, 3, 3]]),
    pair("an ArgMax by equality", one("float[N,4]", "[[y = ArgMax <axis = 1, keepdims = 0> "
        "(x)|m = ReduceMax (x, #int64[1]{1}) e = Equal (x, m) f = Cast <to = 7> (e) "
        "g = Mul (f, #int64[4]{0..3}) y = ReduceMax <keepdims = 0> (g, #int64[1]{1})]]",
        "int64[N]"), x=[[1, 3, 3, 0]]),
    pair("all maxima instead of the first", one("float[N,4]",
        "[[i = ArgMax <axis = 1> (x) y = Equal (i, #int64[4]{0..3})|m = ReduceMax (x, "
        "#int64[1]{1}) y = Equal (x, m)]]", "bool[N,4]"), x=[[1, 3, 3, 0]]),
    _scalar("halves rounded up", "[[y = Round (x)|a = Add (x, #float{0.5}) y = Floor (a)]]", 0.5,
        2.5),
    _scalar("halves rounded away from zero", "[[y = Round (x)|s = Sign (x) a = Abs (x) "
        "b = Add (a, #float{0.5}) c = Floor (b) y = Mul (c, s)]]", 0.5, -2.5),
    _scalar("the sign of zero",
        "[[y = Sign (x)|c = GreaterOrEqual (x, #float{0}) y = Where (c, #float{1}, #float{-1})]]",
        0, 2),
    _scalar("a Greater with equality",
        "c = [[Greater|GreaterOrEqual]] (x, #float{0}) y = Cast <to = 1> (c)", 0, 2),
    pair("a comparison of two inputs with equality",
        "(float[N] x, float[N] z) => (bool[N] y) { y = [[Less|LessOrEqual]] (x, z) }", x=[1, 2],
        z=[1, 3]),
    pair("an equality that is never seen", "(float[N] x, float[N] z) => (float[N] y) "
        "{ c = Equal (x, z) y = Where (c, #float{[[1|2]]}, x) }", x=[1, 2], z=[1, 3]),
    _scalar("whole numbers rounded up once more",
        "[[y = Ceil (x)|a = Floor (x) y = Add (a, #float{1})]]", 2, 2.5),
    pair("the largest of numbers below zero", one("float[N,4]",
        "a = [[Identity|Relu]] (x) y = Hardmax (a)"), x=[[-3, -1, -2, -4]]),
    pair("a threshold on a sum", one("float[N,3]", "s = ReduceSum <keepdims = 0> "
        "(x, #int64[1]{1}) c = [[Greater|GreaterOrEqual]] (s, #float{3}) y = Cast <to = 1> (c)",
        "float[N]"), x=[[1, 1, 1]]),
    pair("duplicates that are written", "(float[5] x, int64[3] i, float[3] u) => (float[5] y) "
        "{ y = ScatterElements <reduction = \"[[add|none]]\"> (x, i, u) }", x=[0, 0, 0, 0, 0], i=[1,
        1, 3], u=[1, 2, 3]),
    pair("equal numbers counted once", one("int64[N]",
        "[[y = Unique <sorted = 1> (x)|n = Shape (x) y, i = TopK <largest = 0> (x, n)]]",
        "int64[M]"), x=[3, 3, 1]),
]  # fmt: skip


def _matrix(name: str, body: str, made: str = "float[N,4]") -> Pair:
    return pair(name, one("float[N,4]", body, made), x=drawn(3, 4))


def _square(name: str, body: str, made: str = "float[N,4,4]") -> Pair:
    return pair(name, one("float[N,4,4]", body, made), x=drawn(2, 4, 4))


AXES: list[Pair] = [
    _matrix("a square weight transposed", "y = MatMul (x, #float[4,4]~1[[|.T]])"),
    _matrix("transB of a square Gemm", "y = Gemm <transB = [[0|1]]> (x, #float[4,4]~1)"),
    _matrix("a bias in reverse order",
        "a = MatMul (x, #float[4,4]~1) y = Add (a, #float[4]~2[[|.r0]])"),
    _matrix("alpha of a Gemm", "y = Gemm <alpha = [[1.0|1.01]]> (x, #float[4,5]~1)", "float[N,5]"),
    _matrix("beta of a Gemm", "y = Gemm <beta = [[1.0|0.0]]> (x, #float[4,5]~1, #float[5]~2)",
        "float[N,5]"),
    _matrix("the axis of a softmax", "y = Softmax <axis = [[1|0]]> (x)"),
    _matrix("halves that are swapped",
        "a, b = Split <num_outputs = 2, axis = 1> (x) y = Concat <axis = 1> ([[a, b|b, a]])"),
    _matrix("a gate of the other half",
        "a, b = Split <num_outputs = 2, axis = 1> (x) s = Sigmoid ([[a|b]]) y = Mul (s, [[b|a]])",
        "float[N,2]"),
    _matrix("a square for a product with the absolute value", "a = Abs (x) y = Mul (x, [[x|a]])"),
    _matrix("heads split by another axis", "a = MatMul (x, #float[4,8]~1) [[b = Reshape (a, "
        "#int64[3]{-1, 2, 4}) c = Transpose <perm = [1, 0, 2]> "
        "(b)|b = Reshape (a, #int64[3]{-1, 4, 2}) c = Transpose <perm = [2, 0, 1]> (b)]] "
        "y = Reshape (c, #int64[2]{-1, 4})"),
    _square("an axis of a softmax of squares", "y = Softmax <axis = [[2|1]]> (x)"),
    _square("a transpose of squares", "y = [[Identity (x)|Transpose <perm = [0, 2, 1]> (x)]]"),
    _square("the axis of a sum", "y = ReduceSum <keepdims = 0> (x, #int64[1]{[[1|2]]})",
        "float[N,4]"),
    _square("the axis of a cumulated sum", "y = CumSum (x, #int64{[[1|2]]})"),
    _square("an exclusive cumulated sum", "y = CumSum <exclusive = [[0|1]]> (x, #int64{1})"),
    _square("a reverse cumulated sum", "y = CumSum <reverse = [[0|1]]> (x, #int64{1})"),
    _square("the diagonal of a triangle", "y = Trilu (x, #int64{[[0|1]]})"),
    _square("the lower triangle", "y = Trilu <upper = [[1|0]]> (x)"),
    _square("an axis of Gather", "y = Gather <axis = [[1|2]]> (x, #int64[4]{2, 0, 1, 3})"),
    _square("an axis of GatherElements", "z = Slice (x, #int64[1]{0}, #int64[1]{1}, "
        "#int64[1]{0}) y = GatherElements <axis = [[1|2]]> (z, "
        "#int64[1,4,4]{0,1,2,3,1,2,3,0,2,3,0,1,3,0,1,2})", "float[M,4,4]"),
    _square("the left instead of the right factor",
        "y = MatMul ([[x, #float[4,4]~1|#float[4,4]~1, x]])"),
    _square("an Einsum of the other axis",
        "y = Einsum <equation = \"nij,[[jk->nik|ik->njk]]\"> (x, #float[4,4]~1)"),
    _square("a concatenation and split by another axis", "a = Concat <axis = [[1|2]]> (x, x) "
        "y = Slice (a, #int64[1]{2}, #int64[1]{6}, #int64[1]{[[1|2]]})"),
    _square("a bias along rows", "y = Add (x, [[#float[4]~1|#float[4,1]~1]])"),
    _square("a norm over rows", "[[a = Identity (x)|a = Transpose <perm = [0, 2, 1]> (x)]] "
        "b = LayerNormalization (a, #float[4]{1, 1, 1, 1}) [[y = Identity (b)|y = Transpose "
        "<perm = [0, 2, 1]> (b)]]"),
    _square("the order of steps of a Scan", "y = Scan <num_scan_inputs = 1, scan_input_axes = "
        "[1], scan_output_axes = [1], scan_output_directions = [[[0]|[1] "
        "]], body = b (float[N,4] u) => (float[N,4] v) { v = Tanh (u) }> (x)"),
    _square("a shift of rows by one", "a = Slice (x, #int64[1]{[[0|1]]}, #int64[1]{[[3|4]]}, "
        "#int64[1]{1}) y = ReduceSum <keepdims = 0> (a, #int64[1]{1})", "float[N,4]"),
    _square("a depth of channels by groups",
        "y = Conv <group = [[1|2]]> (x, [[#float[4,4,1]~1|#float[4,2,1]~1]])"),
    pair("sequences of a batch in reverse", "(float[B,L,3] x) => (float[B,L,3] y) "
        "{ [[y = Slice (x, #int64[1]{-1}, #int64[1]{-999}, #int64[1]{1}, #int64[1]{-1})|y = "
        "Slice (x, #int64[1]{-1}, #int64[1]{-999}, #int64[1]{0}, #int64[1]{-1})]] }", x=drawn(2, 3,
        3)),
    pair("the direction of an LSTM", "(float[L,B,3] x) => (float[L,1,B,2] y) "
        "{ y = LSTM <hidden_size = 2, direction = \"[[forward|reverse]]\"> "
        "(x, #float[1,8,3]~1, #float[1,8,2]~2) }", x=drawn(3, 2, 3)),
    pair("the gates of a GRU before the product", "(float[L,B,3] x) => (float[L,1,B,2] y) "
        "{ y = GRU <hidden_size = 2, linear_before_reset = [[0|1]]> "
        "(x, #float[1,6,3]~1, #float[1,6,2]~2, #float[1,12]~3) }", x=drawn(3, 2, 3)),
    pair("an axis of a scale of a quantised square", "(float[N,4] x) => (float[N,4] y) "
        "{ w = DequantizeLinear <axis = [[0|1]]> (#int8[4,4]{0..15}, #float[4]{1, 0.5, 0.25, "
        "0.125}, #int8[4]{0, 0, 0, 0}) y = MatMul (x, w) }", x=drawn(2, 4)),
    pair("zero points of a quantised weight", "(float[N,4] x) => (float[N,3] y) "
        "{ w = DequantizeLinear <axis = 1> (#uint8[4,3]{0..11}, #float[3]{1, 0.5, 0.25}, "
        "#uint8[3]{3, 5, [[7|8]]}) y = MatMul (x, w) }", x=drawn(2, 4)),
    pair("zero points left out of a product of integers", "(uint8[N,4] x) => (int32[N,3] y) "
        "{ [[y = MatMulInteger (x, #uint8[4,3]{0..11}, , #uint8{0})|y = MatMulInteger (x, "
        "#uint8[4,3]{0..11}, #uint8{1}, #uint8{0})]] }", x=[[1, 2, 3, 200]]),
    pair("a scale of a quantised output", "(uint8[N,4] x) => (uint8[N,3] y) "
        "{ y = QLinearMatMul (x, #float{0.1}, #uint8{0}, #uint8[4,3]{0..11}, #float{0.1}, "
        "#uint8{5}, #float{[[0.9|1]]}, #uint8{100}) }", x=[[1, 2, 3, 200]]),
]  # fmt: skip
