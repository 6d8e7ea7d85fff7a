"""`kvtool inspect` in each of its formats."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import onnx
import onnx.helper
import pytest

import onnx_kvtool as kv

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "fixtures" / "models"
LLAMA = MODELS / "native" / "llama_static.onnx"
HYBRID = MODELS / "native" / "gemma4_hybrid_static.onnx"
TORCH = MODELS / "torch_static" / "hf" / "llama_static__dynamo_op18.onnx"

HOSTILE = "<img src=x onerror=alert(1)>\"'&\n\x1b[31m]|`{}é"
"""A name that is markup in HTML, Mermaid and DOT, breaks a line and colours a terminal."""

FORMATS = ["text", "json", "html", "dot", "mermaid"]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A model whose every name is `HOSTILE`, with something behind it."""
    past, new, start, present = (f"{HOSTILE}{i}" for i in range(4))
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node(
        "TensorScatter", [past, new, start], [present], name=f"{HOSTILE}4", axis=1
    )
    graph = onnx.helper.make_graph(
        [node],
        f"{HOSTILE}5",
        [info(past, 1, [HOSTILE, 7, 5]), info(new, 1, [HOSTILE, 1, 5]), info(start, 7, [HOSTILE])],
        [info(present, 1, [HOSTILE, 7, 5])],
    )
    path = tmp_path / "hostile.onnx"
    opsets = [onnx.helper.make_opsetid("", 24)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, producer_name=HOSTILE), path)
    return path


