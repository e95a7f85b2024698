"""SHIM: moved to model/transformer.py."""

from model.transformer import KVCache as KVCache  # SHIM
