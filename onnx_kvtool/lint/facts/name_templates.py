"""How exporters and runtimes name the past and the present of a cache."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx_kvtool.lint.facts.directions import DIRECTIONS

__all__ = [
    "GENAI_CONFIG",
    "TEMPLATES",
    "Template",
    "configured_templates",
    "counterpart",
    "same_but_direction",
]

GENAI_CONFIG = "genai_config.json"
"""File beside a model in which onnxruntime-genai looks for the names of its caches."""

_MOST_BYTES = 1 << 20
_LAYER = "%d"


@dataclass(frozen=True, slots=True)
class Template:
    """A way to name the caches of a model.

    Attributes:
        origin: Who writes or reads these names.
        past: Name of an input, with `%d` for the layer.
        present: Name of the output that goes with it.
    """

    origin: str
    past: str
    present: str

    def layer(self, name: str) -> str | None:
        """Return the layer that `name` has as a past; None when it is not one of this template."""
        return _match(self.past, name)

    def present_layer(self, name: str) -> str | None:
        """Return the layer that `name` has as a present; None when it is none of this template."""
        return _match(self.present, name)


def _match(template: str, name: str) -> str | None:
    if _LAYER not in template:
        return "" if name == template else None
    before, _, after = template.partition(_LAYER)
    layer = name[len(before) : len(name) - len(after)]
    fits = name.startswith(before) and name.endswith(after) and layer.isascii() and layer.isdigit()
    return layer if fits else None


def _both(origin: str, past: str, present: str) -> Iterator[Template]:
    for key, value in (("key", "key"), ("value", "value")):
        yield Template(origin, past.replace("{}", key), present.replace("{}", value))


TEMPLATES: tuple[Template, ...] = (
    *_both("optimum and onnxruntime-genai", "past_key_values.%d.{}", "present.%d.{}"),
    *_both("optimum", "past_key_values.%d.decoder.{}", "present.%d.decoder.{}"),
    *_both("optimum", "past_key_values.%d.encoder.{}", "present.%d.encoder.{}"),
    *_both("mobius", "{}_cache.%d", "updated_{}_cache.%d"),
    *_both("onnxruntime-genai", "past_{}_self_%d", "present_{}_self_%d"),
    *_both("onnxruntime-genai", "past_{}_cross_%d", "present_{}_cross_%d"),
    *_both("onnxruntime", "past_{}_%d", "present_{}_%d"),
    Template("onnxruntime", "past_%d", "present_%d"),
)
"""Names that are read by somebody."""


def same_but_direction(past: str, present: str) -> bool:
    """Return whether two names differ in words such as `past` and `present` alone.

    Such names pair under no template that is known, and yet nobody can mistake them.
    """

    def rest(name: str) -> list[str]:
        tokens = [t.lower() for t in re.findall(r"[A-Za-z]+|[0-9]+", name)]
        tokens = [t for t in tokens if t not in DIRECTIONS]
        # `past_key_values.0.key` and `present.0.key`: the first words name all caches together.
        return tokens[2:] if tokens[:2] == ["key", "values"] else tokens

    return past != present and sorted(rest(past)) == sorted(rest(present))


def counterpart(past: str, templates: Iterable[Template]) -> str | None:
    """Return the name that the present of `past` has; None when no template knows that name."""
    for template in templates:
        if (layer := template.layer(past)) is not None:
            return template.present.replace(_LAYER, layer)
    return None


def configured_templates(path: str) -> tuple[Template, ...]:
    """Return the templates of the `genai_config.json` that lies beside a model and names it.

    Args:
        path: Path of the model; "" and `-` have nothing beside them.

    Returns:
        The templates; none where there is no such file, it is no configuration, or it is about
        another model.
    """
    if path in ("", "-"):
        return ()
    place = os.path.join(os.path.dirname(os.path.abspath(path)), GENAI_CONFIG)
    try:
        if not os.path.isfile(place) or os.path.getsize(place) > _MOST_BYTES:
            return ()
        with open(place, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError):
        return ()  # what is wrong with a configuration is not for a check of the model to say
    sections = _get(config, "model")
    return tuple(
        template
        for section in sections.values()
        if isinstance(section, Mapping) and section.get("filename") == os.path.basename(path)
        for template in _of_section(section)
    )


def _of_section(section: Mapping[str, Any]) -> Iterator[Template]:
    inputs, outputs = _get(section, "inputs"), _get(section, "outputs")
    for past_field, given in inputs.items():
        if not past_field.endswith("_names") or "past" not in past_field:
            continue
        present = outputs.get(past_field.replace("past", "present", 1))
        if isinstance(given, str) and isinstance(present, str):
            yield Template(GENAI_CONFIG, given, present)


def _get(config: Any, key: str) -> Mapping[str, Any]:
    found = config.get(key) if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}
