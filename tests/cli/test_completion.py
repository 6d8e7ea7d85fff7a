"""A key pressed in a shell: what is offered for a word, in which form, and how soon."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from onnx_kvtool.cli import completion
from onnx_kvtool.cli.app import COMMANDS, app
from onnx_kvtool.commands.lower import check_request
from onnx_kvtool.commands.requests import LowerRequest
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.ops.operator_names import OPERATORS, REPLACEABLE
from onnx_kvtool.ops.schema import op_history, operators
from onnx_kvtool.targets.releases import releases
from tests.grids import each, part, rest, thinned
from tests.test_startup import HEAVY, REPORT_MODULES

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"
BASH, FISH, ZSH = (shutil.which(name) for name in ("bash", "fish", "zsh"))

OFFERS = [
    pytest.param("lo", ["lower"], id="a command"),
    pytest.param("--col", ["--color"], id="a global option"),
    pytest.param("--color ", ["auto", "always", "never"], id="the words of a choice"),
    pytest.param("lower decoder.onnx --in", ["--in-place", "--index-dtype"], id="options"),
    pytest.param("lower decoder.onnx --no-", ["--no-verify"], id="the negative of a flag"),
    pytest.param("lower decoder.onnx --via scattern", ["scatternd"], id="a word of a choice"),
    pytest.param("lower dec", ["decoder.onnx"], id="a model, and not its data"),
    pytest.param("verify decoder.onnx dec", ["decoder.onnx"], id="the second model"),
    pytest.param("check dec", ["decoder.onnx"], id="a model to check"),
    pytest.param("help insp", ["inspect"], id="a command to explain"),
    pytest.param("lower decoder.onnx --target onnx", ["onnxruntime"], id="a runtime"),
    pytest.param("lower decoder.onnx --target tensorrt@8", ["tensorrt@8.6"], id="a release"),
    pytest.param(
        "lower decoder.onnx --only rmsn", ["RMSNormalization"], id="an operator, any case"
    ),
    pytest.param(
        "lower decoder.onnx --only Attention,TensorS",
        ["Attention,TensorScatter"],
        id="the next operator of a list",
    ),
    pytest.param("ops TensorSc", ["TensorScatter"], id="an operator to show"),
    pytest.param("eval --op CumP", ["CumProd"], id="an operator to run"),
    pytest.param("rule kv00", [f"KV00{i}" for i in range(1, 10)], id="a code of a rule"),
    pytest.param("rule axis-is", ["axis-is-batch"], id="a name of a rule"),
    pytest.param("check --select KV01", [c for c in RULES if c[:4] == "KV01"], id="codes"),
    pytest.param("check --select KV001,XD", ["KV001,XD5"], id="a family, before its codes"),
    pytest.param("eval decoder.onnx --dim ", ["batch=", "sequence_len="], id="dimensions"),
    pytest.param("check decoder.onnx --dim s", ["sequence_len="], id="a dimension"),
    pytest.param(
        "eval decoder.onnx --input ", ["input_ids=", "position_ids=", "key_"], id="inputs"
    ),
    pytest.param("eval decoder.onnx --input input_ids=i", ["input_ids=ids.npy"], id="a file"),
    pytest.param("eval decoder.onnx --fetch logi", ["logits"], id="a value"),
    pytest.param(
        "eval decoder.onnx --node lm_head/M", ["lm_head/MatMul_node_57"], id="a node by its name"
    ),
    pytest.param("raise decoder.onnx --assume in", ["in-range"], id="an assumption"),
    pytest.param(
        "raise decoder.onnx --assume in-range:w", ["in-range:write_indices"], id="about a value"
    ),
    pytest.param(
        "raise decoder.onnx --assume same-dim:batch=",
        ["same-dim:batch=sequence_len"],
        id="the other dimension",
    ),
    pytest.param("eval missing.onnx --fetch ", [], id="a model that is not there"),
    pytest.param("eval ids.npy --dim ", [], id="a model that is none"),
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(MODEL, tmp_path / "decoder.onnx")
    (tmp_path / "decoder.onnx.data").write_bytes(b"weights")
    (tmp_path / "ids.npy").write_bytes(b"\x93NUMPY")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(line: str) -> list[str]:
    *words, incomplete = line.split(" ")
    found = ShellComplete(app, {}, "kvtool", "_KVTOOL_COMPLETE").get_completions(words, incomplete)
    return [item.value for item in found]


@each(("line", "expected"), OFFERS)
def test_offers(line: str, expected: list[str]) -> None:
    found = offered(line)
    assert [value[: len(start)] for value, start in zip(found, expected, strict=False)] == expected
    assert bool(found) == bool(expected)


def test_every_release_is_offered_the_newest_first() -> None:
    versions = [r.version for r in releases() if r.runtime == "onnxruntime"]
    assert offered("lower a --target onnxruntime@") == [f"onnxruntime@{v}" for v in versions[::-1]]
    assert offered("check a --target openvino") == [
        f"openvino@{r.version}" for r in releases()[::-1] if r.runtime == "openvino"
    ]
    assert "opencv@4.12.0" not in offered("lower a --target opencv@")


@pytest.mark.parametrize("name", ["sub/a.onnx", "has space.onnx"])
def test_the_shell_completes_paths_itself_where_they_are_not_plain(directory, name) -> None:
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).touch()
    completer = ShellComplete(app, {}, "kvtool", "_KVTOOL_COMPLETE")
    (item,) = completer.get_completions(["lower"], "")
    assert item.type == "file"


def test_every_option_that_takes_a_name_or_a_file_offers_something() -> None:
    unaided = {
        (name, param.opts[0])
        for name, command in COMMANDS.items()
        for param in command.params
        if param._custom_shell_complete is None
        and not isinstance(param.type, click.Path | click.Choice)
        and not (isinstance(param, click.Option) and param.is_flag)
        and not isinstance(param.type, click.IntRange | click.FloatRange)
    }
    # A size, a time or a number is typed.
    budgets = {(name, "--verify-budget") for name in ("check", "lower", "raise", "verify")}
    budgets |= {("inspect", "--memory"), ("inspect", "--bandwidth")}
    budgets |= {("eval", "--memory-limit"), ("eval", "--time-limit")}
    budgets |= {("verify", "--rtol"), ("verify", "--atol")}
    budgets |= {
        (name, "--timeout")
        for name, command in COMMANDS.items()
        if "--timeout" in {flag for param in command.params for flag in param.opts}
    }
    names = {("check", n) for n in ("--per-file-ignores", "--shard", "--dask")} | {
        ("eval", "--attr")
    }
    names |= {("raise", "--capacity"), ("inspect", "--capacity")}
    names |= {("lower", "--phases"), ("raise", "--phases")}
    names |= {(name, "--provider") for name in ("bench", "eval", "verify")}  # ask onnxruntime
    assert unaided == names | budgets


def test_every_function_of_the_completion_is_used() -> None:
    names = set()
    for command in COMMANDS.values():
        for param in command.params:
            function = param._custom_shell_complete
            names |= set(getattr(function, "args", ()))
    own = {name: getattr(value, "__module__", "") for name, value in vars(completion).items()}
    offered = {n for n, m in own.items() if m == completion.__name__ and not n.startswith("_")}
    assert offered - {"complete", "install"} <= names


def test_the_operators_are_those_of_the_schemas() -> None:
    """Operators that came after these lists were made do not count."""
    known = {op for op in operators() if min(f.since_version for f in op_history(op)) <= 28}
    assert set(OPERATORS) == known


def test_the_operators_that_can_be_replaced_are_those_that_lower_takes() -> None:
    def can_be_replaced(op: str) -> bool:
        try:
            check_request(LowerRequest("in.onnx", only=(op,)))
        except UsageError:
            return False
        return True

    assert set(REPLACEABLE) == {op for op in OPERATORS if can_be_replaced(op)}


@pytest.mark.parametrize(
    "line",
    [
        "lower decoder.onnx --target onnxruntime@1.2",
        "eval decoder.onnx --node lm",
        *rest(
            "lo",
            "lower decoder.onnx --only Tens",
            "check --select KV",
            "rule axis",
            "ops Att",
            "eval decoder.onnx --dim ",
        ),
    ],
)
def test_no_library_is_imported_for_it(line: str) -> None:
    code = "from onnx_kvtool.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES + code],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "_KVTOOL_COMPLETE": "bash_complete",
            "KVTOOL_COMP_LINE": f"kvtool {line}",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.startswith("plain,")
    imported = {name.partition(".")[0] for name in json.loads(result.stderr.splitlines()[-1])}
    assert not HEAVY & imported


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_served_in_their_own_form(kvtool_process, monkeypatch, shell) -> None:
    monkeypatch.setenv("_KVTOOL_COMPLETE", f"{shell}_complete")
    line, word = "kvtool lower a --only Attention,TensorS", "Attention,TensorS"
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", word if shell == "fish" else "4")
    lines = kvtool_process().stdout.decode().splitlines()
    assert "Attention,TensorScatter" in (lines[1] if shell == "zsh" else lines[0])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(kvtool_process, monkeypatch, shell) -> None:
    monkeypatch.setenv("_KVTOOL_COMPLETE", f"{shell}_source")
    result = kvtool_process()
    assert result.returncode == 0
    assert f"_KVTOOL_COMPLETE={shell}_complete".encode() in result.stdout
    program = shutil.which(shell)
    if program is not None:
        assert subprocess.run([program, "-n"], input=result.stdout, check=False).returncode == 0


@pytest.fixture
def tool(directory: Path) -> Path:
    """A directory for PATH in which `kvtool` is this very one."""
    tool = directory / "bin" / "kvtool"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m onnx_kvtool "$@"\n')
    tool.chmod(0o755)
    return tool.parent


def in_shell(tool: Path, *command: str) -> str:
    """Return what a shell prints that finds `kvtool`, in the directory of the models."""
    result = subprocess.run(
        command,
        env={**os.environ, "PATH": f"{tool}:{os.environ['PATH']}", "HOME": str(tool)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stderr == ""
    return result.stdout


@pytest.fixture
def bash(tool: Path) -> Callable[[str], list[str]]:
    """Let bash complete a line, as it does when the key is pressed at its end."""
    script = """
        compopt() { :; }  # of use only while readline completes
        source <(_KVTOOL_COMPLETE=bash_source kvtool)
        COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        $(complete -p kvtool | sed 's/.*-F \\([^ ]*\\).*/\\1/') kvtool
        printf '%s\\n' "${COMPREPLY[@]}"
    """

    return lambda line: in_shell(tool, str(BASH), "-c", script, "bash", line).split()


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    thinned(
        [
            pytest.param(
                "kvtool raise decoder.onnx --assume in-range:nonp",
                ["nonpad_kv_seqlen"],
                id="a word that bash breaks at its colon",
            ),
            pytest.param("kvtool insp", ["inspect"], id="a command"),
            pytest.param("kvtool infer dec", ["decoder.onnx"], id="a model"),
            pytest.param("kvtool lower a --only A,TensorS", ["A,TensorScatter"], id="a list"),
            pytest.param(
                "kvtool lower a --target tensorrt@8.6",
                ["8.6"],
                id="a word that bash breaks at its @",
            ),
            pytest.param("kvtool verify a b --runtime=onn", ["onnxruntime"], id="a value behind ="),
        ],
        4,
    ),
)
def test_bash_completes(bash: Callable[[str], list[str]], line: str, expected: list[str]) -> None:
    assert bash(line) == expected


ALIKE = [
    pytest.param("kvtool insp", ["inspect"], id="a command"),
    pytest.param("kvtool infer dec", ["decoder.onnx"], id="a model"),
    pytest.param("kvtool lower a --target tensorrt@8.6", ["tensorrt@8.6"], id="a release"),
    pytest.param(
        "kvtool raise decoder.onnx --assume in-range:nonp",
        ["in-range:nonpad_kv_seqlen"],
        id="a word with a colon",
    ),
    pytest.param("kvtool lower a --only A,TensorS", ["A,TensorScatter"], id="a list"),
    pytest.param("kvtool verify a b --runtime=onn", ["--runtime=onnxruntime"], id="behind ="),
    pytest.param(
        "kvtool lower a --target=tensorrt@8.6", ["--target=tensorrt@8.6"], id="a release behind ="
    ),
]
"""What fish and zsh offer for a line."""


FISH_SCRIPT = """
source (env _KVTOOL_COMPLETE=fish_source kvtool | psub)
complete -C $argv[1]
"""


@part(4)
@pytest.mark.skipif(FISH is None, reason="needs fish")
@pytest.mark.parametrize(("line", "expected"), ALIKE)
def test_fish_completes(tool: Path, line: str, expected: list[str]) -> None:
    (tool / "complete.fish").write_text(FISH_SCRIPT, encoding="utf-8")
    said = in_shell(tool, str(FISH), "--no-config", str(tool / "complete.fish"), line)
    assert [offer.partition("\t")[0] for offer in said.splitlines()] == expected


ZSH_SCRIPT = r"""
zmodload zsh/zpty || exit 1
zpty z zsh -f -i
zpty -w z 'PROMPT=; stty -echo'
zpty -w z 'autoload -Uz compinit && compinit -u -D'
# What is offered is printed between marks, and the line stays as it is.
zpty -w z 'compadd() { local -a hits; builtin compadd -O hits "$@"; (( $#hits )) && print -rl -- "<offer "${^hits}">"; builtin compadd "$@" }'
zpty -w z 'said() { print "<end>"; compstate[insert]=; compstate[list]= }; comppostfuncs=(said)'
zpty -w z 'source <(_KVTOOL_COMPLETE=zsh_source kvtool); bindkey "^I" complete-word; print "<ready>"'
while zpty -r z line; do [[ $line == *'<ready>'* && $line != *print* ]] && break; done
zpty -n -w z "$1"$'\t'
while zpty -r z line; do
    print -r -- "$line"
    [[ $line == *'<end>'* ]] && break
done
zpty -d z
"""  # noqa: E501


@part(4)
@pytest.mark.skipif(ZSH is None, reason="needs zsh")
@pytest.mark.parametrize(("line", "expected"), ALIKE)
def test_zsh_completes(tool: Path, line: str, expected: list[str]) -> None:
    (tool / "complete.zsh").write_text(ZSH_SCRIPT, encoding="utf-8")
    said = in_shell(tool, str(ZSH), "-f", str(tool / "complete.zsh"), line)
    assert "<end>" in said
    assert list(dict.fromkeys(re.findall(r"<offer ([^>]*)>", said))) == expected
