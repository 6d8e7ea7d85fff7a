"""KV301 to KV311: what releases of runtimes do with a model."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize, serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.releases import releases
from onnx_kvtool.targets.target import find_target
from tests.grids import each, part
from tests.lint.cases import Case, check_case, findings, lint
from tests.lint.rules.decoders import FIRST_KEY, coded, graph, node, planted

CACHE = "float[2, 3, 7, 5]"
ROW = "float[2, 3, 1, 5]"
KEYS = f"{CACHE} past, {ROW} new, int64[2] start"
ORT = ["onnxruntime@1.31.1"]
TRT = ["tensorrt@11.0"]
IREE = ["iree@3.13.0"]
SCATTER = graph("[ts] present = TensorScatter (past, new, start)", KEYS, f"{CACHE} present")
CONTRIB = """
    <ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>
    main (float[2, 3] x, float[3, 5] w) => (y) {
        [g] g = com.microsoft.FusedMatMul (x, w) [n] y = SimplifiedLayerNormalization (g, w)
    }
"""
PLUGIN = """
    <ir_version: 10, opset_import: ["": 18, "com.microsoft": 1, "vendor": 1, "local": 1]>
    main (float[2] x, float s) => (y) {
        a = vendor.Make (x) b = local.f (a) c = com.microsoft.DequantizeLinear (b, s) y = Neg (c)
    }
    <domain: "local", opset_import: ["": 18]> f (x) => (y) { y = Neg (x) }
