"""How much arithmetic a model takes."""

from model.config import ModelConfig


def matrix_parameters(config: ModelConfig) -> int:
    """Weights that take part in a matrix product for every token: those of the blocks and the
    output matrix. Looking up an embedding is no product, so tied or not makes no difference."""
    attention = 2 * (config.n_heads + config.n_kv_heads) * config.head_dim  # wq, wo; wk, wv
    rows = config.n_layers * (attention + 3 * config.hidden_dim) + config.vocab_size
    return rows * config.dim


def flops_per_token(config: ModelConfig, seq_len: int) -> int:
    """FLOPs of one training step, forward and backward, per token of a row of T = seq_len.

    6 for every weight in a matrix product, and 12 T n_layers n_heads head_dim for the scores and
    the values (Chowdhery et al. 2022, arXiv:2204.02311, appendix B, which does not halve them for
    the causal mask).
    """
    attention = 12 * seq_len * config.n_layers * config.n_heads * config.head_dim
    return 6 * matrix_parameters(config) + attention
