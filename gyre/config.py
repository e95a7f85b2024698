"""The configuration of a run: one dataclass made of those that stand beside what they configure."""

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Literal

import yaml

from data.dataset import DataConfig
from errors import UserError, check_ranges
from gyre.device import Dtype
from gyre.optim import OptimConfig
from gyre.parallel import WHOLE, Shard
from gyre.wandb_log import LogConfig
from model.config import ModelConfig
from model.position import POSITIONS, check_position


@dataclass
class TrainConfig:
    """How long a run trains, in which batches, and how often it looks at itself."""

    steps: int = 1000
    """Optimizer steps."""
    batch_size: int = 16
    """Rows of data.seq_len tokens per optimizer step, over all processes together."""
    micro_batch_size: int | None = None
    """Rows per forward pass of one process; fewer need less memory and change nothing else. Unset:
    the whole share of the process at once."""
    eval_interval: int = 250
    """Steps between validations, checkpoints and samples; the last step always has all three."""
    keep: list[int] = field(default_factory=list)
    """Steps whose checkpoints are kept, for --branch-from, beside the last and the best."""
    sample_prompt: str = ""
    """What the samples during training continue. Empty: the start of a document."""
    sample_tokens: int = 64
    """Length of these samples in tokens; 0: none."""
    device: str = "auto"
    """auto (CUDA, else MPS, else CPU), cpu, cuda, cuda:N or mps."""
    dtype: Dtype = "auto"
    """Dtype of matrix products. auto: bfloat16 where it is measured to be 1.2 times as fast as
    float32."""
    compile: bool | Literal["auto"] = "auto"
    """torch.compile the training step. auto: where the run is long enough to repay it."""
    shard: Shard = WHOLE
    """Over how many processes every weight, gradient and moment is divided: none (each process has
    all of them), full (over all processes), or a number, such as those of one machine."""
    checkpoint_activations: bool = False
    """Keep the input of every block only and compute the rest again for the gradient: less memory,
    and a third more work."""
    async_save: bool = False
    """Train on while a checkpoint of a divided model is being written."""
    timeout: float = 600.0
    """Seconds that a process waits for the others before it gives up."""

    def __post_init__(self) -> None:
        check_ranges(
            "train", self, steps="[1, inf)", batch_size="[1, inf)", micro_batch_size="[1, inf)",
            eval_interval="[1, inf)", sample_tokens="[0, inf)", timeout="(0, 1e6]",
            **({} if isinstance(self.shard, str) else {"shard": "[1, inf)"}),
        )
        if self.shard != WHOLE and self.dtype == "float16":
            raise UserError("train.dtype float16 cannot be divided (train.shard): use bfloat16")
        if self.async_save and self.shard in (WHOLE, 1):
            raise UserError(f"train.async_save has no effect with train.shard {self.shard}")
        for step in self.keep:
            if not 1 <= step <= self.steps:
                raise UserError(f"train.keep {step} is not a step of train.steps {self.steps}")


@dataclass(kw_only=True)
class Config:
    """A whole run.

    Constructing one fills in what one part takes from another, and raises UserError where two parts
    do not fit together (ValueError where the encoding refuses the model).
    """

    # The parts have no defaults. A ModelConfig made at import would have taken head_dim and others
    # from the default dim already, and would keep them beside the dim that the user asks for.
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
    """Decides everything random: weights by name, batches and dropout by step, samples."""

    def __post_init__(self) -> None:
        self._fit_vocabulary()
        check_position(self.model)
        self._fit_positions()
        warmup, steps = self.optim.warmup_steps, self.train.steps
        if warmup > steps:
            raise UserError(f"optim.warmup_steps {warmup} is longer than train.steps {steps}")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed must be in [0, 2^63), not {self.seed}")

    def _fit_vocabulary(self) -> None:
        """Unset: one embedding for each piece of the tokenizer. Imported models often have more."""
        model, data = self.model, self.data
        if model.vocab_size is None:
            model.vocab_size = data.vocab_size
        padded = data.tokenizer is not None and model.vocab_size > data.vocab_size
        if model.vocab_size != data.vocab_size and not padded:
            raise UserError(f"model.vocab_size {model.vocab_size} and data.vocab_size "
                            f"{data.vocab_size} differ: leave model.vocab_size unset")

    def _fit_positions(self) -> None:
        """Positions reach as far as training rows do, and farther only where that has a meaning."""
        model, seq_len, scaling = self.model, self.data.seq_len, self.model.rope_scaling
        extrapolates = POSITIONS[model.position].extrapolates
        if scaling is not None and scaling.original_positions is None:
            scaling.original_positions = seq_len
        if model.max_positions is None:
            model.max_positions = seq_len * (4 if extrapolates else 1)
            model.max_positions = max(model.max_positions, seq_len + model.random_offset)
            if scaling is not None:
                model.max_positions = max(model.max_positions, scaling.reach)
        if model.max_positions < seq_len:
            raise UserError(f"data.seq_len {seq_len} is longer than model.max_positions "
                            f"{model.max_positions}")
        if model.max_positions < seq_len + model.random_offset:
            raise UserError(f"a row of data.seq_len {seq_len} that starts at model.random_offset "
                            f"{model.random_offset} passes model.max_positions "
                            f"{model.max_positions}")
        if model.max_positions > seq_len and not extrapolates:
            raise UserError(f"model.max_positions {model.max_positions} is longer than "
                            f"data.seq_len {seq_len}: with model.position {model.position} those "
                            "rows would never be trained")

    def to_yaml(self) -> str:
        """The configuration with all that was filled in; `load_file` makes an equal one of it."""
        return yaml.dump(
            dataclasses.asdict(self), Dumper=ConfigDumper, sort_keys=False, allow_unicode=True
        )


class ConfigDumper(yaml.SafeDumper):
    """Quotes a text such as 1e3, which would be read back as a number."""


ConfigDumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9._]+[eE][-+]?[0-9]+$"), list("-+.0123456789")
)
