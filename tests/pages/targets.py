"""The pages of the targets: an index, and a page for each runtime of `runtimes.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from onnx_kvtool.ops.schema import has_body
from onnx_kvtool.rewrite.lowering.table import LOWERINGS
from onnx_kvtool.targets.release import Limit, Release
from onnx_kvtool.targets.releases import releases
from onnx_kvtool.targets.remedies import REMEDIES
from tests.pages.markdown import element_type, head, joined, table

__all__ = ["pages", "span"]

_EXAMPLES = Path(__file__).with_name("target_examples")
"""A session for each runtime, which the test of the examples in the pages runs."""

_ABOUT = {
    "onnxruntime": "onnxruntime, judged by its CPU provider.",
    "openvino": "OpenVINO, judged by its CPU plugin.",
    "tensorrt": "TensorRT with the parser of onnx-tensorrt, judged by its documentation, not run.",
    "onnxruntime-node": "The package `onnxruntime-node` of npm, judged by its CPU provider.",
    "onnxruntime-web": "The package `onnxruntime-web` of npm, judged by its WebAssembly provider.",
    "tract": "tract, judged by its wheel for Python on the CPU.",
    "tinygrad": "The ONNX frontend of tinygrad, judged by its CPU device.",
    "opencv": "The module `dnn` of OpenCV, judged by its wheel for Python on the CPU.",
    "iree": "IREE, judged by its wheels: the compiler for `llvm-cpu`, and the runtime.",
}


def pages() -> dict[str, str]:
    """Return the content of each page, by the name of its file."""
    runtimes = dict.fromkeys(release.runtime for release in releases())
    return {
        "index.md": head("targets/index.md")
        + "".join(f"\n{part}\n" for part in _index(list(runtimes))),
        **{f"{one}.md": "\n\n".join(_page(one)) + "\n" for one in runtimes},
    }


def span(runtime: str, versions: Sequence[str]) -> str:
    """Return releases as ranges: `1.24.4 to 1.31.1` where no known one between lacks."""
    known = [release.version for release in releases() if release.runtime == runtime]
    runs: list[list[str]] = []
    for version in known:
        if version not in versions:
            runs.append([])
        elif runs and runs[-1]:
            runs[-1].append(version)
        else:
            runs.append([version])
    ends = (run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs if run)
    return joined(ends)


def _index(runtimes: list[str]) -> Iterator[str]:
    for runtime in runtimes:
        yield f"## {runtime}"
        yield f"{_ABOUT[runtime]} [Its page]({runtime}.md) has the limits of each release."
        yield _releases(runtime)


def _of(runtime: str) -> list[Release]:
    return [release for release in releases() if release.runtime == runtime]


def _releases(runtime: str) -> str:
    rows = [
        (
            f"`{release.runtime}@{release.version}`",
            _known(release.min_opset),
            _known(release.max_opset),
            _known(release.max_ir_version),
            release.evidence,
            str(len(release.limits) or "-"),
        )
        for release in _of(runtime)
    ]
    header = ("target", "lowest opset", "highest opset", "highest IR version", "evidence", "limits")
    return table(header, rows)


def _known(number: int | None) -> str:
    return "-" if number is None else str(number)


def _page(runtime: str) -> Iterator[str]:
    yield f"# {runtime}"
    yield _ABOUT[runtime]
    yield "## Releases"
    yield _releases(runtime)
    yield (
        f"`--target {runtime}` means the last of them. The opset of the result is that of the "
        "model, or the highest that the release loads; it is lower where an operator of the model "
        "has a kernel at a lower one only."
    )
    yield "## Example"
    yield _EXAMPLES.joinpath(f"{runtime}.md").read_text(encoding="utf-8").rstrip()
    yield "## Limits"
    yield (
        "What releases lack, refuse or compute wrongly within the opsets that they load, and what "
        "`kvtool lower --target` does to the nodes that are meant."
    )
    yield from _limits(runtime)
    yield from _wholes(runtime)
    yield from _native(runtime)
    yield from _explicit(runtime)
    yield from _contrib(runtime)
    yield from _notes(runtime)


def _limits(runtime: str) -> Iterator[str]:
    found: dict[str, tuple[Limit, list[str]]] = {}
    for release in _of(runtime):
        for limit in release.limits:
            if not limit.listed:
                found.setdefault(limit.name, (limit, []))[1].append(release.version)
    if not found:
        return
    yield table(
        ("operator", "releases", "what they do", "what lower does", "evidence"),
        [
            (
                f"[{limit.operator}](../operators/{limit.operator}.md)",
                span(runtime, versions),
                limit.reason + _taken(limit) + (f": {limit.help}" if limit.help else ""),
                _remedy(limit),
                f"{limit.evidence}: {limit.source}",
            )
            for limit, versions in sorted(found.values(), key=lambda one: one[0].operator)
        ],
    )


def _wholes(runtime: str) -> Iterator[str]:
    """Yield which operators releases do not compute, as a whole or in all forms."""
    for release in _of(runtime):
        if release.unsupported:
            yield f"{release} is no target: it {release.unsupported}."
        for key, text in (
            ("lacks", "does not compute"),
            ("errs", "computes wrongly in some forms"),
        ):
            names = [one.operator for one in release.limits if one.name.startswith(f"{key}-")]
            if names:
                yield (
                    f"{release} {text}: {joined(names)}. This is what onnx's backend cases show; "
                    "`kvtool lower --target` writes them with other operators or refuses them."
                )
        wanted = [one for one in release.limits if one.name.startswith("constants-")]
        if wanted:
            inputs = joined(f"`{one.operand}` of {one.operator}" for one in wanted)
            yield (
                f"{release} takes only if they are constants: {inputs}. `kvtool lower --target` "
                "refuses others, where it has no other form."
            )


def _taken(limit: Limit) -> str:
    types = [" by ".join(element_type(name) for name in one.split()) for one in limit.types]
    return f"; taken are {joined(types)}" if types else ""


def _remedy(limit: Limit) -> str:
    """Return what becomes of a node to which a limit applies."""
    if limit.lower_opset:
        return f"chooses opset {limit.since - 1}"
    ways = ["writes another form"] if limit.when in REMEDIES else []
    rule = LOWERINGS.get(limit.operator)
    if rule is not None and rule.removes:
        ways.append(f"applies rule `{rule.name}`")
    if has_body(limit.operator):
        ways.append("puts the function body in its place")
    return ", else ".join([*ways, "refuses what is left (`target-limit`)"])


def _native(runtime: str) -> Iterator[str]:
    first: dict[str, list[str]] = {}
    for release in _of(runtime):
        for operator in release.native:
            first.setdefault(operator, []).append(release.version)
    if first:
        yield "## Newer operators that they have"
        rows = [(f"`{one}`", span(runtime, versions)) for one, versions in first.items()]
        yield table(("operator and version", "releases"), rows)


def _explicit(runtime: str) -> Iterator[str]:
    refused: dict[str, list[str]] = {}
    for release in _of(runtime):
        for operator, name in sorted(release.explicit):
            refused.setdefault(f"`{name}` of {operator}", []).append(release.version)
    if refused:
        yield "## Attributes that they refuse even at their default"
        yield "`kvtool lower --target` leaves them out where they are at their default."
        yield table(
            ("attribute", "releases"),
            [(name, span(runtime, versions)) for name, versions in refused.items()],
        )


def _contrib(runtime: str) -> Iterator[str]:
    known = {r.contrib for r in _of(runtime) if r.contrib is not None}
    for names in known:
        yield "## Operators that ONNX does not define"
        if not names:
            yield "None are imported; `kvtool lower --target` writes them with those of ONNX."
            continue
        yield (
            f"Of `com.microsoft` and of what onnxruntime puts into the default domain, "
            f"{joined([f'`{name}`' for name in sorted(names)])} are imported. `kvtool lower "
            "--target` refuses the others (`target-limit`), and `kvtool check --target` finds them "
            "(KV308). Operators of other domains are taken to come with a plugin."
        )


def _notes(runtime: str) -> Iterator[str]:
    notes: dict[str, list[str]] = {}
    sources: dict[str, list[str]] = {}
    for release in _of(runtime):
        sources.setdefault(release.source, []).append(release.version)
        if release.notes:
            notes.setdefault(release.notes, []).append(release.version)
    if notes:
        yield "## Notes"
        yield table(("releases", ""), [(span(runtime, v), text) for text, v in notes.items()])
    yield "## Where the opsets come from"
    yield table(("releases", "source"), [(span(runtime, v), text) for text, v in sources.items()])
