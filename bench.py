"""Measure speed: training, prefill and decoding, beside what the machine could do.

    python bench.py
    python bench.py --config bench.yaml --model.dim 768 --data.seq_len 1024 --json bench.json

The model has random weights, which take as long as trained ones. Where transformers is installed
(requirements-dev.txt), its LlamaForCausalLM runs the same weights in the same process. All subjects
of a table take turns, so that what else the machine does meets them alike; figures are medians.
"""

import dataclasses
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from config import config_parser, parse
from data.dataset import DataConfig
from errors import UserError, exit_in_words, say
from evaluate import flops_per_token
from hardware import autocast, resolve_compile, resolve_device, resolve_dtype
from model.generation import Sampling, generate
from model.interop import to_hf
from model.transformer import ModelConfig, Transformer
from optim import OptimConfig, Optimizers
from train import summed_loss

Run = Callable[[], object]


def main(argv: list[str] | None = None) -> None:
    with exit_in_words():
        argv = sys.argv[1:] if argv is None else argv
        if not any(word.startswith("--config") for word in argv):
            argv = ["--config", "bench.yaml", *argv]
        parser = config_parser(__doc__)
        parser.add_argument("--json", metavar="FILE", help="Write the figures here too.")
        parser.add_argument(
            "--repeats", type=int, default=8, help="Measurements of every training subject."
        )
        parser.add_argument(
            "--new-tokens", type=int, default=500, help="Tokens to decode after a prompt of one."
        )
        config, options = parse(parser, argv)
        for name in ("repeats", "new_tokens"):
            if options[name] < 1:
                raise UserError(f"--{name.replace('_', '-')} must be at least 1")
        bench = Bench(config, options["repeats"], options["new_tokens"])
        bench.run()
        line = json.dumps(bench.figures)
        if options["json"]:
            Path(options["json"]).write_text(line + "\n", encoding="utf-8")
        print(line)


# --- timing ---------------------------------------------------------------------------------------


class Clock:
    """Seconds of calls on a device, the queue of a GPU emptied before and after."""

    def __init__(self, device: torch.device):
        self.device = device

    def seconds(self, run: Run) -> float:
        self._wait()
        started = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - started

    def alternate(self, runs: dict[str, Run], repeats: int, what: str) -> dict[str, float]:
        """Median seconds of each, one after the other in every round."""
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in tqdm(range(repeats), what, leave=False, delay=2):
            for name, run in runs.items():
                times[name].append(self.seconds(run))
        return {name: statistics.median(values) for name, values in times.items()}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()


