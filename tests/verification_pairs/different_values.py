"""Pairs that differ in values: hidden ones, whole numbers, tolerances, weights and randomness."""

from __future__ import annotations

import numpy as np

from tests.verification_pairs.pair import Pair, drawn, one, pair

__all__ = ["HIDDEN", "INTEGERS", "RANDOM", "TOLERANCES", "WEIGHTS"]

_F = "float[N]"
_UP = (0.5, 1.5, 2.0)


def _hidden(name: str, body: str, *x: float) -> Pair:
    """Return a pair whose `body` makes `h`, and whose outputs are h and -3 h."""
    return pair(name, one(_F, f"{body} [[y = Identity (h)|y = Mul (h, #float{{-3}})]]"), x=x or _UP)


HIDDEN: list[Pair] = [
    _hidden("a Log of mostly negative draws", "h = Log (x)"),
    _hidden("a Sqrt far to the right", "a = Sub (x, #float{40}) h = Sqrt (a)", 44.0, 49.0),
    _hidden("a Log far to the right", "a = Sub (x, #float{10}) h = Log (a)", 12.0, 20.0),
    _hidden("a power that is not whole", "h = Pow (x, #float{1.5})"),
    _hidden("an Acosh, of numbers above 1", "h = Acosh (x)", 2.0, 3.0),
    _hidden("an Acosh beyond 30", "a = Div (x, #float{30}) h = Acosh (a)", 60.0, 90.0),
    _hidden("an Atanh, of numbers below 1", "a = Mul (x, #float{20}) h = Atanh (a)", 0.01, 0.02),
    _hidden("an Asin of numbers times 9", "a = Mul (x, #float{9}) h = Asin (a)", 0.05, 0.1),
    _hidden("a dead Relu", "a = Sub (x, #float{20}) h = Relu (a)", 21.0, 25.0),
    _hidden("a Relu dead for all but large negative numbers",
        "a = Neg (x) b = Sub (a, #float{50}) h = Relu (b)", -60.0),
    _hidden("a ThresholdedRelu at 30", "h = ThresholdedRelu <alpha = 30.0> (x)", 31.0, 44.0),
    _hidden("numbers far below the tolerance", "h = Mul (x, #float{1e-9})", 1.0, 2.0),
    _hidden("squares of numbers below the tolerance", "a = Mul (x, #float{1e-6}) h = Mul (a, a)"),
    _hidden("a maximum of zero and what is small", "a = Mul (x, #float{1e-12}) h = Relu (a)"),
    _hidden("a shrink at 20", "h = Shrink <lambd = 20.0> (x)", 30.0, -40.0),
    _hidden("an exponential that overflows", "a = Mul (x, #float{300}) b = Exp (a) h = Log (b)",
        0.01),
    _hidden("infinity from a power", "a = Pow (x, #float{2}) b = Add (a, #float{1e-30}) "
        "c = Pow (b, #float{-30}) h = Mul (c, #float{1})", 2.0, 3.0),
    _hidden("a gate that is shut below 12", "a = Sub (x, #float{12}) b = Relu (a) h = Mul (b, x)",
        13.0),
    _hidden("a remainder of what is below it", "a = Abs (x) b = Div (a, #float{64}) h = Floor (b)",
        70.0, 200.0),
    pair(
        "a branch of Where that is not taken below 50",
        one(_F, "c = Greater (x, #float{50}) a = Mul (x, #float{[[1|-3]]}) y = Where (c, a, x)"),
        x=[60.0, 1.0],
    ),
    pair(
        "a branch of If that is not taken below 40",
        one(
            "float[4]",
            """m = ReduceMax <keepdims = 0> (x) c = Greater (m, #float{40})
            y = If (c) <then_branch = t () => (float[4] u) { u = Mul (x, #float{[[1|-3]]}) },
            else_branch = e () => (float[4] v) { v = Identity (x) }>""",
        ),
        x=[1.0, 50.0, 2.0, 3.0],
    ),
    pair(
        "a saturated softmax",
        one("float[N,3]", "a = Mul (x, #float{[[10000|-20000]]}) b = Add (a, #float[3]{0, "
            "300000, 0}) y = Softmax (b)"),
        x=[[60.0, 1.0, 2.0]],
    ),
    pair(
        "a saturated Sigmoid",
        one(_F, "a = Sub (x, #float{[[150|160]]}) y = Sigmoid (a)"),
        x=[150.0, 158.0],
    ),
    pair(
        "a Tanh that draws always saturate",
        one(_F, "a = Add (x, #float{90}) b = Mul (a, #float{[[1|0.5]]}) y = Tanh (b)"),
        x=[-90.5, -89.0],
    ),
    pair(
        "zero over zero unless numbers are large",
        one(_F,
            "a = Sub (x, #float{30}) b = Relu (a) c = [[Add (b, b)|Identity (b)]] y = Div (c, b)"),
        x=[31.0, 40.0],
    ),
    pair(
        "logits behind an underflow",
        one(_F, "a = Sub (x, #float{120}) b = Exp (a) c = Mul (b, #float{[[1|-3]]}) "
            "y = Add (c, #float{0})"),
        x=[120.0, 121.0],
    ),
    pair(
        "a mean whose variance is never large",
        one("float[N,8]", "v = ReduceMean <keepdims = 1> (x, #int64[1]{1}) "
            "a = Sub (v, #float{8}) b = Relu (a) c = Mul (b, #float{[[1|-3]]}) y = Add (x, c)"),
        x=drawn(2, 8, least=20.0),
    ),
    pair(
        "a Loop without a trip below 5",
        "(int64[1] n, float[3] x) => (float[3] y) { m = Sub (n, #int64[1]{5}) "
            "k = ReduceMax <keepdims = 0> (m) "
        "y = Loop (k, , x) <body = b (int64 i, bool c, float[3] u) => (bool d, float[3] w) "
        "{ d = Identity (c) w = Mul (u, #float{[[2|-3]]}) }> }",
        n=[7],
        x=_UP,
    ),
]  # fmt: skip


