"""Reports as `print` and a notebook show them: what the command prints, whole."""

from __future__ import annotations

import html
import pickle
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

import onnx_kvtool as kv
from onnx_kvtool.core.reporting import Shown
from tests.grids import each, part

MODEL = "fixtures/models/native/llama_static.onnx"
GROWING = "fixtures/growing/bart__dynamo_op18.onnx"

REPORTS = {
    "inspect": (lambda: kv.inspect(MODEL), ["inspect", MODEL]),
    "infer": (lambda: kv.infer(MODEL)[1], ["infer", MODEL]),
    "check": (lambda: kv.check(GROWING), ["check", "--isolated", GROWING]),
    "verify": (lambda: kv.verify(MODEL, MODEL, cases=1), ["verify", MODEL, MODEL, "--cases", "1"]),
    "lower": (
        lambda: kv.lower(MODEL, opset=18, verify=False)[1],
        ["lower", MODEL, "--opset", "18", "--no-verify", "--dry-run"],
    ),
    "raise": (
        lambda: kv.raise_(GROWING, capacity=8, verify=False)[1],
        ["raise", GROWING, "--capacity", "8", "--no-verify", "--dry-run"],
    ),
}


@cache
def made(name: str) -> Shown:
    return REPORTS[name][0]()


@pytest.fixture(autouse=True)
def in_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@part(2)
@pytest.mark.long
@pytest.mark.parametrize("name", REPORTS)
def test_a_printed_report_is_what_the_command_prints(name: str, kvtool) -> None:
    result = kvtool(*REPORTS[name][1])
    said = result.output.replace("dry run: nothing was written\n", "").rstrip("\n")
    assert str(made(name)) == said
    assert result.exit_code in (0, 1)


@each("name", [*REPORTS])
def test_a_report_can_be_pickled_and_compared(name: str) -> None:
    report = made(name)
    again = pickle.loads(pickle.dumps(report))
    assert again == report
    assert again.to_json() == report.to_json()
    assert str(again) == str(report)


class Words(HTMLParser):
    """Gathers the words of a page and the tags that are open at its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.frame = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.frame = dict(attrs).get("srcdoc") or self.frame

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.split()


@each("name", [name for name in REPORTS if name != "inspect"])
def test_a_notebook_shows_the_same_words(name: str) -> None:
    page = Words(made(name)._repr_html_())
    assert page.open == []
    assert " ".join(page.words) == " ".join(str(made(name)).split())


def test_a_notebook_shows_the_page_of_inspect_in_a_frame() -> None:
    from onnx_kvtool.report.html import to_html

    report = kv.inspect(MODEL)
    page = Words(report._repr_html_())
    assert (page.open, page.words) == ([], [])
    assert page.frame == to_html(report)


@pytest.mark.long
def test_names_from_a_model_are_no_markup_in_a_notebook() -> None:
    lowered = kv.lower(MODEL, opset=18, verify=False)[1]
    lowered.model = "<b>&amp;</b>.onnx"
    assert html.escape("<b>&amp;</b>.onnx", quote=False) in lowered._repr_html_()
