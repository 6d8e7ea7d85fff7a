"""Strings of a model reach the reader as text: no line, no command, no control of their own."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.grids import rest

HOSTILE = (
    "\n::error title=planted::x\r::add-mask::x\u2028::stop-commands::x\n##[error]planted"
    "\x1b]0;planted\x07\x1b[2J\x9b31m\u202eplanted\u2066\u200b\t|`</script>"
)
MODEL = """
    <ir_version: 11, opset_import: ["": 24, "local": 1, "com.microsoft": 1, "strange": 1]>
    decoder (float[batch, 3, 7, 5] past, float[batch, 3, 1, 5] new, int64[batch] start, bool flag,
        string[n] words)
        => (float[batch, 3, 7, 5] present, float[m, 3, 7, 5] chosen, string[n] same)
        <float[2] weight = {1, 2}, string[1] text = {"t"}>
    {
        [scatter] present = TensorScatter <axis = 2> (past, new, start)
        [branch] picked = If (flag) <
            then_branch = yes () => (float[k] a) { [inner] a = Identity (past) },
            else_branch = no () => (float[k] b) { b = local.twice <size = 1.0> (past) }
        >
        [odd] odd = strange.Thing <kind: string = "k", sizes: ints = [1]> (picked)
        [fused] chosen = com.microsoft.Gelu (picked)
        [named] held = Constant <value_strings = ["u", "v"]> ()
        [same] same = Identity (words)
    }
    <domain: "local", opset_import: ["": 24]>
    twice <size> (x) => (y) {
        [made] s = Constant <value_float: float = @size> ()
        y = Mul (x, s)
    }
"""


def decoder() -> onnx.ModelProto:
    """Return a model that has a string in every field that it may have one in."""
    message = onnx.parser.parse_model(MODEL)
    graph = message.graph
    note = graph.quantization_annotation.add(tensor_name="weight")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="text")
    graph.value_info.add(name="odd")
    graph.input[0].type.denotation = "t"
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "d"
    graph.initializer[1].doc_string = "d"
    branch = graph.node[1].attribute[0]
    for piece in (message, graph, *graph.node, *message.functions, graph.input[0], branch):
        piece.doc_string = "d"
        if not isinstance(piece, onnx.AttributeProto):
            piece.metadata_props.add(key="k", value="v")
    message.functions[0].node[0].name = "made"
    message.producer_name = message.producer_version = message.domain = "p"
    return message


def strings(message: Message, path: str = "") -> Iterator[tuple[Message, FieldDescriptor]]:
    """Yield each field with a string or bytes, of a message and of those in it."""
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from strings(inner)
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield message, field


def label(field: FieldDescriptor) -> str:
    return f"{field.containing_type.name}.{field.name}"


def planted(
    is_chosen: Callable[[Message, FieldDescriptor], bool], end: str = HOSTILE
) -> onnx.ModelProto:
    """Return the model with hostile ends to the strings of some fields; equal ones stay equal."""

    def hostile(text: str | bytes) -> str | bytes:
        if isinstance(text, bytes):
            return text + end.encode() + b"\xff"
        return text + end if text else text

    message = decoder()
    for piece, field in list(strings(message)):
        if field.name == "raw_data" or not is_chosen(piece, field):
            continue
        if field.is_repeated:
            held = getattr(piece, field.name)
            held[:] = [hostile(text) for text in held]
        else:
            setattr(piece, field.name, hostile(getattr(piece, field.name)))
    return message


def in_names(piece: Message, field: FieldDescriptor) -> bool:
    """Return whether a model computes what it did where the string of this field is another."""
    is_word = label(field) in ("AttributeProto.name", "FunctionProto.name")
    words = ("op_type", "domain", "overload", "attribute", "ref_attr_name", "s")
    return not is_word and field.name not in words


def runnable(message: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without the operator that nobody knows."""
    branch, odd, fused = message.graph.node[1:4]
    fused.input[0] = branch.output[0]
    message.graph.node.remove(odd)
    return message


