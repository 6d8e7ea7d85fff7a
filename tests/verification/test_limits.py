"""Comparisons of models whose runs would not end, or fill the memory, and of those that do not."""

import os
import signal

import onnx_ir as ir
import pytest
from onnx import parser

import onnx_kvtool as kv
from onnx_kvtool.runtime.confined import is_confining
from onnx_kvtool.verification import affordable
from onnx_kvtool.verification.affordable import is_bounded

pytestmark = [
    pytest.mark.forks,
    pytest.mark.long,
    pytest.mark.skipif(not is_confining(), reason="limits hold on Linux alone"),
]


def _loop(trips: str, body: str = "ao = Add(a, a)", rest: str = "") -> str:
    return f"""agraph (float[2] x) => (float[2] y) {{
        c = Constant<value = bool {{1}}>()
        {trips}
        y = Loop({"n" if trips else '""'}, c, x) <body = b (int64 i, bool ci, float[2] a)
            => (bool co, float[2] ao) {{ co = Identity(ci)
            {body} }}>
        {rest} }}"""


_MANY = "n = Constant<value = int64 {4611686018427387904}>()"

_NESTED = """m = Constant<value = int64 {1000000}>()
    ao = Loop(m, ci, a) <body = d (int64 j, bool di, float[2] e) => (bool do, float[2] eo) {
        do = Identity(di)
        eo = Add(e, e) }>"""

_DOUBLING = "\n".join(f"v{n + 1} = Concat<axis = 0>(v{n}, v{n})" for n in range(64))

_WIDE = """agraph (float[2] x) => (float[M] y) {
    n = Constant<value = int64 {100000}>()
    c = Constant<value = bool {1}>()
    s = Constant<value = int64[1] {100000}>()
    r = ReduceSum<keepdims = 1>(x)
    z = Expand(r, s)
    y0, y = Loop(n, c, z) <body = b (int64 i, bool ci, float[K] a)
        => (bool co, float[K] ao, float[K] so) { co = Identity(ci)
        ao = Identity(a)
        so = Identity(a) }>
}"""

_PRODUCTS = """agraph (float[2] x) => (float[M, N] y) {
    s = Constant<value = int64[2] {60000, 1}>()
    t = Constant<value = int64[2] {1, 60000}>()
    r = ReduceSum<keepdims = 1>(x)
    a = Expand(r, s)
    b = Expand(r, t)
    y = MatMul(a, b)
}"""

ENDED = {
    "a Loop without end": (_loop(""), "s"),
    "64 Concats that double": (f"agraph (float[2] v0) => (float[M] v64) {{ {_DOUBLING} }}", "M"),
    "a Loop of 2^62 trips": (_loop(_MANY), "s"),
    "a scan output of gigabytes": (_WIDE, "M"),
    "nested Loops": (_loop("n = Constant<value = int64 {1000000}>()", _NESTED), "s"),
    "a product of two vectors": (_PRODUCTS, "M"),
}

FLAG = {"s": "`--verify-budget 1.2s` allows more", "M": "`--verify-budget 768MiB` allows more"}


def _model(text: str):
    return parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)


@pytest.mark.part(3)
@pytest.mark.parametrize("name", ENDED)
def test_a_comparison_is_ended(name, monkeypatch):
    monkeypatch.setattr(affordable, "_LEAST_SECONDS", 1.0 if ENDED[name][1] == "s" else 60.0)
    text, limit = ENDED[name]
    _, report = kv.lower(_model(text), opset=15, verify_budget="0.1s")
    assert report.verification.status == "skipped"
    assert "were ended" in report.verification.detail
    assert FLAG[limit] in report.verification.detail


def test_the_remedy_is_no_less_than_the_default():
    text, _ = ENDED["64 Concats that double"]
    _, report = kv.lower(_model(text), opset=15, verify_budget="64MiB")
    assert (
        "192 MiB of memory and were ended; `--verify-budget 256MiB`" in report.verification.detail
    )


@pytest.mark.exhaustive
def test_verify_says_so_too(monkeypatch):
    monkeypatch.setattr(affordable, "_LEAST_SECONDS", 1.0)
    model = _model(_loop(""))
    report = kv.verify(model, model, verify_budget="0.1s")
    assert report.status == "unrunnable"
    assert report.detail.startswith("the runs took more than 1.2 s and were ended")


@pytest.mark.exhaustive
def test_forced_verification_writes_nothing(monkeypatch):
    monkeypatch.setattr(affordable, "_LEAST_SECONDS", 1.0)
    monkeypatch.setattr(affordable, "_limits", lambda *_: affordable.Limits(1.0, 1 << 29))
    with pytest.raises(kv.KvtoolError, match="cannot be verified: the runs took more than 1 s"):
        kv.lower(_model(_loop("")), opset=15, verify=True)


BOUNDED = {
    "a chain": ("agraph (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }", True),
    "a Loop": (_loop("n = Constant<value = int64 {3}>()"), False),
    "doubling of what has no size": (
        f"agraph (float[N] v0) => (float[M] v64) {{ {_DOUBLING} }}",
        False,
    ),
    "a size that is an input": (
        "agraph (float[1] x, int64[1] s) => (float[3] y) { y = Expand(x, s) }",
        False,
    ),
    "a size in between that is declared too small": (
        """agraph (float[1] x) => (float y) <float[1] big, int64[1] s = {1000000000}>
        { big = Expand(x, s)
          y = ReduceSum<keepdims = 0>(big) }""",
        False,
    ),
    "a window of a quarter of a million elements": (
        """agraph (float[1, 1, 512, 512] x) => (float[1, 1, 512, 512] y)
        { y = AveragePool<kernel_shape = [510, 512], auto_pad = "SAME_UPPER">(x) }""",
        False,
    ),
    "a small window": (
        """agraph (float[1, 1, 7, 7] x) => (float[1, 1, 5, 5] y)
        { y = AveragePool<kernel_shape = [3, 3]>(x) }""",
        True,
    ),
    "a pattern": (
        'agraph (string[2] x) => (bool[2] y) { y = RegexFullMatch<pattern = "(a+)+b">(x) }',
        False,
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_needs_no_process_of_its_own(name):
    text, expected = BOUNDED[name]
    model = _model(text)
    if "Regex" in text:
        model.opset_import[0].version = 20
    assert is_bounded(ir.from_proto(model), 32 << 20) is expected


def test_a_crash_of_a_run_is_no_crash_of_kvtool(monkeypatch):
    monkeypatch.setattr(affordable, "_compared", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    model = _model(_loop("n = Constant<value = int64 {3}>()"))
    report = kv.verify(model, model)
    assert report.status == "unrunnable"
    assert report.detail == "the runs ended their process (SIGKILL)"
