"""Models that differ where only a value or a length of their own shows it: each pair is found."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest

from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.verification.engine import compare_models
from onnx_kvtool.verification.report import Settings, VerifyReport
from onnx_kvtool.verification.subject import capture
from tests.grids import part

_HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '

_F = "(float[N,7] x) => (float[N,7] y) "
_I64 = "(int64[N,7] x) => (int64[N,7] y) "
_I32 = "(int32[N,7] x) => (int32[N,7] y) "
_U8 = "(uint8[N,7] x) => (float[N,7] y) "

VALUES: dict[str, tuple[str, str, str]] = {
    "a Log at the front hides a factor": (
        _F + "<float[7,7] w = {weights}, float f = {{-3}}>",
        "{{ l = Log(x) m = MatMul(l, w) y = Identity(m) }}",
        "{{ l = Log(x) m = MatMul(l, w) y = Mul(m, f) }}",
    ),
    "a Sqrt at the front hides a factor": (
        _F + "<float[7,7] w = {weights}, float f = {{-3}}>",
        "{{ l = Sqrt(x) m = MatMul(l, w) y = Identity(m) }}",
        "{{ l = Sqrt(x) m = MatMul(l, w) y = Mul(m, f) }}",
    ),
    "a dead Relu hides a factor": (
        _F + "<float b = {{-40}}, float f = {{3}}>",
        "{{ l = Add(x, b) y = Relu(l) }}",
        "{{ l = Add(x, b) m = Relu(l) y = Mul(m, f) }}",
    ),
    "pixels read as signed": (
        _U8,
        "{{ y = Cast<to: int = 1>(x) }}",
        "{{ i = Cast<to: int = 3>(x) y = Cast<to: int = 1>(i) }}",
    ),
    "integers clipped at 4": (
        _I64 + "<int64 four = {{4}}>",
        "{{ y = Identity(x) }}",
        "{{ y = Min(x, four) }}",
    ),
    "the amount of integers": (_I64, "{{ y = Identity(x) }}", "{{ y = Abs(x) }}"),
    "a remainder of the other sign": (
        _I64 + "<int64 five = {{5}}>",
        "{{ y = Mod(x, five) }}",
        "{{ y = Mod<fmod: int = 1>(x, five) }}",
    ),
    "an overflow of int32": (
        _I64 + "<int64 three = {{3}}>",
        "{{ y = Mul(x, three) }}",
        (
            "{{ a = Cast<to: int = 6>(x) b = Cast<to: int = 6>(three) c = Mul(a, b) "
            "y = Cast<to: int = 7>(c) }}"
        ),
    ),
    "integers divided towards zero and down": (
        _I32 + "<int32 two = {{2}}, int32 zero = {{0}}>",
        "{{ y = Div(x, two) }}",
        "{{ m = Mod(x, two) d = Sub(x, m) y = Div(d, two) }}",
    ),
    "a Clip at 6": (
        _F + "<float zero = {{0}}, float six = {{6}}>",
        "{{ y = Relu(x) }}",
        "{{ y = Clip(x, zero, six) }}",
    ),
    "a Clip at 6 behind a product": (
        (
            "(float[N,7] x) => (float[N,7] y) <float[7,7] w = {weights}, "
            "float zero = {{0}}, float six = {{6}}>"
        ),
        "{{ m = MatMul(x, w) y = Relu(m) }}",
        "{{ m = MatMul(x, w) y = Clip(m, zero, six) }}",
    ),
    "an Exp of at most 5": (
        _F + "<float five = {{5}}>",
        "{{ y = Exp(x) }}",
        "{{ m = Min(x, five) y = Exp(m) }}",
    ),
    "a softmax that overflows": (
        _F + "<int64[1] one = {{1}}>",
        "{{ y = Softmax(x) }}",
        "{{ e = Exp(x) s = ReduceSum(e, one) y = Div(e, s) }}",
    ),
    "another epsilon": (
        _F + "<float[7] s = {{1, 2, 3, 1, 2, 3, 5}}>",
        "{{ y = LayerNormalization<epsilon: float = 0.00001>(x, s) }}",
        "{{ y = LayerNormalization<epsilon: float = 0.000001>(x, s) }}",
    ),
    "the last of equal elements": (
        "(float[N,7] x) => (int64[N,1] y) ",
        "{{ y = ArgMax<axis: int = 1>(x) }}",
        "{{ y = ArgMax<axis: int = 1, select_last_index: int = 1>(x) }}",
    ),
    "a threshold of one model alone": (
        _F + "<float t = {{17.5}}>",
        "{{ y = Identity(x) }}",
        "{{ c = Less(x, t) y = Where(c, x, t) }}",
    ),
    "a default that is overridden": (
        "(float[N,7] x, float f) => (float[N,7] y) <float f = {{3}}, float three = {{3}}>",
        "{{ y = Mul(x, f) }}",
        "{{ y = Mul(x, three) }}",
    ),
    "a picture of odd size": (
        "(float[1,2,H,W] x) => (float[1,2,P,Q] y) ",
        "{{ y = MaxPool<kernel_shape: ints = [2, 2], strides: ints = [2, 2]>(x) }}",
        (
            "{{ y = MaxPool<kernel_shape: ints = [2, 2], strides: ints = [2, 2], "
            "ceil_mode: int = 1>(x) }}"
        ),
    ),
    "explicit pads for SAME_UPPER": (
        "(float[1,2,H,W] x) => (float[1,2,P,Q] y) ",
        (
            "{{ y = MaxPool<kernel_shape: ints = [3, 3], strides: ints = [2, 2], "
            'auto_pad: string = "SAME_UPPER">(x) }}'
        ),
        (
            "{{ y = MaxPool<kernel_shape: ints = [3, 3], strides: ints = [2, 2], "
            "pads: ints = [0, 0, 1, 1]>(x) }}"
        ),
    ),
    "infinity as a number": (
        "(float[N,7] x) => (float[N,7] y) <float one = {{1}}>",
        "{{ i = IsInf(x) y = Where(i, one, x) }}",
        "{{ i = IsInf<detect_negative: int = 0>(x) y = Where(i, one, x) }}",
    ),
    "a table of 16 rows for positions": (
        (
            "(int64[B,L] input_ids) => (float[B,L,3] y) <float[20,3] t = {table}, "
            "float[40,3] p = {positions}, int64 zero = {{0}}, int64 one = {{1}}, "
            "int64 last = {{15}}>"
        ),
        (
            "{{ e = Gather(t, input_ids) s = Shape<start: int = 1>(input_ids) n = Squeeze(s) "
            "r = Range(zero, n, one) q = Gather(p, r) y = Add(e, q) }}"
        ),
        (
            "{{ e = Gather(t, input_ids) s = Shape<start: int = 1>(input_ids) n = Squeeze(s) "
            "r = Range(zero, n, one) m = Min(r, last) q = Gather(p, m) y = Add(e, q) }}"
        ),
    ),
}


def _numbers(count: int, period: int) -> str:
    return "{" + ", ".join(str((i * 7 % period - period // 2) / period) for i in range(count)) + "}"


_TABLES = {
    "weights": _numbers(49, 11),
    "table": _numbers(60, 13),
    "positions": _numbers(120, 29),
}


def compared(head: str, a: str, b: str, seed: int) -> VerifyReport:
    subjects = []
    for name, body in (("A", a), ("B", b)):
        text = _HEAD + head.format(**_TABLES) + body.format()
        message = onnx.parser.parse_model(text)
        subjects.append(capture(deserialize(message.SerializeToString()), name))
    return compare_models(subjects[0], subjects[1], Settings(seed=seed))


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", VALUES)
def test_a_pair_that_differs_is_found(name: str, seed: int) -> None:
    head, a, b = VALUES[name]
    assert compared(head, a, b, seed).status == "different"
    for same in (a, b):
        assert compared(head, same, same, seed).status == "equal"