def _whole(name: str, kind: str, body: str, *x: int, made: str | None = None) -> Pair:
    made = None if made is None else f"{made}[N]"
    return pair(name, one(f"{kind}[N]", body, made), x=np.array(x))


INTEGERS: list[Pair] = [
    _whole("pixels read as signed", "uint8",
        "[[a = Identity (x)|a = Cast <to = 3> (x)]] y = Cast <to = 1> (a)", 200, 3, made="float"),
    *(
        _whole(f"clipped at 4 in {kind}", kind, "y = [[Identity (x)|Min (x, #KIND{4})]]".replace(
            "KIND", kind), 9, 2)
        for kind in ("uint8", "int8", "int32", "int64", "uint32", "uint64", "int16")
    ),
    _whole("clipped at 200", "uint8", "y = [[Identity (x)|Clip (x, , #uint8{200})]]", 201, 255),
    _whole("clipped from 0 on", "int8", "y = [[Identity (x)|Clip (x, #int8{0})]]", -1, 5),
    *(
        _whole(f"no absolute value in {kind}", kind, "y = [[Abs|Identity]] (x)", -3, 5)
        for kind in ("int64", "int32", "int8", "int16")
    ),
    _whole("remainders of the sign of the dividend", "int64",
        "y = Mod <fmod = [[0|1]]> (x, #int64{5})", -3, 7),
    _whole("remainders of a negative divisor", "int32", "y = Mod <fmod = [[0|1]]> (x, #int32{-5})",
        3, 7),
    _whole("an overflow of int32", "int64", "[[a = Mul (x, #int64{65536}) y = Identity (a)|b = "
        "Cast <to = 6> (x) c = Mul (b, #int32{65536}) y = Cast <to = 7> (c)]]", 70000, 3),
    _whole("int64 through int32", "int64",
        "[[y = Identity (x)|b = Cast <to = 6> (x) y = Cast <to = 7> (b)]]", 2**31 + 5, 2),
    _whole("int32 through int16", "int32",
        "[[y = Identity (x)|b = Cast <to = 5> (x) y = Cast <to = 6> (b)]]", 40000, 2),
    _whole("int32 through float", "int32",
        "[[y = Identity (x)|b = Cast <to = 1> (x) y = Cast <to = 6> (b)]]", 2**24 + 1, 2),
    _whole("int64 through double", "int64",
        "[[y = Identity (x)|b = Cast <to = 11> (x) y = Cast <to = 7> (b)]]", 2**53 + 1, 2),
    _whole("int32 through float16", "int32",
        "[[y = Identity (x)|b = Cast <to = 10> (x) y = Cast <to = 6> (b)]]", 2049, 2),
    _whole("uint16 through uint8", "uint16",
        "[[y = Identity (x)|b = Cast <to = 2> (x) y = Cast <to = 4> (b)]]", 300, 2),
    _whole("a quotient that is cut instead of floored", "int64",
        "d = Div (x, #int64{4}) m = Mod (x, #int64{4}) s = Sub (x, m) f = Div (s, #int64{4}) "
        "y = Identity ([[d|f]])", -7, 9),
    _whole("Div against a shift", "uint32",
        "y = [[Div (x, #uint32{1024})|BitShift <direction = \"RIGHT\"> (x, #uint32{11})]]", 5000,
        2),
    _whole("the lower seven bits", "uint8", "y = [[Identity (x)|BitwiseAnd (x, #uint8{127})]]", 200,
        3),
    _whole("the lowest byte", "int64", "y = [[Identity (x)|BitwiseAnd (x, #int64{255})]]", 300, -5),
    _whole("a sign instead of a bound", "int64", "y = [[Sign (x)|Min (x, #int64{1})]]", -5, 3),
    _whole("no bound below", "int64", "y = [[Max (x, #int64{0})|Identity (x)]]", -5, 3),
    _whole("no Relu", "int32", "y = [[Relu|Identity]] (x)", -5, 3),
    _whole("a comparison at 100", "int64",
        "c = [[Greater|GreaterOrEqual]] (x, #int64{100}) y = Cast <to = 7> (c)", 100, 3),
    _whole("a comparison with 777", "int32",
        "c = Equal (x, #int32{[[777|778]]}) y = Cast <to = 6> (c)", 777, 3),
    _whole("a comparison in float", "int64", "[[a = Equal (x, #int64{16777217})|b = Cast <to = "
        "1> (x) a = Equal (b, #float{16777217})]] y = Cast <to = 7> (a)", 2**24, 3),
    _whole("a comparison of unsigned numbers as signed ones", "uint32",
        "[[a = Greater (x, #uint32{9})|b = Cast <to = 6> (x) a = Greater (b, #int32{9})]] "
        "y = Cast <to = 12> (a)", 2**31 + 9, 3),
    _whole("a negation of unsigned bytes", "uint8", "[[a = Sub (#uint8{7}, x) y = Identity (a)|b "
        "= Cast <to = 6> (x) c = Sub (#int32{7}, b) d = Max (c, #int32{0}) y = Cast <to = 2> "
        "(d)]]", 9, 3),
    _whole("a square that overflows", "int32", "[[y = Mul (x, x)|a = Cast <to = 1> (x) "
        "b = Mul (a, a) c = Min (b, #float{2147483520}) y = Cast <to = 6> (c)]]", 70000, 3),
    _whole("a remainder of 64", "int64", "y = [[Identity (x)|Mod (x, #int64{64})]]", 65, 3),
    _whole("a remainder of 8 for 16", "uint8", "y = Mod (x, #uint8{[[16|8]]})", 9, 3),
    _whole("a Where below -1", "int64",
        "c = Less (x, #int64{-1}) y = Where (c, #int64{[[0|9]]}, x)", -5, 3),
    _whole("no inversion, but a subtraction from 3", "uint8",
        "y = [[BitwiseXor (x, #uint8{3})|Sub (#uint8{3}, x)]]", 9, 3),
    _whole("a sum of bits", "uint8", "y = [[BitwiseOr|Add]] (x, #uint8{64})", 64, 3),
    _whole("a table of 4 that is read from the end", "int64",
        "i = [[Clip (x, #int64{-5}, #int64{4})|Clip (x, #int64{0}, #int64{4})]] "
        "y = Gather (#int64[5]{2, 3, 5, 7, 11}, i)", -2, 3),
    _whole("the sign of ids", "int64",
        "i = [[Identity|Abs]] (x) y = Gather (#int64[5]{2, 3, 5, 7, 11}, i)", -1, 3),
    _whole("ids below zero that become 0", "int64",
        "[[i = Identity (x)|i = Max (x, #int64{0})]] y = Gather (#int64[5]{2, 3, 5, 7, 11}, i)",
        -1, 3),
    _whole("zero points of bytes", "uint8",
        "y = DequantizeLinear (x, #float{0.5}, #uint8{[[0|1]]})", 9, 3, made="float"),
    _whole("a doubled byte that does not wrap", "uint8", "[[y = Add (x, x)|a = Cast <to = 6> (x) "
        "b = Add (a, a) c = Min (b, #int32{255}) y = Cast <to = 2> (c)]]", 200, 3),
    _whole("doubles of whole numbers by float", "int32", "[[y = Mul (x, #int32{3})|a = Cast <to "
        "= 1> (x) b = Mul (a, #float{3}) y = Cast <to = 6> (b)]]", 16777219, 3),
    _whole("a shift by 4 of 8 bits", "uint8", "[[a = BitShift <direction = \"LEFT\"> "
        "(x, #uint8{4}) y = Cast <to = 6> (a)|b = Cast <to = 6> (x) y = Mul (b, #int32{16})]]", 200,
        3, made="int32"),
    _whole("ties of a sum in int32", "int32", "[[y = CumSum (x, #int64{0})|a = Cast <to = 1> (x) "
        "b = CumSum (a, #int64{0}) y = Cast <to = 6> (b)]]", 16777216, 1, 1),
    pair("a mean in whole numbers", one("int64[N,3]", "[[y = ReduceMean <keepdims = 0> "
        "(x, #int64[1]{1})|a = Cast <to = 1> (x) b = ReduceMean <keepdims = 0> (a, #int64[1]{1}) "
        "c = Round (b) y = Cast <to = 7> (c)]]", "int64[N]"), x=[[1, 1, 3]]),
    pair("a maximum of absolute values", one("int64[N,3]",
        "[[a = Abs (x)|a = Identity (x)]] y = ReduceMax <keepdims = 0> (a, #int64[1]{1})",
        "int64[N]"), x=[[1, -9, 3]]),
    pair("rounding to bytes without saturation", one(_F, "[[a = Clip (x, #float{0}, "
        "#float{255})|a = Identity (x)]] b = Cast <to = 6> (a) y = Cast <to = 1> (b)"), x=[300.0,
        2.0]),
    pair("quantised to signed bytes", one(_F, "a = QuantizeLinear (x, #float{0.1}, "
        "[[#uint8{128}|#int8{0}]]) y = DequantizeLinear (a, #float{0.1}, "
        "[[#uint8{128}|#int8{1}]])"), x=[300.0, 2.0]),
    pair("steps of a quantiser that ends at 100", one(_F, "[[a = Identity (x)|a = Clip (x, "
        "#float{-10}, #float{10})]] b = QuantizeLinear (a, #float{0.1}, #int8{0}) "
        "y = DequantizeLinear (b, #float{0.1}, #int8{0})"), x=[11.0, 2.0]),
]  # fmt: skip


