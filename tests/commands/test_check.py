"""`kvtool check` as a command and as a function: what is found, fixed, left alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands import check_file as check_file_module
from onnx_kvtool.commands.check import check, run
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.core.reporting import Covered
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import Check, Rule
from onnx_kvtool.lint.settings.config import Selection
from onnx_kvtool.lint.settings.files import take_shard
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite import verify
from onnx_kvtool.verification.affordable import Candidate
from onnx_kvtool.verification.report import Settings, VerifyReport
from tests.grids import rest
from tests.lint.models import BAD_MODE, CLEAN, POINTER, save, scatter

ROUND = ("KV001", "KV003", "MD400", "MD410")
"""Rules with which these tests look, so that those about other things do not matter here."""
UNUSED = scatter('mode: string = "linear"', ', metadata_props: ["kvtool.ignore": "KV003"]')


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a clean model, a bad one, and a file that is none; the current one."""
    save(CLEAN, tmp_path / "clean.onnx")
    save(BAD_MODE, tmp_path / "deep" / "bad.onnx")
    (tmp_path / "pointer.onnx").write_text(POINTER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request(*paths: str, **options: object) -> CheckRequest:
    options.setdefault("select", ROUND)
    options.setdefault("isolated", True)
    return CheckRequest(paths=paths, **options)  # type: ignore[arg-type]


def codes(report: kv.CheckReport) -> dict[str, list[str]]:
    return {file.path: [finding.code for finding in file.findings] for file in report.files}


EXPECTED = {"clean.onnx": [], "deep/bad.onnx": ["KV003"], "pointer.onnx": ["MD400"]}


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, *rest(2)])
def test_one_bad_file_does_not_stop_the_rest(directory: Path, jobs: int) -> None:
    report = run(request(jobs=jobs))
    assert codes(report) == EXPECTED
    assert report.exit_code == 1
    assert report.summary.to_json() == {
        "files": 3,
        "error": 2,
        "warning": 0,
        "info": 0,
        "fixed": 0,
        "fixable": 0,
        "unsafe_fixable": 0,
        "suppressed": 0,
        "baselined": 0,
    }


@pytest.mark.parametrize("name", ["pointer.onnx", "missing.onnx", "deep/none.onnx"])
def test_a_lone_file_that_cannot_be_read_is_an_error(directory: Path, name: str) -> None:
    with pytest.raises(kv.UnreadableModel):
        run(request(name))


def test_among_several_a_missing_file_is_a_finding(directory: Path) -> None:
    report = run(request("clean.onnx", "missing.onnx"))
    assert codes(report) == {"clean.onnx": [], "missing.onnx": ["MD400"]}
    assert "does not exist" in report[0].message


def test_a_part_of_several_files_is_still_several(directory: Path) -> None:
    paths = sorted(EXPECTED)
    alone = (
        f"{part}/{count}"
        for count in range(2, 100)
        for part in range(1, count + 1)
        if take_shard(paths, (part, count)) == ["pointer.onnx"]
    )
    report = run(request(shard=next(alone)))
    assert codes(report) == {"pointer.onnx": ["MD400"]}


def test_shards_together_are_the_whole(directory: Path) -> None:
    parts = [codes(run(request(shard=f"{part}/2"))) for part in (1, 2)]
    assert parts[0] | parts[1] == EXPECTED and not parts[0].keys() & parts[1].keys()


@pytest.mark.parametrize(
    ("options", "exit_code"),
    [
        ({}, 1),
        ({"fail_on": "warning"}, 1),
        ({"ignore": ("KV003", "MD400")}, 0),
        ({"per_file_ignores": ("deep/:KV003", "*.onnx:MD400")}, 0),
        ({"per_file_ignores": ("deep/:KV003",)}, 1),
    ],
)
def test_exit_codes(directory: Path, options: dict[str, object], exit_code: int) -> None:
    assert run(request(**options)).exit_code == exit_code


@pytest.mark.parametrize(("fail_on", "exit_code"), [("error", 0), ("warning", 1), ("info", 1)])
def test_a_warning_fails_from_warning_on(directory: Path, fail_on: str, exit_code: int) -> None:
    save(UNUSED, directory / "unused.onnx")
    assert run(request("unused.onnx", fail_on=fail_on)).exit_code == exit_code