def machine(clock: Clock, dtype: torch.dtype) -> tuple[float, float]:
    """(FLOP/s of a large matrix product, bytes/s of reading and writing in a large copy)."""
    gpu = clock.device.type == "cuda"
    n = 8192 if gpu else 2048
    a, b = (torch.randn(n, n, device=clock.device).to(dtype) for _ in range(2))
    source = torch.ones(2**30 if gpu else 2**27, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    runs = {"product": lambda: a @ b, "copy": lambda: target.copy_(source)}
    for run in runs.values():
        clock.seconds(run)
    times = clock.alternate(runs, 8, "the machine")
    return 2 * n**3 / times["product"], 2 * source.nbytes / times["copy"]


# --- what is measured -----------------------------------------------------------------------------


class Bench:
    def __init__(self, config, repeats: int, new_tokens: int):
        self.config, self.repeats, self.new_tokens = config, repeats, new_tokens
        self.device = resolve_device(config.train.device)
        self.dtype, why = resolve_dtype(config.train.dtype, self.device)
        # Decoding may be longer than the rows are.
        reach = max(config.model.max_positions or 0, config.data.seq_len, new_tokens + 1)
        self.model_config: ModelConfig = dataclasses.replace(config.model, max_positions=reach)
        self.clock = Clock(self.device)
        compiles = config.train.compile is not False
        self.compiled = compiles and resolve_compile(True, self.device, 0)[0]
        self.peer = bool(find_spec("transformers"))
        try:
            to_hf({}, self.model_config)
        except ValueError as error:
            self.peer = False
            say(f"note: without transformers: {error}")
        self.figures: dict = {
            "device": str(self.device), "dtype": str(self.dtype), "torch": torch.__version__,
            "threads": torch.get_num_threads(), "model": dataclasses.asdict(self.model_config),
            "compile_seconds": {},
        }  # fmt: skip
        say(f"{self.device}; {why}; {torch.get_num_threads()} threads")

    def run(self) -> None:
        self.product_rate, self.bandwidth = machine(self.clock, self.dtype)
        self.figures["matmul_flops_per_second"] = self.product_rate
        self.figures["copy_bytes_per_second"] = self.bandwidth
        print(f"machine: {self.product_rate / 1e9:,.0f} GFLOP/s in matrix products, "
              f"{self.bandwidth / 1e9:.1f} GB/s in copies")  # fmt: skip
        self.training()
        self.prefill()
        for batch in (1, 8, 32):
            self.decoding(batch)

    def _table(self, title: str, unit: str, rates: dict[str, float], limit: float) -> None:
        print(f"\n{title}\n  {unit:>28} {'of the limit':>14}")
        for name, rate in rates.items():
            print(f"  {name:<18} {rate:>9,.0f} {100 * rate / limit:>12.0f} %")
        print(f"  {'limit':<18} {limit:>9,.0f}", flush=True)

    def _model(self, dtype: torch.dtype = torch.float32) -> Transformer:
        model = Transformer(self.model_config)
        model.init_weights(0)
        return model.to(self.device, dtype)

    def _peer(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        c = self.model_config
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=c.vocab_size, hidden_size=c.dim, intermediate_size=c.hidden_dim,
            num_hidden_layers=c.n_layers, num_attention_heads=c.n_heads,
            num_key_value_heads=c.n_kv_heads, head_dim=c.head_dim, rms_norm_eps=c.norm_eps,
            max_position_embeddings=c.max_positions, tie_word_embeddings=c.tie_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": c.theta},
            bos_token_id=None, eos_token_id=None, pad_token_id=None,
        ))  # fmt: skip
        weights = to_hf(self._model().state_dict(), c)
        if c.tie_embeddings:
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        model.load_state_dict(weights)
        return model.to(self.device, dtype)

    def training(self) -> None:
        data: DataConfig = self.config.data
        batch = self.config.train.batch_size
        generator = torch.Generator().manual_seed(0)
        shape = (batch, data.seq_len + 1)
        tokens = torch.randint(self.model_config.vocab_size, shape, generator=generator)
        x, y = (t.contiguous().to(self.device) for t in (tokens[:, :-1], tokens[:, 1:]))
        runs = {}
        for name in self._names():
            if name == "transformers, compiled":
                self.figures["peak_bytes_training"] = self._peak_bytes()  # before the peer is there
            runs[name] = self._training_step(name, x, y)
            seconds = self.clock.seconds(runs[name])
            self.figures["compile_seconds"][f"training: {name}"] = seconds
            self.clock.seconds(runs[name])
        self.figures.setdefault("peak_bytes_training", self._peak_bytes())
        times = self.clock.alternate(runs, self.repeats, "training")
        rates = {name: x.numel() / seconds for name, seconds in times.items()}
        limit = self.product_rate / flops_per_token(self.model_config, data.seq_len)
        self._table(f"training, {batch} x {data.seq_len}", "tokens/s", rates, limit)
        print(f"  peak memory {self.figures['peak_bytes_training'] / 2**20:,.0f} MiB (ours)")
        for name, seconds in self.figures["compile_seconds"].items():
            if name.startswith("training") and name.endswith("compiled"):
                print(f"  first step of {name.removeprefix('training: ')}: {seconds:.1f} s")
        self.figures["training"] = {"tokens_per_second": rates, "limit": limit}

    def _names(self) -> list[str]:
        subjects = ["gyre", "transformers"] if self.peer else ["gyre"]
        kinds = ["compiled", "eager"] if self.compiled else ["eager"]
        return [f"{subject}, {kind}" for subject in subjects for kind in kinds]

    def _training_step(self, name: str, x: Tensor, y: Tensor) -> Run:
        ours, loss_of = name.startswith("gyre"), summed_loss
        if ours:
            model = self._model()
            optimizers = Optimizers(model, OptimConfig()).optimizers
        else:
            model = self._peer().train()
            optimizers = [torch.optim.AdamW(model.parameters(), fused=True)]
        if name.endswith("compiled"):
            model.compile()
            loss_of = torch.compile(summed_loss)

        def step() -> float:
            with autocast(self.device, self.dtype):
                if ours:
                    logits = model(x)
                else:  # with its own loss, as it is used
                    loss = model(x, labels=y, shift_labels=y).loss
            if ours:
                loss = loss_of(logits, y) / y.numel()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            return loss.item()

        return step

    @torch.inference_mode()
    def prefill(self) -> None:
        length = self.config.data.seq_len
        prompt = torch.zeros(1, length, dtype=torch.long, device=self.device)
        model = self._model(self.dtype).eval()
        runs = {"gyre, eager": lambda: model.logits(model.features(prompt)[:, -1])}
        if self.peer:
            peer = self._peer(self.dtype).eval()
            runs["transformers"] = lambda: peer(prompt, logits_to_keep=1).logits
        for run in runs.values():
            self.clock.seconds(run)
        times = self.clock.alternate(runs, 3 * self.repeats, "prefill")
        rates = {name: length / seconds for name, seconds in times.items()}
        limit = self.product_rate / (flops_per_token(self.model_config, length) / 3)
        self._table(f"prefill, one prompt of {length}", "tokens/s", rates, limit)
        self.figures["prefill"] = {"tokens_per_second": rates, "limit": limit}

    @torch.inference_mode()
    def decoding(self, batch: int) -> None:
        model = self._model(self.dtype).eval()
        greedy = Sampling(temperature=0)

        def ours(compile: bool) -> Run:
            return lambda: generate(
                model, [[1]], greedy, max_new_tokens=self.new_tokens, num_samples=batch,
                compile=compile,
            )  # fmt: skip

        runs = {"gyre, compiled": ours(True)} if self.compiled else {}
        runs["gyre, eager"] = ours(False)
        if self.peer:
            peer = self._peer(self.dtype).eval()
            prompt = torch.ones(batch, 1, dtype=torch.long, device=self.device)
            runs["transformers"] = lambda: peer.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
                min_new_tokens=self.new_tokens, max_new_tokens=self.new_tokens, pad_token_id=0,
            )  # fmt: skip
        for name, run in runs.items():
            seconds = self.clock.seconds(run)  # the first call compiles
            if name.endswith("compiled"):
                self.figures["compile_seconds"][f"decoding, batch {batch}"] = seconds
        times = self.clock.alternate(runs, 3, f"decoding, batch {batch}")
        rates = {name: batch * self.new_tokens / seconds for name, seconds in times.items()}
        limit = batch * self.bandwidth / self._decode_bytes(model, batch)
        self._table(f"decoding, batch {batch}, {self.new_tokens} new", "tokens/s", rates, limit)
        self.figures[f"decoding_{batch}"] = {"tokens_per_second": rates, "limit": limit}

    def _decode_bytes(self, model: Transformer, batch: int) -> float:
        """What one decoding step has to read: every weight that is in a product once, and the cache
        at its mean length."""
        c = self.model_config
        read = dict(model.named_parameters())
        if not c.tie_embeddings:
            read.pop("tok_embeddings.weight")  # one row of it per token
        weights = sum(p.numel() * p.element_size() for p in read.values())
        width = next(iter(read.values())).element_size()
        per_token = 2 * c.n_layers * c.n_kv_heads * c.head_dim * width
        return weights + batch * per_token * self.new_tokens / 2

    def _peak_bytes(self) -> int:
        """Of the GPU's allocator, or of this whole process, libraries included."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


if __name__ == "__main__":
    main()