TOLERANCES: list[Pair] = [
    pair("an offset of 0.02 beside an unused bfloat16 weight",
        "(float[N,4] x) => (float[N,5] y) <bfloat16[2] u = {1, 2}> "
        "{ a = MatMul (x, #float[4,5]~1) y = Add (a, #float{[[0|0.02]]}) }", x=drawn(2, 4)),
    pair("an offset of 0.02 beside an unused float16 weight",
        "(float[N,4] x) => (float[N,5] y) <float16[2] u = {1, 2}> "
        "{ a = MatMul (x, #float[4,5]~1) y = Add (a, #float{[[0|0.02]]}) }", x=drawn(2, 4)),
    pair("an offset of 0.02 beside a bfloat16 weight that only B has",
        "(float[N,4] x) => (float[N,5] y) [[ |<bfloat16[2] u = {1, 2}>]] "
        "{ a = MatMul (x, #float[4,5]~1) y = Add (a, #float{[[0|0.02]]}) }", x=drawn(2, 4)),
    pair("an offset of 0.02 beside a weight of 8 bits", "(float[N,4] x) => (float[N,5] y) "
        "<int8[4,5] u = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19}> "
        "{ w = DequantizeLinear (u, #float{0.1}, #int8{0}) b = MatMul (x, w) a = Tanh (b) "
        "y = Add (a, #float{[[0|0.02]]}) }", x=drawn(2, 4)),
    pair("an offset of 0.02 beside an output of bfloat16", "(float[N,4] x, bfloat16[N] z) => "
        "(float[N,5] y, bfloat16[N] w) { w = Identity (z) a = MatMul (x, #float[4,5]~1) "
        "y = Add (a, #float{[[0|0.02]]}) }", x=drawn(2, 4), z=drawn(3), runtime="reference"),
    pair("an offset of 0.004 beside an output of float16", "(float[N,4] x, float16[N] z) => "
        "(float[N,5] y, float16[N] w) { w = Mul (z, z) a = MatMul (x, #float[4,5]~1) "
        "y = Add (a, #float{[[0|0.004]]}) }", x=drawn(2, 4), z=drawn(3), apart=1e-4),
    pair(
        "a small CNN in float16 inside",
        "(float[N,3,8,8] x) => (float[N,5,6,6] y) { "
        "[[a = Conv (x, #float[7,3,1,1]~1) b = Relu (a) c = Conv (b, #float[5,7,3,3]~2) "
            "y = Identity (c)|"
        "h = Cast <to = 10> (x) a = Conv (h, #float16[7,3,1,1]~1) b = Relu (a) "
            "c = Conv (b, #float16[5,7,3,3]~2) y = Cast <to = 1> (c)]] }",
        x=drawn(2, 3, 8, 8),
        apart=1e-4,
    ),
    pair("a product in float16 inside", one("float[N,64]", "[[y = MatMul (x, #float[64,5]~1)|h = "
        "Cast <to = 10> (x) a = MatMul (h, #float16[64,5]~1) y = Cast <to = 1> (a)]]",
        "float[N,5]"), x=drawn(2, 64), apart=5e-5),
    pair("an input rounded to bfloat16", one("float[N,4]", "[[h = Identity (x)|g = Cast <to = "
        "16> (x) h = Cast <to = 1> (g)]] y = MatMul (h, #float[4,5]~1)", "float[N,5]"), x=drawn(7,
        4)),
    pair("a factor of 1.002", one("float[N,4]",
        "a = MatMul (x, #float[4,5]~1) y = Mul (a, #float{[[1|1.002]]})", "float[N,5]"), x=drawn(2,
        4)),
    pair("an offset of 0.002 beside a cast to float16 and back of an input",
        "(float[N,4] x, float[N] z) => (float[N,5] y, float[N] w) { h = Cast <to = 10> (z) "
        "w = Cast <to = 1> (h) a = MatMul (x, #float[4,5]~1) y = Add (a, #float{[[0|0.002]]}) }",
        x=drawn(2, 4), z=drawn(3), apart=1e-4),
    pair("an offset of 0.05 behind one float16 operator of small values", one("float[N,4]",
        "h = Cast <to = 10> (x) a = Mul (h, #float16{0.001}) b = Cast <to = 1> (a) "
        "c = Add (b, #float{[[0|0.05]]}) y = Add (c, x)"), x=drawn(2, 4)),
    pair("small outputs in float16", one("float16[N,4]",
        "a = Mul (x, #float16{0.001}) y = Mul (a, #float16{[[1|-3]]})"), x=drawn(2, 4)),
    pair("a bias of 0.01 in a float16 model of small outputs", one("float16[N,4]",
        "a = Mul (x, #float16{0.01}) y = Add (a, #float16{[[0|0.01]]})"), x=drawn(2, 4)),
]  # fmt: skip


