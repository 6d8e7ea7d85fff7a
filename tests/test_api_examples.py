"""Every public name is documented with an example, and every example of a docstring is run."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import onnx_kvtool as kv
from tests.grids import each, part, rest
from tests.page_examples import stage


def _is_error(name: str) -> bool:
    found = getattr(kv, name)
    return isinstance(found, type) and issubclass(found, BaseException)


CAUGHT = ("KvtoolError", "Refused", "UnreadableModel", "UsageError")
"""Errors that callers catch by name; the others are subclasses of these, without examples."""

NAMES = [
    name for name in dir(kv) if name != "__version__" and (name in CAUGHT or not _is_error(name))
]
PROCESSES = ("bench", "BenchReport")
"""Examples that start processes."""


@each("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(kv, name)) or ""
    assert "Examples:\n" in text


@part(2)
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("name", [*(n for n in NAMES if n not in PROCESSES), *rest(*PROCESSES)])
def test_the_examples_of_a_docstring(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: None
) -> None:
    stage(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(kv, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, {"kv": kv}, name, None, 0)
    printed: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=printed.append)
    assert result.attempted and not result.failed, "".join(printed)


@each(
    "function",
    [
        kv.load,
        kv.save,
        kv.lower,
        kv.raise_,
        kv.check,
        kv.inspect,
        kv.infer,
        kv.evaluate,
        kv.verify,
        kv.diff,
        kv.print,
    ],
)
def test_a_docstring_tells_of_every_argument(function: object) -> None:
    text = inspect.getdoc(function) or ""
    arguments = text.partition("\nArgs:\n")[2].split("\n\n")[0]
    documented = re.findall(r"^    (\w+): ", arguments, re.MULTILINE)
    assert documented == list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    assert "\nRaises:\n" in text


def test_the_reference_has_every_public_name(root: Path) -> None:
    page = (root / "docs" / "python" / "reference.md").read_text(encoding="utf-8")
    assert re.findall(r"^::: onnx_kvtool\.(\w+)$", page, re.MULTILINE) != []
    assert set(re.findall(r"^::: onnx_kvtool\.(\w+)$", page, re.MULTILINE)) == {*dir(kv)} - {
        "__version__"
    }
