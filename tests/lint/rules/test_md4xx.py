"""MD401 to MD457: the file as a container."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnx_kvtool.model_io
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.model import deserialize, serialize
from tests.lint.cases import Case, check_case, lint
from tests.lint.rules.decoders import coded, graph, planted, written

X = "float[2, 3] x"
Y = "float[2, 3] y"
NEG = graph("[n] y = Neg (x)", X, Y)
FIRST = "model/layers.0/self_attn/Attention_node_14"
IF = """
    [choice] y = If (flag) <
        then_branch = one () => (float[2, 3] a) %s { %s },
        else_branch = two () => (float[2, 3] b) { b = Neg (x) }
    >
"""
F = '<domain: "local", opset_import: ["": 24, "local": 1]>'


def tensor(fields: str, more: str = "") -> Callable[[], onnx.ModelProto]:
    """Return what makes a model with the initializer `w` of these fields."""
    return written(f"""
        ir_version: 12
        opset_import {{ version: 24 }}
        graph {{
          name: "decoder"
          node {{ name: "n" op_type: "Identity" input: "w" output: "y" {more} }}
          initializer {{ name: "w" {fields} }}
          output {{ name: "y" type {{ tensor_type {{ elem_type: 1 shape {{ dim {{ }} }} }} }} }}
        }}
    """)


def attribute(fields: str) -> Callable[[], onnx.ModelProto]:
    return tensor("data_type: 1 dims: 1 float_data: 1", f'attribute {{ name: "a" {fields} }}')


IF_OF_MY = """
    <ir_version: 12, opset_import: ["": 24, "my": 1]>
    decoder (bool c, float[2, 3] x) => (float[2, 3] y) {
        y = If (c) <then_branch = t () => (float[2, 3] a) { a = my.Odd (x) },
                    else_branch = e () => (float[2, 3] b) { b = Neg (x) }>
    }
