"""The JSON schemas of the commands, and the page that lists them."""

from __future__ import annotations

from onnx_kvtool.cli.command import REPORTS, document, text_of

__all__ = ["pages"]

_HEAD = """# JSON schemas

What `--format json` prints is one object, described by a schema of JSON Schema draft 2020-12: each
key with its type and what it means. `kvtool COMMAND --schema` prints the schema of a command, which
is the file here; nothing else has to be given.

```sh
kvtool inspect --schema > inspect.schema.json
```

Keys may be added without a new `schema_version`, so keys that a schema does not list are allowed;
none is dropped, and none changes its meaning. `null` is a fact that is not known, or a number that
is infinite or none.

In Python, [`to_json` and `from_json`](../python/index.md#reports-as-json) of the report
classes write and read these objects.

| command | schema | keys |
| --- | --- | --- |
"""

_SHARED = ("schema_version", "tool", "command")


def pages() -> dict[str, str]:
    rows = []
    for command in sorted(REPORTS):
        keys = [f"`{key}`" for key in document(command)["properties"] if key not in _SHARED]
        rows.append(f"| `{command}` | [{command}.json]({command}.json) | {', '.join(keys)} |\n")
    files = {f"{command}.json": f"{text_of(command)}\n" for command in REPORTS}
    return {"index.md": _HEAD + "".join(rows), **files}
