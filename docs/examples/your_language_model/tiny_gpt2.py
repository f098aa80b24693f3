"""Makes `tiny-gpt2`, a folder as `save_pretrained` writes it: a GPT-2 with random weights, a tokenizer of whole words.

It stands for a pretrained model of your own. The words are typed in, none comes from notes.csv.
"""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = "tiny-gpt2"
LISTED = """
    [END] [UNKNOWN] the a patient nurse doctor slept ate walked asked talked well badly little much today yesterday
    again and then but no some more pain fever water rest help for about in bed morning evening night
"""
WORDS = LISTED.split()

torch.manual_seed(1)
sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
GPT2LMHeadModel(
    GPT2Config(vocab_size=len(WORDS), bos_token_id=0, eos_token_id=0, pad_token_id=0, **sizes)
).save_pretrained(FOLDER)
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNKNOWN]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(f"{FOLDER}/tokenizer.json")