"""


def planted_function(name: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        message = onnx.parser.parse_model(
            graph("y = Neg (x)", X, Y, more=F + " f (a) => (b) { b = Neg (a) }")
        )
        message.functions[0].name = name
        return message

    return make


def opaque(before: str, after: str, name: str = "") -> Callable[[], onnx.ModelProto]:
    """Return what makes a model with an input of an opaque type inside of another one."""
    return written(f"""
        ir_version: 12
        opset_import {{ version: 24 }}
        graph {{
          name: "decoder"
          node {{ name: "n" op_type: "Odd" domain: "my" input: "x" output: "y" }}
          input {{ name: "x" type {{ {before} opaque_type {{ domain: "my" {name} }} {after} }} }}
          output {{ name: "y" type {{ tensor_type {{ elem_type: 1 shape {{ dim {{ }} }} }} }} }}
        }}
    """)


def constants(more_input: str, described: str, initialized: str, nodes: str = "") -> str:
    """Return a model with an initializer that an input or `value_info` describes."""
    inputs = f"{X}, {more_input}".rstrip(", ")
    held = f"{initialized} = {{{', '.join(['1'] * (12 if '[' in initialized else 1))}}}"
    inner = ", ".join(part for part in (described, held if initialized else "") if part)
    return f"""
        <ir_version: 10, opset_import: ["": 18]>
        main ({inputs}) => ({Y}) <{inner}> {{ [n] y = Neg (x) {nodes} }}
    """


def sparse(values: str, indices: str, dims: str) -> Callable[[], onnx.ModelProto]:
    return written(f"""
        ir_version: 12
        opset_import {{ version: 24 }}
        graph {{
          name: "decoder"
          node {{ name: "n" op_type: "Identity" input: "w" output: "y" }}
          sparse_initializer {{ values {{ name: "w" data_type: 1 {values} }} {indices} {dims} }}
          output {{ name: "y" type {{ tensor_type {{ elem_type: 1 shape {{ dim {{ }} }} }} }} }}
        }}
    """)


def edited(edit: Callable[[onnx.ModelProto], object]) -> Callable[[], onnx.ModelProto]:
    """Return what makes the message of `NEG` with an edit."""

    def make() -> onnx.ModelProto:
        message = Case("", NEG).message()
        edit(message)
        return message

    return make


def chain(length: int) -> str:
    text = graph("y = local.f1 (x)", X, Y)
    for number in range(1, length + 1):
        call = "Neg" if number == length else f"local.f{number + 1}"
        text += f"{F} f{number} (a) => (b) {{ b = {call} (a) }}\n"
    return text


def nothing(message: onnx.ModelProto) -> None:
    """Leave the decoder as it is."""


def add_an_initializer(message: onnx.ModelProto) -> None:
    message.graph.initializer.append(helper.make_tensor("spare", 1, [3], [1.0, 2.0, 3.0]))


def add_an_input(message: onnx.ModelProto) -> None:
    message.graph.input.append(helper.make_tensor_value_info("spare", 1, [3]))


def add_dead_nodes(message: onnx.ModelProto) -> None:
    message.graph.node.append(helper.make_node("Neg", ["key_cache.0"], ["d1"], "dead1"))
    message.graph.node.append(helper.make_node("Exp", ["d1"], ["d2"], "dead2"))


def give_two_nodes_one_name(message: onnx.ModelProto) -> None:
    message.graph.node[7].name = message.graph.node[3].name


def import_twice(message: onnx.ModelProto) -> None:
    message.opset_import.add(domain="ai.onnx", version=23)


def forget_an_initializer(message: onnx.ModelProto) -> None:
    del message.graph.initializer[0]


def swap_two_nodes(message: onnx.ModelProto) -> None:
    nodes = list(message.graph.node)
    at = next(i for i, n in enumerate(nodes) if n.name == FIRST)
    nodes.insert(at + 2, nodes.pop(at))
    del message.graph.node[:]
    message.graph.node.extend(nodes)


def cut_a_weight(message: onnx.ModelProto) -> None:
    weight = max(message.graph.initializer, key=lambda t: len(t.raw_data))
    weight.raw_data = weight.raw_data[:-4]


def edited_body() -> onnx.ModelProto:
    """Return a model with a body without a name."""
    message = Case("", graph(IF % ("", "a = Exp (x)"), f"bool flag, {X}", Y)).message()
    message.graph.node[0].attribute[0].g.ClearField("name")
    return message


CASES = {
    "MD401": [
        Case("opset 24 in IR 10", NEG.replace("version: 12", "version: 10"), at=[""],
             says="the IR version is 10, and opset 24 came with IR version 12"),
        Case("opset 13 in IR 6", graph("y = Neg (x)", X, Y, opset=13).replace(": 12", ": 6"),
             at=[""], says="IR version 7"),
        Case("a real decoder", planted(nothing), at=[""], says="11"),
        Case("the pair of a release", NEG),
        Case("a newer IR version", graph("y = Neg (x)", X, Y, opset=13)),
        Case("an opset that nobody knows", graph("y = Neg (x)", X, Y, opset=99)),
    ],
    "MD402": [
        Case("two versions", NEG.replace('"": 24', '"": 23, "": 24'), at=[""],
             says="imports domain `ai.onnx` at versions 23 and 24"),
        Case("two spellings of one domain", planted(import_twice), at=[""],
             says="versions 24 and 23"),
        Case("another domain", NEG.replace('"local": 1', '"local": 1, "local": 2'), at=[""],
             says="`local` at versions 1 and 2"),
        Case("in a function", graph("y = local.f (x)", X, Y, more='<domain: "local", '
             'opset_import: ["": 24, "": 23]> f (a) => (b) { b = Neg (a) }'), at=[""]),
        Case("one version twice", NEG.replace('"": 24', '"": 24, "": 24')),
    ],
    "MD403": [
        Case("an initializer", graph("y = Neg (x)", X, Y).replace(
            "{ y =", "<float[3] w = {1, 2, 3}> { y ="), at=["w"],
            says="nothing reads the initializer `w` (12 bytes)"),
        Case("in a body", graph(IF % ("<float[3] w = {1, 2, 3}>", "a = Exp (x)"),
                                f"bool flag, {X}", Y), at=["w"]),
        Case("a real decoder", planted(add_an_initializer), at=["spare"]),
        Case("a body reads it", graph(IF % ("", "a = Add (x, w)"), f"bool flag, {X}", Y).replace(
            "{ \n", "<float[3] w = {1, 2, 3}> { \n", 1)),
        Case("the graph returns it", graph("y = Neg (x)", X, f"{Y}, float[3] w").replace(
            "{ y =", "<float[3] w = {1, 2, 3}> { y =")),
        Case("a quantization annotation names it", written("""
            ir_version: 12
            opset_import { version: 24 }
            graph {
              name: "decoder"
              node { op_type: "Neg" input: "x" output: "y" }
              initializer { name: "scale" data_type: 1 dims: 1 float_data: 2 }
              quantization_annotation {
                tensor_name: "y"
                quant_parameter_tensor_names { key: "SCALE_TENSOR" value: "scale" }
              }
              input { name: "x" type { tensor_type { elem_type: 1 shape { } } } }
              output { name: "y" type { tensor_type { elem_type: 1 shape { } } } }
            }
        """)),
        Case("a real decoder as it is", planted(nothing)),
    ],
    "MD404": [
        Case("an input", graph("y = Neg (x)", f"{X}, int64[2] ids", Y), at=["ids"],
             says="nothing reads the input `ids`"),
        Case("a chain of nodes is one finding", planted(add_dead_nodes), at=["dead2"],
             says="nothing reads `d2`, nor the results of 1 node before it"),
        Case("two inputs are one finding", graph("y = Neg (x)", f"{X}, int64[2] a, int64[2] b", Y),
             at=["a"], says="nothing reads the input `a` and 1 other input"),
        Case("dead nodes of one graph are one finding",
             graph("[d] z = Exp (x) [e] w = Abs (x) [f] v = Neg (w) y = Neg (x)", X, Y), at=["d"],
             says="nothing reads `z`, nor those of 2 other nodes of the graph"),
        Case("an input of a real decoder", planted(add_an_input), at=["spare"]),
        Case("in a body", graph(IF % ("", "[dead] z = Exp (x) a = Neg (x)"), f"bool flag, {X}", Y),
             at=["dead"]),
        Case("in a function", graph("y = local.f (x)", X, Y, more=f"{F} f (a) => (b) "
             "{ [dead] c = Exp (a) b = Neg (a) }"), at=["dead"]),
        Case("a body reads the input", graph(IF % ("", "a = Exp (z)"),
             f"bool flag, {X}, float[2, 3] z", Y)),
        Case("an optional output that nobody reads", graph("y, z = Dropout (x)", X, Y)),
        Case("a node of a vendor may have effects", graph("y = Neg (x) z = vendor.Log (x)", X, Y)
             .replace('"local": 1', '"vendor": 1')),
        Case("an input that is returned", graph("y = Neg (x)", f"{X}, float[2] z",
             f"{Y}, float[2] z")),
    ],
    "MD405": [
        Case("two nodes", graph("[n] z = Neg (x) [n] y = Exp (z)", X, Y), at=["n"],
             says="nodes 0 and 1 of the graph are both called `n`"),
        Case("three nodes are two findings", graph(
            "[n] z = Neg (x) [n] w = Exp (z) [n] y = Exp (w)", X, Y), at=["n", "n"]),
        Case("in a body", graph(IF % ("", "[n] z = Exp (x) [n] a = Neg (z)"), f"bool flag, {X}", Y),
             at=["n"]),
        Case("a real decoder", planted(give_two_nodes_one_name),
             at=["model/layers.0/input_layernorm/RMSNormalization_node_3"]),
        Case("no names", graph("z = Neg (x) y = Exp (z)", X, Y)),
        Case("one name in two graphs", graph(
            "[n] x2 = Exp (x) " + IF % ("", "[n] a = Neg (x2)"), f"bool flag, {X}", Y)),
    ],
    "MD406": [
        Case("one tensor", written(RULES["MD406"].bad), at=[""],
             says="take 2,400,000,000 bytes, `weights` alone 2,400,000,000"),
        Case("external data", written(RULES["MD406"].good)),
        Case("a real decoder", planted(nothing)),
    ],
    "MD408": [
        Case("an opset", NEG.replace('"": 24', '"": 99'), at=[""],
             says="imports `ai.onnx` at version 99"),
        Case("an IR version", NEG.replace("version: 12", "version: 99"), at=[""],
             says="the IR version is 99"),
        Case("version 0", NEG.replace('"local": 1', '"local": 0'), at=[""],
             says="imports `local` at version 0, and the lowest version is 1"),
        Case("a function", graph("y = local.f (x)", X, Y, more='<domain: "local", '
             'opset_import: ["": 77]> f (a) => (b) { b = Neg (a) }'), at=[""], says="77"),
        Case("versions that are known", NEG),
    ],
    "MD409": [
        Case("no version of ONNX's operators", NEG.replace('"": 24, ', ""), at=[""],
             says="does not import a version of them"),
        Case("the other spelling", NEG.replace('"": 24', '"ai.onnx": 24')),
        Case("no such operator", graph("y = vendor.Neg (x)", X, Y).replace(
            '"": 24, "local"', '"vendor"')),
    ],
    "MD411": [
        Case("no IR version", NEG.replace("ir_version: 12, ", ""), at=[""]),
        Case("IR version 0", NEG.replace("version: 12", "version: 0"), at=[""]),
        Case("one", NEG),
    ],
    "MD420": [
        Case("a value that is nowhere", graph("[n] y = Add (x, w)", X, Y), at=["n"],
             says="reads `w`, which nothing produces"),
        Case("in a body", graph(IF % ("", "[n] a = Add (x, w)"), f"bool flag, {X}", Y), at=["n"]),
        Case("a real decoder without a weight", planted(forget_an_initializer),
             at=["model/embed_tokens/Gather_node_0"]),
        Case("an absent input", graph("y = Clip (x, , x)", X, Y)),
    ],
    "MD421": [
        Case("an output", graph("y = Neg (x)", X, "float[2, 3] z"), at=["z"],
             says="has an output `z` that nothing produces"),
        Case("a body returns a value from outside", graph(
            "a = Exp (x) " + IF % ("", "c = Neg (x)"), f"bool flag, {X}", Y), at=["a"],
            says="only in an enclosing one"),
        Case("an input is returned", graph("y = Neg (x)", X, f"{Y}, {X}")),
    ],
    "MD422": [
        Case("two nodes", graph("[a] y = Neg (z) [b] z = Exp (x)", X, Y), at=["a"],
             says="reads `z` before the node that produces it"),
        Case("a cycle", graph("[a] y = Add (x, z) [b] z = Exp (y)", X, Y), at=["a"]),
        Case("a real decoder", planted(swap_two_nodes),
             at=["model/layers.0/self_attn/o_proj/MatMul_node_16"]),
        Case("in order", graph("[b] z = Exp (x) [a] y = Neg (z)", X, Y)),
    ],
    "MD423": [
        Case("two inputs", graph("y = Neg (x)", f"{X}, {X}", Y), at=["x"]),
        Case("one of a body", NEG),
    ],
    "MD424": [
        Case("an input", graph("y = Neg (x)", f'{X}, float[2] ""', Y), at=[""]),
        Case("a named one", NEG),
    ],
    "MD425": [
        Case("two initializers", RULES["MD425"].bad, at=["w"]),
        Case("an input with an initializer is its default", graph("y = Neg (x)", X, Y).replace(
            "{ y =", "<float[2, 3] x = {1, 2, 3, 4, 5, 6}> { y =")),
    ],
    "MD426": [
        Case("an initializer", RULES["MD426"].bad, at=[""]),
        Case("a named one", RULES["MD425"].good),
    ],
    "MD427": [
        Case("a value of a body", graph("z = Exp (x) " + IF % ("", "[n] z = Neg (x) a = Exp (z)"),
             f"bool flag, {X}", Y), at=["n"], says="`z` hides the value of that name"),
        Case("two bodies with one name", graph(IF % ("", "[n] b = Neg (x) a = Exp (b)"),
             f"bool flag, {X}", Y)),
    ],
    "MD428": [
        Case("two shapes", RULES["MD428"].bad, at=["z"]),
        Case("the same twice", RULES["MD428"].good.replace("z>", "z, float[2, 3] z>")),
    ],
    "MD429": [
        Case("two values", RULES["MD429"].bad, at=["negate"]),
        Case("two attributes", graph("[n] y = Selu <alpha: float = 1.0, gamma: float = 2.0> (x)", X,
             Y)),
    ],
    "MD430": [
        Case("no operator", edited(lambda m: m.graph.node[0].ClearField("op_type")), at=["n"]),
        Case("an operator", NEG),
    ],
    "MD431": [
        Case("nothing in, nothing out", RULES["MD431"].bad, at=["idle"]),
        Case("nothing in", graph("z = Constant <value_int = 1> () y = Neg (x)", X, Y)),
    ],
    "MD432": [
        Case("the main graph", edited(lambda m: m.graph.ClearField("name")), at=[""]),
        Case("a body", edited_body, at=[""]),
        Case("a named graph", NEG),
    ],
    "MD433": [
        Case("an input without a type", graph("y = Neg (x)", "x", Y), at=["x"]),
        Case("an output without a type", graph("y = Neg (x)", X, "y"), at=["y"],
             says="the output `y` declares no type"),
        Case("an input without a shape", graph("y = Neg (x)", "float[] x", Y), at=["x"],
             severity="warning", says="declares no shape"),
        Case("the decoder that an exporter broke", planted(
            nothing, "native/BROKEN_gemma_static_raw_noopt.onnx"),
            at=["logits", "updated_key_cache.1", "updated_value_cache.1"]),
        Case("an output without a shape, which onnx.checker refuses",
             graph("y = Neg (x)", X, "float[] y"), at=["y"], severity="warning"),
        Case("unknown dimensions", graph("y = Neg (x)", "float[?, N] x", "float[?, N] y")),
        Case("ends of bodies", graph(IF.replace("float[2, 3] ", "") % ("", "a = Exp (x)"),
             f"bool flag, {X}", Y)),
    ],
    "MD435": [
        Case("the last output", graph('[n] y, "" = Dropout (x)', X, Y), at=["n"]),
        Case("one in the middle", graph('[n] y, "", z = GRU <hidden_size = 3> (x, x, x)',
             "float[1, 1, 1] x", "float[] y, float[] z")),
    ],
    "MD436": [
        Case("in the model", RULES["MD436"].bad, at=[""], says="`author` stands twice"),
        Case("on a node", edited(lambda m: [m.graph.node[0].metadata_props.add(key="k", value=v)
             for v in "ab"]), at=["n"]),
        Case("two keys", RULES["MD436"].good.replace('"A"', '"A", "owner": "B"')),
    ],
    "MD437": [
        Case("in the model", written(RULES["MD437"].bad), at=[""], says="number 2000"),
        Case("nothing unknown", NEG),
    ],
    "MD438": [
        Case("of nothing", written(RULES["MD438"].bad), at=["z"], says="`z`"),
        Case("a second one", written(RULES["MD438"].bad.replace(
            '{ tensor_name: "z" }', '{ tensor_name: "y" } quantization_annotation '
            '{ tensor_name: "y" }')), at=["y"], says="a second one for `y`"),
        Case("of a value", written(RULES["MD438"].good)),
    ],
    "MD440": [
        Case("two of one name", RULES["MD440"].bad, at=[""]),
        Case("two domains", RULES["MD440"].bad.replace(
            '<domain: "local", opset_import: ["": 24]>\nf (a) => (b) { b = Exp',
            '<domain: "other", opset_import: ["": 24]>\nf (a) => (b) { b = Exp')),
    ],
    "MD441": [
        Case("two that call each other", RULES["MD441"].bad, at=[""],
             says="`local::f` -> `local::g` -> `local::f`"),
        Case("one that calls itself in a body", graph("y = local.f (x)", X, Y, more=f"{F} f (x) => "
             "(b) { c = Constant <value = bool {1}> () b = If (c) <then_branch = t () => (float[2, "
             "3] d) { d = local.f (x) }, else_branch = e () => (float[2, 3] g) { g = Neg (x) }> }"),
             at=[""]),
        Case("a chain", chain(3)),
    ],
    "MD442": [
        Case("two inputs", RULES["MD442"].bad, at=[""], says="two inputs"),
        Case("two attributes", graph("y = local.f (x)", X, Y, more='<domain: "local", '
             'opset_import: ["": 24]> f <alpha, alpha> (a) => (b) { b = Neg (a) }'), at=[""],
             says="two attributes"),
        Case("two names", RULES["MD442"].bad.replace("(a, a)", "(a, c)")),
    ],
    "MD443": [
        Case("101 functions deep", chain(101), at=[""], says="are 101 deep from here, and 100"),
        Case("100 functions deep", chain(100)),
        Case("many functions side by side", graph("y = local.f1 (x)", X, Y, more="".join(
            f"{F} f{n} (a) => (b) {{ b = Neg (a) }}\n" for n in range(1, 130)))),
    ],
    "MD450": [
        Case("a negative dimension", tensor("data_type: 1 dims: -2"), at=["w"], says="[-2]"),
        Case("too many elements", tensor("data_type: 1 dims: 4611686018427387904 dims: 4"),
             at=["w"], says="exceeds 2**63 - 1"),
        Case("no elements", tensor("data_type: 1 dims: 0 dims: 4611686018427387904")),
        Case("a negative size of an input and of an output", edited(
            lambda m: [end.type.tensor_type.shape.dim[0].CopyFrom(
                onnx.TensorShapeProto.Dimension(dim_value=-1))
                for end in (m.graph.input[0], m.graph.output[0])]),
             at=["x", "y"], severity="warning", says="declares the size -1 on axis 0"),
    ],
    "MD451": [
        Case("too few", tensor("data_type: 1 dims: 3 float_data: 1"), at=["w"],
             says="has 1 entries of data, but shape [3] takes 3"),
        Case("too many", tensor("data_type: 1 float_data: 1 float_data: 2"), at=["w"]),
        Case("raw bytes", tensor('data_type: 1 dims: 3 raw_data: "0123"'), at=["w"],
             says="has 4 bytes of data, but shape [3] takes 12"),
        Case("a real decoder", planted(cut_a_weight), at=["model.embed_tokens.weight"]),
        Case("packed elements", tensor("data_type: 22 dims: 3 int32_data: 1 int32_data: 2")),
    ],
    "MD452": [
        Case("an initializer", tensor("dims: 0"), at=["w"]),
        Case("an attribute", tensor("data_type: 1 dims: 1 float_data: 1",
             'attribute { name: "a" type: TENSOR t { dims: 0 } }'), at=["n"]),
        Case("a type", tensor("data_type: 1 dims: 0")),
    ],
    "MD453": [
        Case("the field of another type", tensor("data_type: 1 dims: 1 int64_data: 1"), at=["w"],
             says="has data in `int64_data`, and elements of type FLOAT stand in `float_data`"),
        Case("two fields", tensor('data_type: 1 dims: 1 float_data: 1 raw_data: "0123"'), at=["w"],
             says="in `raw_data` and in `float_data`"),
        Case("external and inside", tensor("data_type: 1 dims: 1 float_data: 1 data_location: "
             'EXTERNAL external_data { key: "location" value: "w.bin" }'), at=["w"],
             says="is external and has data in `float_data`"),
        Case("half precision stands in int32_data", tensor("data_type: 10 dims: 1 int32_data: 1")),
        Case("32-bit unsigned in uint64_data", tensor("data_type: 12 dims: 1 uint64_data: 1")),
        Case("no elements, no data", tensor("data_type: 1 dims: 0")),
        Case("a real decoder", planted(nothing)),
    ],
    "MD454": [
        Case("an index outside", written(RULES["MD454"].bad), at=["w"],
             says="has the index [9] at 1, outside of [5]"),
        Case("not in order", sparse("dims: 2 float_data: 1 float_data: 2", "indices { data_type: 7 "
             "dims: 2 int64_data: 3 int64_data: 1 }", "dims: 5"), at=["w"], says="not in order"),
        Case("one twice", sparse("dims: 2 float_data: 1 float_data: 2", "indices { data_type: 7 "
             "dims: 2 int64_data: 3 int64_data: 3 }", "dims: 5"), at=["w"]),
        Case("tuples outside", sparse("dims: 1 float_data: 1", "indices { data_type: 7 dims: 1 "
             "dims: 2 int64_data: 1 int64_data: 3 }", "dims: 2 dims: 3"), at=["w"],
             says="has the index [1, 3] at 0, outside of [2, 3]"),
        Case("values of rank 2", sparse("dims: 1 dims: 1 float_data: 1", "indices { data_type: 7 "
             "dims: 1 int64_data: 1 }", "dims: 5"), at=["w"], says="values of rank 2"),
        Case("indices of another type", sparse("dims: 1 float_data: 1", "indices { data_type: 6 "
             "dims: 1 int32_data: 1 }", "dims: 5"), at=["w"], says="another type than int64"),
        Case("no indices", sparse("dims: 1 float_data: 1", "", "dims: 5"), at=["w"]),
        Case("fewer indices than values", sparse("dims: 2 float_data: 1 float_data: 2",
             "indices { data_type: 7 dims: 1 int64_data: 1 }", "dims: 5"), at=["w"]),
        Case("tuples", sparse("dims: 1 float_data: 1", "indices { data_type: 7 dims: 1 "
             "dims: 2 int64_data: 1 int64_data: 2 }", "dims: 2 dims: 3")),
    ],
    "MD455": [
        Case("a value of another type", attribute("type: FLOAT i: 2"), at=["n"],
             says="attribute `a` of type FLOAT has its value in `i`"),
        Case("two values", attribute("type: FLOAT i: 2 f: 2"), at=["n"],
             says="values in `f` and in `i`"),
        Case("no value is a default", attribute("type: INTS")),
        Case("each kind of value", attribute("type: STRINGS strings: 'a'")),
        Case("a real decoder", planted(nothing)),
    ],
    "MD412": [
        Case("of the model", NEG.replace('"local": 1', '"local": 1, "ai.onnx.ml": 3'), at=[""],
             says="the model imports `ai.onnx.ml`"),
        Case("of a function", graph("y = local.f (x)", X, Y, more='<domain: "local", '
             'opset_import: ["": 24, "my": 1]> f (a) => (b) { b = Neg (a) }'), at=[""],
             says="the function imports `my`"),
        Case("a domain that a body uses", IF_OF_MY),
        Case("a domain of functions that nobody calls", graph("y = Neg (x)", X, Y,
             more=F + " f (a) => (b) { b = Neg (a) }")),
        Case("the default domain alone", NEG.replace(', "local": 1', "")),
    ],
    "MD413": [
        Case("an input that is an output", graph("", X, X), at=[""],
             says="the main graph has no nodes"),
        Case("a body that returns what is outside", IF_OF_MY),
    ],
    "MD444": [
        Case("a function without a name", planted_function(""), at=[""],
             says="domain `local` has a function without a name"),
        Case("a function with one", planted_function("f")),
    ],
    "MD457": [
        Case("an input", opaque("", ""), at=["x"], says="is of an opaque type without a name"),
        Case("in a sequence", opaque("sequence_type { elem_type {", "} }"), at=["x"]),
        Case("in an optional", opaque("optional_type { elem_type {", "} }"), at=["x"]),
        Case("a name", opaque("", "", 'name: "Image"')),
    ],
    "MD456": [
        Case("a default of another shape", constants("float[4, 3] w", "", "float[3, 4] w"),
             at=["w"],
             says="initializer `w` is declared as float32[4, 3], and contains float32[3, 4]"),
        Case("a default of another type", constants("float[3, 4] w", "", "int64[3, 4] w"),
             at=["w"], says="declared as float32[3, 4], and contains int64[3, 4]"),
        Case("a default of another rank", constants("float[12] w", "", "float[3, 4] w"), at=["w"]),
        Case("value_info of another shape", constants("", "float[4, 3] w", "float[3, 4] w"),
             at=["w"], severity="warning"),
        Case("value_info of another type", constants("", "float[3, 4] w", "int64[3, 4] w"),
             at=["w"], severity="warning"),
        Case("value_info of a Constant", constants("", "float[7] c, int64[5] d", "", """
             c = Constant <value = int64[2] {2, 3}> () d = Reshape (x, c)"""), at=["#1"],
             says="Constant `c` is declared as float32[7], and contains int64[2]", severity="info"),
        Case("names and sizes that are unknown agree",
             constants("float[S, ?] w", "", "float[3, 4] w")),
        Case("no shape", constants("float w", "", "float w")),
        Case("a real decoder", planted(nothing)),
    ],
}  # fmt: skip


@pytest.mark.long
@coded(CASES)
def test_a_rule_of_the_container(code: str, case: Case) -> None:
    check_case(code, case)


def fixed(code: str, make: Callable[[], onnx.ModelProto], *, unsafe: bool = False) -> ir.Model:
    """Return a model after the fixes of one rule, written and read."""
    model = deserialize(make().SerializeToString())
    for finding in lint(model, [RULES[code]]):
        assert finding.fix is not None
        if unsafe or finding.fix.applicability == "safe":
            finding.fix.apply()
    again = deserialize(serialize(model))
    assert lint(again, [RULES[code]]) == []
    return again


def test_the_ir_version_is_raised() -> None:
    assert fixed("MD401", planted(nothing)).ir_version == 12


def test_the_last_import_is_kept() -> None:
    assert fixed("MD402", planted(import_twice)).opset_imports[""] == 23


def test_an_unused_initializer_goes() -> None:
    assert "spare" not in fixed("MD403", planted(add_an_initializer)).graph.initializers


def test_an_unused_initializer_that_is_an_input_stays() -> None:
    text = graph("y = Neg (x)", f"{X}, float[1] w", Y).replace("{ y =", "<float[1] w = {1}> { y =")
    model = deserialize(Case("", text).message().SerializeToString())
    (finding,) = lint(model, [RULES["MD403"]])
    assert finding.fix is None


@pytest.mark.long
def test_dead_nodes_go_with_what_feeds_them() -> None:
    before = planted(nothing)().graph.node
    assert len(list(fixed("MD404", planted(add_dead_nodes)).graph)) == len(before)


@pytest.mark.long
def test_an_unused_input_goes_only_when_unsafe_fixes_are_allowed() -> None:
    (finding,) = lint(deserialize(planted(add_an_input)().SerializeToString()), [RULES["MD404"]])
    assert finding.fix is not None and finding.fix.applicability == "unsafe"
    names = [v.name for v in fixed("MD404", planted(add_an_input), unsafe=True).graph.inputs]
    assert "spare" not in names and "key_cache.0" in names


def test_each_duplicate_gets_a_name_of_its_own() -> None:
    text = graph("[n] z = Neg (x) [n] w = Exp (z) [n_1] v = Exp (w) [n] y = Exp (v)", X, Y)
    names = [n.name for n in fixed("MD405", Case("", text).message).graph]
    assert names == ["n", "n_2", "n_1", "n_3"]


def test_a_graph_gets_a_name() -> None:
    assert fixed("MD432", edited(lambda m: m.graph.ClearField("name"))).graph.name == "main_graph"


def test_a_model_in_memory_may_be_too_large_to_write() -> None:
    model = deserialize(Case("", NEG).message().SerializeToString())
    huge = np.broadcast_to(np.float32(0), (600, 1000, 1000))
    value = ir.Value(name="huge", const_value=ir.Tensor(huge, name="huge"))
    model.graph.register_initializer(value)
    (finding,) = lint(model, [RULES["MD406"]])
    assert "2,400,000,000" in finding.diagnostic.message


@pytest.mark.parametrize("defect", ["undefined-input", "tensor-data-field", "bad-dims"])
def test_a_model_in_memory_has_no_defects_of_a_file(defect: str) -> None:
    model = ir.from_proto(Case("", NEG).message())
    rules = [rule for rule in RULES.values() if rule.name == defect]
    assert len(rules) == 1
    assert lint(model, rules) == []


def test_every_kind_of_defect_has_a_rule() -> None:
    """The reader's judges and the rules name the same defects."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(onnx_kvtool.model_io.__file__).parent.rglob("*.py")
    )
    recorded = set(re.findall(r'(?:found|self)\.add\(\s*"([a-z-]+)"', source))
    recorded |= {"duplicate-input", "unnamed-input"}  # chosen between in one call
    handled = {rule.name for rule in RULES.values() if rule.family == "file_defects"}
    assert recorded == handled


def test_external_bytes_are_not_read(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="absent.bin")
    message = Case("", graph("[n] y = Add (x, w)", X, Y)).message()
    message.graph.initializer.append(tensor)
    model = deserialize(message.SerializeToString(), str(tmp_path))
    rules = [rule for code, rule in RULES.items() if code[:3] == "MD4" and code != "MD412"]
    assert lint(model, rules) == []
