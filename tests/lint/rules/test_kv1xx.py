"""KV101 to KV117: the structure of caches."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize, read, serialize
from tests.grids import each
from tests.lint.cases import Case, check_case, findings, lint
from tests.lint.rules.decoders import FIRST_KEY, FIRST_VALUE, coded, graph, node, planted

CACHE = "float[2, 3, 7, 5]"
ROW = "float[2, 3, 1, 5]"
KEYS = f"{CACHE} past, {ROW} new, int64[2] start"
PAIR = f"{CACHE} past_key, {CACHE} past_value, {ROW} key, {ROW} value, int64[2] start"
TWO = f"{CACHE} present_key, {CACHE} present_value"
SCATTER = "[ts] present = TensorScatter (past, new, start)"
IF_BRANCHES = f"""
    [choice] present = If (flag) <
        then_branch = one () => ({CACHE} a) {{ [here] a = TensorScatter (past, new, start) }},
        else_branch = two () => ({CACHE} b) {{ %s }}
    >
"""
FUNCTION = """
    <domain: "local", opset_import: ["": 24]>
    write (cache, row, at) => (now) { [inner] now = TensorScatter (cache, row, at) }
"""
READING_FUNCTION = """
    <domain: "local", opset_import: ["": 24]>
    write (cache, row, at) => (now, seen) {
        [inner] now = TensorScatter (cache, row, at)
        seen = Neg (cache)
    }
