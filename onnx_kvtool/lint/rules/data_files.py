"""References to external data."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from onnx_kvtool.core.choices import Severity
from onnx_kvtool.core.words import counted, enumerated
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Findings, Fix, Found
from onnx_kvtool.lint.rule import check
from onnx_kvtool.model_io.external_data import ReferenceJudge
from onnx_kvtool.model_io.message import drop_external_extras, external_extras
from onnx_kvtool.model_io.stored import digest, file_pieces

_PAGE = 4096
_KNOWN = frozenset({"checksum", "basepath"})
_ONNXRUNTIME = "prepacked_"
_PROBLEMS = {
    "XD501": ["external-file", "external-missing"],
    "XD502": ["external-escape"],
    "XD504": ["external-length", "external-range", "external-type"],
}
"""Codes of the problems of references that a rule is about."""


@check(*_PROBLEMS)
def wrong_reference(code: str, context: Context) -> Findings:
    """Judge each reference; data files are looked up, never read.

    One finding stands for all tensors of a file, except where the range of each is judged.
    """
    judge = ReferenceJudge(need_bytes=True)
    found = [
        (tensor, Found(place, problem.message, help=problem.help))
        for place, tensor in context.external_tensors
        if (problem := judge.judge(tensor)) is not None and problem.code in _PROBLEMS[code]
    ]
    return (what for _, what in found) if code == "XD504" else _by_file(found)


def _by_file(found: Iterable[tuple[ir.ExternalTensor, Found]]) -> Findings:
    """Yield one finding for all tensors of a data file, the first one."""
    files: dict[tuple[str, str], list[Found]] = {}
    for tensor, what in found:
        key = (os.fspath(tensor.base_dir) or ".", os.fspath(tensor.location))
        files.setdefault(key, []).append(what)
    for first, *others in files.values():
        more = f" (so do {len(others)} more tensors)" if others else ""
        yield replace(first, message=first.message + more)


@check("XD503")
def external_symlink(context: Context) -> Findings:
    """Look at each data file that may be read at all."""
    judge, link = ReferenceJudge(need_bytes=True), functools.cache(_link)
    found: list[tuple[ir.ExternalTensor, Found]] = []
    for place, tensor in context.external_tensors:
        problem = judge.judge(tensor)
        if problem is None or problem.code in ("external-range", "external-length"):
            location = os.fspath(tensor.location)
            what, is_outside = link(os.fspath(tensor.base_dir) or ".", location)
            if what is not None:
                text = f"its data file `{location}` {what}"
                remedy = "copy the file, so that onnx can load the model"
                severity: Severity | None = "info" if is_outside else None
                found.append((tensor, Found(place, text, help=remedy, severity=severity)))
    return _by_file(found)


def _link(base: str, location: str) -> tuple[str | None, bool]:
    """Return what kind of link a file is, if any, and whether it leads out of the directory.

    Of those that may, the cache of the hub is the only kind.
    """
    path = os.path.join(base, location)
    directory, real = os.path.realpath(base), os.path.realpath(path)
    if real != os.path.normpath(os.path.join(directory, location)):
        is_outside = not real.startswith(os.path.join(directory, ""))
        where = "the cache of the hub" if is_outside else f"`{os.path.relpath(real, directory)}`"
        return f"is a symbolic link to {where}", is_outside
    try:
        count = os.stat(path).st_nlink
    except OSError:
        return None, False  # XD501 reports missing files
    return (f"has {count} hard links", False) if count > 1 else (None, False)


@check("XD506")
def external_misaligned(context: Context) -> Findings:
    """Look at the offsets; no file is looked at."""
    return _by_file(
        (
            tensor,
            Found(
                place,
                f"its data begins at byte {tensor.offset} of `{os.fspath(tensor.location)}`, which "
                f"is no multiple of {_PAGE}",
                help="write the data again: `onnx_ir.save(model, path, external_data=file)` aligns "
                "large tensors",
            ),
        )
        for place, tensor in context.external_tensors
        if (tensor.offset or 0) % _PAGE
    )


@check("XD508")
def external_bad_key(context: Context) -> Findings:
    """Check the keys other than location, offset and length."""
    judge = ReferenceJudge(need_bytes=True)
    digests: dict[str, str] = {}
    for place, tensor in context.external_tensors:
        extras = external_extras(tensor)
        unknown = [k for k, _ in extras if k not in _KNOWN and not k.startswith(_ONNXRUNTIME)]
        if unknown:
            what = counted(len(unknown), "unknown key")
            drop = partial(drop_external_extras, tensor, unknown)
            yield Found(
                place,
                f"its external data has {what}: {enumerated(unknown)}",
                help="the keys are `location`, `offset`, `length` and `checksum`",
                fix=Fix("safe", f"remove {enumerated(unknown)}", drop),
            )
        for given in (value for key, value in extras if key == "checksum"):
            if judge.judge(tensor) is not None:
                continue  # a file that may not be read is not read
            path = os.path.realpath(tensor.path)
            if path not in digests:
                digests[path] = _sha1(path)
            if given.lower() != digests[path]:
                yield Found(
                    place,
                    f"the checksum of `{tensor.location}` is {digests[path]}, and the model "
                    f"says {given[:40]}",
                    help="copy or download the data file again",
                )


def _sha1(path: str) -> str:
    """Return the digest of a file, or a word that is none where it cannot be read."""
    try:
        return digest(file_pieces(path), "sha1")
    except OSError as error:
        return f"unreadable ({error.strerror or error})"