def _weights(name: str, text: str, **feeds: object) -> Pair:
    return pair(name, text, **feeds)


WEIGHTS: list[Pair] = [
    pair("row 5,000 of a table of 6,000",
        "(int64[N] ids) => (float[N,3] y) { y = Gather (#float[6000,3]~1[[|@5000*3]], ids) }",
        ids=[5000, 2]),
    pair("the last row of a table of 40,000",
        "(int64[N] ids) => (float[N,2] y) { y = Gather (#float[40000,2]~1[[|@39999*3]], ids) }",
        ids=[39999, 2]),
    pair("row 5,000 of a table behind a cast", "(int32[N] ids) => (float[N,3] y) "
        "{ i = Cast <to = 7> (ids) a = Gather (#float[6000,3]~1[[|@5000*3]], i) y = Mul (a, a) }",
        ids=[5000, 2]),
    pair("row 5,000 of a table, and other nodes", "(int64[N] ids) => (float[N,3] y) "
        "{ a = Gather (#float[6000,3]~1[[|@5000*3]], ids) y = [[Add (a, a)|Mul (a, #float{2})]] }",
        ids=[5000, 2]),
    pair("row 5,000 of a table, with ids of two axes and a norm",
        "(int64[B,N] ids) => (float[B,N,3] y) { a = Gather (#float[6000,3]~1[[|@5000*-3]], ids) "
        "y = LayerNormalization (a, #float[3]{1, 2, 3}) }", ids=[[5000, 2]]),
    pair("a row of a table that is read by a sum of ids", "(int64[N] a, int64[N] b) => "
        "(float[N,3] y) { i = Add (a, b) y = Gather (#float[3000,3]~1[[|@2500*3]], i) }", a=[2000],
        b=[500]),
    pair("a weight behind a gate that is shut", one("float[N,3]",
        "a = Sub (x, #float{20}) b = Relu (a) c = MatMul (b, #float[3,3]~1[[|@1*-2]]) "
        "y = Add (x, c)"), x=drawn(2, 3, least=22.0)),
    pair("a weight that is nearly zero", one("float[N,3]",
        "y = MatMul (x, #float[3,5]~1*0.000000001[[|@1*-2]])", "float[N,5]"), x=drawn(2, 3)),
    pair("a weight in a branch that is not taken", one("float[3]",
        "m = ReduceMax <keepdims = 0> (x) c = Greater (m, #float{40}) y = If (c) "
        "<then_branch = t () => (float[3] u) { u = Mul (x, #float[3]~1[[|@1*-2]]) "
        "}, else_branch = e () => (float[3] v) { v = Identity (x) }>"), x=[1.0, 50.0, 2.0]),
    pair("a column of a table of 3,000 flags", "(int64[N] ids) => (float[N] y) "
        "{ i = Unsqueeze (ids, #int64[1]{1}) y = GatherND (#float[3000]~1[[|@2900*3]], i) }",
        ids=[2900, 2]),
    pair("the slope of a LeakyRelu that is never reached", one(_F,
        "a = Add (x, #float{50}) y = LeakyRelu <alpha = [[0.01|0.5]]> (a)"), x=[-60.0]),
    pair("alpha of an Elu that is never reached", one(_F,
        "a = Add (x, #float{50}) y = Elu <alpha = [[1.0|2.0]]> (a)"), x=[-60.0]),
    pair("gamma of a Selu, of inputs that are tiny", one(_F,
        "a = Mul (x, #float{0.000000001}) y = Selu <gamma = [[1.0|2.0]]> (a)"), x=[3.0]),
    pair("the bias of an LRN", one("float[N,4,2,2]",
        "y = LRN <size = 3, alpha = 0.0001, bias = [[1.0|1.01]]> (x)"), x=drawn(2, 4, 2, 2)),
    pair("alpha of an LRN", one("float[N,4,2,2]",
        "y = LRN <size = 3, alpha = [[0.0001|0.00015]]> (x)"), x=drawn(2, 4, 2, 2, scale=50.0)),
    pair("alpha of a HardSigmoid that is saturated", one(_F,
        "a = Add (x, #float{50}) y = HardSigmoid <alpha = [[0.2|0.3]]> (a)"), x=[-50.0, -51.0]),
    pair("the number of classes of a OneHot that none reaches",
        "(int64[N] ids) => (float[N,40] y) { y = OneHot (ids, #int64{40}, #float[2]{0, [[1|2]]}) "
        "}", ids=[39, 2]),
    pair("a weight of an embedding by MatMul of a OneHot", "(int64[N] ids) => (float[N,3] y) "
        "{ h = OneHot (ids, #int64{3000}, #float[2]{0, 1}) y = MatMul (h, "
        "#float[3000,3]~1[[|@2500*3]]) }", ids=[2500, 2]),
    pair("one of 4,096 rows of a weight, by little", one("float[N,4096]",
        "y = MatMul (x, #float[4096,2]~1[[|@4000*9]])", "float[N,2]"), x=drawn(1, 4096)),
]  # fmt: skip