"""
FIRST_ATTENTION = "model/layers.0/self_attn/Attention_node_14"
SECOND_ATTENTION = "model/layers.1/self_attn/Attention_node_40"


def typed(dtype: str) -> str:
    return SCATTER.replace("float[", f"{dtype}[")


def scatter(attributes: str, past: str, new: str) -> str:
    return graph(
        f"[ts] present = TensorScatter <{attributes}> (past, new, start)",
        f"{past} past, {new} new, int64[2] start",
        f"{past} present",
    )


def attention(inputs: str, more: str = "", attributes: str = "", rows: object = 4) -> str:
    return graph(
        f"[att] y = Attention {attributes} ({inputs})",
        f"float[2, 3, {rows}, 5] q, {CACHE} k, {CACHE} v, int64[2] valid{more}",
        f"float[2, 3, {rows}, 5] y",
    )


def become_circular(message: onnx.ModelProto) -> None:
    scatter = node(message, FIRST_KEY)
    scatter.attribute.append(onnx.helper.make_attribute("mode", "circular"))


def nothing(message: onnx.ModelProto) -> None:
    """Leave the decoder as it is."""


CAUSAL = "<is_causal = 1>"
CASES = {
    "KV301": [
        Case("one cache", SCATTER, at=["ts"], says="copies 1 cache at each step", targets=ORT),
        Case("four of a real decoder", planted(nothing), at=[FIRST_KEY], targets=ORT,
             says="onnxruntime 1.31.1 copies 4 caches at each step, `key_cache.0` first"),
        Case("a cache that cannot be updated in place", graph(
            "present = TensorScatter (past, new, start) y = Neg (past)", KEYS,
            f"{CACHE} present, {CACHE} y"), targets=ORT),
        Case("a release without the operator", SCATTER, targets=["onnxruntime@1.24.4"]),
        Case("another runtime", SCATTER, targets=TRT),
        Case("no target", SCATTER),
    ],
    "KV302": [
        Case("an 8-bit float", typed("float8e4m3fn"), at=["ts"], targets=ORT,
             says="has no TensorScatter for float8e4m3fn, the type of `past_cache` `past`"),
        Case("4-bit integers", typed("int4"), at=["ts"], targets=ORT),
        Case("strings", typed("string"), at=["ts"], targets=ORT),
        Case("half precision", typed("float16"), targets=ORT),
        Case("8-bit integers", typed("int8"), targets=ORT),
        Case("a release without the operator", typed("int4"), targets=["onnxruntime@1.24.4"]),
        Case("no target", typed("int4")),
    ],
    "KV303": [
        Case("circular", scatter('mode = "circular"', CACHE, ROW), at=["ts"], targets=TRT,
             says="`mode` is `circular`, and tensorrt 11.0 takes `linear` alone"),
        Case("circular in 10.15", scatter('mode = "circular"', CACHE, ROW), at=["ts"],
             targets=["tensorrt@10.15"]),
        Case("a real decoder", planted(become_circular), at=[FIRST_KEY], targets=TRT),
        Case("linear", scatter('mode = "linear"', CACHE, ROW), targets=TRT),
        Case("a release without the operator", scatter('mode = "circular"', CACHE, ROW),
             targets=["tensorrt@10.1"]),
        Case("onnxruntime has the mode", scatter('mode = "circular"', CACHE, ROW), targets=ORT),
    ],
    "KV304": [
        Case("3 dimensions", scatter("axis = 1", "float[2, 7, 15]", "float[2, 1, 15]"), at=["ts"],
             says="`past` has 3 dimensions", targets=TRT),
        Case("another axis", scatter("axis = 1", CACHE, "float[2, 1, 7, 5]"), at=["ts"],
             says="`past` has axis 1", targets=TRT),
        Case("a symbolic capacity", scatter("axis = 2", "float[2, 3, S, 5]", ROW), at=["ts"],
             says="`past` has the capacity `S`", targets=TRT),
        Case("a type that it lacks", typed("int8"), at=["ts"], says="`past` has type int8",
             targets=TRT),
        Case("all of it at once", scatter("axis = 1", "double[2, S, 15]", "double[2, 1, 15]"),
             at=["ts"], says="3 dimensions, the capacity `S`, type double", targets=TRT),
        Case("a real decoder with 3 dimensions", planted(nothing), targets=TRT, at=[
            f"model/layers.{layer}/self_attn/TensorScatter_node_{number}"
            for layer, number in ((0, 12), (0, 13), (1, 38), (1, 39))]),
        Case("the form of the layer", SCATTER, targets=TRT),
        Case("a symbolic batch", scatter("axis = -2", "float[B, 3, 7, 5]", "float[B, 3, 1, 5]"),
             targets=TRT),
        Case("a rank that is unknown", scatter("axis = -2", "float[]", "float[]"), targets=TRT),
        Case("onnxruntime takes all of it", scatter("axis = 1", "float[2, 7, 15]",
             "float[2, 1, 15]"), targets=ORT),
    ],
    "KV305": [
        Case("data", RULES["KV305"].bad, at=["cache"], targets=TRT,
             says="`past` [65536, 32769] has 2,147,549,184 elements"),
        Case("every operand", graph(
            "[s] y = ScatterElements (x, i, u)",
            "float[65536, 32768] x, int64[65536, 32768] i, float[65536, 32768] u",
            "float[65536, 32768] y", opset=18), at=["s", "s", "s"], targets=TRT),
        Case("one element less", graph(
            "[s] y = ScatterND (x, i, u)", "float[2147483647] x, int64[1, 1] i, float[1] u",
            "float[2147483647] y", opset=18), targets=TRT),
        Case("a symbolic size", graph(
            "[s] y = ScatterND (x, i, u)", "float[65536, N] x, int64[1, 1] i, float[1, N] u",
            "float[65536, N] y", opset=18), targets=TRT),
        Case("another operator", graph(
            "y = Neg (x)", "float[65536, 65536] x", "float[65536, 65536] y"), targets=TRT),
        Case("no target", RULES["KV305"].bad),
    ],
    "KV306": [
        Case("a length", attention("q, k, v, , , , valid"), at=["att"], targets=TRT,
             says="tensorrt 11.0 takes no Attention with `nonpad_kv_seqlen`"),
        Case("a past", graph(
            "[att] y, a, b = Attention (q, k, v, , c, d)",
            f"{ROW} q, {ROW} k, {ROW} v, {CACHE} c, {CACHE} d", f"{ROW} y, float[] a, float[] b"),
            at=["att"], targets=TRT,
            says="`past_key`, `past_value`, the output `present_key`, the output `present_value`"),
        Case("softcap", attention("q, k, v", attributes="<softcap = 2.5>"), at=["att"],
             targets=TRT, says="`softcap` 2.5"),
        Case("a mask of two dimensions", attention("q, k, v, m", ", bool[4, 7] m"), at=["att"],
             targets=TRT, says="2-dimensional `attn_mask`"),
        Case("a real decoder", planted(nothing), at=[FIRST_ATTENTION, SECOND_ATTENTION],
             targets=TRT, says="`nonpad_kv_seqlen`, 3-dimensional `Q`, 3-dimensional `K`"),
        Case("the plain form", attention("q, k, v, m", ", bool[2, 1, 4, 7] m"), targets=TRT),
        Case("a rank that is unknown", attention("q, k, v, m", ", bool[] m"), targets=TRT),
        Case("onnxruntime takes it", attention("q, k, v, , , , valid"), targets=ORT),
    ],
    "KV307": [
        Case("1.24 ignores the length", attention("q, k, v, , , , valid"), at=["att"],
             targets=["onnxruntime@1.24.4"], says="ignores `nonpad_kv_seqlen`"),
        Case("1.26 aligns the causal limit to the left", attention(
            "q, k, v, , , , valid", attributes=CAUSAL), at=["att"],
            targets=["onnxruntime@1.26.0"], says="to the left, here for 4 queries"),
        Case("a number of queries that is unknown", attention(
            "q, k, v, , , , valid", attributes=CAUSAL, rows="L"), at=["att"], severity="warning",
            targets=["onnxruntime@1.27.0"], says="here for L queries"),
        Case("a real decoder", planted(nothing), at=[FIRST_ATTENTION, SECOND_ATTENTION],
             severity="error", targets=["onnxruntime@1.24.4"]),
        Case("a single query", attention("q, k, v, , , , valid", attributes=CAUSAL, rows=1),
             targets=["onnxruntime@1.26.0"]),
        Case("not causal", attention("q, k, v, , , , valid"), targets=["onnxruntime@1.26.0"]),
        Case("1.28 is right", attention("q, k, v, , , , valid", attributes=CAUSAL),
             targets=["onnxruntime@1.28.0"]),
        Case("no length", attention("q, k, v", attributes=CAUSAL),
             targets=["onnxruntime@1.26.0"]),
    ],
    "KV308": [
        Case("no TensorScatter in 1.24", SCATTER, at=["ts"], targets=["onnxruntime@1.24.4"],
             says="onnxruntime 1.24.4 has no kernel for TensorScatter"),
        Case("nor in OpenVINO", SCATTER, at=["ts"], targets=["openvino"], says="openvino"),
        Case("no Softmax of half precision in 1.15", graph(
            "[s] y = Softmax (x)", "float16[2, 3] x", "float16[2, 3] y", opset=18), at=["s"],
            targets=["onnxruntime@1.15.1"], says="(float16)"),
        Case("an operator of onnxruntime in TensorRT", CONTRIB, at=["g", "n"], targets=TRT,
             says="tensorrt 11.0 imports no `com.microsoft::FusedMatMul`"),
        Case("operators of plugins, functions, and what TensorRT imports", PLUGIN, targets=TRT),
        Case("an operator of onnxruntime in onnxruntime", CONTRIB, targets=ORT),
        Case("the newest release", SCATTER, targets=ORT),
        Case("a type that is unknown", graph(
            "s = vendor.Make () [s] y = Softmax (s)", "", "float[2, 3] y", opset=18
        ).replace('"local": 1', '"vendor": 1').replace("float[2, 3] y", "y"),
            targets=["onnxruntime@1.15.1"]),
        Case("types of TensorScatter are KV302", typed("int4"), targets=ORT),
        Case("no target", SCATTER),
    ],
    "KV309": [
        Case("an opset too high", SCATTER.replace("version: 12", "version: 11"), at=[""],
             targets=["onnxruntime@1.23.2"],
             says="the opset is 24, and onnxruntime 1.23.2 loads 23 at most"),
        Case("opset and IR version too high", SCATTER, at=["", ""],
             targets=["onnxruntime@1.22.1"]),
        Case("an IR version too high", graph(
            "y = Neg (x)", "float[2] x", "float[2] y", opset=22), at=[""],
            targets=["onnxruntime@1.22.1"],
            says="the IR version is 12, and onnxruntime 1.22.1 loads 10 at most"),
        Case("an opset too low", graph("y = Neg (x)", "float[2] x", "float[2] y", opset=6),
             at=[""], targets=ORT, says="the opset is 6, and onnxruntime 1.31.1 loads 7 at least"),
        Case("two targets", SCATTER, at=["", "", ""], targets=["tensorrt@10.1",
             "onnxruntime@1.23.2", "onnxruntime"], says="tensorrt 10.1 loads 20 at most"),
        Case("versions that it loads", SCATTER, targets=ORT),
        Case("no target", SCATTER),
    ],
    "KV310": [
        Case("rows without keys", attention("q, k, v, m", ", bool[2, 1, 4, 7] m"), at=["att"],
             targets=["onnxruntime@1.26.0"], says="gives NaN or the mean of V"),
        Case("axes that are computed", graph(
            "[s] y = Squeeze (x, a)", "float[2, 1] x, int64[1] a", "float[] y"), at=["s"],
            targets=TRT, says="takes Squeeze with constant axes only", severity="error"),
        Case("axes that are constant", graph(
            "a = Constant <value_ints = [1]> () y = Squeeze (x, a)", "float[2, 1] x", "float[2] y"),
            targets=TRT),
        Case("no mask", attention("q, k, v"), targets=["onnxruntime@1.26.0"]),
        Case("the newest release", attention("q, k, v, m", ", bool[2, 1, 4, 7] m"), targets=ORT),
        Case("a kernel that is missing is KV308", SCATTER, targets=["onnxruntime@1.24.4"]),
    ],
    "KV311": [
        Case("a name in two places", graph(
            "[n] y = Add (x, z)", 'float["B", 3] x, float["B", 1] z', 'float["B", 3] y'),
            at=["x"], targets=IREE, says="computes operators that broadcast an unknown dimension "
            "of one wrongly: dimension 0 of input `x` is `B` (and 1 other dimension): "
            "expected a fixed size"),
        Case("two names", graph("[n] y = Neg (x)", 'float["B", "S"] x', "float[] y"),
             at=["x"], targets=IREE, says="dimension 0 of input `x` is `B`, dimension 1 of input "
             "`x` is `S`: expected fixed sizes"),
        Case("elements that are counted", graph("[n] y = NonZero (x)", "float[2, 3] x",
             'int64[2, "n"] y'), at=["n"], targets=IREE,
             says="the size of what `NonZero` gives depends on elements"),
        Case("fixed sizes", SCATTER, targets=IREE),
        Case("a runtime of any sizes", graph(
            "[n] y = Neg (x)", 'float["B", 3] x', 'float["B", 3] y'), targets=ORT),
        Case("no target", graph("[n] y = Neg (x)", 'float["B", 3] x', 'float["B", 3] y')),
    ],
}  # fmt: skip


@pytest.mark.long
@coded(CASES)
def test_a_rule_of_runtimes(code: str, case: Case) -> None:
    check_case(code, case)


@pytest.mark.long
@part(4)
@pytest.mark.parametrize("release", [r for r in releases() if not r.unsupported], ids=str)
def test_every_release_can_be_asked(release: object) -> None:
    """No data on a release makes a rule fail, whatever its limits are."""
    target = find_target(str(release).replace(" ", "@"))
    for make in (planted(nothing), planted(nothing, "native/gemma4_hybrid_static.onnx")):
        model = deserialize(make().SerializeToString())
        assert {f.code for f in lint(model, map(RULES.__getitem__, CASES), [target])} <= {*CASES}


def circular(starts: str, constant: str = "", length: int | str = 3) -> str:
    given = ", w" if starts or constant else ""
    return f"""<ir_version: 12, opset_import: ["": 24]>
        g (float[2, 7, 5] past, float[2, {length}, 5] new{starts}) => (float[2, 7, 5] present)
            {constant} {{
            [ts] present = TensorScatter <axis = 1, mode = "circular"> (past, new{given}) }}"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(circular(""), id="no starts"),
        pytest.param(circular("", "<int64[2] w = {4, 0}>"), id="constants that leave room"),
    ],
)
def test_a_mode_that_makes_no_difference_becomes_linear(text: str) -> None:
    model = deserialize(Case("", text).message().SerializeToString())
    (finding,) = lint(model, [RULES["KV303"]], [find_target(name) for name in TRT])
    assert finding.fix is not None and finding.fix.applicability == "safe"
    finding.fix.apply()
    (node,) = onnx.load_from_string(serialize(model)).graph.node
    modes = [helper.get_attribute_value(a) for a in node.attribute if a.name == "mode"]
    assert (node.op_type, modes) == ("TensorScatter", [b"linear"])


