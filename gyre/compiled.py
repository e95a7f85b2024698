"""Compiled generation. On a CPU, what is compiled is kept, and later processes need no compiler.

It is kept in $XDG_CACHE_HOME/gyre, or ~/.cache/gyre, and not beside the run: it is a program, and a
run that somebody else has made should be data only. The name of a package is a hash of all that it
depends on: shapes and dtypes, the code of the model, torch, and the processor.
"""

import copy
import hashlib
import inspect
import io
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zipfile import ZipFile

import torch
from torch import Tensor, nn

from errors import say
from files import first_line
from gyre.code import find_imported
from gyre.graphed import can_graph, graph_batch
from model import decoding_forms, kernels, packed_forms
from model.generation import Batch, NextLogits, evaluating, next_logits
from model.position import PositionEncoding
from model.transformer import KVCache, Transformer

MIN_PREFILL = 128  # tokens; compiling for shorter prompts is not worth the wait
OPTIONS = {
    "size_asserts": False, "cpp.enable_floating_point_contract_flag": "fast",  # fused multiply-adds
    # Every row of a matrix reads the normalised input. With a threshold of 1 instead of 4, the
    # compiler stores this input, and does not compute it again for every row.
    "realize_reads_threshold": 1,
    # With this, torch 2.13 counts the reads that the threshold above limits, and else not. It also
    # turns off autotuning, which is off anyway.
    "deterministic": True,
}
# In decoding few rows, a good part of a step was taking memory for one tensor after another.
OPTIONS_FOR_FEW_ROWS = {"memory_planning": True}  # one block for all tensors of a step
ONE_NUMBER = torch.zeros(1, dtype=torch.long)
# The packages that this process has loaded; None for one that could not be compiled or loaded.
OPENED: dict[Path, Any] = {}


def make_decoding_step(
    batch: Batch, previous: NextLogits | None = None, *, compiled: bool
) -> NextLogits:
    """Return the function that computes the logits of a batch: compiled or not.

    On CUDA it runs as CUDA graphs, and may be the `previous` one (see `graph_batch`). Elsewhere,
    not compiled, it is `next_logits`.
    """
    if compiled:
        return compile_batch(batch, previous)
    return graph_batch(batch, previous)


@torch.inference_mode()
def compile_batch(batch: Batch, previous: NextLogits | None = None) -> NextLogits:
    """Return `next_logits`, compiled for the whole text of this batch.

    All of it is compiled now, so that no token waits for the compiler. Without a cache, which
    dynamic RoPE scaling can need, nothing is compiled. On CUDA, decoding runs as CUDA graphs, and
    prefill is eager; see `graph_batch`, also for `previous`.
    """
    if batch.cache is None:
        return next_logits
    if can_graph(batch.model, batch.device):
        return graph_batch(batch, previous, compiled=True)
    with evaluating(batch.model):
        return compile_step(batch.model, batch.cache, prompt=min(batch.prompt_lengths),
                            samples=batch.num_samples)


def compile_step(
    model: Transformer, cache: KVCache, *, prompt: int | None = None, samples: int = 1
) -> NextLogits:
    """Return `next_logits`, compiled for this model and cache.

    On a CPU it is a `CompiledStep`. On other devices, and under autocast, PyTorch compiles decoding
    anew in every process, and prefill is eager.

    With `prompt`, compile everything now that a text needs which begins with so many tokens and
    fills the cache. Its prefill reads one row for all `samples` of a prompt. Without `prompt`,
    compile each part when it is first called.
    """
    device = cache.keys[0].device.type
    if device != "cpu" or torch.is_autocast_enabled(device):
        return compile_graph(model, cache, prompt)
    step = CompiledStep(model, cache)
    if prompt is not None:
        step.prepare(cache, prompt, samples)
    return step