FIELDS = sorted({label(field) for _, field in strings(decoder()) if field.name != "raw_data"})
FORMATS = ("text", "concise", "json", "jsonl", "sarif", "github", "gitlab", "junit", "rdjson")
DIFF_FORMATS = ("text", "json", "markdown", "html")
COMMANDS: list[list[str]] = [
    ["print", "m.onnx"],
    ["print", "m.onnx", "--weights", "none"],
    *(["check", "m.onnx", "--isolated", "--target", "tensorrt", "--format", f] for f in FORMATS),
    ["check", "m.onnx", "missing.onnx", "--isolated", "-v", "--diff", "--unsafe-fixes"],
    ["check", "m.onnx", "--isolated", "--statistics"],
    *(["inspect", "m.onnx", "--format", f] for f in ("text", "json", "html", "dot", "mermaid")),
    ["inspect", "m.onnx", "--nodes"],
    ["infer", "m.onnx"],
    ["infer", "m.onnx", "--format", "json"],
    ["lower", "m.onnx", "-o", "out.onnx", "--no-verify"],
    ["lower", "m.onnx", "-o", "out.onnx", "--target", "tensorrt", "--format", "json"],
    ["raise", "m.onnx", "-o", "raised.onnx", "--no-verify"],
    ["--debug", "raise", "m.onnx", "--require-all", "--capacity", "9"],
    ["eval", "m.onnx", "--random", "--format", "json"],
    *(["diff", "clean.onnx", "m.onnx", "--format", f] for f in DIFF_FORMATS),
]  # fmt: skip
RUNS = [
    ["eval", "m.onnx", "--random", "--trace"],
    ["eval", "m.onnx", "--random", "--compare", "onnxruntime"],
    ["eval", "m.onnx", "--random", "--runtime", "onnxruntime", "--format", "json"],
    ["lower", "m.onnx", "-o", "out.onnx"],
    ["verify", "m.onnx", "clean.onnx"],
    ["bench", "m.onnx"],
]


def assert_harmless(text: str, command: list[str]) -> None:
    """Assert that a log would show every line of a text, and obey none."""
    is_data = command[-1] in ("json", "sarif", "gitlab", "jsonl", "rdjson")
    for line in text.split("\n"):
        odd = sorted({unicodedata.name(c, ascii(c)) for c in line if not c.isprintable()})
        assert not odd, (odd, line)
        own = command[-1] == "github" and re.match(r"::(error|warning|notice) file=[^:]", line)
        assert own or not line.lstrip().startswith("::"), line
        assert is_data or "##[" not in line, line
    if command[-1] in ("json", "sarif", "gitlab", "rdjson") and text:
        json.loads(text)


def run_all(kvtool, commands: list[list[str]], message: onnx.ModelProto) -> None:
    onnx.save(runnable(decoder()), "clean.onnx")
    onnx.save(message, "m.onnx")
    for command in commands:
        result = kvtool(*command)
        assert result.exit_code < 4, (command, result.stderr)
        assert_harmless(result.stdout, command)
        assert_harmless(result.stderr, command[:1])


EITHER = pytest.mark.parametrize(
    "is_chosen", [*rest(in_names), lambda *_: True], ids=["names", "every string"]
)


@pytest.mark.long
@EITHER
def test_no_string_of_a_model_acts(is_chosen, kvtool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(kvtool, COMMANDS, planted(is_chosen))


@pytest.mark.exhaustive
@EITHER
def test_a_name_may_end_in_more_digits_than_python_reads(
    is_chosen, kvtool, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(kvtool, COMMANDS, planted(is_chosen, "_" + "9" * 5000))


@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="no file has such a name")
def test_no_name_of_a_file_acts(kvtool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"::error title=planted::{HOSTILE.replace('/', '')}.onnx"
    damaged = f"damaged{name}"
    onnx.save(planted(in_names), name)
    Path(damaged).write_bytes(b"\x08")
    onnx.save(runnable(decoder()), "clean.onnx")
    git = ["diff", name, name, "1" * 40, "100644", damaged, "1" * 40, "100644"]
    several = (["check", ".", "--isolated", "--format", form] for form in FORMATS)
    print_ = ["print", "--textconv"]
    commands = [*COMMANDS, *several, ["check", damaged], ["check", "no" + name], git, print_]
    for command in commands:
        words = [name if word == "m.onnx" else word for word in command]
        result = kvtool(*words, *([damaged] if command is print_ else []))
        assert result.exit_code < 4, (command, result.stderr)
        assert_harmless(result.stdout, command)
        assert_harmless(result.stderr, command[:1])


@pytest.mark.exhaustive
def test_no_name_acts_where_models_run(kvtool, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(kvtool, RUNS, runnable(planted(in_names)))
    for text in capfd.readouterr():  # what libraries print
        assert_harmless(text, [""])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FIELDS)
def test_no_string_of_one_field_acts(name: str, kvtool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_all(kvtool, COMMANDS, planted(lambda _, field: label(field) == name))
