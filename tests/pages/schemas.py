"""The JSON schemas of the commands, and the page that lists them."""

from __future__ import annotations

from onnx_kvtool.cli.command import REPORTS, document, text_of

__all__ = ["pages"]

_HEAD = """# JSON schemas

`--format json` prints one object. A JSON Schema (draft 2020-12) gives the type and the meaning of
each key. `kvtool COMMAND --schema` prints the schema of a command, the same as the file here, and
needs no other argument.

```sh
kvtool inspect --schema > inspect.schema.json
```

`null` means that a fact is unknown, or that a number is infinite or NaN.

New keys may appear with the same `schema_version`, so schemas allow keys that they do not list.
kvtool never drops a key or changes its meaning without a new `schema_version`.

In Python, [`to_json` and `from_json`](../python/index.md#reports-as-json) of the report classes
write and read these objects.

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
