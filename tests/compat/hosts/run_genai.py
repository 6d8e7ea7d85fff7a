"""Generate with onnxruntime-genai and print the tokens; run in an environment that holds it.

Arguments: a directory with a model and its `genai_config.json`, and a JSON object: `prompts` (a
list of prompts of one length), `length` (tokens of a sequence with its prompt), and
`share` (whether past and present share a buffer of `length` rows).
"""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime_genai as og

directory, asked = sys.argv[1], json.loads(sys.argv[2])
config = og.Config(directory)
config.overlay(json.dumps({"search": {"past_present_share_buffer": asked["share"]}}))
model = og.Model(config)
params = og.GeneratorParams(model)
params.set_search_options(
    max_length=asked["length"], batch_size=len(asked["prompts"]), do_sample=False
)
generator = og.Generator(model, params)
generator.append_tokens(np.array(asked["prompts"], np.int32))
while not generator.is_done():
    generator.generate_next_token()
sequences = [generator.get_sequence(number) for number in range(len(asked["prompts"]))]
print(json.dumps([[int(token) for token in sequence] for sequence in sequences]))  # noqa: T201