"""


def attention(inputs: str, attributes: str = "") -> str:
    return f"""
        [k] present_key = TensorScatter (past_key, key, start)
        [v] present_value = TensorScatter (past_value, value, start)
        [att] y = Attention {attributes} ({inputs})
    """


def layers(*sizes: int) -> str:
    """Return a decoder with one cache per layer, of these capacities."""
    names = range(len(sizes))
    pasts = ", ".join(f'float[2, 3, {s}, 5] "key_cache.{i}"' for i, s in enumerate(sizes))
    presents = ", ".join(
        f'float[2, 3, {s}, 5] "updated_key_cache.{i}"' for i, s in enumerate(sizes)
    )
    body = " ".join(
        f'[layer{i}] "updated_key_cache.{i}" = TensorScatter ("key_cache.{i}", new, start)'
        for i in names
    )
    return graph(body, f"{pasts}, {ROW} new, int64[2] start", presents)


def named(
    past: str, present: str, other: str = "value_cache.0", out: str = "updated_value_cache.0"
) -> str:
    """Return a decoder of two caches with these names."""
    body = f"""
        [one] "{present}" = TensorScatter ("{past}", new, start)
        [two] "{out}" = TensorScatter ("{other}", new, start)
    """
    inputs = f'{CACHE} "{past}", {CACHE} "{other}", {ROW} new, int64[2] start'
    return graph(body, inputs, f'{CACHE} "{present}", {CACHE} "{out}"')


def read_the_past(message: onnx.ModelProto) -> None:
    message.graph.node.append(helper.make_node("Neg", ["key_cache.0"], ["seen"], "look"))
    message.graph.output.append(helper.make_tensor_value_info("seen", 1, None))


def return_the_past(message: onnx.ModelProto) -> None:
    message.graph.output.append(helper.make_tensor_value_info("key_cache.0", 1, ["batch", 32, 32]))


def scatter_the_key_twice(message: onnx.ModelProto) -> None:
    node(message, FIRST_VALUE).input[0] = "key_cache.0"


def keep_the_past_inside(message: onnx.ModelProto) -> None:
    past = next(i for i in message.graph.input if i.name == "key_cache.0")
    message.graph.input.remove(past)
    zeros = helper.make_tensor("key_cache.0", 1, [2, 32, 32], [0.0] * 2048)
    message.graph.initializer.append(zeros)


def forget_the_present(message: onnx.ModelProto) -> None:
    present = next(o for o in message.graph.output if o.name == "updated_key_cache.0")
    message.graph.output.remove(present)


def cross_the_names(message: onnx.ModelProto) -> None:
    key, value = node(message, FIRST_KEY), node(message, FIRST_VALUE)
    key.output[0], value.output[0] = value.output[0], key.output[0]


def change_the_type_of_the_present(message: onnx.ModelProto) -> None:
    present = next(o for o in message.graph.output if o.name == "updated_key_cache.0")
    present.type.tensor_type.shape.dim[1].dim_value = 31


def rename_the_batch(message: onnx.ModelProto) -> None:
    past = next(i for i in message.graph.input if i.name == "key_cache.1")
    past.type.tensor_type.shape.dim[0].dim_param = "other"


def write_the_value_elsewhere(message: onnx.ModelProto) -> None:
    node(message, FIRST_VALUE).input[2] = "nonpad_kv_seqlen"


def forget_the_length(message: onnx.ModelProto) -> None:
    del next(n for n in message.graph.node if n.op_type == "Attention").input[6:]


CASES = {
    "KV101": [
        Case("the past is an output as well", graph(
            SCATTER, KEYS, f"{CACHE} present, {CACHE} past"), at=["ts"],
            says="`past` is itself an output of the model"),
        Case("a copy of the past is an output", graph(
            f"{SCATTER} old = Identity (past)", KEYS, f"{CACHE} present, {CACHE} old"), at=["ts"],
            says="`past` is as `old` an output of the model"),
        Case("a copy of the past is an output, and scattered into", graph(
            "old = Identity (past) [ts] present = TensorScatter (old, new, start)", KEYS,
            f"{CACHE} present, {CACHE} old"), at=["ts"]),
        Case("the other branch returns the past", graph(
            "y = If (c) <then_branch = t () => (float[2, 3, 7, 5] a) "
            "{ [ts] a = TensorScatter (past, new, start) }, else_branch = e () => "
            "(float[2, 3, 7, 5] b) { b = Identity (past) }>", f"{KEYS}, bool c",
            "float[2, 3, 7, 5] y")),
        Case("a node reads the past", graph(f"{SCATTER} y = Neg (past)", KEYS, f"{CACHE} present, "
             f"{CACHE} y"), at=["ts"], says="`past` is also read by an unnamed `Neg` node"),
        Case("a node reads it behind an Identity", graph(
            f"{SCATTER} same = Identity (past) [look] y = Neg (same)", KEYS,
            f"{CACHE} present, {CACHE} y"), at=["ts"], says="`Neg` node `look`"),
        Case("the past is an output", graph(SCATTER, KEYS, f"{CACHE} present, {CACHE} past"),
             at=["ts"], says="`past` is itself an output of the model"),
        Case("a body reads the past", graph(
            f"{SCATTER} y = If (flag) <then_branch = one () => ({CACHE} a) {{ a = Neg (past) }}, "
            f"else_branch = two () => ({CACHE} b) {{ b = Neg (present) }}>", f"{KEYS}, bool flag",
            f"{CACHE} present, {CACHE} y"), at=["ts"]),
        Case("a function reads what it updates", graph(
            "present, y = local.write (past, new, start)", KEYS, f"{CACHE} present, {CACHE} y",
            more=READING_FUNCTION), at=["inner"], says="`cache` is also read by"),
        Case("the caller of a function reads what it updates", graph(
            "present = local.write (past, new, start) y = Neg (past)", KEYS,
            f"{CACHE} present, {CACHE} y", more=FUNCTION), at=["inner"], says="`past`"),
        Case("a real decoder whose key is read", planted(read_the_past), at=[FIRST_KEY],
             says="`key_cache.0` is also read by `Neg` node `look`"),
        Case("a real decoder that returns its past", planted(return_the_past), at=[FIRST_KEY]),
        Case("the shape of the past is no content", graph(
            f"{SCATTER} size = Shape (past)", KEYS, f"{CACHE} present, int64[4] size")),
        Case("where to write depends on what was read", graph(
            "[look] y = Neg (past) size = Shape <start = 0, end = 1> (y) "
            "where = Expand (start, size) [ts] present = TensorScatter (past, new, where)", KEYS,
            f"{CACHE} present, {CACHE} y")),
        Case("where to write depends on another node", graph(
            "size = Shape <start = 0, end = 1> (past) where = Expand (start, size) "
            "[ts] present = TensorScatter (past, new, where) [look] y = Neg (past)", KEYS,
            f"{CACHE} present, {CACHE} y"), at=["ts"], says="`Neg` node `look`"),
        Case("the other branch of an If runs alone", graph(
            IF_BRANCHES % "b = Neg (past)", f"{KEYS}, bool flag", f"{CACHE} present")),
        Case("a real decoder", planted(lambda message: None)),
        Case("a layer that shares the cache of another", planted(
            lambda message: None, "native/gemma4_hybrid_static.onnx")),
    ],
    "KV102": [
        Case("key and value start from one past", graph(
            "[a] present_key = TensorScatter (past_key, key, start) "
            "[b] present_value = TensorScatter (past_key, value, start)", PAIR, TWO), at=["b"],
            says="`past_key` is the `past_cache` of 2 TensorScatter"),
        Case("three updates of one past are two findings", graph(
            "[a] one = TensorScatter (past, new, start) [b] two = TensorScatter (past, new, start) "
            "[c] three = TensorScatter (past, new, start)", KEYS,
            f"{CACHE} one, {CACHE} two, {CACHE} three"), at=["b", "c"], says="3 TensorScatter"),
        Case("a function is called twice with one past", graph(
            "one = local.write (past, new, start) two = local.write (past, new, start)", KEYS,
            f"{CACHE} one, {CACHE} two", more=FUNCTION), at=["inner"]),
        Case("a real decoder", planted(scatter_the_key_twice), at=[FIRST_VALUE],
             says="`key_cache.0`"),
        Case("the second takes the present of the first", graph(
            "one = TensorScatter (past, new, start) two = TensorScatter (one, new, start)", KEYS,
            f"{CACHE} two")),
        Case("each branch of an If has its own update", graph(
            IF_BRANCHES % "[there] b = TensorScatter (past, new)", f"{KEYS}, bool flag",
            f"{CACHE} present")),
        Case("each cache has its own past", graph(
            "present_key = TensorScatter (past_key, key, start) "
            "present_value = TensorScatter (past_value, value, start)", PAIR, TWO)),
    ],
    "KV103": [
        Case("the past is an initializer", planted(keep_the_past_inside), at=[FIRST_KEY],
             says="`past_cache` `key_cache.0` is an initializer"),
        Case("the past is computed", graph(
            "size = Shape (like) past = ConstantOfShape (size) "
            "[ts] present = TensorScatter (past, new)", f"{CACHE} like, {ROW} new",
            f"{CACHE} present"), at=["ts"], says="computed by an unnamed `ConstantOfShape` node"),
        Case("TensorRT makes it an error", graph(
            "size = Shape (like) past = ConstantOfShape (size) "
            "[ts] present = TensorScatter (past, new)", f"{CACHE} like, {ROW} new",
            f"{CACHE} present"), at=["ts"], severity="error", targets=["tensorrt@11.0"],
            says="as tensorrt 11.0 demands"),
        Case("TensorRT takes no past behind a Transpose", graph(
            "turned = Transpose <perm = [0, 2, 1, 3]> (past) "
            "[ts] present = TensorScatter <axis = 1> (turned, new, start)",
            "float[2, 7, 3, 5] past, float[2, 7, 1, 5] new, int64[2] start",
            "float[2, 3, 7, 5] present"), at=["ts"], severity="error", targets=["tensorrt@11.0"]),
        Case("onnxruntime does not", graph(
            "turned = Transpose <perm = [0, 2, 1, 3]> (past) "
            "[ts] present = TensorScatter <axis = 1> (turned, new, start)",
            "float[2, 7, 3, 5] past, float[2, 7, 1, 5] new, int64[2] start",
            "float[2, 3, 7, 5] present"), targets=["onnxruntime"]),
        Case("a graph input", graph(SCATTER, KEYS, f"{CACHE} present")),
        Case("a scatter that updates no cache", planted(
            lambda message: None, "native/mobius_block_bias_int64_2d.onnx")),
        Case("a real decoder for TensorRT", planted(lambda message: None),
             targets=["tensorrt@11.0"]),
    ],
    "KV104": [
        Case("the present is only read", graph(f"{SCATTER} y = Neg (present)", KEYS, f"{CACHE} y"),
             at=["ts"], says="`present` is not an output of the model"),
        Case("a real decoder", planted(forget_the_present), at=[FIRST_KEY],
             says="`updated_key_cache.0`"),
        Case("TensorRT makes it an error", planted(forget_the_present), at=[FIRST_KEY],
             severity="error", targets=["tensorrt@11.0"]),
        Case("TensorRT takes no present behind a Transpose", graph(
            f"{SCATTER} y = Transpose <perm = [0, 2, 1, 3]> (present)", KEYS,
            "float[2, 7, 3, 5] y"), at=["ts"], severity="error", targets=["tensorrt@11.0"],
            says="only behind other nodes as `y`"),
        Case("a Transpose is on the way", graph(
            f"{SCATTER} y = Transpose <perm = [0, 2, 1, 3]> (present)", KEYS,
            "float[2, 7, 3, 5] y")),
        Case("a function returns it", graph(
            "present = local.write (past, new, start)", KEYS, f"{CACHE} present", more=FUNCTION)),
        Case("the branches of an If return it", graph(
            IF_BRANCHES % "b = Identity (past)", f"{KEYS}, bool flag", f"{CACHE} present")),
        Case("a scatter that updates no cache", planted(
            lambda message: None, "native/mobius_block_bias_int64_2d.onnx")),
    ],
    "KV105": [
        Case("a key leaves as a value", named(
            "key_cache.0", "updated_value_cache.0", out="updated_key_cache.0"), at=["one", "two"],
            says="leaves as `updated_value_cache.0`, which is the name of a value, not of a key"),
        Case("layer 0 leaves as layer 1", named("key_cache.0", "updated_key_cache.1"), at=["one"],
             says="layer 1, not of layer 0"),
        Case("a name that nobody pairs", named("key_cache.0", "scatter_17"), at=["one"],
             says="no known template"),
        *(Case(f"numbers of values are no layers: {past} and {present}", named(past, present),
               at=["one"], says=f"leaves as `{present}`, a name that no known template pairs")
            for past, present in (
                ("v0_0", "v9_0"), ("k0", "v12"), ("value_3", "value_40"), ("key_3", "value_40"))),
        Case("one letter beside the word of a cache", named("past_k_0", "present_v_0"), at=["one"],
             says="the name of a value, not of a key"),
        Case("a real decoder with crossed names", planted(cross_the_names),
             at=[FIRST_KEY, FIRST_VALUE], says="`updated_value_cache.0`"),
        Case("optimum and onnxruntime-genai", named(
            "past_key_values.0.key", "present.0.key", "past_key_values.0.value",
            "present.0.value")),
        Case("encoder and decoder of optimum", named(
            "past_key_values.0.decoder.key", "present.0.decoder.key",
            "past_key_values.0.encoder.key", "present.0.encoder.key")),
        Case("mobius", named("key_cache.0", "updated_key_cache.0")),
        Case("whisper of onnxruntime-genai", named(
            "past_key_self_0", "present_key_self_0", "past_value_self_0", "present_value_self_0")),
        Case("one tensor for keys and values", named("past_0", "present_0", "past_1", "present_1")),
        Case("names of nobody that differ in past and present", named(
            "in_k_0", "out_k_0", "in_v_0", "out_v_0")),
        Case("a single cache may have any names", graph(
            "[ts] scatter_3 = TensorScatter (cache, new, start)",
            f"{CACHE} cache, {ROW} new, int64[2] start", f"{CACHE} scatter_3")),
        Case("onnxruntime-genai's own decoder", planted(
            lambda message: None, "genai/genai_llama_fp32_cpu.onnx")),
    ],
    "KV106": [
        Case("the types differ", graph(
            "wide = Cast <to = 1> (past) [ts] present = TensorScatter (wide, new, start)",
            f"float16[2, 3, 7, 5] past, {ROW} new, int64[2] start", f"{CACHE} present"), at=["ts"],
            says="in type: float16 and float32"),
        Case("the ranks differ", graph(
            "flat = Reshape (past, shape) [ts] present = TensorScatter <axis = 1> (flat, new, "
            "start)", f"{CACHE} past, int64[3] shape, float[2, 1, 15] new, int64[2] start",
            "float[2, 7, 15] present"), at=["ts"], says="in rank: 4 and 3"),
        Case("a dimension differs in a real decoder", planted(change_the_type_of_the_present),
             at=[FIRST_KEY], says="in dimension 1: 32 and 31"),
        Case("a Transpose on the way changes the layout", graph(
            f"{SCATTER} y = Transpose <perm = [0, 2, 1, 3]> (present)", KEYS,
            "float[2, 7, 3, 5] y"), at=["ts", "ts"], says="in dimension 1: 3 and 7"),
        Case("a name may be any number", graph(
            SCATTER, "float[B, 3, S, 5] past, float[B, 3, 1, 5] new, int64[B] start",
            f"{CACHE} present")),
        Case("a cache that grows", graph(
            "present = Concat <axis = 2> (past, new)", f"{CACHE} past, {ROW} new",
            "float[2, 3, 8, 5] present")),
        Case("a growing cache of GPT-2", planted(
            lambda message: None, "concat/gpt2_dynamic__ts_op17.onnx")),
        *(Case(f"a quantized copy of the present is {which}", graph(
            f"{SCATTER} copy = QuantizeLinear (present, scale)", f"{KEYS}, float scale",
            ", ".join(outputs)))
            for which, outputs in (
                ("the second output", (f"{CACHE} present", "uint8[2, 3, 7, 5] copy")),
                ("the first output", ("uint8[2, 3, 7, 5] copy", f"{CACHE} present")))),
        *(Case(f"of two casts the one to the type of the past is {which}", graph(
            "wide = Cast <to = 1> (past) p = TensorScatter (wide, new, start) "
            "present = Cast <to = 10> (p) copy = Cast <to = 3> (p)",
            f"float16[2, 3, 7, 5] past, {ROW} new, int64[2] start", ", ".join(outputs)))
            for which, outputs in (
                ("first", ("float16[2, 3, 7, 5] present", "int8[2, 3, 7, 5] copy")),
                ("second", ("int8[2, 3, 7, 5] copy", "float16[2, 3, 7, 5] present")))),
        *(Case(f"no output has the type of the past, {which} first", graph(
            "[ts] p = TensorScatter (past, new, start) a = Cast <to = 10> (p) "
            "b = Cast <to = 3> (p)", KEYS, ", ".join(outputs)), at=["ts"])
            for which, outputs in (
                ("float16", ("float16[2, 3, 7, 5] a", "int8[2, 3, 7, 5] b")),
                ("int8", ("int8[2, 3, 7, 5] b", "float16[2, 3, 7, 5] a")))),
    ],
    "KV107": [
        Case("one of five is larger", layers(7, 7, 9, 7, 7), at=["layer2"],
             says="has shape [2, 3, 9, 5], and 4 other layers have [2, 3, 7, 5]"),
        Case("one of four", layers(7, 9, 7, 7), at=["layer1"]),
        Case("one of eight", layers(7, 7, 7, 7, 7, 7, 9, 7), at=["layer6"]),
        Case("every other layer", layers(7, 9, 7, 9)),
        Case("every third layer, cut off", layers(7, 7, 9, 7, 7, 9, 7)),
        Case("the last layer", layers(7, 7, 7, 7, 7, 9)),
        Case("the first layer", layers(9, 7, 7, 7)),
        Case("two groups", layers(7, 7, 7, 9, 9)),
        Case("three layers prove nothing", layers(7, 9, 7)),
        Case("a decoder of two kinds of layers", planted(
            lambda message: None, "native/gemma4_hybrid_static.onnx")),
    ],
    "KV108": [
        Case("two names of the batch", graph(
            "[a] present_key = TensorScatter (past_key, key, start) "
            "[b] present_value = TensorScatter (past_value, value, start)",
            "float[N, 3, 7, 5] past_key, float[M, 3, 7, 5] past_value, float[N, 3, 1, 5] key, "
            "float[M, 3, 1, 5] value, int64[N] start",
            "float[N, 3, 7, 5] present_key, float[M, 3, 7, 5] present_value"), at=["b"],
            says="has 2 names: `N`, `M`"),
        Case("past and present", graph(
            SCATTER, "float[N, 3, S, 5] past, float[N, 3, 1, 5] new, int64[N] start",
            "float[N, 3, T, 5] present"), at=["ts"],
            says="dimension 2 of `past` and its present `present` has 2 names: `S`, `T`"),
        Case("key and value", graph(
            "[a] present_key = Concat <axis = 2> (past_key, key) "
            "[b] present_value = Concat <axis = 2> (past_value, value)",
            f"float[2, 3, P, 5] past_key, float[2, 3, Q, 5] past_value, {ROW} key, {ROW} value",
            "float[2, 3, R, 5] present_key, float[2, 3, R, 5] present_value"), at=["b"],
            says="`P`, `Q`"),
        Case("a real decoder", planted(rename_the_batch), at=[
            "model/layers.1/self_attn/TensorScatter_node_38"], says="`batch`, `other`"),
        Case("a cache that grows may call its length anew", graph(
            "present = Concat <axis = 2> (past, new)", f"float[2, 3, P, 5] past, {ROW} new",
            "float[2, 3, T, 5] present")),
        Case("a window of the last rows may call its length anew", graph(
            "all = Concat <axis = 2> (past, new) from = Constant <value_ints = [-6]> () "
            "far = Constant <value_ints = [9223372036854775807]> () "
            "rows = Constant <value_ints = [2]> () present = Slice (all, from, far, rows)",
            f"float[2, 3, P, 5] past, {ROW} new", "float[2, 3, K, 5] present")),
        Case("a window of computed rows may as well", graph(
            "all = Concat <axis = 2> (past, new) count = Shape <start = 2, end = 3> (all) "
            "six = Constant <value_ints = [6]> () zero = Constant <value_ints = [0]> () "
            "over = Sub (count, six) from = Max (over, zero) "
            "rows = Constant <value_ints = [2]> () present = Slice (all, from, count, rows)",
            f"float[2, 3, P, 5] past, {ROW} new", "float[2, 3, K, 5] present")),
        Case("sizes of sliding and of full layers", graph(
            '[a] "updated_key_cache.0" = TensorScatter ("key_cache.0", new, start) '
            '[b] "updated_key_cache.1" = TensorScatter ("key_cache.1", new, start)',
            f'float[2, 3, W, 5] "key_cache.0", float[2, 3, S, 5] "key_cache.1", {ROW} new, '
            "int64[2] start",
            'float[2, 3, W, 5] "updated_key_cache.0", float[2, 3, S, 5] "updated_key_cache.1"')),
        Case("past and total length of onnxruntime-genai", planted(
            lambda message: None, "genai/genai_llama_fp32_cpu.onnx")),
    ],
    "KV110": [
        Case("two positions", graph(
            "[a] present_key = TensorScatter (past_key, key, start) "
            "[b] present_value = TensorScatter (past_value, value, other)",
            f"{PAIR}, int64[2] other", TWO), at=["b"],
            says="are written at `start` and at `other`"),
        Case("one position is missing", graph(
            "[a] present_key = TensorScatter (past_key, key, start) "
            "[b] present_value = TensorScatter (past_value, value)", PAIR, TWO), at=["b"],
            says="at `start` and at position 0"),
        Case("one number for each sequence of two batches", graph(
            "one = Shape <end = 1> (key) two = Shape <end = 1> (value) "
            "at = Expand (first, one) there = Expand (first, two) "
            "[a] present_key = TensorScatter (past_key, key, at) "
            "[b] present_value = TensorScatter (past_value, value, there)",
            f"{PAIR}, int64[1] first", TWO)),
        Case("two modes", graph(
            "[a] present_key = TensorScatter (past_key, key, start) "
            '[b] present_value = TensorScatter <mode = "circular"> (past_value, value, start)',
            PAIR, TWO), at=["b"], says="the modes `linear` and `circular`"),
        Case("two axes", graph(
            "[a] present_key = TensorScatter (past_key, key, start) "
            "[b] present_value = TensorScatter <axis = 1> (past_value, value, start)",
            f"{CACHE} past_key, {CACHE} past_value, {ROW} key, float[2, 1, 7, 5] value, "
            "int64[2] start", TWO), at=["b"], says="along axis 2 of 7 and axis 1 of 3"),
        Case("an Attention pairs what the names do not", graph(
            "[k] p = TensorScatter (a, key, start) [v] q = TensorScatter (b, value, other) "
            "y = Attention (query, p, q, , , , valid)",
            f"{ROW} query, {CACHE} a, {CACHE} b, {ROW} key, {ROW} value, int64[2] start, "
            "int64[2] other, int64[2] valid", f"{ROW} y, {CACHE} p, {CACHE} q"), at=["v"]),
        Case("a real decoder", planted(write_the_value_elsewhere), at=[FIRST_VALUE],
             says="`write_indices` and at `nonpad_kv_seqlen`"),
        Case("equal nodes compute equal positions", graph(
            "one = Cast <to = 7> (at) two = Cast <to = 7> (at) "
            "present_key = TensorScatter (past_key, key, one) "
            "present_value = TensorScatter (past_value, value, two)",
            f"{CACHE} past_key, {CACHE} past_value, {ROW} key, {ROW} value, int32[2] at", TWO)),
        Case("a copy by Identity", graph(
            "copy = Identity (start) present_key = TensorScatter (past_key, key, start) "
            "present_value = TensorScatter (past_value, value, copy)", PAIR, TWO)),
        Case("keys that are stored transposed", graph(
            "present_key = TensorScatter <axis = 3> (past_key, key, start) "
            "present_value = TensorScatter <axis = 2> (past_value, value, start)",
            f"float[2, 3, 5, 7] past_key, {CACHE} past_value, float[2, 3, 5, 1] key, {ROW} value, "
            "int64[2] start", f"float[2, 3, 5, 7] present_key, {CACHE} present_value")),
        Case("a real decoder as it is", planted(lambda message: None)),
    ],
    "KV112": [
        Case("each token goes to slot 0", graph(
            "[ts] present = TensorScatter (past, new)", f"{CACHE} past, {ROW} new",
            f"{CACHE} present"), at=["ts"],
            says="one row of `new` goes to position 0 of `past` (size 7)"),
        Case("a symbolic capacity", graph(
            "[ts] present = TensorScatter (past, new)", f"float[2, 3, S, 5] past, {ROW} new",
            "float[2, 3, S, 5] present"), at=["ts"], says="(size S)"),
        Case("a circular cache", graph(
            '[ts] present = TensorScatter <mode = "circular"> (past, new)',
            f"{CACHE} past, {ROW} new", f"{CACHE} present"), at=["ts"]),
        Case("several tokens at once are prefill", graph(
            "present = TensorScatter (past, new)", f"{CACHE} past, float[2, 3, 4, 5] new",
            f"{CACHE} present")),
        Case("a number of tokens that is unknown", graph(
            "present = TensorScatter (past, new)", f"{CACHE} past, float[2, 3, L, 5] new",
            f"{CACHE} present")),
        Case("a prompt of one token into an empty cache", graph(
            "size = Shape (like) past = ConstantOfShape (size) present = TensorScatter (past, new)",
            f"{CACHE} like, {ROW} new", f"{CACHE} present")),
        Case("a graph that says it is for prefill", graph(
            "present = TensorScatter (past, new)", f"{CACHE} past, {ROW} new",
            f"{CACHE} present").replace("decoder", "decoder_prefill")),
        Case("a cache of one slot", graph(
            "present = TensorScatter (past, new)", f"{ROW} past, {ROW} new", f"{ROW} present")),
        Case("an Attention that knows of one valid row", graph(
            "one = Constant <value = int64[2] {1, 1}> () k = TensorScatter (past_key, key) "
            "v = TensorScatter (past_value, value) y = Attention (query, k, v, , , , one)",
            f"{ROW} query, {CACHE} past_key, {CACHE} past_value, {ROW} key, {ROW} value",
            f"{ROW} y, {CACHE} k, {CACHE} v")),
    ],
    "KV113": [
        Case("no length and no mask", graph(
            attention("query, present_key, present_value"), f"{ROW} query, {PAIR}",
            f"{ROW} y, {TWO}"), at=["att"], says="`present_key` are the whole cache of `k`"),
        Case("causal, at a position", graph(
            attention("query, present_key, present_value", "<is_causal = 1>"),
            f"{ROW} query, {PAIR}", f"{ROW} y, {TWO}"), at=["att"]),
        Case("behind a Transpose", graph(
            "[k] present = TensorScatter <axis = 1> (past, new, start) "
            "t = Transpose <perm = [0, 2, 1, 3]> (present) [att] y = Attention (query, t, t)",
            f"{ROW} query, float[2, 7, 3, 5] past, float[2, 1, 3, 5] new, int64[2] start",
            f"{ROW} y, float[2, 7, 3, 5] present"), at=["att"]),
        Case("a real decoder", planted(forget_the_length),
             at=["model/layers.0/self_attn/Attention_node_14"], says="`updated_key_cache.0`"),
        Case("a length", graph(
            attention("query, present_key, present_value, , , , valid"),
            f"{ROW} query, {PAIR}, int64[2] valid", f"{ROW} y, {TWO}")),
        Case("a mask", graph(
            attention("query, present_key, present_value, mask"),
            f"{ROW} query, {PAIR}, bool[2, 1, 1, 7] mask", f"{ROW} y, {TWO}")),
        Case("a causal prompt that fills the cache from its front", graph(
            "k = TensorScatter (past_key, new) v = TensorScatter (past_value, new) "
            "y = Attention <is_causal = 1> (new, k, v)",
            f"{CACHE} past_key, {CACHE} past_value, float[2, 3, 4, 5] new",
            f"float[2, 3, 4, 5] y, {CACHE} k, {CACHE} v")),
        Case("the valid rows cut out", graph(
            "k = TensorScatter (past_key, key, start) s = Slice (k, a, b, c) "
            "y = Attention (query, s, s)",
            f"{ROW} query, {CACHE} past_key, {ROW} key, int64[2] start, int64[1] a, int64[1] b, "
            "int64[1] c", f"{ROW} y, {CACHE} k")),
    ],
    "KV114": [
        Case("both", graph(
            "[att] y, k, v = Attention (query, key, value, , past_key, past_value, valid)",
            f"{ROW} query, {PAIR}, int64[2] valid", f"{ROW} y, float[] k, float[] v"), at=["att"],
            says="`valid` is given together with `past_key`, `past_value`"),
        Case("in a body", graph(
            f"y = If (flag) <then_branch = one () => ({ROW} a) {{ [inner] a = "
            "Attention (query, key, value, , past_key, past_value, valid) }, "
            f"else_branch = two () => ({ROW} b) {{ b = Identity (query) }}>",
            f"bool flag, {ROW} query, {PAIR}, int64[2] valid", f"{ROW} y"), at=["inner"]),
        Case("a past alone", graph(
            "y, k, v = Attention (query, key, value, , past_key, past_value)",
            f"{ROW} query, {PAIR}", f"{ROW} y, float[] k, float[] v")),
        Case("a length alone", graph(
            attention("query, present_key, present_value, , , , valid"),
            f"{ROW} query, {PAIR}, int64[2] valid", f"{ROW} y, {TWO}")),
        Case("the two kinds of layers of a hybrid", planted(
            lambda message: None, "native/gemma4_hybrid_static.onnx")),
    ],
    "KV117": [
        Case("rows across heads", graph(
            "[ts] present = TensorScatter <axis = 1> (past, new, start) "
            "[att] y = Attention (query, present, present, , , , valid)",
            f"{ROW} query, {CACHE} past, float[2, 1, 7, 5] new, int64[2] start, int64[2] valid",
            f"{ROW} y, {CACHE} present"), at=["att"],
            says="along its axis 1 by `ts` (TensorScatter), and Attention takes axis 2 of its 4"),
        Case("rows across features of 3 dimensions", graph(
            "[ts] present = TensorScatter <axis = 2> (past, new, start) "
            "[att] y = Attention <q_num_heads = 3, kv_num_heads = 3> "
            "(query, present, present, , , , valid)",
            "float[2, 1, 15] query, float[2, 7, 15] past, float[2, 7, 1] new, int64[2] start, "
            "int64[2] valid", "float[2, 1, 15] y, float[2, 7, 15] present"), at=["att"],
            says="axis 1 of its 3"),
        Case("the default axis of a cache with heads inside", graph(
            "[ts] present = TensorScatter (past, new, start) "
            "t = Transpose <perm = [0, 2, 1, 3]> (present) "
            "[att] y = Attention (query, t, t, , , , valid)",
            f"{ROW} query, float[2, 7, 3, 5] past, float[2, 7, 1, 5] new, int64[2] start, "
            "int64[2] valid", f"{ROW} y, float[2, 7, 3, 5] present"), at=["att"]),
        Case("the right axis behind a Transpose", graph(
            "[ts] present = TensorScatter <axis = 1> (past, new, start) "
            "t = Transpose <perm = [0, 2, 1, 3]> (present) "
            "[att] y = Attention (query, t, t, , , , valid)",
            f"{ROW} query, float[2, 7, 3, 5] past, float[2, 1, 3, 5] new, int64[2] start, "
            "int64[2] valid", f"{ROW} y, float[2, 7, 3, 5] present")),
        Case("a real decoder with caches of 3 dimensions", planted(lambda message: None)),
        Case("a rank that is unknown", graph(
            "present = TensorScatter <axis = 1> (past, new, start) "
            "y = Attention (query, present, present, , , , valid)",
            "float[] query, float[] past, float[] new, int64[2] start, int64[2] valid",
            "float[] y, float[] present")),
    ],
}  # fmt: skip


@pytest.mark.long
@coded(CASES)
def test_a_rule_of_caches(code: str, case: Case) -> None:
    check_case(code, case)


def fixed(code: str, text: str) -> ir.Model:
    """Return a model after the fixes of one rule, written and read."""
    model = deserialize(Case("", text).message().SerializeToString())
    for finding in lint(model, [RULES[code]]):
        assert finding.fix is not None
        finding.fix.apply()
    again = deserialize(serialize(model))
    assert lint(again, [RULES[code]]) == []
    return again


def test_the_fix_returns_the_present_with_its_type() -> None:
    text = graph("[ts] kept = TensorScatter (past, new, start) y = Neg (kept)", KEYS, f"{CACHE} y")
    output = fixed("KV104", text).graph.outputs[1]
    assert output.name == "kept"
    assert output.dtype is ir.DataType.FLOAT
    assert output.shape is not None and tuple(output.shape) == (2, 3, 7, 5)


def test_the_fix_renames_the_present_after_its_past() -> None:
    model = fixed("KV105", named("key_cache.0", "scatter_17"))
    assert [v.name for v in model.graph.outputs] == ["updated_key_cache.0", "updated_value_cache.0"]


@pytest.mark.parametrize(
    ("text", "outputs", "title"),
    [
        pytest.param(
            named("key_cache.0", "updated_value_cache.0", out="updated_key_cache.0"),
            ["updated_key_cache.0", "updated_value_cache.0"],
            "rename `updated_value_cache.0` to `updated_key_cache.0` and `updated_key_cache.0` to "
            "`updated_value_cache.0`",
            id="crossed",
        ),
        pytest.param(
            named("key_cache.0", "updated_key_cache.1", "key_cache.1", "scatter_17"),
            ["updated_key_cache.0", "updated_key_cache.1"],
            "rename `updated_key_cache.1` to `updated_key_cache.0`",
            id="one in the place of the other",
        ),
        pytest.param(
            graph(
                "".join(
                    f'[n{n}] "updated_key_cache.{(n + 1) % 3}" = '
                    f'TensorScatter ("key_cache.{n}", new, start) '
                    for n in range(3)
                ),
                "".join(f'{CACHE} "key_cache.{n}", ' for n in range(3))
                + f"{ROW} new, int64[2] start",
                ", ".join(f'{CACHE} "updated_key_cache.{(n + 1) % 3}"' for n in range(3)),
            ),
            [f"updated_key_cache.{n}" for n in range(3)],
            "rename `updated_key_cache.1` to `updated_key_cache.0` and 2 others after their pasts",
            id="in a circle",
        ),
    ],
)
def test_names_that_cross_are_given_back(text: str, outputs: list[str], title: str) -> None:
    first = findings("KV105", Case("", text).message())[0]
    assert first.fix is not None and first.fix.title == title
    assert [value.name for value in fixed("KV105", text).graph.outputs] == outputs


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            graph(
                '[one] "scatter_3" = TensorScatter ("key_cache.0", new, start) '
                '[two] "scatter_4" = TensorScatter ("value_cache.0", "updated_key_cache.0", start)',
                f'{CACHE} "key_cache.0", {CACHE} "value_cache.0", {ROW} new, '
                f'{ROW} "updated_key_cache.0", int64[2] start',
                f"{CACHE} scatter_3, {CACHE} scatter_4",
            ),
            id="an input",
        ),
        pytest.param(
            graph(
                '[one] scatter_3 = TensorScatter ("key_cache.0", "updated_key_cache.0", start) '
                '[two] scatter_4 = TensorScatter ("value_cache.0", new, start) '
                '"updated_key_cache.0" = Neg (new)',
                f'{CACHE} "key_cache.0", {CACHE} "value_cache.0", {ROW} new, int64[2] start',
                f"{CACHE} scatter_3, {CACHE} scatter_4",
            ),
            id="what a node gives",
        ),
        pytest.param(
            named("key_cache.0", "scatter_17", "k_in", "updated_key_cache.0"),
            id="the present of a past that has no template",
        ),
    ],
)
def test_a_name_that_another_value_keeps_is_not_taken(text: str) -> None:
    first, *_ = findings("KV105", Case("", text).message())
    assert first.location.node == "one"
    assert first.fix is None


@each(
    ("first", "second", "expected"),
    [
        pytest.param("pos_d0", "batch", "batch", id="a name with a meaning, though it is rarer"),
        pytest.param("MatMulkey_dim_0", "N", "N", id="a letter says more than a counter"),
        pytest.param("s77", "s2", "batch", id="two names of torch"),
        pytest.param("unk__3", "d1", "batch", id="other exporters"),
        pytest.param("rows", "batch", "rows", id="of two with a meaning the more frequent"),
        pytest.param("s77", "batch_d0", "s77", id="`batch` is taken"),
    ],
)
def test_the_name_that_says_something_is_kept(first: str, second: str, expected: str) -> None:
    taken = "batch" if second == "batch_d0" else "L"
    text = graph(
        "[a] present_key = TensorScatter (past_key, key, start) "
        "[b] present_value = TensorScatter (past_value, value, start) "
        "[c] present_more = TensorScatter (past_more, key, start)",
        f"float[{first}, 3, 7, 5] past_key, float[{second}, 3, 7, 5] past_value, "
        f"float[{first}, 3, {taken}, 5] key, float[{second}, 3, {taken}, 5] value, "
        f"int64[{first}] start, float[{first}, 3, 7, 5] past_more",
        f"float[{first}, 3, 7, 5] present_key, float[{second}, 3, 7, 5] present_value, "
        f"float[{first}, 3, 7, 5] present_more",
    )
    model = deserialize(Case("", text).message().SerializeToString())
    (finding,) = lint(model, [RULES["KV108"]])
    assert finding.help == f"call it `{expected}` everywhere"
    assert finding.fix is not None
    finding.fix.apply()
    assert lint(model, [RULES["KV108"]]) == []
    assert {str(value.shape[0]) for value in model.graph.inputs if value.shape} == {expected}


def test_the_fix_unifies_a_name_in_expressions_too() -> None:
    text = graph(
        "[a] present_key = Concat <axis = 2> (past_key, key) "
        "[b] present_value = Concat <axis = 2> (past_value, value)",
        f"float[2, 3, P, 5] past_key, float[2, 3, Q, 5] past_value, {ROW} key, {ROW} value",
        "float[2, 3, R, 5] present_key, float[2, 3, T, 5] present_value",
    )
    message = Case("", text).message()
    message.graph.output[1].type.tensor_type.shape.dim[2].dim_param = "Q + 1"
    model = deserialize(message.SerializeToString())
    for finding in lint(model, [RULES["KV108"]]):
        assert finding.fix is not None
        finding.fix.apply()
    shapes = [[str(d) for d in v.shape or ()] for v in (*model.graph.inputs, *model.graph.outputs)]
    assert [shape[2] for shape in shapes] == ["P", "P", "1", "1", "R", "P + 1"]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        pytest.param("k_out_%d", [], id="the names of the configuration"),
        pytest.param("present.%d.k", ["one"], id="other names"),
    ],
)
def test_a_configuration_beside_the_model_names_the_templates(
    present: str, expected: list[str], tmp_path: Path
) -> None:
    config = {
        "model": {
            "decoder": {
                "filename": "model.onnx",
                "inputs": {"past_key_names": "k_in_%d", "past_value_names": "v_in_%d"},
                "outputs": {"present_key_names": present, "present_value_names": "v_out_%d"},
            }
        }
    }
    (tmp_path / "genai_config.json").write_text(json.dumps(config))
    message = Case("", named("k_in_0", "k_out_0", "v_in_0", "v_out_0")).message()
    (tmp_path / "model.onnx").write_bytes(message.SerializeToString())
    found = lint(read(tmp_path / "model.onnx"), [RULES["KV105"]])
    assert [f.location.node for f in found] == expected
    assert all("genai_config.json" in f.diagnostic.message for f in found)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": 3}', '{"model": {"decoder": []}}'])
def test_a_broken_configuration_changes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "genai_config.json").write_text(text)
    message = Case("", named("key_cache.0", "updated_key_cache.0")).message()
    (tmp_path / "model.onnx").write_bytes(message.SerializeToString())
    assert lint(read(tmp_path / "model.onnx"), [RULES["KV105"]]) == []