class TestConfiguration:
    def test_flags_win_over_the_file(self, directory: Path) -> None:
        Path("kvtool.toml").write_text('select = ["KV001"]\nfail-on = "warning"\n', "utf-8")
        assert not list(run(request(select=None, isolated=False)))
        report = run(request(select=("KV003",), isolated=False))
        assert [finding.code for finding in report] == ["KV003"]
        assert report.fail_on == "warning"

    def test_ignore_and_extend_select_add_up(self, directory: Path) -> None:
        Path("kvtool.toml").write_text('select = ["KV0"]\nignore = ["KV003"]\n', "utf-8")
        report = run(request(select=None, extend_select=("MD400",), isolated=False))
        assert codes(report) == {**EXPECTED, "deep/bad.onnx": []}

    def test_a_select_flag_starts_afresh(self, directory: Path) -> None:
        Path("kvtool.toml").write_text('ignore = ["KV003"]\n', "utf-8")
        assert codes(run(request(isolated=False))) == EXPECTED

    @pytest.mark.long
    def test_patterns_are_relative_to_the_file(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("kvtool.toml").write_text('[per-file-ignores]\n"/deep/" = ["KV003"]\n', "utf-8")
        monkeypatch.chdir(directory / "deep")
        assert codes(run(request(isolated=False))) == {"bad.onnx": []}

    def test_a_wrong_code_in_the_file_is_named(self, directory: Path) -> None:
        Path("kvtool.toml").write_text('ignore = ["KV0O3"]\n', "utf-8")
        with pytest.raises(kv.UsageError, match=r"kvtool\.toml`, `ignore`: no rule has the code"):
            run(request(select=None, isolated=False))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"select": ("KV9",)}, "`--select`: no rule has the code `KV9`"),
            ({"targets": ("onyxruntime",)}, "kvtool knows no runtime `onyxruntime`"),
            ({"per_file_ignores": ("a.onnx",)}, "expected `GLOB:CODES`"),
            ({"shard": "4/3"}, "expected `i/n`"),
            ({"config": "none.toml"}, "`--config` and `--isolated` exclude each other"),
            ({"config": "none.toml", "isolated": False}, "`none.toml` does not exist"),
            ({"dims": {"bach": 2}}, "no input has a dimension called `bach`"),
            ({"write_baseline": "b.json", "fix": True}, "--write-baseline"),
            ({"write_baseline": "clean.onnx"}, "is one of the models, and would be overwritten"),
            ({"output": "deep/bad.onnx"}, "is one of the models, and would be overwritten"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_wrong_usage(self, directory: Path, options: dict[str, object], message: str) -> None:
        before = Path("clean.onnx").read_bytes()
        with pytest.raises(kv.UsageError, match=message):
            run(request(**options))
        assert Path("clean.onnx").read_bytes() == before


class TestBaseline:
    def test_what_is_written_is_not_reported_again(self, directory: Path) -> None:
        report = run(request(write_baseline="known.json"))
        assert report.exit_code == 0 and not list(report)
        assert report.notes == ("2 findings written to the baseline `known.json`",)
        again = run(request(baseline="known.json"))
        assert again.exit_code == 0 and again.summary.baselined == 2
        save(BAD_MODE.replace("[cache]", "[other]"), directory / "deep" / "bad.onnx")
        assert codes(run(request(baseline="known.json")))["deep/bad.onnx"] == ["KV003"]

    def test_it_can_stand_in_the_configuration(self, directory: Path) -> None:
        run(request(write_baseline="known.json"))
        Path("kvtool.toml").write_text('baseline = "known.json"\n', "utf-8")
        assert not list(run(request(isolated=False)))


@dataclass(frozen=True, eq=False)
class Wrong(Rule):
    """A rule whose fix, of the safety that it states, replaces the first node."""

    def check(self) -> Check:
        def find(context: Context) -> Findings:
            node = context.model.graph[0]
            if node.op_type != "Abs" and self.fix is not None:
                fix = Fix(self.fix, "Replace it", lambda: setattr(node, "op_type", "Abs"))
                yield Found(context.sites[0].location(), "it is another operator", fix=fix)

        return find


WRONG = Wrong("KV001", "wrong", "warning", "constant", "", family="none", fix="safe")


RELU = """
    <ir_version: 10, opset_import: ["": 18]>
    one (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }
"""


class TestFixes:
    def test_a_safe_fix_is_applied_and_verified(self, directory: Path) -> None:
        path = save(UNUSED, directory / "unused.onnx")
        os.chmod(path, 0o640)
        report = run(request("unused.onnx", fix=True))
        (file,) = report.files
        assert [line.code for line in file.fixed] == ["MD410"]
        assert file.written and not file.findings and not file.notes
        assert report.summary.fixed == 1 and report.exit_code == 0
        assert not onnx.load(path).metadata_props
        assert path.stat().st_mode & 0o777 == 0o640
        assert not run(request("unused.onnx", fix=True)).files[0].written

    def test_a_diff_shows_it_and_writes_nothing(self, directory: Path) -> None:
        path = save(UNUSED, directory / "unused.onnx")
        before = path.read_bytes()
        report = run(request("unused.onnx", diff=True))
        assert '-      "kvtool.ignore": "KV003"\n' in report.files[0].diff
        assert report.files[0].diff.startswith("--- unused.onnx\n+++ unused.onnx\n")
        assert report.exit_code == 1 and [f.code for f in report] == ["MD410"]
        assert path.read_bytes() == before

    def test_the_weights_are_left_alone(self, directory: Path) -> None:
        text = """
            <ir_version: 12, opset_import: ["": 24], metadata_props: ["kvtool.ignore": "KV003"]>
            one (float[2] x) => (float[2] y)
                <float[2] w = ["location": "w.bin", "offset": "0", "length": "8"]> {
                y = Add (x, w)
            }
        """
        Path("w.bin").write_bytes(np.array([3.0, 5.0], np.float32).tobytes())
        before = os.stat("w.bin")
        path = save(text, directory / "external.onnx")
        report = run(request("external.onnx", fix=True))
        assert report.files[0].written and not report.files[0].notes
        after = os.stat("w.bin")
        assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
        (tensor,) = onnx.load(path, load_external_data=False).graph.initializer
        assert {e.key: e.value for e in tensor.external_data}["location"] == "w.bin"

    def test_a_safe_fix_that_changes_results_is_not_written(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = save(RELU, directory / "relu.onnx")
        before = path.read_bytes()
        monkeypatch.setattr(Selection, "rules", lambda self, path: [WRONG])
        (file,) = run(request("relu.onnx", fix=True)).files
        assert "not fixed: safe fixes changed the results" in file.notes[0]
        assert not file.written and not file.fixed and [f.name for f in file.findings] == ["wrong"]
        assert path.read_bytes() == before

    @pytest.mark.parametrize("strict", [False, True])
    def test_a_fix_that_the_proof_does_not_cover_is_written_unless_strict(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, strict: bool
    ) -> None:
        seen: list[Settings] = []

        def stand_in(source: Candidate, result: Candidate, settings: Settings) -> VerifyReport:
            seen.append(settings)
            return VerifyReport("equal", covered=Covered(places=3, noticed=1))

        save(UNUSED, directory / "unused.onnx")
        monkeypatch.setattr(verify, "compare_candidates", stand_in)
        report = run(request("unused.onnx", fix=True, strict=strict, thorough=True))
        (file,) = report.files
        assert [(one.thorough, one.strict) for one in seen] == [(True, strict)]
        assert (file.written, report.exit_code) == (not strict, int(strict))
        gap = "no mistake was planted at 2 of 3 places"
        if strict:
            assert file.reason == f"not fixed: not everything was covered, {gap}"
            assert [finding.code for finding in file.findings] == ["MD410"]
        else:
            assert file.notes == (f"the comparison did not cover everything: {gap}",)

    def test_an_unsafe_fix_is_not_compared(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = save(RELU, directory / "relu.onnx")
        monkeypatch.setattr(Selection, "rules", lambda self, path: [replace(WRONG, fix="unsafe")])
        assert not run(request("relu.onnx", fix=True)).files[0].written
        assert run(request("relu.onnx", fix=True, unsafe_fixes=True)).files[0].written
        assert onnx.load(path).graph.node[0].op_type == "Abs"

    def test_a_file_that_would_lose_something_is_not_written(self, directory: Path) -> None:
        data = save(UNUSED, directory / "later.onnx").read_bytes()
        Path("later.onnx").write_bytes(data + b"\x80\x7d\x01")  # field 2000, which nobody knows
        (file,) = run(request("later.onnx", fix=True)).files
        assert not file.written
        assert "not fixed: the file cannot be written without loss" in file.notes[0]

    def test_standard_input_cannot_be_fixed(self) -> None:
        with pytest.raises(kv.UsageError, match="standard input"):
            run(request("-", fix=True))


class TestBugs:
    def test_a_bug_does_not_stop_the_rest(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def look(*args: object) -> None:
            raise ZeroDivisionError("by none")

        monkeypatch.setattr(check_file_module, "look", look)
        report = run(request("clean.onnx", "pointer.onnx"))
        assert codes(report) == {"clean.onnx": [], "pointer.onnx": ["MD400"]}
        ((path, failure),) = report.failures
        assert path == "clean.onnx" and failure.message == "ZeroDivisionError: by none"
        assert "in look" in failure.traceback and report.exit_code == 4

    def test_alone_it_is_raised(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def look(*args: object) -> None:
            raise ZeroDivisionError("by none")

        monkeypatch.setattr(check_file_module, "look", look)
        with pytest.raises(ZeroDivisionError):
            run(request("clean.onnx"))


class TestPython:
    def test_a_model_stays_the_same(self, directory: Path) -> None:
        model = kv.load("deep/bad.onnx")
        before = serialize(model)
        findings = kv.check(model, select=ROUND)
        assert [(f.code, f.severity, f.location.node) for f in findings] == [
            ("KV003", "error", "cache")
        ]
        assert len(findings) == 1 and findings[0].help
        assert findings.files[0].path == "deep/bad.onnx"
        assert serialize(model) == before

    def test_sizes_are_given_for_the_look_alone(self, tmp_path: Path) -> None:
        text = CLEAN.replace("float[2, 3, 1, 5] update", "float[2, 3, L, 5] update")
        model = kv.load(save(text, tmp_path / "symbolic.onnx"))
        before = serialize(model)
        assert not list(check(model, select=["KV007"]))
        assert [f.code for f in check(model, select=["KV007"], dims={"L": 9})] == ["KV007"]
        assert serialize(model) == before

    def test_paths_are_files_and_directories(self, directory: Path) -> None:
        assert codes(kv.check([".", Path("clean.onnx")], select=ROUND)) == EXPECTED
        assert codes(kv.check(Path("clean.onnx"), select=ROUND)) == {"clean.onnx": []}
        assert codes(kv.check([])) == {}

    def test_a_lone_file_that_cannot_be_read_raises(self, directory: Path) -> None:
        with pytest.raises(kv.UnreadableModel, match="Git LFS pointer"):
            kv.check("pointer.onnx")

    def test_configuration_files_do_not_count_unless_named(self, directory: Path) -> None:
        Path("kvtool.toml").write_text('select = ["KV001"]\n', "utf-8")
        assert "KV003" in [f.code for f in kv.check("deep/bad.onnx")]
        assert not list(kv.check("deep/bad.onnx", config="kvtool.toml"))

    def test_a_size_with_which_a_dimension_would_be_negative(self, directory: Path) -> None:
        model = onnx.load("clean.onnx")
        dims = model.graph.input[0].type.tensor_type.shape.dim
        dims[0].dim_param = "batch - 5"
        onnx.save(model, "less.onnx")
        for found in (
            lambda: kv.check("less.onnx", dims={"batch": 2}),
            lambda: run(request("less.onnx", "clean.onnx", dims={"batch": 2})),
        ):
            with pytest.raises(kv.UsageError, match=r"`less.onnx`: .* would be -3: `batch - 5`"):
                found()

    def test_wrong_use(self) -> None:
        with pytest.raises(kv.UsageError, match="no rule has the code"):
            kv.check("a.onnx", select=["KV0O3"])
        with pytest.raises(kv.UsageError, match="`jobs` is 0"):
            kv.check("a.onnx", jobs=0)