@each(
    "text",
    [
        pytest.param(circular(", int64[2] w"), id="starts of the caller"),
        pytest.param(circular("", "<int64[2] w = {5, 0}>"), id="constants that wrap"),
        pytest.param(circular("", "<int64[2] w = {-1, 0}>"), id="constants below 0"),
        pytest.param(circular("", "<int64[2] w = {4, 0}>", '"L"'), id="rows of unknown number"),
        pytest.param(
            circular(", int64[2] w", "<int64[2] w = {4, 0}>"), id="a default that may be overridden"
        ),
    ],
)
def test_a_mode_that_may_count_has_no_fix(text: str) -> None:
    (finding,) = findings("KV303", Case("", text).message(), TRT)
    assert finding.fix is None


def test_lower_refuses_what_check_reports() -> None:
    """Both name the same inputs, and the flag that fixes their sizes."""
    message = Case("", RULES["KV311"].bad).message()
    (finding,) = findings("KV311", message, IREE)
    with pytest.raises(Refused) as refused:
        lower(ir.from_proto(message), target=IREE[0], verify=False)
    (refusal,) = refused.value.report.refused
    assert refusal.message.partition(": ")[2] == finding.message.partition(": ")[2]
    assert finding.location.value == refusal.location.value == "x"
    assert finding.help is not None and finding.help.startswith("give `--dim batch=N`")
