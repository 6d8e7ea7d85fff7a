"""XD501 to XD508: references to external data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.model_io.external_data import external_files
from onnx_kvtool.model_io.model import deserialize, read, serialize
from tests.lint.cases import lint

SHA1 = hashlib.sha1(bytes(24), usedforsecurity=False).hexdigest()
Prepare = Callable[[Path], None]


def model(*references: str, dtype: str = "float") -> str:
    """Return a model with an initializer w0, w1, ... of 24 bytes for each reference."""
    tensors = ", ".join(
        f"{dtype}[2, 3] w{i} = [{reference}]" for i, reference in enumerate(references)
    )
    uses = " ".join(f"y{i} = Identity (w{i})" for i in range(len(references)))
    outputs = ", ".join(f"{dtype}[2, 3] y{i}" for i in range(len(references)))
    return f"""
        <ir_version: 12, opset_import: ["": 24]>
        decoder () => ({outputs}) <{tensors}> {{ {uses} }}
    """


def at(location: str, **entries: object) -> str:
    """Return the entries of one reference."""
    pairs = {"location": location, **entries}
    return ", ".join(f'"{key}": "{value}"' for key, value in pairs.items())


def found(code: str, text: str, directory: Path) -> list[Finding]:
    message = onnx.parser.parse_model(text)
    return lint(deserialize(message.SerializeToString(), str(directory)), [RULES[code]])


def file(name: str, size: int) -> Prepare:
    def prepare(directory: Path) -> None:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(bytes(size))

    return prepare


def link(name: str, target: str) -> Prepare:
    return lambda directory: (directory / name).symlink_to(target)


def hard_link(name: str, target: str) -> Prepare:
    return lambda directory: os.link(directory / target, directory / name)


def subdirectory(name: str) -> Prepare:
    return lambda directory: (directory / name).mkdir()


W = file("w.bin", 24)

CASES = [
    ("XD501", "a file that is missing", [], model(at("w.bin")), ["w0"], "`w.bin` is not in"),
    ("XD501", "one file of three tensors", [W], model(at("w.bin"), at("no.bin"), at("no.bin")),
     ["w1"], "`no.bin` is not in"),
    ("XD501", "two files", [], model(at("a.bin"), at("b.bin")), ["w0", "w1"], "`a.bin`"),
    ("XD501", "a directory", [subdirectory("d")], model(at("d")), ["w0"], "is not a regular file"),
    ("XD501", "a file that is there", [W], model(at("w.bin")), [], ""),
    ("XD501", "a file in a directory below", [file("a/w.bin", 24)], model(at("a/w.bin")), [], ""),
    ("XD501", "an escape is XD502", [], model(at("../w.bin")), [], ""),
    ("XD502", "a way up", [], model(at("../w.bin")), ["w0"], "`../w.bin` leaves the directory"),
    ("XD502", "a way up from below", [], model(at("a/../../w.bin")), ["w0"], "leaves"),
    ("XD502", "a backslash", [], model(at("..\\\\w.bin")), ["w0"], "leaves"),
    ("XD502", "an absolute location", [], model(at("/etc/passwd")), ["w0"], "is absolute"),
    ("XD502", "a drive", [], model(at("C:w.bin")), ["w0"], "is absolute"),
    ("XD502", "no location", [W], model(at("")), ["w0"], "names no file"),
    ("XD502", "a link that leads out", [link("w.bin", "/etc/passwd")], model(at("w.bin")), ["w0"],
     "is a link to"),
    ("XD502", "a way up and back", [W, subdirectory("a")], model(at("a/../w.bin")), [], ""),
    ("XD502", "a name with two dots", [file("w..bin", 24)], model(at("w..bin")), [], ""),
    ("XD503", "a link inside", [W, link("l.bin", "w.bin")], model(at("l.bin")), ["w0"],
     "`l.bin` is a symbolic link to `w.bin`"),
    ("XD503", "two tensors of one link", [W, link("l.bin", "w.bin")],
     model(at("l.bin"), at("l.bin")), ["w0"], "(so do 1 more tensors)"),
    ("XD503", "another name of the file", [W, hard_link("h.bin", "w.bin")], model(at("w.bin")),
     ["w0"], "has 2 hard links"),
    ("XD503", "a plain file", [W], model(at("w.bin")), [], ""),
    ("XD503", "a file that is missing", [], model(at("w.bin")), [], ""),
    ("XD503", "a link that leads out is XD502", [link("w.bin", "/etc/passwd")], model(at("w.bin")),
     [], ""),
    ("XD504", "beyond the end", [W], model(at("w.bin", offset=8)), ["w0"],
     "bytes 8 to 32 of `w.bin` are needed, and the file has 24"),
    ("XD504", "a length that is too short", [W], model(at("w.bin", length=20)), ["w0"],
     "has 20 bytes, but FLOAT of shape [2, 3] takes 24"),
    ("XD504", "a length that is too long", [file("w.bin", 99)], model(at("w.bin", length=25)),
     ["w0"], "has 25 bytes"),
    ("XD504", "a huge offset", [W], model(at("w.bin", offset=2**63)), ["w0"], "the offset 9"),
    ("XD504", "strings", [W], model(at("w.bin"), dtype="string"), ["w0"], "cannot be external"),
    ("XD504", "each tensor by itself", [W], model(at("w.bin", offset=1), at("w.bin", offset=2)),
     ["w0", "w1"], "bytes 1 to 25"),
    ("XD504", "packed elements", [file("w.bin", 3)], model(at("w.bin", length=3), dtype="int4"),
     [], ""),
    ("XD504", "the end of the file", [file("w.bin", 32)], model(at("w.bin", offset=8)), [], ""),
    ("XD504", "a missing file is XD501", [], model(at("w.bin", offset=8)), [], ""),
    ("XD506", "an odd offset", [], model(at("w.bin", offset=100)), ["w0"],
     "begins at byte 100 of `w.bin`, which is no multiple of 4096"),
    ("XD506", "two in one file", [], model(at("w.bin", offset=4096), at("w.bin", offset=5000),
     at("w.bin", offset=6000)), ["w1"], "byte 5000 of `w.bin`"),
    ("XD506", "the front of the file", [], model(at("w.bin")), [], ""),
    ("XD506", "a page", [], model(at("w.bin", offset=8192)), [], ""),
    ("XD508", "an unknown key", [W], model(at("w.bin", lenght=24)), ["w0"],
     "1 unknown key: `lenght`"),
    ("XD508", "a wrong checksum", [W], model(at("w.bin", checksum="00ff")), ["w0"],
     f"the checksum of `w.bin` is {SHA1}, and the model says 00ff"),
    ("XD508", "two unknown keys", [W], model(at("w.bin", a=1, b=2)), ["w0"], "`a`, `b`"),
    ("XD508", "the right checksum", [W], model(at("w.bin", checksum=SHA1)), [], ""),
    ("XD508", "a checksum in capitals", [W], model(at("w.bin", checksum=SHA1.upper())), [], ""),
    ("XD508", "the directory that onnx notes down", [W], model(at("w.bin", basepath="x")), [], ""),
    ("XD508", "weights that onnxruntime has packed", [W], model(at("w.bin", prepacked_0="x|1")),
     [], ""),
    ("XD508", "a file that may not be read is not read", [],
     model(at("../../../../../../etc/passwd", checksum="00ff")), [], ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "prepare", "text", "values", "says"),
    [pytest.param(c, p, t, v, s, id=f"{c}: {name}") for c, name, p, t, v, s in CASES],
)
def test_a_rule_of_external_data(
    code: str, prepare: list[Prepare], text: str, values: list[str], says: str, tmp_path: Path
) -> None:
    for step in prepare:
        step(tmp_path)
    findings = found(code, text, tmp_path)
    assert [f.location.value for f in findings] == values, [str(f.diagnostic) for f in findings]
    assert {f.severity for f in findings} <= {RULES[code].severity}
    if findings:
        assert says in findings[0].diagnostic.message


def test_a_snapshot_of_the_hub_is_an_information(tmp_path: Path) -> None:
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / "0123abcd"
    (repository / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    message = onnx.parser.parse_model(model(at("w.bin")))
    for name, data in (("model.onnx", message.SerializeToString()), ("w.bin", bytes(24))):
        (repository / "blobs" / name).write_bytes(data)
        (snapshot / name).symlink_to(Path("..", "..", "blobs", name))
    rules = [rule for code, rule in RULES.items() if code.startswith("XD5")]
    findings = lint(read(snapshot / "model.onnx"), rules)
    assert [(f.code, f.severity) for f in findings] == [("XD503", "info")]
    assert "the cache of the hub" in findings[0].diagnostic.message


def test_tensors_of_bodies_and_attributes_are_judged_too(tmp_path: Path) -> None:
    text = f"""
        <ir_version: 12, opset_import: ["": 24]>
        decoder (bool flag) => (float[2, 3] y) {{
            y = If (flag) <
                then_branch = one () => (float[2, 3] a)
                    <float[2, 3] w = [{at("body.bin")}]> {{ a = Identity (w) }},
                else_branch = two () => (float[2, 3] b) {{
                    [constant] b = Constant <value = float[2, 3] {{1, 2, 3, 4, 5, 6}}> ()
                }}
            >
        }}
    """
    message = onnx.parser.parse_model(text)
    other = message.graph.node[0].attribute[1].g.node[0].attribute[0].t
    other.ClearField("float_data")
    other.data_location = onnx.TensorProto.EXTERNAL
    other.external_data.add(key="location", value="attribute.bin")
    findings = lint(deserialize(message.SerializeToString(), str(tmp_path)), [RULES["XD501"]])
    assert [(f.location.graph, f.location.value) for f in findings] == [
        ("decoder/#0.then_branch", "w"),
        ("decoder/#0.else_branch", "value"),
    ]


def test_the_fix_removes_unknown_keys_and_keeps_the_others(tmp_path: Path) -> None:
    file("w.bin", 24)(tmp_path)
    message = onnx.parser.parse_model(model(at("w.bin", lenght=24, checksum=SHA1)))
    linted = deserialize(message.SerializeToString(), str(tmp_path))
    (finding,) = lint(linted, [RULES["XD508"]])
    assert finding.fix is not None and finding.fix.applicability == "safe"
    finding.fix.apply()
    (entry,) = onnx.ModelProto.FromString(serialize(linted)).graph.initializer
    keys = {pair.key: pair.value for pair in entry.external_data}
    assert keys == {"location": "w.bin", "checksum": SHA1}
    assert [f.location for f in external_files(linted)] == ["w.bin"]
