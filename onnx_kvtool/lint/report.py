"""What `kvtool check` reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.shown import Shown
from onnx_kvtool.lint.finding import Finding

__all__ = ["RANK", "Applied", "CheckReport", "Failure", "FileReport", "Summary"]

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
"""Order of the severities, the worst first."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A fix that was applied, and after which its finding was gone.

    Attributes:
        code: Code of the finding.
        title: What the fix did.
        fingerprint: That of the finding.
    """

    code: str
    title: str
    fingerprint: str

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"code": self.code, "title": self.title}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file was not checked to the end.

    Attributes:
        message: What went wrong, one sentence without a full stop.
        help: What to do about it.
        exit_code: Exit code of the command line for it; 4 for a bug in kvtool.
        traceback: For a bug, where it happened.
    """

    message: str
    help: str | None
    exit_code: int
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What was found in one model.

    Attributes:
        path: The file as it was named, `-` for standard input, "" for a model in memory.
        findings: What was found and is neither suppressed nor in the baseline, in the order of the
            model. After fixes: what is left.
        fixed: The fixes that were applied, or with `--diff` would be.
        diff: How the model would change, or did, as a unified diff of ONNX text; "" when it would
            not.
        written: Whether the file was replaced.
        suppressed: Number of findings that the model suppresses.
        baselined: Number of findings that are in the baseline.
        notes: Remarks for people.
        failure: Why it was not checked to the end; None when it was.
        is_read: Whether the model could be read.
        unknown_dims: Names that were given a size and stand in no input of the model.
        impossible_size: Which dimension of an input would be negative with these sizes; None if
            all can be.
        dims: Names of the dimensions of its inputs.
        seconds: How long it took.
    """

    path: str
    findings: tuple[Finding, ...] = ()
    fixed: tuple[Applied, ...] = ()
    diff: str = ""
    written: bool = False
    suppressed: int = 0
    baselined: int = 0
    notes: tuple[str, ...] = ()
    failure: Failure | None = None
    is_read: bool = True
    unknown_dims: tuple[str, ...] = ()
    impossible_size: str | None = None
    dims: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        line: dict[str, Any] = {
            "path": self.path,
            "findings": [finding.to_json() for finding in self.findings],
        }
        if self.fixed:
            line["fixed"] = [applied.to_json() for applied in self.fixed]
        if self.diff:
            line["diff"] = self.diff
        if self.failure is not None:
            line["failure"] = self.failure.message
        return line


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over all files.

    Attributes:
        files: Files that were looked at.
        error: Findings of this severity.
        warning: As `error`.
        info: As `error`.
        fixed: Fixes that were applied.
        fixable: Findings that `--fix` would remove.
        unsafe_fixable: Findings that `--fix --unsafe-fixes` would remove besides.
        suppressed: Findings that models suppress.
        baselined: Findings in the baseline.
    """

    files: int
    error: int
    warning: int
    info: int
    fixed: int
    fixable: int
    unsafe_fixable: int
    suppressed: int
    baselined: int

    def to_json(self) -> dict[str, int]:
        """Return the JSON form that the command-line contract fixes."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CheckReport(Shown):
    """What was found in all files; a sequence of the findings.

    Attributes:
        files: One report for each file, in the order in which they were named.
        fail_on: Severity from which on a finding makes the answer no.
        notes: Remarks for people about the whole run.

    Examples:
        >>> report = kv.check("wrong_axis.onnx")
        >>> len(report), report.summary.error, report.exit_code
        (1, 1, 1)
    """

    files: tuple[FileReport, ...]
    fail_on: Severity = "error"
    notes: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Finding]:
        for file in self.files:
            yield from file.findings

    def __len__(self) -> int:
        return sum(len(file.findings) for file in self.files)

    def __getitem__(self, index: int) -> Finding:
        return list(self)[index]

    @property
    def summary(self) -> Summary:
        """Counts over all files."""
        severities = Counter(finding.severity for finding in self)
        fixes = Counter(f.fix.applicability for f in self if f.fix is not None)
        return Summary(
            files=len(self.files),
            error=severities["error"],
            warning=severities["warning"],
            info=severities["info"],
            fixed=sum(len(file.fixed) for file in self.files),
            fixable=fixes["safe"],
            unsafe_fixable=fixes["unsafe"],
            suppressed=sum(file.suppressed for file in self.files),
            baselined=sum(file.baselined for file in self.files),
        )

    @property
    def failures(self) -> tuple[tuple[str, Failure], ...]:
        """Files that were not checked to the end, and why."""
        return tuple((file.path, file.failure) for file in self.files if file.failure is not None)

    @property
    def would_change(self) -> bool:
        """Whether fixes that were not written would change a model."""
        return any(file.diff and not file.written for file in self.files)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line, but for `--exit-zero`.

        The highest one of the failures; else 1 for a finding at or above `fail_on`, or for a model
        that fixes would change; else 0.
        """
        if failures := [failure.exit_code for _, failure in self.failures]:
            return max(failures)
        return int(self.would_change or any(self.fails(finding) for finding in self))

    def fails(self, finding: Finding) -> bool:
        """Return whether a finding is at or above `fail_on`."""
        return RANK[finding.severity] <= RANK[self.fail_on]

    def counts(self) -> list[tuple[str, str, Severity, int, int]]:
        """Return code, name, worst severity, findings and findings with a fix, the most first."""
        lines: dict[str, list[Finding]] = {}
        for finding in self:
            lines.setdefault(finding.code, []).append(finding)
        rows = [
            (
                code,
                found[0].name,
                min((f.severity for f in found), key=RANK.__getitem__),
                len(found),
                sum(f.fix is not None for f in found),
            )
            for code, found in lines.items()
        ]
        return sorted(rows, key=lambda row: (-row[3], row[0]))

    def to_json(self, *, statistics: bool = False) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes; with `statistics`, counts."""
        report: dict[str, Any] = {
            "files": [file.to_json() for file in self.files],
            "summary": self.summary.to_json(),
        }
        if statistics:
            keys = ("code", "name", "severity", "count", "fixable")
            report["statistics"] = [dict(zip(keys, row, strict=True)) for row in self.counts()]
        return report