class CompiledStep:
    """A `NextLogits` that runs packages: steps compiled into files, which later processes load.

    There are packages for decoding, and for prefill of MIN_PREFILL tokens or more, but not for that
    of several prompts with several samples, which reads a view of the cache. A package is for one
    number of rows, or for all above MAX_SUMMED_TOKENS (model/kernels.py); and either for few keys
    or for many (`has_many_keys`). All else is eager: a first token, shorter and later parts of
    prompts, a step that takes the last room of the cache, and everything if compiling fails.

    It is for one model, and for caches in the dtype of the given one. It decodes as many rows as
    that one has.
    """

    def __init__(self, model: Transformer, cache: KVCache):
        self.model = model
        self.rows = cache.keys[0].shape[0]
        self.dtype = cache.keys[0].dtype
        self.max_keys = min(model.config.max_positions, model.position.cache_limit)
        self.tensors = read_tensors(model)
        self.joined = list(find_joined(self.tensors).values())
        self.packed: list[Tensor] | None = None
        """The matrices for decoding, once it is compiled."""
        self.packages: dict[tuple[int, bool, bool], tuple[Any, list[Tensor]]] = {}
        """What `find_package` has returned. `open_package` would hash all sources for each token.
        """

    def __call__(self, model: Transformer, tokens: Tensor, cache: KVCache) -> Tensor:
        """Return `next_logits`. Raises ValueError for another model."""
        if model is not self.model:
            raise ValueError("this step was compiled for another model")
        rows, length = tokens.shape
        if not self.takes(rows, length, cache) or not wants_package(cache, length):
            return next_logits(model, tokens, cache)
        tokens = tokens.contiguous()
        n_keys = cache.length + length
        package, matrices = self.find_package(cache, tokens, n_keys)
        if package is None:
            return next_logits(model, tokens, cache)
        weights = self.tensors.values()
        (logits,) = package.run(
            [*weights, *matrices, tokens, tensor_of_length(n_keys), *cache.keys, *cache.values])
        cache.length += length
        return logits

    def takes(self, rows: int, length: int, cache: KVCache) -> bool:
        """Return whether packages are for `length` tokens of so many rows, and for this cache.

        Everything else goes to eager steps, which raise the errors.
        """
        keys = cache.keys[0]
        if rows != keys.shape[0] or keys.dtype != self.dtype:
            return False
        if length == 1 and rows != self.rows:
            return False
        return cache.length + length <= self.max_keys

    def prepare(self, cache: KVCache, prompt: int, samples: int) -> None:
        """Find all packages for a text that begins with so many tokens and fills the cache."""
        tokens = torch.zeros(self.rows, prompt, dtype=torch.long)
        one_per_prompt = cache.every_nth(samples)
        if wants_prefill_package(one_per_prompt, prompt):
            self.find_package(one_per_prompt, tokens[::samples].contiguous(), prompt)
        if needs_decoding(cache, prompt):
            # The first and the last step may be on either side of LONGEST_SUM.
            for n_keys in (prompt + 1, cache.keys[0].shape[2] - 1):
                self.find_package(cache, tokens[:, :1].contiguous(), n_keys)

    def find_package(
        self, cache: KVCache, tokens: Tensor, n_keys: int
    ) -> tuple[Any, list[Tensor]]:
        """Return the package for these tokens and so many keys, or None if there can be none; and
        the matrices that it multiplies with."""
        prefills = tokens.shape[1] > 1
        kind = (len(tokens), prefills, has_many_keys(cache, tokens, n_keys))
        if kind not in self.packages:
            package = open_package(self.model, cache, tokens, n_keys)
            matrices = [] if package is None else self.find_matrices(prefills)
            self.packages[kind] = package, matrices
        return self.packages[kind]

    def find_matrices(self, prefills: bool) -> list[Tensor]:
        """Return the joined matrices for prefill, or the packed ones for decoding."""
        if prefills:
            return self.joined
        if self.packed is None:
            groups = choose_groups(self.model, self.rows)
            self.packed = pack_groups(self.tensors, groups, self.rows)
        return self.packed


def needs_decoding(cache: KVCache, prompt: int) -> bool:
    """Return whether a text that fills the cache is decoded after a prompt of so many tokens.

    No step reads the last token of a text.
    """
    return prompt + 1 < cache.keys[0].shape[2]


def choose_groups(model: Transformer, rows: int) -> list[list[str]]:
    """Return the names of the matrices that are packed to decode so many rows, by groups."""
    weight = model.tok_embeddings.weight
    if not kernels.packs_weights(weight.device, weight.dtype, rows):
        return []
    groups = packed_forms.group_matrices(model)
    if not hasattr(model, "output"):
        groups.append(["tok_embeddings.weight"])  # tied
    tensors = read_tensors(model)
    sizes = [sum(tensors[name].numel() for name in group) for group in groups]
    if kernels.are_too_small(sizes, weight.dtype, rows):
        return []
    return groups


