"""One typed configuration: dataclass defaults <- YAML <- command line."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Literal

import yaml

from data.dataset import DataConfig
from errors import UserError
from gyre.device import Dtype
from gyre.optim import OptimConfig
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.position import POSITIONS, check_position


@dataclass
class TrainConfig:
    steps: int = 1000
    """Optimizer steps."""
    batch_size: int = 16
    """Rows of data.seq_len tokens per optimizer step, over all processes together."""
    micro_batch_size: int | None = None
    """Rows per forward pass of one process; fewer need less memory and, without dropout, change
    nothing else. Unset: the whole share of the process at once."""
    eval_interval: int = 250
    """Steps between validations, checkpoints and samples; the last step always has all three."""
    sample_prompt: str = ""
    """What the samples during training continue. Empty: the start of a document."""
    sample_tokens: int = 64
    """Length of these samples in tokens; 0: none."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
    dtype: Dtype = "auto"
    """Dtype of matrix products. auto: bfloat16 where the hardware has it, else float32."""
    compile: bool | Literal["auto"] = "auto"
    """torch.compile the training step. auto: where the run is long enough to repay it."""

    def __post_init__(self):
        for name in ("steps", "batch_size", "micro_batch_size", "eval_interval"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"train.{name} must be at least 1, not {value}")
        if self.sample_tokens < 0:
            raise UserError(f"train.sample_tokens must not be negative, not {self.sample_tokens}")


@dataclass(kw_only=True)
class Config:
    """A whole run. Constructing one fills in what depends on several parts, and checks what only
    the whole can tell."""

    # The parts have no default here: an instance made at import would already be filled in, and
    # what it derived from the default width would then stand beside the width that the user asked
    # for.
    model: ModelConfig
    data: DataConfig
    optim: OptimConfig
    train: TrainConfig
    log: LogConfig
    name: str | None = None
    """Name of the run, and of its folder. Unset: the config file's name, the encoding and the
    seed."""
    init_from: str | None = None
    """Run whose weights this one starts from. The option --init-from RUN takes its model and its
    tokenizer too."""
    seed: int = 1
    """Addresses everything random: weights by name, batches and dropout by step, samples."""

    def __post_init__(self):
        model, data = self.model, self.data
        if model.vocab_size is None:
            model.vocab_size = data.vocab_size
        # Imported models often have more embeddings than their tokenizer has pieces.
        padded = data.tokenizer is not None and model.vocab_size > data.vocab_size
        if model.vocab_size != data.vocab_size and not padded:
            raise UserError(
                f"model.vocab_size {model.vocab_size} and data.vocab_size {data.vocab_size} "
                "differ: leave model.vocab_size unset"
            )
        check_position(model)
        extrapolates = POSITIONS[model.position].extrapolates
        scaling = model.rope_scaling
        if scaling is not None and scaling.original_positions is None:
            scaling.original_positions = data.seq_len
        if model.max_positions is None:
            model.max_positions = data.seq_len * (4 if extrapolates else 1)
            if scaling is not None:
                model.max_positions = max(model.max_positions, scaling.reach)
        if model.max_positions < data.seq_len:
            raise UserError(
                f"data.seq_len {data.seq_len} is longer than model.max_positions "
                f"{model.max_positions}"
            )
        if model.max_positions > data.seq_len and not extrapolates:
            raise UserError(
                f"model.max_positions {model.max_positions} is longer than data.seq_len "
                f"{data.seq_len}: with model.position {model.position} those rows would never be "
                "trained"
            )
        if self.optim.warmup_steps > self.train.steps:
            raise UserError(
                f"optim.warmup_steps {self.optim.warmup_steps} is longer than train.steps "
                f"{self.train.steps}"
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed must be in [0, 2^63), not {self.seed}")

    def to_yaml(self) -> str:
        """The resolved configuration; `load_file` turns it back into an equal object."""
        return yaml.dump(
            dataclasses.asdict(self), Dumper=_Dumper, sort_keys=False, allow_unicode=True
        )


class _Dumper(yaml.SafeDumper):
    """Quotes text such as 1e3, which is text to PyYAML but a number to our parser."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9._]+[eE][-+]?[0-9]+$"), list("-+.0123456789")
)