class Page(HTMLParser):
    """Which elements a page has, whether each is closed, and what it would load."""

    VOID = frozenset({"meta", "br", "input", "img", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loads += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def pictures(page: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_json_has_the_keys_of_the_contract(kvtool) -> None:
    result = kvtool("inspect", HYBRID, "--dim", "batch=2", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert (answer["schema_version"], answer["command"]) == (1, "inspect")
    assert {"model", "inputs", "outputs", "ops", "caches"} <= set(answer)
    assert list(answer["model"]) == [
        "path",
        "ir_version",
        "opset_imports",
        "producer",
        "nodes",
        "functions",
        "initializers",
        "parameters",
        "weight_bytes",
        "external_files",
    ]
    growing, *_, fixed = answer["caches"]
    assert fixed == {
        "kind": "tensor_scatter",
        "graph": "main_graph",
        "node": "model/layers.1/self_attn/TensorScatter_node_107",
        "index": 86,
        "op": "TensorScatter",
        "past": "value_cache.1",
        "present": "updated_value_cache.1",
        "update": "v_model.layers.1.self_attn.Reshape_105",
        "write_indices": "write_indices",
        "dtype": "float32",
        "shape": [2, 32, 64],
        "axis": 1,
        "mode": "linear",
        "growing": False,
        "rolling": False,
        "batch_axis": 0,
        "capacity": 32,
        "bytes_per_token": 256,
        "total_bytes": 2 * 32 * 64 * 4,
        "in_place": {"possible": True, "reason": None},
    }
    assert (growing["kind"], growing["capacity"]) == ("attention", "past_sequence_len")
    assert (growing["total_bytes"], growing["in_place"]["possible"]) == (None, False)


def test_text_gathers_the_layers(kvtool) -> None:
    result = kvtool("inspect", LLAMA, "--dim", "batch=4")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == (
        f"model: {LLAMA}, IR version 11, opset 24, com.microsoft 1, written by mobius 0.1.0"
    )
    table = [line.split() for line in lines]
    place = lines.index("caches: 4; 512 B for a token of one sequence; 64 KiB in all")
    assert table[place + 2 : place + 4] == [
        f"{name} TensorScatter float32 (4, 32, 32) 1 linear 32 128 B 16 KiB yes".split()
        for name in ("key_cache.{0,1}", "value_cache.{0,1}")
    ]
    assert place < lines.index("inputs: 8") < lines.index("outputs: 5")
    assert ["updated_key_cache.{0,1}", "float32", "(4,", "32,", "32)"] in table


def test_nodes_lists_every_cache_and_every_node(kvtool) -> None:
    result = kvtool("inspect", LLAMA, "--nodes")
    lines = [line.split()[0] for line in result.stdout.splitlines()]
    assert [name for name in lines if name.startswith("key_cache")] == [
        "key_cache.0",
        "key_cache.1",
    ] * 2
    answer = json.loads(kvtool("inspect", LLAMA, "--nodes", "--format", "json").stdout)
    assert len(answer["nodes"]) == answer["model"]["nodes"]
    (scatter, *_) = [node for node in answer["nodes"] if node["op"] == "TensorScatter"]
    assert scatter["inputs"][0] == "key_cache.0"
    assert scatter["outputs"] == ["updated_key_cache.0"]
    assert set(scatter) == {"graph", "node", "index", "op", "inputs", "outputs"}


def page_of(kvtool, *arguments: str | Path) -> tuple[str, dict]:
    """Return the page of a model, and what its script computes with."""
    page = kvtool("inspect", *arguments, "--format", "html").stdout
    given = re.search(r'data-cost="([^"]*)"', page)
    assert given is not None
    return page, json.loads(html.unescape(given[1]))


@pytest.mark.parametrize("dims", [(), ("--dim", "batch=4")])
def test_sliders_of_the_page_are_free_whatever_is_given(kvtool, dims) -> None:
    page, cost = page_of(kvtool, LLAMA, *dims)
    sliders = {
        name: tuple(map(int, found))
        for name, *found in re.findall(
            r'<input id="(\w+)" type="range" min="(\d+)" max="(\d+)" value="(\d+)">', page
        )
    }
    assert set(sliders) == {"batch", "capacity", "tokens"}
    assert "disabled" not in page
    for name, now in (("batch", 4 if dims else 1), ("capacity", 32)):
        offered = cost[{"batch": "batches", "capacity": "capacities"}[name]]
        least, most, at = sliders[name]
        assert (least, most, offered[at]) == (0, len(offered) - 1, now)
        assert offered == sorted(set(offered)) and offered[-1] > 8 * now
    assert cost["pieces"] == [
        {"size": 512, "bits": 32, "rows": 32, "grows": False, "window": False}
    ]
    report = kv.inspect(LLAMA)
    assert cost["weights"] == report.model.weight_bytes


def test_the_page_offers_element_types(kvtool) -> None:
    page, _ = page_of(kvtool, LLAMA)
    (menu,) = re.findall(r'<select id="type">(.*?)</select>', page)
    assert re.findall(r'value="(\d*)"', menu) == ["", "32", "16", "8", "4"]


@pytest.mark.long
def test_the_page_knows_what_grows_and_what_is_a_window(kvtool) -> None:
    _, cost = page_of(kvtool, HYBRID, "--dim", "batch=2")
    kinds = {(p["grows"], p["rows"]) for p in cost["pieces"]}
    assert kinds == {(True, None), (False, 32)}
    _, cost = page_of(kvtool, MODELS / "native" / "mistral_sliding_bias_static.onnx")
    assert all(p["rows"] for p in cost["pieces"])


def test_the_plot_is_as_wide_as_its_card() -> None:
    from onnx_kvtool.report.page import STYLE

    (rule,) = re.findall(r"\.plot \{(.*?)\}", STYLE)
    assert "width: 100%" in rule and "max-width" not in rule


@pytest.mark.parametrize("path", [LLAMA, HYBRID, TORCH], ids=lambda path: path.stem)
def test_html_is_one_page_that_loads_nothing(kvtool, path: Path) -> None:
    result = kvtool("inspect", path, "--format", "html", "--nodes")
    page = Page(result.stdout)
    assert page.open == []
    assert page.loads == []
    assert "url(" not in result.stdout and "@import" not in result.stdout
    assert {"table", "svg", "style", "script"} <= set(page.seen)
    assert "prefers-color-scheme: dark" in result.stdout
    plot, *graphs = pictures(result.stdout)
    assert plot.get("class") == "plot"
    assert len(graphs) >= 2
    for graph in graphs:
        texts = ["".join(element.itertext()) for element in graph.iter()]
        assert any("past" in text or "cache" in text for text in texts)
        for element in graph.iter():
            assert "nan" not in (element.get("d") or "")


def test_the_boxes_of_a_picture_do_not_overlap(kvtool) -> None:
    page = kvtool("inspect", HYBRID, "--format", "html").stdout
    for graph in pictures(page)[1:]:
        boxes = [
            tuple(float(rect.get(key, "0")) for key in ("x", "y", "width", "height"))
            for rect in graph.iter("{http://www.w3.org/2000/svg}rect")
        ]
        assert len(boxes) > 4
        for i, (x, y, width, height) in enumerate(boxes):
            for other_x, other_y, other_width, other_height in boxes[:i]:
                apart_x = x + width <= other_x or other_x + other_width <= x
                apart_y = y + height <= other_y or other_y + other_height <= y
                assert apart_x or apart_y


def test_dot_and_mermaid_draw_the_way_of_each_cache(kvtool) -> None:
    dot = kvtool("inspect", LLAMA, "--format", "dot").stdout
    assert dot.startswith("digraph caches {") and dot.endswith("}\n")
    assert dot.count("fillcolor") == 3  # the first value follows another operator
    assert dot.count('[label="write_indices", shape=oval]') == 1
    assert 'label="TensorScatter x2\\n' in dot
    for name in ("key_cache.{0,1}", "updated_value_cache.1"):
        assert f'[label="{name}", shape=oval' in dot
    mermaid = kvtool("inspect", LLAMA, "--format", "mermaid").stdout
    assert mermaid.startswith("flowchart TB\n")
    assert mermaid.count("[[") == 3
    assert mermaid.count("==>") >= 8


def layered(path: Path, layers: int) -> Path:
    """Write a model of so many like layers, each with two caches."""
    types, results, lines = [], [], []
    for i in range(layers):
        for kind in ("key", "value"):
            types.append(f"float[B, 3, 32, 5] past_{i}_{kind}, float[B, 3, 1, 5] new_{i}_{kind}")
            results.append(f"float[B, 3, 32, 5] present_{i}_{kind}")
            lines.append(f"[put_{i}_{kind}] present_{i}_{kind} = TensorScatter"
                         f" (past_{i}_{kind}, new_{i}_{kind}, at)")  # fmt: skip
    text = f"""<ir_version: 12, opset_import: ["": 24]>
        main ({", ".join(types)}, int64[B] at) => ({", ".join(results)}) {{ {" ".join(lines)} }}"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize("output_format", ["dot", "mermaid"])
def test_a_drawing_of_many_layers_is_as_large_as_that_of_two(
    kvtool, tmp_path, output_format
) -> None:
    drawings = [
        kvtool("inspect", layered(tmp_path / f"{n}.onnx", n), "--format", output_format).stdout
        for n in (2, 30)
    ]
    assert len({len(drawing.splitlines()) for drawing in drawings}) == 1
    assert drawings[1].count("TensorScatter x30") == 2
    assert "x30" not in drawings[0]
    folded = {"dot": "past_{0..29}_key", "mermaid": "past_#123;0..29#125;_key"}
    assert folded[output_format] in drawings[1]


@pytest.mark.parametrize("output_format", FORMATS)
def test_names_are_only_names(kvtool, hostile: Path, output_format: str) -> None:
    result = kvtool("inspect", hostile, "--format", output_format)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    if output_format == "html":
        page = Page(result.stdout)
        assert "img" not in page.seen
        assert any("<img src=x onerror=alert(1)>" in words for words in page.words)
        assert pictures(result.stdout)
    elif output_format == "mermaid":
        assert "<img" not in result.stdout
        for line in result.stdout.splitlines()[1:]:
            assert re.fullmatch(r'  n\d+(\W+".*"\W+| (==|--)>(\|".*"\|)? n\d+)', line)
            assert line.count('"') in (0, 2)
    elif output_format == "dot":
        for line in result.stdout.splitlines():
            assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0
    elif output_format == "json":
        assert json.loads(result.stdout)["caches"][0]["past"] == f"{HOSTILE}0"


@pytest.mark.long
@pytest.mark.parametrize("output_format", FORMATS)
def test_a_report_goes_to_a_file(kvtool, tmp_path: Path, output_format: str) -> None:
    path = tmp_path / "report"
    shown = kvtool("inspect", LLAMA, "--format", output_format)
    result = kvtool("inspect", LLAMA, "--format", output_format, "-o", path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert path.read_text(encoding="utf-8") == shown.stdout
    assert kvtool("inspect", LLAMA, "--format", output_format, "-o", "-").stdout == shown.stdout


@pytest.mark.parametrize("output_format", FORMATS)
def test_a_model_without_caches(kvtool, output_format: str) -> None:
    path = MODELS / "native" / "mobius_block_bias_int64_2d.onnx"
    result = kvtool("inspect", path, "--format", output_format)
    assert (result.exit_code, result.stderr) == (0, "")
    if output_format == "html":
        assert "No cache was found." in result.stdout
    elif output_format == "text":
        assert "caches: none found\n" in result.stdout


@pytest.mark.long
def test_standard_input(kvtool) -> None:
    result = kvtool("inspect", "-", "--format", "json", input=LLAMA.read_bytes())
    answer = json.loads(result.stdout)
    assert answer["model"]["path"] == "-"
    assert len(answer["caches"]) == 4


def test_the_model_is_not_written_over(kvtool, tmp_path: Path) -> None:
    path = tmp_path / "decoder.model"
    path.write_bytes(LLAMA.read_bytes())
    result = kvtool("inspect", path, "-o", path)
    assert result.exit_code == 2
    assert result.stderr == (
        f"kvtool: error: the output `{path}` is the input\n"
        "  help: name another file for the report\n"
    )
    assert path.read_bytes() == LLAMA.read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "is empty", id="an empty file"),
        pytest.param(LLAMA.read_bytes()[:-40], "is truncated", id="a truncated file"),
        pytest.param(b"a few lines\nof prose\n", "looks like a text file", id="a text file"),
    ],
)
def test_unreadable_input(kvtool, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "in.onnx"
    path.write_bytes(content)
    result = kvtool("inspect", path)
    assert result.exit_code == 3
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param("--nodes --format dot", "`--nodes` lists nodes", id="nodes of a drawing"),
        pytest.param("--dim bach=2", "no input has a dimension called `bach`", id="an unknown dim"),
        pytest.param(
            "--format svg", "`--format` is `svg`, expected `text`", id="an unknown format"
        ),
    ],
)
def test_wrong_usage(kvtool, arguments: str, message: str) -> None:
    result = kvtool("inspect", LLAMA, *arguments.split())
    assert result.exit_code == 2
    assert message in result.stderr


def test_caches_that_grow_name_their_cost_and_the_command(kvtool) -> None:
    lines = kvtool("inspect", HYBRID).stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("growing"))
    assert line == (
        "growing: a step copies all rows of 2 caches, 256 B for each token so far of one sequence; "
        f"`kvtool raise {HYBRID} --capacity N` gives them N rows, written in place"
    )
    assert "growing:" not in kvtool("inspect", LLAMA).stdout


@pytest.mark.parametrize(
    ("model", "says", "command"),
    [
        ("growing/mistral_rolling__dynamo_op18", "4 windows, 256 B", "{} --capacity N --assume"),
        (
            "models/torch_static/hf/gemma3_static_slidingfull_L1__dynamo_op18",
            "2 windows, 128 B",
            "{} --assume",
        ),
        ("models/torch_static/hand/sliding_hf_old__dynamo_op18", "1 window", "{} --assume"),
    ],
)
def test_windows_name_their_cost_and_the_command(
    kvtool, model: str, says: str, command: str
) -> None:
    path = ROOT / "fixtures" / f"{model}.onnx"
    lines = kvtool("inspect", path).stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("windows"))
    each = " for each row of one sequence" if says.endswith("B") else ""
    assert line == (
        f"windows: a step moves all rows of {says}{each}; "
        f"`kvtool raise {command.format(path)} rotated-rows` makes circular caches of them"
    )