RANDOM: list[Pair] = [
    pair("nothing of random numbers hides a factor", one(_F,
        "r = RandomNormalLike (x) z = Mul (r, #float{0}) [[y = Identity (x)|a = Mul (x, "
        "#float{2}) y = Add (a, z)]]"), x=_UP),
    pair("nothing of random numbers in B alone", one(_F, "[[y = Identity (x)|r = "
        "RandomUniformLike (x) z = Mul (r, #float{0}) a = Mul (x, #float{2}) y = Add (a, z)]]"),
        x=_UP),
    pair("a Dropout in training in B alone", one("float[N,50]",
        "[[y = Identity (x)|y = Dropout (x, #float{0.5}, #bool{1})]]"), x=drawn(3, 50, least=1.0)),
    pair("a Bernoulli for a rounding", one(_F,
        "a = Sigmoid (x) [[b = Round (a)|b = Bernoulli (a)]] y = Add (b, x)"), x=drawn(200)),
    pair("a noise in B alone", one(_F, "[[y = Mul (x, #float{2})|r = RandomNormalLike (x) "
        "n = Mul (r, #float{0.1}) a = Mul (x, #float{2}) y = Add (a, n)]]"), x=drawn(9)),
    pair("a mean of 3 instead of 0", one("float[N,50]",
        "r = RandomNormalLike <mean = [[0.0|3.0]]> (x) y = Add (r, x)"), x=drawn(20, 50),
        is_random=True),
    pair("a factor beside random numbers", one("float[N,50]",
        "r = RandomNormalLike <scale = 0.01> (x) a = Mul (x, #float{[[1|3]]}) y = Add (r, a)"),
        x=drawn(20, 50, least=1.0), is_random=True),
    pair("an output that is not random beside one that is", "(float[N,5] x) => (float[N,5] "
        "y, float[N,5] z) { y = RandomNormalLike (x) z = Mul (x, #float{[[1|3]]}) }", x=drawn(20,
        5)),
    pair("a share of zeros of 0.1 instead of 0.5", one("float[N,50]",
        "y = Dropout (x, #float{[[0.5|0.1]]}, #bool{1})"), x=drawn(200, 50, least=1.0),
        is_random=True),
]  # fmt: skip