def find_joined(tensors: dict[str, Tensor]) -> dict[tuple[str, ...], Tensor]:
    """Return the joined matrices whose parts are all among these tensors, by the names of these.

    See `join_matrices`. A part can have left its matrix, as where two layers share a weight. Then
    the matrix has rows of no weight, and is left out. Prefill multiplies with the others. They are
    there already. Packed ones would be a second copy, which takes longer to make than a prompt
    saves.
    """
    groups: dict[packed_forms.JoinedMatrix, list[tuple[int, str]]] = {}
    for name, tensor in tensors.items():
        part = packed_forms.find_part(tensor)
        if part is not None:
            groups.setdefault(part.whole, []).append((part.start, name))
    joined = {}
    for whole, parts in groups.items():
        names = tuple(name for _, name in sorted(parts))
        if sum(len(tensors[name]) for name in names) == len(whole.matrix):
            joined[names] = whole.matrix
    return joined


def list_groups(model: Transformer, rows: int, prefills: bool) -> list[list[str]]:
    """Return the names of the weights that a package multiplies with together, by groups.

    For prefill they are joined; to decode so many rows they are packed.
    """
    if not prefills:
        return choose_groups(model, rows)
    return [list(names) for names in find_joined(read_tensors(model))]


def pack_groups(
    tensors: dict[str, Tensor], groups: list[list[str]], rows: int
) -> list[Tensor]:
    """Return the packed matrix of each group, of the tensors with these names."""
    matrices = []
    for group in groups:
        parts = [tensors[name] for name in group]
        matrices.append(packed_forms.pack_matrices(parts, rows))
    return matrices


def wants_package(cache: KVCache, length: int) -> bool:
    """Return whether a package is wanted for the next tokens, so many of each row."""
    if length > 1:
        return wants_prefill_package(cache, length)
    if cache.length == 0:
        return False
    return has_room_after(cache, length)


def wants_prefill_package(cache: KVCache, length: int) -> bool:
    """Return whether a package is wanted for the prefill of prompts of this length."""
    if cache.length > 0 or length < MIN_PREFILL:
        return False
    # For one sample of each of several prompts, `cache` is a view with strides that no package
    # knows.
    if not cache.keys[0].is_contiguous():
        return False
    return has_room_after(cache, length)


def has_room_after(cache: KVCache, length: int) -> bool:
    """Return whether a cache has room for one more token after so many.

    torch.export tells two sizes apart only if they differ. In a full cache, the number of keys and
    the capacity are equal: a package that was made there would compute garbage with roomier caches.
    A text's last token is not fed, so that its steps leave room.
    """
    return cache.length + length < cache.keys[0].shape[2]


def tensor_of_length(length: int) -> Tensor:
    """Return a tensor whose length tells a package a number, because it takes tensors only."""
    return ONE_NUMBER.expand(length)


def has_many_keys(cache: KVCache, tokens: Tensor, n_keys: int) -> bool:
    """Return whether these tokens and so many keys need the package for many keys.

    Decoding has two packages. Prefill has two only where one of them scores whole prompts.
    """
    if tokens.shape[1] == 1:
        return n_keys > decoding_forms.LONGEST_SUM
    keys = cache.keys[0]
    if not kernels.scores_whole_prompts(keys.device, keys.dtype, len(tokens)):
        return False
    return n_keys > packed_forms.LONGEST_SCORED


def compile_graph(model: Transformer, cache: KVCache, prompt: int | None) -> NextLogits:
    """Return `next_logits`, whose calls for one token of each row run as a graph of torch.compile.

    With `prompt`, it is compiled now for texts that begin with so many tokens.
    """
    # The size checks would take a good part of one row's step.
    graph = torch.compile(next_logits, dynamic=True, options={"size_asserts": False})
    settings = {
        "recompile_limit": 32,  # 8 is too low for a graph per number of rows
        "suppress_errors": True,  # what does not compile runs eagerly
        # Without this, every step wraps every norm's eps in a tensor, which takes as long.
        "specialize_float": True,
    }

    def run(model: Transformer, tokens: Tensor, cache: KVCache) -> Tensor:
        if tokens.shape[1] > 1:
            return next_logits(model, tokens, cache)
        with torch._dynamo.config.patch(settings):
            return graph(model, tokens, cache)

    rows = cache.keys[0].shape[0]
    if prompt is not None and needs_decoding(cache, prompt):
        cache.length = max(2, prompt)  # 0 and 1 keys have graphs of their own
        run(model, torch.zeros(rows, 1, dtype=torch.long, device=cache.keys[0].device), cache)
        cache.length = 0  # what this has written will be overwritten
    return run


