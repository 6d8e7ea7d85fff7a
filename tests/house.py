"""The house in numbers: `python -m tests.house [PATH]` prints the table of the page on developing.

PATH is the folder that holds the package, so that another commit can be measured from a worktree of
it; without it the package is measured that this file belongs to.
"""

from __future__ import annotations

import ast
import io
import lzma
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx

from onnx_kvtool.contrib.table import CONTRIB_RULES

__all__ = ["circles", "entered", "imports", "main", "measures", "rooms"]

_PACKAGE = "onnx_kvtool"
_ROOT = Path(__file__).parent.parent
_MADE = ("commands", "operators", "rules", "targets")
_MODEL = _ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "`lower`": ("lower", "MODEL", "--opset", "18", "-o", "LOWERED"),
    "`raise`": ("raise", "LOWERED", "-o", "RAISED"),
    "`check` of one rule": ("check", "MODEL", "--select", "KV101"),
    "`eval --op`": ("eval", "--op", "Relu", "--input", "X=float32:[1, -2]"),
}
"""What is run to count the files that it enters."""

_TRACE = """
import inspect, sys
entered = set()
def enter(frame, event, arg):
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function, not what an import runs
        entered.add(frame.f_code.co_filename)
root, sys.argv = sys.argv[1], ["kvtool", *sys.argv[2:]]
sys.setprofile(enter)
from onnx_kvtool.cli import main
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
house = [name for name in entered if name.startswith(root)]
with open("entered.txt", "w") as file:
    file.write("\\n".join(house))
"""


def modules(root: Path) -> dict[str, Path]:
    """Return the files of the package by the name of their module."""
    found = {}
    for path in sorted((root / _PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(root: Path) -> dict[str, set[str]]:
    """Return the modules of the package that each imports when it is loaded.

    Imports within functions, which are run when they are needed, do not count.
    """
    files = modules(root)
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        found[name] = set()
        for node in _loaded(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & files.keys()
            elif node.module and node.module.startswith(_PACKAGE):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found[name].add(full if full in files else node.module)
        found[name].discard(name)
    return found


def _loaded(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        yield from _loaded(node)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Return a circle of imports for each that has to be cut until none is left."""
    left = {name: set(to) for name, to in arrows.items()}
    found = []
    while (circle := _circle(left)) is not None:
        found.append(list(reversed(circle)))
        # The sorter names what is imported before what imports it.
        left[circle[1]].discard(circle[0])
    return found


def _circle(arrows: Mapping[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return None


def rooms(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return which folders of the package import which."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, to in arrows.items():
        for other in to:
            pair = [part.split(".")[1] for part in (name, other) if part.count(".")]
            if len(pair) == 2 and pair[0] != pair[1]:
                found[pair[0]].add(pair[1])
    return found


def entered(root: Path, directory: Path) -> dict[str, int]:
    """Return how many files each command of `COMMANDS` enters, run in `directory`."""
    places = {"MODEL": str(_MODEL), "LOWERED": "lowered.onnx", "RAISED": "raised.onnx"}
    found = {}
    for title, command in COMMANDS.items():
        arguments = [places.get(word, word) for word in command]
        subprocess.run(
            [sys.executable, "-c", _TRACE, str(root / _PACKAGE), *arguments],
            cwd=directory,
            env={"PYTHONPATH": str(root), "PATH": ""},
            capture_output=True,
            check=True,
        )
        found[title] = len((directory / "entered.txt").read_text().splitlines())
    return found


_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, or a string below what it explains."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def measures(root: Path) -> dict[str, float]:
    """Return how large the package is, by the names of the page on the house.

    Tokens are those of `tokenize` but comments, line ends and indentation. Tokens of code lie on no
    line of an import or of a string that is a statement. The trees have neither docstrings nor
    imports; they are unparsed, joined in the order of the paths, and compressed as xz does by
    default. A contrib operator counts if no operator of ONNX has its name; a file names it if the
    word stands anywhere in it.
    """
    names = {name for _, name in CONTRIB_RULES} - {
        schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain
    }
    tokens = code = docstrings = lines = named = 0
    unparsed = []
    paths = sorted((root / _PACKAGE).rglob("*.py"))
    for path in paths:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        imported = [node for node in statements if isinstance(node, (ast.Import, ast.ImportFrom))]
        beside = {n for node in statements if _is_text(node) for n in _lines_of(node)}
        beside |= {n for node in imported for n in _lines_of(node)}
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            tokens += token.type not in _LAYOUT
            code += token.type not in _LAYOUT and token.start[0] not in beside
        for node in ast.walk(tree):
            if isinstance(node, _SCOPES) and node.body and _is_text(node.body[0]):
                docstrings += len(_lines_of(node.body.pop(0)))
            for field in ("body", "orelse"):
                if isinstance(inner := getattr(node, field, None), list):
                    inner[:] = [each for each in inner if each not in imported]
        unparsed.append(ast.unparse(tree))
        lines += source.count("\n")
        named += len(names & set(re.findall(r"\w+", source)))
    files = [path for path in paths if path.name != "__init__.py"]
    return {
        "tokens": tokens,
        "tokens of code": code,
        "kB of its syntax trees, as xz": round(
            len(lzma.compress("\n".join(unparsed).encode())) / 1000
        ),
        "files without `__init__.py`": len(files),
        "lines a file": round(
            sum(len(path.read_text().splitlines()) for path in files) / len(files)
        ),
        "files that name a contrib operator": round(named / len(names), 1),
        "files of the patch that adds a contrib operator": _touched(root, "contrib"),
        "per cent of lines that are docstrings": round(100 * docstrings / lines),
        "lines of generated pages": _generated(root),
    }


def _touched(root: Path, name: str) -> int:
    """Return how many files a recorded patch touches; 0 where it is not recorded."""
    path = root / "docs" / "developing" / "patches" / f"{name}.patch"
    return path.read_text(encoding="utf-8").count("\n+++ b/") if path.exists() else 0


def _generated(root: Path) -> int:
    """Return the lines of pages that are committed in the folders of which the site makes some."""
    pages = (path for name in _MADE for path in (root / "docs" / name).rglob("*.md"))
    return sum(page.read_text(encoding="utf-8").count("\n") for page in pages)


def main(arguments: list[str], directory: Path) -> None:
    """Print the table for one commit."""
    root = Path(arguments[0]).resolve() if arguments else _ROOT
    files = modules(root)
    lines = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    arrows = imports(root)
    short = [n for n, path in files.items() if lines[n] < 40 and path.name != "__init__.py"]
    rows: dict[str, float] = {
        "files": len(files),
        "of them under 40 lines, without `__init__.py`": len(short),
        "of them over 300 lines": sum(count > 300 for count in lines.values()),
        "lines": sum(lines.values()),
        "import arrows between files": sum(map(len, arrows.values())),
        "import arrows between rooms": sum(map(len, rooms(arrows).values())),
        "circles of imports between files": len(circles(arrows)),
        "circles of imports between rooms": len(circles(rooms(arrows))),
    }
    for title, number in entered(root, directory).items():
        rows[f"files that {title} enters"] = number
    rows |= measures(root)
    for title, number in rows.items():
        sys.stdout.write(f"| {title} | {number:,} |\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1:], Path(folder))
