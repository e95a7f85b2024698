"""The old names of random_runs and small_tokenizers, for test files that import them still."""

from random_runs import PROMPT, save_weights
from random_runs import random_run as noise_run
from small_tokenizers import FIRST_BYTE, TEXT, VOCAB, train_sentencepiece, train_tokenizer
from small_tokenizers import ODD_TEXTS as ODD

__all__ = ["FIRST_BYTE", "ODD", "PROMPT", "TEXT", "VOCAB", "noise_run", "save_weights",
           "train_sentencepiece", "train_tokenizer"]
