"""`kvtool check` and `kvtool rule` on the command line: streams, exit codes, formats."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_kvtool.lint.rule import RULES
from tests.lint.models import BAD_MODE, CLEAN, POINTER, save, scatter
from tests.pages.table import MADE

ROUND = ("--isolated", "--select", "KV001,KV003,MD400,MD410")
UNUSED = scatter('mode: string = "linear"', ', metadata_props: ["kvtool.ignore": "KV003"]')


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(CLEAN, tmp_path / "clean.onnx")
    save(BAD_MODE, tmp_path / "deep" / "bad.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    return tmp_path


def test_findings_are_data_and_the_summary_is_talk(kvtool) -> None:
    result = kvtool("check", *ROUND)
    assert result.exit_code == 1
    assert result.stdout == (
        "deep/bad.onnx: 1 finding\n"
        "  error KV003 bad-mode: decoder, node `cache` (TensorScatter): "
        "`mode` is `ring`, expected `linear` or `circular`\n"
        "    help: write `linear`, or `circular` for a cache that wraps around\n"
    )
    assert result.stderr == "found: 1 error, 0 warnings, 0 remarks in 2 files\n"


def test_a_clean_model_is_silent_on_standard_output(kvtool) -> None:
    result = kvtool("check", "clean.onnx", *ROUND)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "checked: no findings in 1 file\n"


def test_quiet_and_verbose(kvtool) -> None:
    assert kvtool("check", *ROUND, "-q").stderr == ""
    talk = kvtool("check", *ROUND, "-v").stderr.splitlines()
    assert talk[0].startswith("checked: clean.onnx: 0 findings; ")
    assert talk[1].startswith("checked: deep/bad.onnx: 1 finding; ")


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("deep/bad.onnx",), 1),
        (("deep/bad.onnx", "--exit-zero"), 0),
        (("deep/bad.onnx", "--ignore", "KV003"), 0),
        (("clean.onnx",), 0),
        (("missing.onnx",), 3),
        (("missing.onnx", "clean.onnx"), 1),
        (("deep/bad.onnx", "--select", "KV0O3"), 2),
        (("deep/bad.onnx", "--target", "onyxruntime"), 2),
        (("deep/bad.onnx", "--format", "yaml"), 2),
        (("deep/bad.onnx", "--fail-on", "fatal"), 2),
        (("deep/bad.onnx", "--jobs", "0"), 2),
        (("deep/bad.onnx", "--select", "KV001,,KV003"), 2),
        (("deep/bad.onnx", "--config", "none.toml"), 2),
        (("*.pt",), 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_exit_codes(kvtool, arguments: tuple[str, ...], exit_code: int) -> None:
    options = ROUND if "--config" not in arguments else ROUND[1:]
    result = kvtool("check", *options, *arguments)
    assert result.exit_code == exit_code, result.stderr
    assert "Traceback" not in result.stderr


def test_a_directory_without_models_says_so(kvtool, directory: Path) -> None:
    (directory / "empty").mkdir()
    result = kvtool("check", "empty", *ROUND)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "note: there is no model in `empty`\n"


@pytest.mark.exhaustive
@pytest.mark.long
def test_standard_input(kvtool_process, directory: Path) -> None:
    with open(directory / "deep" / "bad.onnx", "rb") as file:
        result = kvtool_process(
            "check", "-", *ROUND, "--format", "json", cwd=directory, input=file.read()
        )
    assert result.returncode == 1
    (file_report,) = json.loads(result.stdout)["files"]
    assert file_report["path"] == "-"
    assert [line["code"] for line in file_report["findings"]] == ["KV003"]


@pytest.mark.parametrize(
    "name", ["text", "concise", "json", "jsonl", "sarif", "junit", "gitlab", "rdjson"]
)
def test_a_report_in_a_file_is_that_of_standard_output(kvtool, name: str) -> None:
    shown = kvtool("check", *ROUND, "--format", name)
    written = kvtool("check", *ROUND, "--format", name, "-o", "report")
    assert written.stdout == "" and shown.exit_code == written.exit_code == 1
    assert Path("report").read_text(encoding="utf-8") == shown.stdout


def test_the_format_can_stand_in_the_configuration(kvtool) -> None:
    Path("kvtool.toml").write_text('format = "concise"\nselect = ["KV003"]\n', encoding="utf-8")
    assert kvtool("check").stdout.startswith("deep/bad.onnx:decoder:cache: KV003 ")
    assert json.loads(kvtool("check", "--format", "json").stdout)["command"] == "check"


def test_a_wrong_key_names_the_nearest(kvtool) -> None:
    Path("kvtool.toml").write_text("selct = []\n", encoding="utf-8")
    result = kvtool("check")
    assert result.exit_code == 2
    assert "unknown key `selct`" in result.stderr and "did you mean `select`?" in result.stderr


def test_github_gets_annotations_and_a_summary(kvtool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("before\n", encoding="utf-8")
    result = kvtool("check", *ROUND, "--format", "github")
    assert result.stdout.startswith("::error file=deep/bad.onnx,line=1,title=KV003 bad-mode::")
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("before\n## kvtool check\n") and "| error | KV003" in summary
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such/directory.md")
    refused = kvtool("check", *ROUND, "--format", "github")
    assert refused.exit_code == 2 and "cannot write the step summary" in refused.stderr


@pytest.mark.parametrize("name", ["github", "sarif", "text"])
def test_the_counts_are_outputs_of_a_step(
    kvtool, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", "outputs")
    Path("outputs").write_text("before=1\n", encoding="utf-8")
    assert kvtool("check", *ROUND, "--format", name).exit_code == 1
    assert Path("outputs").read_text(encoding="utf-8").splitlines() == [
        "before=1",
        "files=2",
        "errors=1",
        "warnings=0",
        "remarks=0",
    ]
    monkeypatch.setenv("GITHUB_OUTPUT", "no/such/file")
    refused = kvtool("check", *ROUND, "--format", name)
    assert refused.exit_code == 2 and "cannot write the outputs of the step" in refused.stderr


def test_statistics(kvtool) -> None:
    lines = kvtool("check", *ROUND, "--statistics").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["code", "name", "severity", "findings", "with", "a", "fix"],
        ["KV003", "bad-mode", "error", "1", "0"],
    ]


@pytest.mark.long
def test_fix_and_diff(kvtool) -> None:
    path = save(UNUSED, Path("unused.onnx"))
    before = path.read_bytes()
    shown = kvtool("check", "unused.onnx", *ROUND, "--diff")
    assert shown.exit_code == 1 and shown.stdout.startswith("--- unused.onnx\n+++ unused.onnx\n")
    assert path.read_bytes() == before
    fixed = kvtool("check", "unused.onnx", *ROUND, "--fix")
    assert fixed.exit_code == 0
    assert fixed.stderr.startswith("fixed: unused.onnx: MD410 remove `KV003`")
    assert kvtool("check", "unused.onnx", *ROUND, "--diff").stdout == ""


def test_a_fix_that_mends_several_findings_is_told_once(kvtool) -> None:
    text = "g (float[3] x) => (float[3] y) { y = Neg (b)  b = Neg (a)  a = Neg (x) }"
    save(f'<ir_version: 10, opset_import: ["": 18]> {text}', Path("turned.onnx"))
    result = kvtool("check", "turned.onnx", "--isolated", "--select", "MD422", "--fix")
    assert [line for line in result.stderr.splitlines() if "MD422" in line] == [
        "fixed: turned.onnx: MD422 sort the nodes (2 findings)"
    ]


def test_a_pointer_among_models_is_a_finding(kvtool) -> None:
    Path("pointer.onnx").write_text(POINTER, encoding="utf-8")
    result = kvtool("check", *ROUND, "--format", "concise")
    assert "pointer.onnx: MD400 `pointer.onnx` is a Git LFS pointer" in result.stdout


def test_a_bug_in_one_file_is_said_and_ends_in_4(kvtool, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_kvtool.commands import check_file

    def look(*args: object) -> None:
        raise ZeroDivisionError("by none")

    monkeypatch.setattr(check_file, "look", look)
    result = kvtool("check", *ROUND)
    assert result.exit_code == 4
    assert "kvtool: bug: `clean.onnx`: ZeroDivisionError: by none" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in kvtool("--debug", "check", *ROUND).stderr


class TestRule:
    @pytest.mark.parametrize("code", ["KV003", "kv003", "bad-mode"])
    def test_one_rule_as_text(self, kvtool, code: str) -> None:
        result = kvtool("rule", code)
        assert result.exit_code == 0
        assert result.stdout.startswith("KV003 bad-mode\n\nThe mode of a TensorScatter is neither")

    def test_markdown_is_the_page(self, kvtool) -> None:
        page = MADE["rules"]()["KV003.md"]
        assert kvtool("rule", "KV003", "--format", "markdown").stdout == page

    def test_all_is_a_line_for_each(self, kvtool) -> None:
        lines = kvtool("rule", "--all").stdout.splitlines()
        assert [line.split()[0] for line in lines] == list(RULES)

    def test_json(self, kvtool) -> None:
        data = json.loads(kvtool("rule", "--all", "--format", "json").stdout)
        assert [line["code"] for line in data["rules"]] == list(RULES)
        line = data["rules"][list(RULES).index("MD410")]
        assert line["name"] == "unused-suppression" and line["severity"] == "warning"
        assert line["fix"] == "safe" and line["url"].endswith(
            "/onnx_kvtool/lint/rules/pages/MD410.md"
        )
        assert line["summary"] == "A suppression in the model suppresses nothing"
        assert line["documentation"].startswith("# MD410 unused-suppression\n")
        (one,) = json.loads(kvtool("rule", "MD410", "--format", "json").stdout)["rules"]
        assert one == line

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("KV0O3",), "did you mean `KV003`?"),
            ((), "neither a code nor `--all`"),
            (("KV003", "--all"), "both a code and `--all`"),
        ],
        ids=["an unknown code", "nothing", "both"],
    )
    def test_wrong_usage(self, kvtool, arguments: tuple[str, ...], said: str) -> None:
        result = kvtool("rule", *arguments)
        assert result.exit_code == 2 and said in result.stderr


@pytest.mark.long
def test_a_model_with_text_that_is_not_utf_8_has_a_diff(kvtool) -> None:
    message = onnx.parser.parse_model("""<ir_version: 12, opset_import: ["": 24]>
        g (string[1] x) => (bool[1] y) <float[1] unused = {8}> { y = Equal (x, w) }""")
    text = onnx.TensorProto(name="w", data_type=onnx.TensorProto.STRING, dims=[1])
    text.string_data.append(b"\xff")
    message.graph.initializer.append(text)
    Path("bytes.onnx").write_bytes(message.SerializeToString())
    options = ("--isolated", "--select", "MD403")

    shown = kvtool("check", "bytes.onnx", *options, "--diff")
    assert shown.exit_code == 1
    assert '    string[1] w = {"\\\\xff"}' in shown.stdout.splitlines()
    assert "difference" not in shown.stderr

    fixed = kvtool("check", "bytes.onnx", *options, "--fix")
    assert fixed.exit_code == 0
    assert "difference" not in fixed.stderr

    run = kvtool("eval", "bytes.onnx", "--random")
    assert run.exit_code == 1 and "a constant has text that is not UTF-8" in run.stderr


def test_a_negative_offset_of_external_data_is_a_finding_among_several_files(
    kvtool, tmp_path: Path
) -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 18]> '
        "main (float[2] x) => (float[2] y) { y = Add (x, w) }"
    )
    for name, offset in (("negative", "-4"), ("sound", "0")):
        message = onnx.parser.parse_model(text)
        tensor = message.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=1)
        for key, value in (("location", "w.bin"), ("offset", offset), ("length", "8")):
            tensor.external_data.add(key=key, value=value)
        (tmp_path / f"{name}.onnx").write_bytes(message.SerializeToString())
    (tmp_path / "w.bin").write_bytes(bytes(8))
    result = kvtool("check", tmp_path, "--format", "concise")
    assert result.exit_code == 1
    assert "negative.onnx: MD400" in result.stdout and "offset" in result.stdout
    assert "sound.onnx" not in result.stdout
