"""Pairs that are equal: what fusing, folding, renaming and reordering do to a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.verification_pairs.pair import Feed, Pair, drawn, one, pair

__all__ = [
    "EQUAL_ARITHMETIC",
    "EQUAL_CACHES",
    "EQUAL_FUSIONS",
    "EQUAL_INTEGERS",
    "EQUAL_LAYOUTS",
    "EQUAL_SCOPES",
]

_F = "float[N]"


def _scalar(name: str, body: str, **own: object) -> Pair:
    return pair(name, one(_F, body), x=drawn(7), **own)


EQUAL_ARITHMETIC: list[Pair] = [
    _scalar("nothing added", "[[y = Abs (x)|a = Abs (x) y = Add (a, #float{0})]]"),
    _scalar("times one", "[[y = Tanh (x)|a = Tanh (x) y = Mul (a, #float{1})]]"),
    _scalar("a half instead of a division by two",
        "y = [[Div (x, #float{2})|Mul (x, #float{0.5})]]"),
    _scalar("a third instead of a division by three",
        "y = [[Div (x, #float{3})|Mul (x, #float{0.333333343})]]"),
    _scalar("a difference as a sum", "[[y = Sub (x, #float{3})|y = Add (x, #float{-3})]]"),
    _scalar("a negation twice", "[[y = Sin (x)|a = Neg (x) b = Neg (a) y = Sin (b)]]"),
    _scalar("a square as a power", "y = [[Mul (x, x)|Pow (x, #float{2})]]"),
    _scalar("a root as a power", "a = Abs (x) y = [[Sqrt (a)|Pow (a, #float{0.5})]]"),
    _scalar("a Relu as a maximum", "y = [[Relu (x)|Max (x, #float{0})]]"),
    _scalar("a Relu by Where",
        "[[y = Relu (x)|c = Greater (x, #float{0}) y = Where (c, x, #float{0})]]"),
    _scalar("an absolute value as a maximum", "[[y = Abs (x)|a = Neg (x) y = Max (x, a)]]"),
    _scalar("a Clip as two bounds",
        "[[y = Clip (x, #float{-1}, #float{1})|a = Max (x, #float{-1}) y = Min (a, #float{1})]]"),
    _scalar("two Clips as one", "[[a = Clip (x, #float{-3}, #float{3}) y = Clip (a, #float{-1}, "
        "#float{1})|y = Clip (x, #float{-1}, #float{1})]]"),
    _scalar("a LeakyRelu by Where", "[[y = LeakyRelu <alpha = 0.1> (x)|a = Mul (x, #float{0.1}) "
        "c = Less (x, #float{0}) y = Where (c, a, x)]]"),
    _scalar("a HardSigmoid in parts", "[[y = HardSigmoid <alpha = 0.25, beta = 0.5> "
        "(x)|a = Mul (x, #float{0.25}) b = Add (a, #float{0.5}) "
        "y = Clip (b, #float{0}, #float{1})]]"),
    _scalar("a swish in parts", "[[s = Sigmoid (x) y = Mul (x, s)|n = Neg (x) e = Exp (n) "
        "d = Add (e, #float{1}) y = Div (x, d)]]"),
    _scalar("a Softsign in parts",
        "[[y = Softsign (x)|a = Abs (x) b = Add (a, #float{1}) y = Div (x, b)]]"),
    _scalar("a Selu as an Elu", "[[y = Selu <alpha = 1.5, gamma = 2.0> (x)|a = Elu <alpha = 1.5> "
        "(x) y = Mul (a, #float{2})]]"),
    _scalar("a sum of three",
        "a = Sin (x) b = Cos (x) [[y = Sum (x, a, b)|c = Add (a, b) y = Add (x, c)]]"),
    _scalar("a maximum of three",
        "a = Sin (x) b = Cos (x) [[y = Max (x, a, b)|c = Max (a, b) y = Max (x, c)]]"),
    _scalar("factors that are taken out",
        "[[a = Mul (x, #float{3}) b = Mul (x, #float{5}) y = Add (a, b)|y = Mul (x, #float{8})]]"),
    _scalar("constants that are folded",
        "[[a = Add (#float{3}, #float{4}) y = Mul (x, a)|y = Mul (x, #float{7})]]"),
    _scalar("a sum in another order", "a = Mul (x, #float{3}) y = Add ([[x, a|a, x]])"),
    _scalar("float through double and back",
        "[[y = Exp (x)|d = Cast <to = 11> (x) e = Cast <to = 1> (d) y = Exp (e)]]"),
    _scalar("an exponential in double",
        "[[y = Exp (x)|d = Cast <to = 11> (x) e = Exp (d) y = Cast <to = 1> (e)]]"),
    _scalar("a common factor computed once",
        "[[a = Sin (x) b = Sin (x) y = Add (a, b)|a = Sin (x) y = Add (a, a)]]"),
    _scalar("nodes that nobody reads", "[[y = Sin (x)|u = Cos (x) v = Log (u) y = Sin (x)]]"),
    _scalar("a Dropout when no one trains",
        "[[y = Sin (x)|a = Dropout (x, #float{0.5}) y = Sin (a)]]"),
    _scalar("random numbers that nobody reads",
        "[[y = Sin (x)|r = RandomNormalLike (x) y = Sin (x)]]"),
    _scalar("a bfloat16 weight that nobody reads",
        "[[y = Sin (x)|u = Cast <to = 1> (#bfloat16[2]{1, 2}) y = Sin (x)]]"),
    _scalar("a softplus in parts that do not overflow", "[[y = Softplus (x)|a = Abs (x) "
        "n = Neg (a) e = Exp (n) l = Add (e, #float{1}) g = Log (l) r = Relu (x) y = Add (r, g)]]"),
    _scalar("a sign by comparisons", "[[y = Sign (x)|p = Greater (x, #float{0}) "
        "n = Less (x, #float{0}) a = Cast <to = 1> (p) b = Cast <to = 1> (n) y = Sub (a, b)]]"),
]  # fmt: skip


def _rows(name: str, body: str, made: str = "float[N,4]", opset: int = 18) -> Pair:
    return pair(name, one("float[N,4]", body, made), opset=opset, x=drawn(3, 4))


def _pictures(name: str, body: str, made: str = "float[N,C,P,Q]", channels: int = 3) -> Pair:
    return pair(name, one(f"float[N,{channels},H,W]", body, made), x=drawn(2, channels, 5, 7))


EQUAL_FUSIONS: list[Pair] = [
    _rows("a Gemm as a product and a sum", "[[y = Gemm (x, #float[4,5]~1, #float[5]~2)|a = "
        "MatMul (x, #float[4,5]~1) y = Add (a, #float[5]~2)]]", "float[N,5]"),
    _rows("a Gemm whose weight is transposed", "[[y = Gemm (x, #float[4,5]~1)|t = Transpose "
        "(#float[4,5]~1) y = Gemm <transB = 1> (x, t)]]", "float[N,5]"),
    _rows("a weight that is written transposed",
        "[[y = MatMul (x, #float[4,5]~1)|t = Transpose (#float[4,5]~1.T) y = MatMul (x, t)]]",
        "float[N,5]"),
    _rows("a weight that Gemm transposes",
        "[[y = Gemm (x, #float[4,5]~1)|y = Gemm <transB = 1> (x, #float[4,5]~1.T)]]", "float[N,5]"),
    _rows("hidden units in reverse", "a = MatMul (x, #float[4,8]~1[[|.r1]]) "
        "b = Add (a, #float[8]~2[[|.r0]]) c = Relu (b) y = MatMul (c, #float[8,3]~3[[|.r0]])",
        "float[N,3]"),
    _rows("hidden units of a Gemm in reverse", "a = Gemm (x, #float[4,8]~1[[|.r1]], "
        "#float[8]~2[[|.r0]]) c = Tanh (a) y = Gemm (c, #float[8,3]~3[[|.r0]], #float[3]~4)",
        "float[N,3]"),
    _rows("a factor moved into a weight",
        "[[a = MatMul (x, #float[4,5]~1) y = Mul (a, #float{2})|y = MatMul (x, #float[4,5]~1*2)]]",
        "float[N,5]"),
    _rows("a product of weights", "[[a = MatMul (x, #float[4,5]~1) y = MatMul (a, "
        "#float[5,3]~2)|w = MatMul (#float[4,5]~1, #float[5,3]~2) y = MatMul (x, w)]]",
        "float[N,3]"),
    _rows("two products as one that is split", "[[a = MatMul (x, #float[4,3]~1) "
        "b = MatMul (x, #float[4,3]~2)|w = Concat <axis = 1> (#float[4,3]~1, #float[4,3]~2) "
        "c = MatMul (x, w) a, b = Split <axis = 1, num_outputs = 2> (c)]] y = Mul (a, b)",
        "float[N,3]"),
    _rows("a LayerNormalization in parts", "[[y = LayerNormalization (x, #float[4]~1, "
        "#float[4]~2)|m = ReduceMean (x, #int64[1]{-1}) d = Sub (x, m) q = Mul (d, d) "
        "v = ReduceMean (q, #int64[1]{-1}) e = Add (v, #float{1e-5}) r = Sqrt (e) n = Div (d, r) "
        "s = Mul (n, #float[4]~1) y = Add (s, #float[4]~2)]]"),
    _rows("an RMSNormalization in parts", "[[y = RMSNormalization (x, #float[4]~1)|q = Mul (x, "
        "x) v = ReduceMean (q, #int64[1]{-1}) e = Add (v, #float{1e-5}) r = Sqrt (e) "
        "n = Div (x, r) y = Mul (n, #float[4]~1)]]", opset=23),
    _rows("a softmax in parts", "[[y = Softmax (x)|m = ReduceMax (x, #int64[1]{-1}) "
        "d = Sub (x, m) e = Exp (d) s = ReduceSum (e, #int64[1]{-1}) y = Div (e, s)]]"),
    _rows("a LogSoftmax in parts", "[[y = LogSoftmax (x)|m = ReduceMax (x, #int64[1]{-1}) "
        "d = Sub (x, m) e = Exp (d) s = ReduceSum (e, #int64[1]{-1}) l = Log (s) y = Sub (d, l)]]"),
    _rows("a Gelu in parts", "[[y = Gelu (x)|a = Mul (x, #float{0.70710678}) e = Erf (a) "
        "b = Add (e, #float{1}) c = Mul (x, b) y = Mul (c, #float{0.5})]]", opset=20),
    _rows("a Gelu with Tanh in parts", "[[y = Gelu <approximate = \"tanh\"> (x)|c = Mul (x, x) "
        "d = Mul (c, x) e = Mul (d, #float{0.044715}) f = Add (x, e) "
        "g = Mul (f, #float{0.7978845608}) h = Tanh (g) i = Add (h, #float{1}) j = Mul (x, i) "
        "y = Mul (j, #float{0.5})]]", opset=20),
    _rows("a mean as a sum and a quotient", "[[y = ReduceMean (x, #int64[1]{1})|s = ReduceSum "
        "(x, #int64[1]{1}) y = Div (s, #float{4})]]", "float[N,1]"),
    _rows("a mean as a product with a constant",
        "[[y = ReduceMean (x, #int64[1]{1})|y = MatMul (x, #float[4,1]{0.25, 0.25, 0.25, 0.25})]]",
        "float[N,1]"),
    _rows("a norm of length two as a root of squares", "[[y = ReduceL2 (x, #int64[1]{1})|q = Mul "
        "(x, x) s = ReduceSum (q, #int64[1]{1}) y = Sqrt (s)]]", "float[N,1]"),
    _rows("a sum of squares",
        "[[y = ReduceSumSquare (x, #int64[1]{1})|q = Mul (x, x) y = ReduceSum (q, #int64[1]{1})]]",
        "float[N,1]"),
    _rows("a cumulated sum as a product", "[[y = CumSum (x, #int64{1})|t = Trilu "
        "(#float[4,4]{1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}) y = MatMul (x, t)]]"),
    _rows("an Einsum as a product",
        "y = [[Einsum <equation = \"ni,ij->nj\"> (x, #float[4,5]~1)|MatMul (x, #float[4,5]~1)]]",
        "float[N,5]"),
    _rows("a product by transposes", "[[y = MatMul (x, #float[4,5]~1)|a = Transpose (x) "
        "b = Transpose (#float[4,5]~1) c = MatMul (b, a) y = Transpose (c)]]", "float[N,5]"),
    _rows("a BatchNormalization as a product and a sum", "[[y = BatchNormalization (x, "
        "#float[4]{1,2,3,4}, #float[4]~2, #float[4]~3, #float[4]{1,2,3,4})|e = Add "
        "(#float[4]{1,2,3,4}, #float{1e-5}) r = Sqrt (e) s = Div (#float[4]{1,2,3,4}, r) "
        "d = Sub (x, #float[4]~3) p = Mul (d, s) y = Add (p, #float[4]~2)]]"),
    _pictures("a Conv of one pixel as a product", "[[y = Conv (x, #float[5,3,1,1]~1)|w = Reshape "
        "(#float[5,3,1,1]~1, #int64[2]{5, 3}) y = Einsum <equation = \"nchw,oc->nohw\"> (x, w)]]"),
    _pictures("a bias of a Conv as a sum", "[[y = Conv (x, #float[5,3,3,3]~1, #float[5]~2)|a = "
        "Conv (x, #float[5,3,3,3]~1) b = Reshape (#float[5]~2, #int64[3]{5, 1, 1}) "
        "y = Add (a, b)]]"),
    _pictures("pads of a Conv as a Pad", "[[y = Conv <pads = [1, 1, 1, 1]> (x, "
        "#float[5,3,3,3]~1)|p = Pad (x, #int64[8]{0, 0, 1, 1, 0, 0, 1, 1}) "
        "y = Conv (p, #float[5,3,3,3]~1)]]"),
    _pictures("SAME_UPPER as pads, of steps of one", "y = Conv <kernel_shape = [3, 3], "
        "[[auto_pad = \"SAME_UPPER\"|pads = [1, 1, 1, 1] ]]> (x, #float[5,3,3,3]~1)"),
    _pictures("a global mean as a reduction",
        "y = [[GlobalAveragePool (x)|ReduceMean (x, #int64[2]{2, 3})]]", "float[N,C,1,1]"),
    _pictures("a mean of nine as a Conv",
        "[[y = AveragePool <kernel_shape = [3, 3]> (x)|y = Conv <group = 3> (x, w9)]]".replace(
        "w9", "#float[3,1,3,3]{" + ", ".join(["0.11111111"] * 27) + "}")),
    _pictures("a Relu6 of pictures as bounds", "a = Conv (x, #float[5,3,3,3]~1) "
        "[[y = Clip (a, #float{0}, #float{6})|b = Relu (a) y = Min (b, #float{6})]]"),
    _pictures("a Conv and a factor in its weight", "[[a = Conv (x, #float[5,3,3,3]~1) "
        "y = Mul (a, #float{4})|y = Conv (x, #float[5,3,3,3]~1*4)]]"),
    _pictures("channels of a hidden layer in reverse", "a = Conv (x, #float[5,3,1,1]~1[[|.r0]]) "
        "b = Relu (a) y = Conv (b, #float[2,5,1,1]~2[[|.r1]])", "float[N,2,P,Q]"),
    _pictures("an InstanceNormalization in parts", "[[y = InstanceNormalization (x, "
        "#float[3]{1,1,1}, #float[3]{0,0,0})|m = ReduceMean (x, #int64[2]{2, 3}) d = Sub (x, m) "
        "q = Mul (d, d) v = ReduceMean (q, #int64[2]{2, 3}) e = Add (v, #float{1e-5}) "
        "r = Sqrt (e) y = Div (d, r)]]"),
]  # fmt: skip


EQUAL_LAYOUTS: list[Pair] = [
    _rows("transposed twice", "[[y = Sin (x)|a = Transpose (x) b = Sin (a) y = Transpose (b)]]"),
    _rows("reshaped twice", "[[y = Sin (x)|a = Reshape (x, #int64[3]{-1, 2, 2}) b = Sin (a) "
        "y = Reshape (b, #int64[2]{-1, 4})]]"),
    _rows("flattened by another name", "y = [[Flatten (x)|Reshape (x, #int64[2]{0, -1})]]"),
    _rows("an axis added and removed", "[[y = Sin (x)|a = Unsqueeze (x, #int64[1]{1}) "
        "b = Sin (a) y = Squeeze (b, #int64[1]{1})]]"),
    _rows("split and put together", "[[y = Sin (x)|a, b = Split <axis = 1, num_outputs = 2> (x) "
        "c = Concat <axis = 1> (a, b) y = Sin (c)]]"),
    _rows("a split as two slices", "[[a, b = Split <axis = 1, num_outputs = 2> "
        "(x)|a = Slice (x, #int64[1]{0}, #int64[1]{2}, #int64[1]{1}) "
        "b = Slice (x, #int64[1]{2}, #int64[1]{4}, #int64[1]{1})]] y = Mul (a, b)", "float[N,2]"),
    _rows("a slice as a Gather", "y = [[Slice (x, #int64[1]{1}, #int64[1]{3}, "
        "#int64[1]{1})|Gather <axis = 1> (x, #int64[2]{1, 2})]]", "float[N,2]"),
    _rows("two slices as one", "[[a = Slice (x, #int64[1]{1}, #int64[1]{4}, #int64[1]{1}) "
        "y = Slice (a, #int64[1]{1}, #int64[1]{2}, #int64[1]{1})|y = Slice (x, #int64[1]{2}, "
        "#int64[1]{3}, #int64[1]{1})]]", "float[N,1]"),
    _rows("pads of nothing", "[[y = Sin (x)|a = Pad (x, #int64[4]{0, 0, 0, 0}) y = Sin (a)]]"),
    _rows("a Tile as a Concat", "y = [[Tile (x, #int64[2]{1, 2})|Concat <axis = 1> (x, x)]]",
        "float[N,8]"),
    _rows("a bias that is expanded",
        "[[y = Add (x, #float[4]~1)|s = Shape (x) b = Expand (#float[4]~1, s) y = Add (x, b)]]"),
    _rows("a negative axis", "y = Softmax <axis = [[1|-1]]> (x)"),
    _rows("axes summed one by one", "[[y = ReduceSum <keepdims = 0> (x)|a = ReduceSum <keepdims "
        "= 0> (x, #int64[1]{1}) y = ReduceSum <keepdims = 0> (a, #int64[1]{0})]]", "float"),
    _rows("a Concat of three as two", "a = Sin (x) b = Cos (x) [[y = Concat <axis = 1> "
        "(x, a, b)|c = Concat <axis = 1> (x, a) y = Concat <axis = 1> (c, b)]]", "float[N,12]"),
    _rows("a Where that is always true", "[[y = Sin (x)|a = Sin (x) y = Where (#bool{1}, a, x)]]"),
    _rows("a reverse by Gather", "y = [[Slice (x, #int64[1]{-1}, #int64[1]{-99}, #int64[1]{1}, "
        "#int64[1]{-1})|Gather <axis = 1> (x, #int64[4]{3, 2, 1, 0})]]"),
    _rows("a half that is negated as a product", "[[a = Slice (x, #int64[1]{0}, #int64[1]{2}, "
        "#int64[1]{1}) b = Neg (a) c = Slice (x, #int64[1]{2}, #int64[1]{4}, #int64[1]{1}) "
        "y = Concat <axis = 1> (b, c)|y = Mul (x, #float[4]{-1, -1, 1, 1})]]"),
    _rows("a greatest one as an ArgMax",
        "[[i = ArgMax <axis = 1> (x)|v, i = TopK (x, #int64[1]{1})]] y = Cast <to = 1> (i)",
        "float[N,1]"),
    _rows("a OneHot as a comparison", "i = ArgMax <axis = 1, keepdims = 0> (x) "
        "[[y = OneHot (i, #int64{4}, #float[2]{0, 1})|u = Unsqueeze (i, #int64[1]{1}) "
        "e = Equal (u, #int64[4]{0..3}) y = Cast <to = 1> (e)]]"),
    _rows("a triangle by comparison", "s = Shape <start = 0, end = 1> (x) "
        "[[y = Trilu <upper = 0> (x)|n = Squeeze (s) z = Sub (n, n) o = Squeeze (#int64[1]{1}) "
        "r = Range (z, n, o) u = Unsqueeze (r, #int64[1]{1}) c = GreaterOrEqual (u, "
        "#int64[4]{0..3}) y = Where (c, x, #float{0})]]"),
    _pictures("scales of Resize as sizes", "[[y = Resize <mode = \"nearest\"> "
        "(x, , #float[4]{1, 1, 2, 2})|s = Shape (x) t = Mul (s, #int64[4]{1, 1, 2, 2}) "
        "y = Resize <mode = \"nearest\"> (x, , , t)]]"),
    _pictures("depth to space by transposes", "[[y = DepthToSpace <blocksize = 2> "
        "(x)|s = Shape (x) h = Slice (s, #int64[1]{2}, #int64[1]{4}) a = Concat <axis = 0> "
        "(#int64[4]{0, 2, 2, 3}, h) b = Reshape (x, a) c = Transpose <perm = [0, 3, 4, 1, 5, 2]> "
        "(b) t = Mul (h, #int64[2]{2, 2}) d = Concat <axis = 0> (#int64[2]{0, 3}, t) "
        "y = Reshape (c, d)]]", channels=12),
    _pictures("a maximum of maxima", "[[y = MaxPool <kernel_shape = [3, 3]> "
        "(x)|a = MaxPool <kernel_shape = [3, 1]> (x) y = MaxPool <kernel_shape = [1, 3]> (a)]]"),
    _pictures("ceil_mode where it changes nothing",
        "y = MaxPool <kernel_shape = [2, 2], strides = [1, 1], ceil_mode = [[0|1]]> (x)"),
    _pictures("channels last for a while", "[[y = Mul (x, #float[3,1,1]~1)|a = Transpose <perm = "
        "[0, 2, 3, 1]> (x) b = Reshape (#float[3,1,1]~1, #int64[1]{3}) c = Mul (a, b) "
        "y = Transpose <perm = [0, 3, 1, 2]> (c)]]"),
]  # fmt: skip


def _whole(name: str, kind: str, body: str, *x: int, made: str | None = None) -> Pair:
    made = None if made is None else f"{made}[N]"
    return pair(name, one(f"{kind}[N]", body, made), x=np.array(x or (3, 1, 7, 0)))


EQUAL_INTEGERS: list[Pair] = [
    _whole("a bound that bytes never pass", "uint8", "y = [[Identity (x)|Min (x, #uint8{255})]]",
        255, 0),
    _whole("a bound of signed bytes", "int8", "y = [[Identity (x)|Max (x, #int8{-128})]]", -128,
        127),
    _whole("the magnitude of bytes", "uint8", "y = [[Identity (x)|Abs (x)]]", 200, 3),
    _whole("doubles by a shift", "uint8",
        "y = [[Add (x, x)|BitShift <direction = \"LEFT\"> (x, #uint8{1})]]", 200, 3),
    _whole("a quotient by a shift", "uint32",
        "y = [[Div (x, #uint32{16})|BitShift <direction = \"RIGHT\"> (x, #uint32{4})]]", 2**32 - 1,
        7),
    _whole("a remainder by bits", "uint32",
        "y = [[Mod (x, #uint32{16})|BitwiseAnd (x, #uint32{15})]]", 2**32 - 1, 7),
    _whole("a remainder in parts", "int64", "[[y = Mod (x, #int64{5})|q = Div (x, #int64{5}) "
        "m = Mul (q, #int64{5}) r = Sub (x, m) a = Add (r, #int64{5}) c = Less (r, #int64{0}) "
        "y = Where (c, a, r)]]", -3, 7),
    _whole("a negation by bits", "int32",
        "[[y = Neg (x)|a = BitwiseNot (x) y = Add (a, #int32{1})]]", -3, 7),
    _whole("an index between two bounds", "int64", "[[i = Clip (x, #int64{-5}, #int64{4})|a = "
        "Max (x, #int64{-5}) i = Min (a, #int64{4})]] y = Gather (#int64[5]{2, 3, 5, 7, 11}, i)",
        -300, 3),
    _whole("an index that is bounded in vain", "int64", "a = Mod (x, #int64{5}) "
        "[[i = Identity (a)|i = Max (a, #int64{0})]] y = Gather (#int64[5]{2, 3, 5, 7, 11}, i)",
        -300, 3),
    _whole("an absolute value in int64", "int64", "[[y = Abs (x)|a = Neg (x) y = Max (x, a)]]", -3,
        7),
    _whole("bytes through int32", "uint8",
        "[[y = Identity (x)|a = Cast <to = 6> (x) y = Cast <to = 2> (a)]]", 200, 3),
    _whole("int32 through int64", "int32",
        "[[y = Neg (x)|a = Cast <to = 7> (x) b = Neg (a) y = Cast <to = 6> (b)]]", -200, 3),
    _whole("int16 through float", "int16",
        "[[y = Identity (x)|a = Cast <to = 1> (x) y = Cast <to = 5> (a)]]", -20000, 3),
    _whole("int32 through double", "int32",
        "[[y = Identity (x)|a = Cast <to = 11> (x) y = Cast <to = 6> (a)]]", 2**31 - 1, 3),
    _whole("a comparison turned around", "int64", "[[c = Less (x, #int64{100})|d = "
        "GreaterOrEqual (x, #int64{100}) c = Not (d)]] y = Cast <to = 7> (c)", 100, 99),
    _whole("a comparison with the next number", "int64",
        "c = [[Less (x, #int64{100})|LessOrEqual (x, #int64{99})]] y = Cast <to = 7> (c)", 100, 99),
    _whole("a sum that wraps as a difference", "int32", "[[y = Add (x, #int32{2147483647})|a = "
        "Sub (x, #int32{1}) y = Add (a, #int32{-2147483648})]]", 100, 99),
    _whole("wrapping products in another order", "int32", "[[a = Mul (x, #int32{65537}) "
        "y = Mul (a, #int32{1003})|a = Mul (x, #int32{1003}) y = Mul (a, #int32{65537})]]", 70000,
        -99),
    _whole("a product as a sum of shifts", "int64",
        "[[y = Mul (x, #int64{5})|a = Mul (x, #int64{4}) y = Add (a, x)]]", 70000, -99),
    _whole("dequantised in parts", "uint8", "[[y = DequantizeLinear (x, #float{0.5}, "
        "#uint8{7})|a = Cast <to = 1> (x) b = Sub (a, #float{7}) y = Mul (b, #float{0.5})]]", 200,
        3, made="float"),
    _whole("a table as a Where", "bool", "[[a = Cast <to = 7> (x) y = Gather (#float[2]{3, 5}, "
        "a)|y = Where (x, #float{5}, #float{3})]]", 1, 0, made="float"),
    _whole("de Morgan", "bool",
        "a = Not (x) b = Xor (x, a) [[y = And (x, b)|c = Not (b) d = Or (a, c) y = Not (d)]]", 1,
        0),
    pair("a product of integers in int32", "(uint8[N,4] x) => (int32[N,3] y) "
        "{ [[y = MatMulInteger (x, #uint8[4,3]{0..11})|a = Cast <to = 6> (x) b = Cast <to = 6> "
        "(#uint8[4,3]{0..11}) y = MatMul (a, b)]] }", x=[[1, 2, 3, 200]]),
    pair("a weight that is dequantised first", "(float[N,4] x) => (float[N,3] y) "
        "{ [[w = DequantizeLinear <axis = 1> (#int8[4,3]{-5..6}, #float[3]{1, 0.5, 0.25})|c = "
        "Cast <to = 1> (#int8[4,3]{-5..6}) w = Mul (c, #float[3]{1, 0.5, 0.25})]] "
        "y = MatMul (x, w) }", x=drawn(2, 4), runtime="reference"),
    pair("a double behind a table", "(int64[N] ids) => (float[N,3] y) { a = Gather "
        "(#float[50,3]~1, ids) y = [[Add (a, a)|Mul (a, #float{2})]] }", ids=[49, 0]),
    pair("a table that is scaled", "(int64[N] ids) => (float[N,3] y) { [[a = Gather "
        "(#float[50,3]~1, ids) y = Mul (a, #float{2})|y = Gather (#float[50,3]~1*2, ids)]] }",
        ids=[49, 0]),
]  # fmt: skip


_FUNCTION = """
<domain: "local", opset_import: ["": 18]>
f (u, v) => (w) { s = Sigmoid (u) w = Mul (s, v) }"""

EQUAL_SCOPES: list[Pair] = [
    pair("a function in its place", f"(float[N,4] x) => (float[N,4] y) {{ a = Sin (x) "
        f"[[y = local.f (a, x)|s = Sigmoid (a) y = Mul (s, x)]] }} {_FUNCTION}", x=drawn(2, 4)),
    pair("functions with sizes that are not tied", f"(float[N,4] x, float[M,4] z) => (float[P,4] "
        f"y) {{ a = Sin (x) [[y = local.f (a, z)|s = Sigmoid (a) y = Mul (s, z)]] }} {_FUNCTION}",
        x=drawn(2, 4), z=drawn(2, 4)),
    pair("two functions with sizes that are not tied", f"(float[N,4] x, float[M,4] z) => "
        f"(float[P,4] y) {{ [[a = local.f (x, z) y = local.f (a, x)|s = Sigmoid (x) "
        f"a = Mul (s, z) t = Sigmoid (a) y = Mul (t, x)]] }} {_FUNCTION}", x=drawn(2, 4), z=drawn(2,
        4)),
    pair("an If as a Where", one("float[4]", "m = ReduceMax <keepdims = 0> (x) "
        "c = Greater (m, #float{1}) [[y = If (c) <then_branch = t () => (float[4] u) "
        "{ u = Sin (x) }, else_branch = e () => (float[4] v) { v = Cos (x) }>|a = Sin (x) "
        "b = Cos (x) y = Where (c, a, b)]]"), x=drawn(4)),
    pair("branches that are swapped", one("float[4]", "m = ReduceMax <keepdims = 0> (x) "
        "c = Greater (m, #float{1}) [[y = If (c) <then_branch = t () => (float[4] u) "
        "{ u = Sin (x) }, else_branch = e () => (float[4] v) { v = Cos (x) }>|n = Not (c) "
        "y = If (n) <then_branch = t () => (float[4] u) { u = Cos (x) }, else_branch = e () => "
        "(float[4] v) { v = Sin (x) }>]]"), x=drawn(4)),
    pair("an If that is decided", one("float[4]", "[[y = If (#bool{1}) <then_branch = t () => "
        "(float[4] u) { u = Sin (x) }, else_branch = e () => (float[4] v) { v = Cos (x) "
        "}>|y = Sin (x)]]"), x=drawn(4)),
    pair("a Loop of three trips unrolled", one("float[4]", "[[y = Loop (#int64{3}, , x) "
        "<body = b (int64 i, bool c, float[4] u) => (bool d, float[4] w) { d = Identity (c) "
        "w = Sin (u) }>|a = Sin (x) b = Sin (a) y = Sin (b)]]"), x=drawn(4)),
    pair("a Scan of a map", one("float[N,4]", "[[y = Scan <num_scan_inputs = 1, body = b "
        "(float[4] u) => (float[4] v) { v = Tanh (u) }> (x)|y = Tanh (x)]]"), x=drawn(3, 4)),
    pair("a sequence taken apart", one("float[N,4]",
        "[[y = Sin (x)|s = SequenceConstruct (x, x) a = SequenceAt (s, #int64{1}) y = Sin (a)]]"),
        x=drawn(3, 4)),
    pair("nodes in another order", one("float[N,4]",
        "[[a = Sin (x) b = Cos (x)|b = Cos (x) a = Sin (x)]] c = Mul (a, b) y = Add (c, a)"),
        x=drawn(3, 4)),
    pair("values of other names", one("float[N,4]",
        "[[a = Sin (x) y = Cos (a)|inner = Sin (x) y = Cos (inner)]]"), x=drawn(3, 4)),
    pair("names that stand for each other", one("float[N,4]",
        "[[a = Sin (x) b = Cos (x) y = Sub (a, b)|b = Sin (x) a = Cos (x) y = Sub (b, a)]]"),
        x=drawn(3, 4)),
    pair("a weight behind an Identity", "(float[N,4] x) => (float[N,4] y) <float[4] "
        "w = {1, 2, 3, 4}, float[4] v = {5, 6, 7, 8}> { [[a = Mul (x, w)|b = Identity (w) "
        "a = Mul (b, x)]] y = Add (a, v) }", x=drawn(3, 4)),
    pair("weights of swapped names", "(float[N,4] x) => (float[N,4] y) <float[4] "
        "w = [[{1, 2, 3, 4}|{5, 6, 7, 8}]], float[4] v = [[{5, 6, 7, 8}|{1, 2, 3, 4}]]> "
        "{ a = Mul (x, [[w|v]]) y = Add (a, [[v|w]]) }", x=drawn(3, 4)),
    pair("a Constant for an initializer", one("float[N,4]",
        "[[y = Mul (x, #float[1]{3})|c = Constant <value = float[1] {3}> () y = Mul (x, c)]]"),
        x=drawn(3, 4)),
    pair("a BlackmanWindow of double in parts", one("double[16]",
        "[[w = BlackmanWindow <output_datatype = 11> (#int64{16})|r = Mul (#double[16]{0..15}, "
        "#double{0.39269908169872414}) c = Cos (r) t = Mul (r, #double{2}) d = Cos (t) "
        "e = Mul (c, #double{-0.5}) f = Mul (d, #double{0.08}) g = Add (e, f) "
        "w = Add (g, #double{0.42})]] y = Mul (x, w)"), x=drawn(16)),
    pair("both random alike", one("float[N,50]",
        "[[r = RandomNormalLike (x) y = Add (r, x)|r = RandomNormalLike (x) y = Add (x, r)]]"),
        x=drawn(9, 50), is_random=True),
]  # fmt: skip


def _attention(
    name: str, body: str, kind: str = "float", scale: float = 1.0, heads: Sequence[int] = (2, 2),
        **own: object
) -> Pair:  # fmt: skip
    """Return models of q (B, H, L, 4), and k and v (B, K, S, 4)."""
    many, few = heads
    text = f"""({kind}[B,{many},L,4] q, {kind}[B,{few},S,4] k, {kind}[B,{few},S,4] v)
    => ({kind}[B,{many},L,4] y) {{ {body} }}"""
    feeds: dict[str, Feed] = {"q": drawn(2, many, 3, 4, scale=scale)}
    feeds |= {name: drawn(2, few, 5, 4) for name in "kv"}
    return pair(name, text, opset=24, **feeds, **own)


_PARTS = "t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, t) s = Mul (a, #float{0.5})"
_CAUSAL = """l = Shape <start = 2, end = 3> (q) s0 = Shape <start = 2, end = 3> (k)
n = Concat <axis = 0> (l, s0) o = Expand (#float{-10000}, n) m = Trilu (o, #int64{1})"""

EQUAL_CACHES: list[Pair] = [
    _attention("attention in parts",
        f"[[y = Attention (q, k, v)|{_PARTS} w = Softmax (s) y = MatMul (w, v)]]"),
    _attention("attention in parts of double", "[[y = Attention (q, k, v)|t = Transpose <perm = "
        "[0, 1, 3, 2]> (k) a = MatMul (q, t) s = Mul (a, #double{0.5}) w = Softmax (s) "
        "y = MatMul (w, v)]]", "double"),
    _attention("a scale before instead of after", "[[y = Attention (q, k, v)|r = Mul (q, "
        "#float{0.5}) t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (r, t) w = Softmax (a) "
        "y = MatMul (w, v)]]"),
    _attention("a causal mask that is added",
        f"{_CAUSAL} [[y = Attention <is_causal = 1> (q, k, v)|y = Attention (q, k, v, m)]]",
        runtime="reference"),
    _attention("a mask of Boolean values", f"{_CAUSAL} [[y = Attention (q, k, v, m)|b = Equal "
        f"(m, #float{{0}}) y = Attention (q, k, v, b)]]"),
    _attention("a mask that is added in parts", f"{_CAUSAL} [[y = Attention (q, k, v, "
        f"m)|{_PARTS} d = Add (s, m) w = Softmax (d) y = MatMul (w, v)]]"),
    _attention("a softcap in parts", f"[[y = Attention <softcap = 5.0> (q, k, v)|{_PARTS} "
        f"c = Div (s, #float{{5}}) d = Tanh (c) e = Mul (d, #float{{5}}) w = Softmax (e) "
        f"y = MatMul (w, v)]]", scale=3.0),
    _attention("shared keys that are repeated", "[[y = Attention (q, k, v)|a = Unsqueeze (k, "
        "#int64[1]{2}) b = Expand (a, #int64[5]{1, 1, 3, 1, 1}) "
        "c = Reshape (b, #int64[4]{0, 6, -1, 4}) d = Unsqueeze (v, #int64[1]{2}) "
        "e = Expand (d, #int64[5]{1, 1, 3, 1, 1}) f = Reshape (e, #int64[4]{0, 6, -1, 4}) "
        "y = Attention (q, c, f)]]", heads=(6, 2)),
    _attention("heads in reverse", "[[y = Attention (q, k, v)|a = Gather <axis = 1> "
        "(q, #int64[2]{1, 0}) b = Gather <axis = 1> (k, #int64[2]{1, 0}) c = Gather <axis = 1> "
        "(v, #int64[2]{1, 0}) d = Attention (a, b, c) y = Gather <axis = 1> "
        "(d, #int64[2]{1, 0})]]"),
    pair("causal attention with a past", "(float[B,2,L,4] q, float[B,2,L,4] k, float[B,2,P,4] "
        "past_k) => (float[B,2,L,4] y, float[B,2,T,4] present_k) "
        "{ [[y, present_k, pv = Attention <is_causal = 1> (q, k, k, , past_k, past_k)|present_k "
        "= Concat <axis = 2> (past_k, k) l = Shape <start = 2, end = 3> (q) "
        "t = Shape <start = 2, end = 3> (present_k) p = Shape <start = 2, end = 3> (past_k) "
        "d = Concat <axis = 0> (l, t) o = Expand (#float{-10000}, d) p0 = Squeeze (p) "
        "p1 = Add (p0, #int64{1}) m = Trilu (o, p1) y = Attention (q, present_k, present_k, m)]] "
        "}", opset=24, q=drawn(1, 2, 3, 4), k=drawn(1, 2, 3, 4), past_k=drawn(1, 2, 5, 4),
        runtime="reference"),
    pair("TensorScatter as ScatterElements", "(float[B,12,3] cache, float[B,L,3] new, int64[B] "
        "pos) => (float[B,12,3] present) { [[present = TensorScatter <axis = 1> "
        "(cache, new, pos)|n = Shape <start = 1, end = 2> (new) n0 = Squeeze (n) "
        "z = Sub (n0, n0) o = Squeeze (#int64[1]{1}) r = Range (z, n0, o) "
        "u = Unsqueeze (pos, #int64[1]{1}) a = Add (u, r) b = Unsqueeze (a, #int64[1]{2}) "
        "s = Shape (new) i = Expand (b, s) present = ScatterElements <axis = 1> "
        "(cache, i, new)]] }", opset=24, cache=drawn(2, 12, 3), new=drawn(2, 2, 3), pos=[10, 3]),
    pair("a circular cache by remainders", "(float[B,12,3] cache, float[B,L,3] new, int64[B] "
        "pos) => (float[B,12,3] present) { [[present = TensorScatter <axis = 1, mode = "
        "\"circular\"> (cache, new, pos)|n = Shape <start = 1, end = 2> (new) n0 = Squeeze (n) "
        "z = Sub (n0, n0) o = Squeeze (#int64[1]{1}) r = Range (z, n0, o) "
        "u = Unsqueeze (pos, #int64[1]{1}) a = Add (u, r) c = Mod (a, #int64{12}) "
        "b = Unsqueeze (c, #int64[1]{2}) s = Shape (new) i = Expand (b, s) "
        "present = ScatterElements <axis = 1> (cache, i, new)]] }", opset=24, cache=drawn(2, 12, 3),
        new=drawn(2, 2, 3), pos=[11, 3]),
    pair("a start modulo the capacity, where starts are below it",
        "(float[B,12,3] cache, float[B,L,3] new, int64[B] pos) => (float[B,12,3] present) "
        "{ [[at = Identity (pos)|at = Mod (pos, #int64{12})]] present = TensorScatter <axis = 1> "
        "(cache, new, at) }", opset=24, cache=drawn(2, 12, 3), new=drawn(2, 2, 3), pos=[10, 3]),
    pair("a window of all rows that a growing cache may hold",
        "(float[B,2,L,4] q, float[B,2,L,4] k, float[B,2,P,4] past_k) => (float[B,2,L,4] "
        "y, float[B,2,T,4] present_k) { present_k = Concat <axis = 2> (past_k, k) "
        "[[e = Identity (present_k)|e = Slice (present_k, #int64[1]{-99999}, #int64[1]{99999}, "
        "#int64[1]{2})]] y = Attention (q, e, e) }", opset=24, q=drawn(1, 2, 3, 4), k=drawn(1, 2, 3,
        4), past_k=drawn(1, 2, 5, 4)),
    pair("rotary halves in parts", "(float[B,2,L,8] x, int64[B,L] ids) => (float[B,2,L,8] y) "
        "{ c = Gather (#float[50,4]~1, ids) s = Gather (#float[50,4]~2, ids) "
        "[[y = RotaryEmbedding (x, c, s)|c1 = Unsqueeze (c, #int64[1]{1}) "
        "s1 = Unsqueeze (s, #int64[1]{1}) a, b = Split <axis = 3, num_outputs = 2> (x) "
        "ac = Mul (a, c1) bs = Mul (b, s1) f = Sub (ac, bs) bc = Mul (b, c1) as = Mul (a, s1) "
        "g = Add (bc, as) y = Concat <axis = 3> (f, g)]] }", opset=23, x=drawn(1, 2, 3, 8), ids=[[3,
        40, 49]]),
    pair("a Concat of keys before or after the heads are split",
        "(float[B,L,8] k, float[B,P,8] past_k) => (float[B,T,8] present_k, float[B,T,4] y) "
        "{ present_k = Concat <axis = 1> (past_k, k) [[y = MatMul (present_k, #float[8,4]~1)|a = "
        "MatMul (past_k, #float[8,4]~1) b = MatMul (k, #float[8,4]~1) y = Concat <axis = 1> "
        "(a, b)]] }", k=drawn(1, 2, 8), past_k=drawn(1, 5, 8)),
    pair("a mean over rows in use", "(float[B,64,3] cache, int64 used) => (float[B,3] y) "
        "{ u = Unsqueeze (used, #int64[1]{0}) [[a = Slice (cache, #int64[1]{0}, u, #int64[1]{1}) "
        "y = ReduceSum <keepdims = 0> (a, #int64[1]{1})|c = Less (#int64[64]{0..63}, used) "
        "d = Cast <to = 1> (c) e = Unsqueeze (d, #int64[1]{1}) f = Mul (cache, e) "
        "y = ReduceSum <keepdims = 0> (f, #int64[1]{1})]] }", cache=drawn(2, 64, 3), used=30),
]  # fmt: skip
