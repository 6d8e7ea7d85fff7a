"""The requests of all commands: every argument, option and keyword, declared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnx_kvtool.commands.options import Request, argument, flag, option
from onnx_kvtool.core.choices import (
    DEFAULT_OPSET,
    LOWERED_OPSETS,
    NATIVE_OPSET,
    AttentionChoice,
    BenchFormat,
    Bounds,
    CheckFormat,
    ContribChoice,
    DiffFormat,
    DiffPart,
    DiffWeights,
    ElementType,
    ExternalData,
    IndexDtype,
    InspectFormat,
    PrintedWeights,
    ReportFormat,
    RuleFormat,
    RuntimeChoice,
    RuntimeName,
    Severity,
    Via,
)

if TYPE_CHECKING:
    import os

    from onnx_kvtool.model_io.model_source import ModelSource


_PROVIDER = {
    "help": "Execution provider of the installed onnxruntime, with its options, such as"
    " `OpenVINO,device_type=CPU`.  [default: CPU]",
    "python": "Execution provider of the installed onnxruntime, such as"
    " `OpenVINO,device_type=CPU`. On any other one than the CPU's, float32 may differ as much"
    " as float16. Default: the CPU's.",
    "metavar": "NAME[,KEY=VALUE...]",
}

_MODEL = (
    "A model (an `onnx_ir.Model` or an `onnx.ModelProto`), which is not changed, or the path of"
    " one."
)


_THOROUGH = "Test the proof at every place and in all cases, not in a sample."
_BUDGET = (
    "Approximate memory and time for verification: `1GiB`, `30s` or `1GiB,30s`. kvtool compares"
    " models that need more by reduced copies.  [default: 256MiB,5s]"
)


class _Sized(Request, place=1):
    dims: Mapping[str, int] | None = option(
        "Give a symbolic dimension a value; repeatable.",
        "Input",
        python="Sizes of symbolic dimensions by name, at least 1. The models and shapes that the"
        " function returns have them in place of the names.",
        kind="dims",
    )


class _Timed(Request, place=1):
    timeout: float | None = option(
        "Time limit for each request to a URL.  [default: 300]",
        "Input",
        python="Seconds that each request to a web server may take, where a model is at a URL; None"
        " for five minutes.",
        kind="seconds",
    )


class _Single(Request, place=-1):
    model: ModelSource = argument(_MODEL, kw_only=False, kind="model")


class _Proven(Request, place=2):
    thorough: bool = option(_THOROUGH, "Verification")
    strict: bool = option(
        "Exit with 1 and write nothing if the proof did not cover something.",
        "Verification",
        python="Whether something that the proof did not cover is a failure.",
    )
    verify_budget: str | None = option(_BUDGET, "Verification", kind="budget")


class _Told(Request, place=4):
    output_format: ReportFormat = flag(
        "Print text or JSON to standard output.", "Output", default="text"
    )


class RewriteRequest(_Proven, _Sized, _Single, place=1):
    """What `lower` and `raise` are asked alike."""

    output: str | None = flag(
        "Write to this file; to a directory under the default name; or to standard output with"
        " `-`.",
        "Output",
        kind="out",
        place=-1,
    )
    in_place: bool = flag("Replace the input.", "Output", place=-1)
    external_data: ExternalData | None = flag(
        "How the result gets weights that are stored in other files.  [default: reference in the"
        " same directory, copy in another]",
        "Output",
        place=-1,
    )
    dry_run: bool = flag("Run everything, but write no file.", "Output", place=-1)
    output_format: ReportFormat = flag(
        "Report as text on standard error, or as JSON on standard output.",
        "Output",
        default="text",
        place=4,
    )
    static: bool = option(
        "Fold constants that follow from sizes. Refuse a result with a symbolic dimension or a"
        " Shape node.",
        "How",
    )
    phases: Mapping[str, int] | None = flag(
        "With --static and `-o DIR`: write a model for each number of new tokens, such as"
        " `prefill=128,decode=1`, and one data file for all of them. The batch size is 1 unless"
        " --dim sets it.",
        "How",
        kind="phases",
    )
    verify: bool | None = option(
        "Run both models and compare them, or not. --verify makes this mandatory and runs the full"
        " models if they fit in memory.  [default: compare within the budget]",
        "Verification",
        python="True makes the comparison mandatory, of the full models if they fit in memory;"
        " False switches it off; None compares within the budget.",
        flags="--verify/--no-verify",
    )
    verify_steps: int | None = option(
        "Decode steps of each verification run, with caches fed back.  [default: 2]",
        "Verification",
        least=1,
    )


class LowerRequest(RewriteRequest):
    """What `kvtool lower` was asked to do."""

    opset: int | None = option(
        f"Opset of the result.  [default: {DEFAULT_OPSET}, or what --target chooses]",
        "What to lower",
        python=f"Opset of the result; None for {DEFAULT_OPSET}, for that of `target`, or for the"
        " model's own with `only`.",
        least=LOWERED_OPSETS[0],
        most=LOWERED_OPSETS[-1],
        above=f"`kvtool raise` goes the other way, to opset {NATIVE_OPSET} or later",
    )
    target: str | None = option(
        "Write the opset, IR version and operators that this release can load. If VERSION is"
        " omitted, the newest one. `kvtool targets` lists all releases.",
        "What to lower",
        python="Release of a runtime that must load the result, such as `onnxruntime@1.17`: opset,"
        " IR version and operators are chosen for it.",
        metavar="RUNTIME[@VERSION]",
        offers="targets",
    )
    only: Sequence[str] = option(
        "Replace only these operators and keep the opset of the model; repeatable.",
        "What to lower",
        kind="operators",
        offers="replaceable",
    )
    via: Via = option(
        "Operator that replaces TensorScatter; `auto` chooses by the width of a row.",
        "How",
        default="auto",
    )
    index_dtype: IndexDtype | None = option(
        "Element type of scatter indices; int32 requires ScatterElements.", "How"
    )
    bounds: Bounds = option(
        "Make a negative write index fail at run time, as TensorScatter does, or let it wrap.",
        "How",
        default="checked",
    )
    contrib: ContribChoice | None = option(
        "Replace operators of onnxruntime (com.microsoft) by operators of ONNX, or keep them. With"
        " --target, kvtool replaces those that the release does not support; otherwise, it keeps"
        " them.",
        "How",
    )
    element_type: ElementType | None = option(
        "Replace bfloat16, which opsets 11 and 12 and many runtimes do not support, by this type"
        " in weights, inputs, outputs and caches. A constant that float16 cannot represent is"
        " refused.",
        "How",
    )


class RaiseRequest(RewriteRequest):
    """What `kvtool raise` was asked to do."""

    opset: int = option(
        "Lowest opset of the result; a model with a later opset keeps it.",
        "What to raise",
        default=NATIVE_OPSET,
        least=NATIVE_OPSET,
    )
    capacity: int | str | None = option(
        "Give growing caches a fixed capacity of N rows, or of the symbolic dimension NAME."
        "  [default: leave them unchanged]",
        "What to raise",
        python="Rows for each growing cache: a number, at least 1, or the name of a symbolic"
        " dimension that the model does not have. None leaves such caches unchanged, and reports"
        " them as refused. The axis that grows gets the capacity even if `dims` names it.",
        kind="rows",
    )
    contrib: ContribChoice = option(
        "Replace operators of onnxruntime (com.microsoft) by operators of ONNX, or keep them.",
        "What to raise",
        default="standard",
        python="`standard` replaces operators of onnxruntime (com.microsoft) by operators of ONNX"
        " if these have an exact form; `keep` leaves them unchanged.",
    )
    assume: Sequence[str] = option(
        "Assume a fact that the graph does not state: `contiguous[:VALUE]`, `same-dim:A=B`,"
        " `in-range[:VALUE]`, `finite[:VALUE]`, `rotated-rows[:VALUE]`, `unpadded[:VALUE]` or"
        " `covers-past:VALUE`. A refusal names the missing fact. If VALUE is omitted, the fact"
        " holds for every input. Repeatable.",
        "What to raise",
        metavar="WHAT",
        offers="assumptions",
    )
    attention: AttentionChoice = option(
        "How to fuse attention in many nodes: `keep` leaves it unchanged, `sliced` makes one"
        " Attention over the rows in use, `full` one over the whole capacity, `auto` chooses for"
        " each layer.",
        "What to raise",
        default="auto",
    )
    require_all: bool = option(
        "Exit with 1 and write nothing if a candidate cannot be raised.",
        "What to raise",
        python="Whether a candidate that cannot be raised is a failure.",
    )
    partial: bool = option(
        "With --capacity, write the model even if no cache got the capacity.",
        "What to raise",
        python="Whether the model is raised although no cache got the capacity; otherwise that is a"
        " failure.",
    )


class VerifyRequest(_Proven, _Sized, _Told):
    """What `kvtool verify` was asked to do."""

    a: ModelSource = argument(
        "The reference: a model, which is not changed, or the path of one.",
        kw_only=False,
        kind="model",
    )
    b: ModelSource = argument("The model to verify, or its path.", kw_only=False, kind="model")
    cases: int | None = option(
        "Number of sets of inputs, with different shapes.  [default: 4]",
        "Input",
        python="Number of sets of inputs, at least 1; None for 4, which differ in sizes and in"
        " where rows are written, across the end of circular caches among it.",
        least=1,
    )
    steps: int | None = option(
        "Decode steps after the first run of each case, with caches fed back.  [default: 2]",
        "Input",
        python="Decode steps after the first run of each case, 0 or more, as far as the caches have"
        " room; None for 2.",
        least=0,
    )
    seed: int = option("Seed of the inputs.", "Input", default=0, least=0)
    strict: bool = option(
        "Exit with 1 if the proof did not cover something.",
        "Verification",
        python="Whether the report says in `insufficient` what was not covered.",
        place=2,
    )
    runtime: RuntimeChoice = option(
        "Runtime for both models; `auto` is onnxruntime if it runs both, otherwise the reference.",
        "Comparison",
        default="auto",
        python="Runtime for both models; `auto` is onnxruntime if it has kernels for both and is"
        " not known to compute them wrongly, otherwise the reference.",
        place=3,
    )
    provider: str | None = option(section="Comparison", place=3, **_PROVIDER)
    rtol: float | None = option(
        "Relative tolerance for computed values.  [default: from types and operators]",
        "Comparison",
        kind="tolerance",
        place=3,
    )
    atol: float | None = option(
        "Absolute tolerance for computed values.  [default: from types and operators]",
        "Comparison",
        python="Absolute tolerance for computed values. Default: from types and operators. With"
        " either given, models that are the same but for weights are compared within the tolerance,"
        " too.",
        kind="tolerance",
        place=3,
    )


class BenchRequest(_Sized):
    """What `kvtool bench` was asked to do."""

    models: ModelSource | Sequence[ModelSource] = argument(
        "A model or several: paths, or models in memory, which are not changed.",
        kw_only=False,
        kind="file",
        metavar="MODEL...",
        offers="models",
        many=True,
    )
    profile: bool = option(
        "Show where a step goes: by operator and by part of the layers, from onnxruntime's profile"
        " of one more round.",
        "Runs",
    )
    output_format: BenchFormat = flag(
        "Print text, JSON, or one self-contained HTML page to standard output.",
        "Output",
        default="text",
    )
    prompt: int = option("Tokens of the prompt.", "Work", default=64, least=1)
    tokens: int = option(
        "Tokens to generate, including the first one from the prompt.", "Work", default=32, least=2
    )
    context: int | None = option(
        "Cache rows in use before the steps; rows beyond the prompt are zero.  [default: the"
        " prompt]",
        "Work",
        least=1,
    )
    batch: int = option("Sequences in a batch.", "Work", default=1, least=1)
    seed: int = option("Seed of the prompt tokens.", "Work", default=0, least=0)
    rounds: int = option("How often each model runs, in turns.", "Runs", default=3, least=1)
    threads: int | None = option(
        "Threads that a node may use.  [default: one for each core]", "Runs", least=1
    )
    provider: str | None = option(section="Runtime", **_PROVIDER)


class InferRequest(_Sized, _Timed, _Told, _Single):
    """What `kvtool infer` was asked to do."""

    output: str | None = flag(
        "Write the model with the type and shape of every value to this file, to a directory as"
        " `<stem>.inferred.onnx`, or to standard output with `-`.",
        kind="out",
    )
    strict: bool = option(
        "Exit with 1 if something stays unknown.",
        python="Whether a value that stays unknown makes the report a failed one.",
    )


class InspectRequest(_Sized, _Timed, _Single):
    """What `kvtool inspect` was asked to do."""

    nodes: bool = option("List every cache separately, and every node.")
    capacity: int | str | None = option(
        "Show the cost of N rows for each cache, or for caches whose capacity is NAME.",
        "What if",
        python="Show in `whatif` the cost of so many rows for each cache, or (`NAME=N`) for caches"
        " whose capacity is the dimension NAME.",
        metavar="N|NAME=N",
    )
    cache_dtype: str | None = option(
        "Show the cost with this element type, such as float16 or float8e4m3fn.",
        "What if",
        python="Show the cost with this element type, such as float16 or float8e4m3fn, without the"
        " scales of quantized rows.",
        metavar="TYPE",
        offers="cache_dtypes",
    )
    memory: int | str | None = option(
        "Show how many sequences fit beside the weights in this memory, such as 24GiB.",
        "What if",
        metavar="SIZE",
    )
    bandwidth: int | str | None = option(
        "Show how many tokens a second this memory bandwidth allows, such as 100GB.",
        "What if",
        metavar="SIZE",
    )
    output_format: InspectFormat = flag(
        "Print text, JSON, one self-contained HTML page, or a graph of the caches.", default="text"
    )
    output: str | None = flag(
        "Write the report to this file, or to a directory under a name such as"
        " `<stem>.inspect.html`.  [default: standard output]",
        kind="report",
    )


class DiffRequest(_Timed):
    """What `kvtool diff` was asked to do."""

    old: ModelSource = argument(
        "The model before the change, or its path.", kw_only=False, kind="model"
    )
    new: ModelSource = argument(
        "The model after the change, or its path.", kw_only=False, kind="model"
    )
    weights: DiffWeights = option(
        "Compare weights and measure the differences (`values`), only find changed ones (`digest`,"
        " or `embedded` for weights in the model files), or ignore weights (`none`).",
        default="values",
        python="`values` compares digests, and measures how much changed weights differ. `digest`"
        " does not measure. `embedded` reads the weights in the model files, and compares all"
        " others by the location of their data. `none` compares types, shapes, and the values of"
        " tensors of up to 16 numbers.",
    )
    fail_on: Sequence[DiffPart] | None = option(
        "Exit with 1 only if these parts differ: `interface`, `caches`, `opset`, `metadata`,"
        " `nodes`, `weights`, `names`.  [default: all]",
        python="The parts whose differences make `exit_code` 1: `interface`, `caches`, `opset`,"
        " `metadata`, `nodes`, `weights`, `names`; None for all.",
        kind="parts",
    )
    exit_zero: bool = flag("Exit with 0 if the models differ.")
    output_format: DiffFormat = flag(
        "Print text, JSON, Markdown for a pull request, or one self-contained HTML page.",
        default="text",
    )
    output: str | None = flag(
        "Write the report to this file, or to a directory under a name such as `kvtool-diff.html`."
        "  [default: standard output]",
        kind="report",
    )


class PrintRequest(_Timed, _Single):
    """What `kvtool print` was asked to do."""

    weights: PrintedWeights = option(
        "Show a digest of every weight, only of weights in the file itself, or of none.",
        default="digest",
        python="`digest` reads every weight; if its file is missing, the text shows the location of"
        " the data. `embedded` reads the weights in the model file, and shows the location of all"
        " others: this is what git knows of the file. `none` shows type and shape of large"
        " tensors.",
    )
    output_format: ReportFormat = flag(
        "Print text or JSON to standard output.", "Output", default="text"
    )
    output: str | None = flag(
        "Write the text to this file, or to a directory as `<stem>.txt`.  [default: standard"
        " output]",
        kind="report",
    )
    textconv: bool = flag(
        "For git: if the file is not a model, print the reason as a comment and exit with 0."
    )


class EvalRequest(_Sized, _Told):
    """What `kvtool eval` was asked to do."""

    model: ModelSource = argument(
        f"{_MODEL} kvtool keeps the last message of up to 16 MiB, and does not compile it again.",
        kw_only=False,
        kind="model",
        is_optional=True,
    )
    inputs: Mapping[str, Any] | None = argument(
        "Values by name, of graph inputs and of any other value of the main graph, which then is"
        " not computed. Arrays, of exactly the declared element type (strings as objects, types"
        " that numpy lacks as those of ml_dtypes); or nested lists and numbers, which become an"
        " array of the declared type. They are not changed.",
        kw_only=False,
        is_argument=False,
        default=None,
    )
    specs: Sequence[tuple[str, str]] = flag(
        "Set the value NAME to a .npy file, file.npz:KEY, a .pb file with a TensorProto, or JSON"
        " such as `[[1, 2], [3, 4]]`, with an element type as in `float16:[1, 2]` if you like."
        " `null` omits an optional input. Repeatable.",
        "Input",
        flags="--input",
        kind="pairs",
        metavar="NAME=SPEC",
        offers="inputs",
    )
    random: bool = option(
        "Use random values for all other inputs. They respect the cache protocol: write positions"
        " are in range.",
        "Input",
    )
    seed: int = option("Seed of the random values.", "Input", default=0, least=0)
    node: str | None = option(
        "Fetch the outputs of this node; `#3` is the fourth.",
        "What to run",
        metavar="NAME",
        offers="nodes",
    )
    fetch: Sequence[str] = option(
        "Fetch this value of the main graph; repeatable.  [default: the graph outputs]",
        "What to run",
        python="Fetch these values of the main graph. Default: the graph outputs.",
        metavar="VALUE",
        offers="values",
    )
    trace: bool = flag("Show the outputs and the time of each node.", "Output")
    steps: int = option(
        "Decode steps after the first run, with each present fed back to its past.",
        "What to run",
        default=0,
        python="Decode steps after the first run, 0 or more, with each present fed back to its"
        " past: starts, positions and lengths move on, tokens are drawn. The function returns the"
        " values of the last step.",
        least=0,
    )
    runtime: RuntimeName = option(
        "Runtime that runs the model.",
        "Runtime",
        default="reference",
        python="`reference`, or `onnxruntime`, which does not support some element types.",
    )
    compare: RuntimeName | None = flag(
        "Run this runtime on the same inputs, too, and compare. Exit with 1 if they differ.",
        "Runtime",
    )
    provider: str | None = option(section="Runtime", **_PROVIDER)
    time_limit: float | None = option(
        "Stop after this time; needs Linux.  [default: 600]",
        "Runtime",
        python="Stop after so many seconds. With a limit the model runs in a process of its own,"
        " which takes some 30 ms more; needs Linux. Default: no limit.",
        kind="seconds",
    )
    memory_limit: int | str | None = option(
        "Stop a run that takes more memory than this, such as `2GiB`; needs Linux.  [default:"
        " three quarters of the free memory]",
        "Runtime",
        python="Stop a run that takes more bytes than this, or a text such as `2GiB`, likewise.",
        kind="size",
    )
    op: str | None = flag(
        "Run this operator of the default domain instead of a model.",
        "A single operator",
        metavar="OP",
        offers="operators",
    )
    opset: int | None = flag(
        "Opset of the operator.  [default: the opset of its newest version]",
        "A single operator",
        least=1,
    )
    attributes: Sequence[tuple[str, str]] = flag(
        "Set an attribute of the operator; repeatable.",
        "A single operator",
        flags="--attr",
        kind="pairs",
        metavar="NAME=VALUE",
    )
    save: str | None = flag(
        "Write the fetched values to this file, or to a directory as `<stem>.npz`.",
        "Output",
        kind="new",
        metavar="FILE.npz",
    )


class CheckRequest(_Sized, _Timed):
    """What `kvtool check` was asked to do; None where the configuration decides."""

    paths: Sequence[str] = flag("", is_argument=True, kind="model", metavar="[PATH]...", many=True)
    select: Sequence[str] | None = option(
        "Switch on only these rules: codes or prefixes such as KV1, separated by commas;"
        " repeatable.  [default: all]",
        "Rules",
        python="Switch on only these rules: codes or prefixes such as KV1. Default: all.",
        kind="codes",
    )
    ignore: Sequence[str] = option(
        "Switch off these rules.",
        "Rules",
        python="Switch off these rules. The longer prefix wins over `select`.",
        kind="codes",
    )
    extend_select: Sequence[str] = option("Switch on these rules, too.", "Rules", kind="codes")
    per_file_ignores: Sequence[str] = option(
        "Switch off rules in some files; repeatable.",
        "Rules",
        python="Switch off rules in some files: `GLOB:CODES`.",
        metavar="GLOB:CODES",
    )
    targets: Sequence[str] = option(
        "Add the rules for this runtime; repeatable.",
        "Rules",
        python="Add the rules for these runtimes, such as `onnxruntime@1.25`.",
        flags="--target",
        metavar="RUNTIME[@VERSION]",
        offers="targets",
    )
    output_format: CheckFormat | None = flag(
        "Format of the report: `concise` is one line a finding; `sarif`, `github`, `gitlab`,"
        " `junit` and `rdjson` are for CI.  [default: text]",
        "Report",
    )
    output: str | None = flag(
        "Write the report to this file, or to a directory under a name such as"
        " `kvtool-check.sarif`.  [default: standard output]",
        "Report",
        kind="report",
    )
    fix: bool | None = flag("Apply safe fixes in place.", "Fixes")
    unsafe_fixes: bool | None = flag(
        "Include fixes that change the interface of the model or what it computes.", "Fixes"
    )
    diff: bool = flag("Show what fixes would change, and write nothing.", "Fixes")
    baseline: str | os.PathLike[str] | None = option(
        "Do not report the findings in this file.", "Baseline", kind="file"
    )
    write_baseline: str | None = flag(
        "Write all findings to this file, for --baseline.", "Baseline", kind="new"
    )
    prune_baseline: bool = flag(
        "Remove findings that no longer exist from the baseline.", "Baseline"
    )
    fail_on: Severity | None = flag(
        "Exit with 1 if a finding has at least this severity.  [default: error]", "Exit code"
    )
    exit_zero: bool | None = flag("Exit with 0 even if there are findings.", "Exit code")
    statistics: bool | None = flag("Count the findings of each rule.", "Report")
    config: str | os.PathLike[str] | None = option(
        "Read this configuration file.  [default: the nearest kvtool.toml or pyproject.toml with"
        " [tool.kvtool]]",
        "Configuration",
        python="Read this configuration file. Default: none.",
        kind="file",
    )
    isolated: bool = flag("Read no configuration.", "Configuration")
    jobs: int | None = flag("Number of worker processes.  [default: 1]", least=1)
    dask: str | None = option(
        "Check the files on a Dask cluster; ADDRESS is that of its scheduler. Needs"
        " onnx-kvtool[dask].",
        python="Address of the scheduler of a Dask cluster whose workers check the files, at the"
        " same paths; kvtool then ignores `jobs`.",
        metavar="ADDRESS",
    )
    shard: str | None = flag(
        "Check part I of N of the files, to share them among machines.", "Input", metavar="I/N"
    )
    cache_dir: str | os.PathLike[str] | None = option(
        "Store results in this directory, and reuse them for models that have not changed.",
        "Input",
        kind="directory",
    )
    thorough: bool = flag(_THOROUGH, "Verification", place=2)
    strict: bool = flag(
        "With --fix, exit with 1 and leave the model unchanged if the proof did not cover"
        " something.",
        "Verification",
        place=2,
    )
    verify_budget: str | None = flag(_BUDGET, "Verification", kind="budget", place=2)
    quiet: bool = flag(
        "Print findings, and nothing about the run.", "Report", flags="-q --quiet", place=2
    )
    verbose: bool = flag(
        "Show the status of every file, and do not group similar findings.",
        "Report",
        flags="-v --verbose",
        place=2,
    )


class CheckCall(CheckRequest):
    """What `onnx_kvtool.check` was asked to do, which reads no configuration that is not named."""

    model: ModelSource | Sequence[str | os.PathLike[str]] = argument(
        "A model, which is not changed; or a path, or several: files, directories, globs.",
        kw_only=False,
    )
    fail_on: Severity = option(
        "", default="error", python="Lowest severity that makes `exit_code` 1."
    )
    jobs: int = option(
        "",
        default=1,
        python="Number of worker processes. Above 1, a script must guard its entry with"
        ' `if __name__ == "__main__"`, as everywhere with `multiprocessing`.',
        least=1,
    )


class MergeRequest(Request):
    """What `kvtool merge` was asked to do."""

    reports: Sequence[str] = flag("", is_argument=True, kind="file", metavar="REPORT...", many=True)
    output_format: CheckFormat | None = flag(
        "Format of the result.  [default: the format of the reports]"
    )
    output: str | None = flag(
        "Write the result to this file, or to a directory under a name such as"
        " `kvtool-check.sarif`.  [default: standard output]",
        kind="report",
    )
    fail_on: Severity | None = flag(
        "Exit with 1 if a finding has at least this severity.  [default: error]"
    )


class OpsRequest(_Told):
    """What `kvtool ops` was asked to show; None for every operator."""

    op: str | None = argument(kw_only=False, is_optional=True, offers="operators")


class RuleRequest(Request):
    """What `kvtool rule` was asked to explain."""

    code: str | None = argument(kw_only=False, is_optional=True, offers="rules")
    all_rules: bool = option("Explain all rules.", flags="--all")
    output_format: RuleFormat = flag(
        "Print text, JSON, or the page in Markdown to standard output.", default="text"
    )


class TargetsRequest(Request):
    """What `kvtool targets` was asked to show; None for every release."""

    name: str | None = argument(
        kw_only=False, is_optional=True, metavar="[RUNTIME[@VERSION]]", offers="targets"
    )
    output_format: ReportFormat = flag("Print a table or JSON to standard output.", default="text")
