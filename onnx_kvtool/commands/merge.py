"""`kvtool merge`: the reports of the parts of one check, as one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args
from xml.etree import ElementTree as ET

from onnx_kvtool.commands.arguments import speaking_python
from onnx_kvtool.commands.requests import MergeRequest
from onnx_kvtool.core.choices import CheckFormat, MergedFormat
from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.lint.report import CheckReport, FileReport
from onnx_kvtool.lint.settings.config import file_content
from onnx_kvtool.lint.settings.files import parse_shard


class Part(NamedTuple):
    """One report that was read.

    Attributes:
        path: The file.
        kind: Its format.
        data: Its content: the object of JSON and SARIF, the objects of JSON lines, the root
            element of JUnit.
    """

    path: str
    kind: MergedFormat
    data: Any

    def files(self) -> Iterator[FileReport]:
        """Yield the reports of its files, if it is JSON."""
        for file in self.data["files"]:
            yield FileReport.from_json(file)


@speaking_python
def merge(reports: Sequence[str | os.PathLike[str]], *, fail_on: Severity = "error") -> CheckReport:
    """Return the JSON reports of the parts of one check as one report.

    Args:
        reports: Files that `kvtool check --format json` has written.
        fail_on: Lowest severity that makes `exit_code` 1.

    Raises:
        UnreadableModel: If a file is no such report.
        UsageError: If there is no report; if two cover the same file; if parts of a `--shard` are
            missing.

    Examples:
        >>> try:
        ...     kv.merge(["first.json", "second.json"])
        ... except kv.UnreadableModel as error:
        ...     print(error)
        `first.json` does not exist
    """
    paths = tuple(os.fspath(path) for path in reports)
    request = MergeRequest().replace(reports=paths, fail_on=fail_on, output_format="json")
    files = [file for part in parts(request) for file in part.files()]
    return CheckReport(tuple(files), fail_on)


def parts(request: MergeRequest) -> Iterator[Part]:
    """Yield the reports, one at a time, after a first pass has checked all of them.

    Memory holds one report at a time.

    Raises:
        UnreadableModel: If a file is no report of `kvtool check`.
        UsageError: If there is no report; if their formats differ; if two cover the same file; if
            parts of a `--shard` are missing or come twice.
    """
    _judge(request)
    for path in request.reports:
        yield _read(path)


def resolve_format(request: MergeRequest) -> CheckFormat:
    """Return the format of the result.

    Raises:
        UnreadableModel: If the first report is none.
        UsageError: If the reports do not have the facts for the format: only JSON has all.
    """
    if not request.reports:
        raise UsageError("there is no report to merge", help="name the reports of the parts")
    kind = _read(request.reports[0]).kind
    wanted: CheckFormat = request.output_format or kind
    if kind not in ("json", wanted):
        raise UsageError(
            f"the reports are {_NAMES[kind]}, which cannot become `{wanted}`",
            help="let the parts write `--format json`, which becomes any format",
        )
    if kind == "junit" and request.fail_on is not None:
        raise UsageError(
            "a JUnit report contains no severities for `--fail-on`",
            help="leave it out, or let the parts write `--format json`",
        )
    return wanted


_NAMES: dict[MergedFormat, str] = {
    "json": "JSON",
    "jsonl": "JSON lines",
    "sarif": "SARIF",
    "junit": "JUnit",
}


def _judge(request: MergeRequest) -> None:
    """Refuse reports that are not the parts of one check."""
    resolve_format(request)
    kinds: dict[MergedFormat, str] = {}
    owners: dict[str, str] = {}
    shards: dict[str, str] = {}
    for path in request.reports:
        part = _read(path)
        kinds.setdefault(part.kind, path)
        if len(kinds) > 1:
            one, other = kinds
            raise UsageError(
                f"`{kinds[one]}` is {_NAMES[one]} and `{kinds[other]}` is {_NAMES[other]}, "
                "expected reports of one format"
            )
        for file in _subjects(part):
            if owners.setdefault(file, path) != path:
                raise UsageError(
                    f"`{owners[file]}` and `{path}` both report on `{file}`",
                    help="name each report once, and those of one check alone",
                )
        if part.kind == "json" and isinstance(shard := part.data.get("shard"), str):
            if shard in shards:
                raise UsageError(f"`{shards[shard]}` and `{path}` both are part {shard}")
            shards[shard] = path
    _check_shards(shards, len(request.reports))


def _check_shards(shards: dict[str, str], reports: int) -> None:
    """Refuse an incomplete set of shards: a lost job may have had findings."""
    if not shards:
        return
    counts = {parse_shard(shard)[1] for shard in shards}
    if len(counts) > 1 or len(shards) < reports:
        raise UsageError(
            f"the reports are parts {', '.join(shards)} of different checks",
            help="merge the reports of one check",
        )
    (count,) = counts
    missing = [f"{i}/{count}" for i in range(1, count + 1) if f"{i}/{count}" not in shards]
    if missing:
        raise UsageError(
            f"the report of part {missing[0]} is missing"
            + (f", and {len(missing) - 1} more" if missing[1:] else ""),
            help="name the reports of all parts; a part that failed has to run again",
        )


def _subjects(part: Part) -> Iterator[str]:
    """Yield the files of a report, perhaps more than once."""
    if part.kind == "json":
        yield from (str(file.get("path")) for file in part.data["files"])
    elif part.kind == "jsonl":
        yield from (line["path"] for line in part.data)
    elif part.kind == "junit":
        yield from (suite.get("name") for suite in part.data)
    else:
        yield from (_sarif_path(result) for run in part.data["runs"] for result in run["results"])


def _sarif_path(result: dict[str, Any]) -> str:
    """Return the file that a result of SARIF is about."""
    place: str = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    return place


def _read(path: str) -> Part:
    content = file_content(path, ".json", kind=UnreadableModel)
    part = _parsed(path, content.decode("utf-8", "surrogateescape"))
    if part is None:
        raise UnreadableModel(
            f"`{path}` is no report of `kvtool check`",
            help="merge what `kvtool check -o FILE` has written with `--format json`, `jsonl`, "
            "`sarif` or `junit`",
        )
    return part


def _parsed(path: str, text: str) -> Part | None:
    """Return the content of a report; None if it is no report."""
    if text.lstrip().startswith("<"):
        if "<!" in text:
            return None  # no report has a document type, nor entities that could grow
        try:
            root = ET.fromstring(text)
        except (ET.ParseError, UnicodeEncodeError):  # or bytes that are no UTF-8
            return None
        return Part(path, "junit", root) if _is_junit(root) else None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and "runs" in data:
        return Part(path, "sarif", data) if _is_sarif(data) else None
    if isinstance(data, dict) and data.get("command") == "check":
        files = data.get("files")
        is_ours = isinstance(files, list) and all(isinstance(file, dict) for file in files)
        return Part(path, "json", data) if is_ours else None
    try:
        lines = [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError):
        return None
    is_ours = all(
        isinstance(line, dict)
        and {"path", "code", "severity"} <= line.keys()
        and isinstance(line["path"], str)
        and line["severity"] in get_args(Severity)
        for line in lines
    )
    return Part(path, "jsonl", lines) if is_ours else None


def _is_sarif(data: dict[str, Any]) -> bool:
    """Return whether a log is from kvtool, with all fields of each result."""
    try:
        for run in data["runs"]:
            texts = [run["tool"]["driver"]["name"]]
            for result in run["results"]:
                texts += [result["ruleId"], result["level"], _sarif_path(result)]
            for invocation in run["invocations"]:
                notes = invocation["toolExecutionNotifications"]
                texts += [note["message"]["text"] for note in notes]
            if texts[0] != "kvtool" or not all(isinstance(text, str) for text in texts):
                return False
    except (AttributeError, IndexError, KeyError, TypeError):
        return False
    return True


def _is_junit(root: ET.Element) -> bool:
    """Return whether a document is from kvtool: suites with a name and counts."""
    counts = [suite.get(n, "") for suite in root for n in ("tests", "failures", "errors")]
    return (
        root.tag == "testsuites"
        and root.get("name") == "kvtool"
        and all(suite.tag == "testsuite" and suite.get("name") is not None for suite in root)
        and all(count.isascii() and count.isdigit() for count in counts)
    )
