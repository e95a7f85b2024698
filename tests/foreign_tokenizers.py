"""The old name of saved_tokenizers.py, for scripts outside the repository that still import it."""

from saved_tokenizers import save_llama2, save_llama2_of_4, save_llama3

__all__ = ["save_llama2", "save_llama2_of_4", "save_llama3"]
