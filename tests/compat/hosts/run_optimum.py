"""Generate with optimum's ORTModelForCausalLM and print the tokens; run in its environment.

Arguments: a directory with `model.onnx` and `config.json`, and a JSON object: `prompts` (a list
of prompts of one length, padded with 0 on the left), `length` (tokens of a sequence with its
prompt), and `binding` (whether arrays are bound to the session).
"""

from __future__ import annotations

import json
import sys

import torch
from optimum.onnxruntime import ORTModelForCausalLM

directory, asked = sys.argv[1], json.loads(sys.argv[2])
model = ORTModelForCausalLM.from_pretrained(directory, use_io_binding=asked["binding"])
ids = torch.tensor(asked["prompts"])
found = model.generate(
    input_ids=ids,
    attention_mask=(ids > 0).long(),
    max_length=asked["length"],
    do_sample=False,
    eos_token_id=None,
)
print(json.dumps(found.tolist()))  # noqa: T201