def read_tensors(model: Transformer) -> dict[str, Tensor]:
    """Return what a step reads besides tokens and cache, by name."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if model.position.table is not None:
        tensors["table"] = model.position.table
    return tensors


def open_package(model: Transformer, cache: KVCache, tokens: Tensor, n_keys: int) -> Any:
    """Return the loaded package for inputs like these, compiled if there is none yet; None if that
    fails or has failed."""
    part = "decoding" if tokens.shape[1] == 1 else "prefill"
    try:
        path = locate_package(model, cache, tokens, n_keys)
        if path not in OPENED:
            OPENED[path] = None  # if this fails, it is not tried again
            if not is_whole(path):
                say(f"compiling {part}, once, which takes up to some minutes; kept as {path}")
                make_package(model, cache, tokens, n_keys, path)
            # As torch._inductor.aoti_load_package does it, whose import takes a second or more.
            OPENED[path] = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1)
        return OPENED[path]
    except Exception as error:  # whatever the compiler raises
        say(f"note: {part} is eager, because it could not be compiled or loaded: "
            f"{first_line(error)}")
        return None


def locate_package(model: Transformer, cache: KVCache, tokens: Tensor, n_keys: int) -> Path:
    """Return where the package for inputs like these is kept. Its name hashes what it depends on.
    """
    rows, length = tokens.shape
    prefills = length > 1
    tensors = read_tensors(model)
    onednn = kernels.uses_onednn()
    in_int8 = model.tok_embeddings.weight.dtype == torch.int8
    dependencies = {
        "model": model.config,
        "tensors": [(name, x.shape, x.dtype) for name, x in tensors.items()],
        "cache_dtype": cache.keys[0].dtype,
        "rows": min(rows, kernels.MAX_SUMMED_TOKENS + 1),
        "prefills": prefills,
        "has_many_keys": has_many_keys(cache, tokens, n_keys),
        "groups": list_groups(model, rows, prefills),
        "onednn": onednn,
        # Decoding fewer rows does not multiply by oneDNN's operator.
        "onednn_for_rows": onednn and rows >= kernels.MIN_ONEDNN_TOKENS,
        "multiplies_int8": in_int8 and kernels.multiplies_int8(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processor": kernels.read_capabilities() or platform.uname(),
    }
    digest = hashlib.sha256(repr(dependencies).encode())
    for source in list_sources(model):
        digest.update(source.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not home:
        home = Path.home() / ".cache"
    return Path(home, "gyre", f"{digest.hexdigest()[:32]}.pt2")


def list_sources(model: Transformer) -> list[Path]:
    """Return the files whose code a package is compiled from, or by.

    They are this one, all of model/, those of the encoding, and what these import.
    """
    folder = Path(inspect.getfile(Transformer)).parent
    files = [*folder.glob("*.py")]  # also those that this process has not imported
    sources = {Path(__file__), *files}
    modules = [f"{folder.name}.{file.stem}" for file in files]
    for encoding in type(model.position).__mro__:
        if issubclass(encoding, PositionEncoding):  # it may be defined elsewhere
            sources.add(Path(inspect.getfile(encoding)))
        modules.append(encoding.__module__)
    return sorted(sources | find_imported(modules))


def is_whole(path: Path) -> bool:
    """Return whether a package is there and undamaged: torch does not compare its checksums."""
    with suppress(Exception), ZipFile(path) as archive:
        return archive.testzip() is None
    return False


def make_package(
    model: Transformer, cache: KVCache, tokens: Tensor, n_keys: int, path: Path
) -> None:
    """Compile a step for all inputs like these into a file."""
    tensors = read_tensors(model)
    weights = list(tensors.values())
    prefills = tokens.shape[1] > 1
    groups = list_groups(model, len(tokens), prefills)
    traced = TracedStep(model, cache, prefills, groups)
    matrices = traced.make_stand_ins(weights)
    any_size = torch.export.Dim.DYNAMIC
    token_sizes: dict[int, Any] = {}
    cache_sizes: dict[int, Any] = {2: any_size}
    if len(tokens) > kernels.MAX_SUMMED_TOKENS:
        token_sizes[0] = any_size
        cache_sizes[0] = any_size
    if prefills:
        token_sizes[1] = any_size
    caches = [cache_sizes for _ in cache.keys]
    example_keys = n_keys
    if not prefills and n_keys <= decoding_forms.LONGEST_SUM:
        # The compiler divides loops among the threads if they are long in this example. So it has
        # as many keys as this package ever reads in this text. Its last step has one fewer than the
        # cache holds.
        example_keys = min(cache.keys[0].shape[2] - 1, decoding_forms.LONGEST_SUM)
    key_slots = tensor_of_length(example_keys)
    position = dict(vars(model.position))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.pt2")
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            program = torch.export.export(
                traced, (weights, matrices, tokens, key_slots, cache.keys, cache.values),
                strict=False,
                dynamic_shapes=([{} for _ in weights], [{} for _ in matrices], token_sizes,
                                {0: any_size}, caches, caches),
                # What the trace takes for granted of sizes is not refused now. Instead the package
                # raises when it runs, if one size had to be less than another and is not. It checks
                # neither that sizes are equal nor a size against a constant: `wants_package` and
                # `locate_package` see to these.
                prefer_deferred_runtime_asserts_over_guards=True)
            package = io.BytesIO()  # torch's own writer aborts the process if the disk is full
            has_few_rows = not prefills and len(tokens) <= kernels.MAX_SUMMED_TOKENS
            with packed_lowering():
                torch._inductor.aoti_compile_and_package(
                    program, package_path=package,
                    inductor_configs=OPTIONS | OPTIONS_FOR_FEW_ROWS if has_few_rows else OPTIONS)
        unfinished.write_bytes(package.getvalue())
        unfinished.replace(path)
    finally:
        vars(model.position).update(position)  # without what tracing has left there
        unfinished.unlink(missing_ok=True)


@contextmanager
def packed_lowering() -> Iterator[None]:
    """Return a context in which Inductor compiles products with packed weights that are inputs.

    Its own lowering insists on constants. The call that it compiles to is the same.
    """
    from torch._inductor import mkldnn_ir
    from torch._inductor.ir import TensorBox
    from torch._inductor.lowering import lowerings

    def lower_product(*inputs: Any) -> Any:
        return TensorBox.create(mkldnn_ir.LinearUnary.create(*inputs))

    def lower_product_and_sum(*inputs: Any) -> Any:
        return TensorBox.create(mkldnn_ir.LinearBinary.create(*inputs))

    operator = torch.ops.mkldnn._linear_pointwise
    ours = {operator.default: lower_product, operator.binary: lower_product_and_sum}
    with patch.dict(lowerings, ours):
        yield


class TracedStep(nn.Module):
    """`next_logits` as torch.export takes it: a function of tensors."""

    def __init__(
        self, model: Transformer, cache: KVCache, prefills: bool, groups: list[list[str]]
    ):
        super().__init__()
        # In a tuple, because its weights are arguments and not those of this module.
        self.models = (model,)
        self.names = list(read_tensors(model))
        self.cache = cache
        self.prefills = prefills
        self.groups = groups

    def make_stand_ins(self, weights: list[Tensor]) -> list[Tensor]:
        """Return what stands for the packed or joined matrices while the step is traced.

        Tracing reads their shapes only. It does not take opaque tensors.
        """
        tensors = dict(zip(self.names, weights, strict=True))
        matrices = []
        for group in self.groups:
            n_outputs = sum(len(tensors[name]) for name in group)
            first = tensors[group[0]]
            if first.dtype == torch.int8:
                first = first.view(torch.float32)
            matrices.append(first.new_empty(n_outputs, first.shape[1]))
        return matrices

    def forward(
        self, weights: list[Tensor], matrices: list[Tensor], tokens: Tensor, key_slots: Tensor,
        keys: list[Tensor], values: list[Tensor],
    ) -> Tensor:
        """weights: those of `read_tensors`; matrices: the packed or joined ones of `groups`;
        key_slots: its length is the number of keys, new ones included (`tensor_of_length`)."""
        (model,) = self.models
        tensors = dict(zip(self.names, weights, strict=True))
        grouped = []
        for group in self.groups:
            grouped.append([tensors[name] for name in group])
        model.position.table = tensors.pop("table", None)
        cache = copy.copy(self.cache)
        cache.keys = keys
        cache.values = values
        cache.length = 0 if self.prefills else key_slots.shape[0] - 1
        last = {"last_only": True}
        multiply_matrix = packed_forms.multiply_packed
        if self.prefills:  # with joined matrices, which are not packed
            multiply_matrix = kernels.multiply_whole
        products = packed_forms.GroupedProducts(grouped, matrices, multiply_matrix)
        with kernels.products_by_groups(products):
            return torch.func.functional_call(model, tensors, (tokens, cache), last)[:, -1]
