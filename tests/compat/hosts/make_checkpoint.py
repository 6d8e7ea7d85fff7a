"""Write a small random checkpoint with its tokenizer; run in an environment with transformers.

Arguments: the directory, a prompt, and how many tokens. Prints the text behind the prompt that
transformers generates of the likeliest tokens.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

directory, prompt, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(7)
pieces = Tokenizer(models.BPE())
pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
pieces.decoder = decoders.ByteLevel()
special = ["<pad>", "<s>", "</s>"]
trainer = trainers.BpeTrainer(vocab_size=64, special_tokens=special, show_progress=False)
pieces.train_from_iterator(["the cache of a decoder has rows, and a step writes one"] * 3, trainer)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=pieces, pad_token=special[0], bos_token=special[1], eos_token=special[2]
)
tokenizer.save_pretrained(directory)

config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.2 * torch.randn_like(weight))
model.save_pretrained(directory)
given = tokenizer(prompt, return_tensors="pt")
found = model.generate(
    input_ids=given["input_ids"], attention_mask=given["attention_mask"],
    max_new_tokens=steps, do_sample=False,
)  # fmt: skip
print(tokenizer.decode(found[0, given["input_ids"].shape[1] :]))  # noqa: T201
