"""What a model says is printed, not obeyed."""

from __future__ import annotations

import pytest

from onnx_kvtool.core.words import escape
from tests.grids import each


@each(
    ("text", "printed"),
    [
        pytest.param("past.0 [red]`x`[/red]", "past.0 [red]`x`[/red]", id="printable stays"),
        pytest.param("Größe 長さ", "Größe 長さ", id="every script is printable"),
        pytest.param("a\nb\tc\r", "a\\nb\\tc\\r", id="line breaks and tabs are written out"),
        pytest.param("\x1b[2J\x07", "\\x1b[2J\\x07", id="terminal control is written out"),
        pytest.param("a\u202eb\u200b", "a\\u202eb\\u200b", id="invisible marks are written out"),
        pytest.param("caf\udce9", "caf\\udce9", id="a file name that is not UTF-8"),
        pytest.param("::error::x", "\\x3a:error::x", id="a command to the log of a CI job"),
        pytest.param("  ::error::x", "  \\x3a:error::x", id="logs take blanks in front away"),
        pytest.param("a ##[error]x", "a \\x23#[error]x", id="an older command, anywhere in a line"),
        pytest.param("##vso[task.x]", "\\x23#vso[task.x]", id="a command to Azure Pipelines"),
        pytest.param("a::b # ## [c]", "a::b # ## [c]", id="no command"),
        pytest.param("", "", id="nothing stays nothing"),
    ],
)
def test_escape(text: str, printed: str) -> None:
    assert escape(text) == printed
    assert escape(text).isprintable()
