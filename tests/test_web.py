"""A run as a page: what `export.py --to web` writes, and what the page does in Chromium.

The pages of `shown` load a stand-in, which writes what a test needs. Those at the end load wllama.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from browser import Browser, chromium, serve, serve_here
from builders import parse_config, require_program, skip_without, untrained_run, wait_for
from random_runs import PROMPT, random_run, random_weights, save_weights
from saved_models import assert_refused, export_to, make_run, their_folder
from small_tokenizers import VOCAB, train_tokenizer

from formats import web
from gyre.load import load
from gyre.rundir import RunDir

ROWS_OF_32 = {"dim": 64, "head_dim": 32, "n_heads": 2, "n_kv_heads": 1, "hidden_dim": 96}


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings in the page of an export."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    (text,) = re.findall('<script type="application/json" id="settings">(.*)</script>', page)
    return json.loads(text)


@pytest.fixture
def without_npm(monkeypatch) -> None:
    """No program is found."""
    monkeypatch.setenv("PATH", "")


def put_npm(folder: Path, monkeypatch, script: str) -> None:
    """Let npm be this shell script."""
    folder.mkdir()
    file = folder / "npm"
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


# --- the folder -----------------------------------------------------------------------------------


def test_without_npm_the_page_loads_wllama_from_a_cdn(tmp_path, capsys, without_npm):
    out = export_to("web", random_run(tmp_path / "runs", "a").path, tmp_path / "out")
    settings = settings_of(out)
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "model.gguf"]
    assert settings["module"].endswith("/@wllama/wllama@3.13.0/esm/index.js")
    assert settings["compat_wasm"].endswith("/@wllama/wllama-compat@3.13.0/wasm/wllama.wasm")
    assert f"npm is not installed: the page loads wllama from {settings['source']}" in (
        capsys.readouterr().err)


@pytest.mark.parametrize("code", [0, 1])
def test_an_npm_that_brings_nothing_is_as_good_as_none(tmp_path, capsys, monkeypatch, code):
    put_npm(tmp_path / "bin", monkeypatch, f"exit {code}")
    out = export_to("web", random_run(tmp_path / "runs", "a").path, tmp_path / "out")
    assert settings_of(out)["module"].startswith("https://")
    assert "npm could not fetch @wllama/wllama@3.13.0" in capsys.readouterr().err


def test_another_package_under_the_pinned_name_is_refused(tmp_path, capsys, monkeypatch):
    put_npm(tmp_path / "bin", monkeypatch,
            "echo other | tee wllama-wllama-3.13.0.tgz wllama-wllama-compat-3.13.0.tgz")
    run = random_run(tmp_path / "runs", "a").path
    assert_refused(capsys, "web", run, tmp_path / "out",
                   "npm brought another @wllama/wllama@3.13.0", "npm config get registry")


def test_the_page_says_how_to_serve_it(tmp_path, capsys, without_npm):
    export_to("web", random_run(tmp_path / "runs", "a").path, tmp_path / "my page")
    assert f"python -m http.server --directory '{tmp_path}/my page'" in capsys.readouterr().err


@pytest.mark.parametrize(("sizes", "dtype", "kind"), [
    (ROWS_OF_32, torch.float32, "Q8_0"), ({}, torch.float32, "F32"), ({}, torch.bfloat16, "BF16"),
    (ROWS_OF_32 | {"hidden_dim": 80}, torch.float32, "F32")])
def test_matrices_are_q8_0_if_rows_can_be_packed(sizes, dtype, kind, tmp_path, without_npm):
    run = make_run(tmp_path, dtype=dtype, **sizes)
    out = export_to("web", run.path, tmp_path / "out")
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(out / "model.gguf").tensors}
    assert kinds["blk.1.ffn_down.weight"] == kind
    assert settings_of(out)["dtype"] == kind.lower()


def test_dtype_is_obeyed(tmp_path, without_npm):
    out = export_to("web", make_run(tmp_path, **ROWS_OF_32).path, tmp_path / "out",
                    "--dtype", "f16")
    assert settings_of(out)["dtype"] == "f16"


def test_a_model_larger_than_wllama_reads_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(web, "MOST_BYTES", 100_000)
    assert_refused(capsys, "web", make_run(tmp_path).path, tmp_path / "out",
                   "wllama, which runs it in the page, reads files up to", "--to gguf")


def test_a_model_whose_tokenizer_makes_it_too_large_is_refused(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path).path
    weights = sum(weight.numel() for weight in RunDir.open(run).checkpoints.load_weights().values())
    monkeypatch.setattr(web, "MOST_BYTES", 4 * weights)
    assert_refused(capsys, "web", run, tmp_path / "out", "reads files up to",
                   options=["--dtype", "f32"])


def test_a_model_of_all_bytes_that_wllama_reads_is_taken():
    web.refuse_too_large(2_147_483_648)


def test_the_page_keeps_no_more_than_4096_tokens(tmp_path, without_npm):
    out = export_to("web", make_run(tmp_path, max_positions=5000).path, tmp_path / "out")
    assert settings_of(out)["context"] == 4096


def test_an_export_notes_how_long_a_text_of_the_page_may_be(tmp_path, without_npm, capsys):
    export_to("web", make_run(tmp_path, max_positions=1024).path, tmp_path / "out")
    assert ("and was trained for 256: past that it may get worse, so keep the prompt and the new "
            "text together within 256\n") in capsys.readouterr().err


def test_a_model_that_llama_cpp_cannot_compute_is_refused(tmp_path, capsys):
    run = make_run(tmp_path, position="alibi").path
    assert_refused(capsys, "web", run, tmp_path / "out", "position alibi", "llama.cpp")


def test_the_page_has_the_runs_sample_prompt(tmp_path, without_npm):
    config = parse_config(f"--data.vocab_size={VOCAB}", "--train.sample_prompt=def é(",
                          *(f"--model.{name}={size}" for name, size in ROWS_OF_32.items()))
    run = untrained_run(tmp_path, "a", train_tokenizer(tmp_path), config)
    save_weights(run, "best", random_weights(config.model, seed=1))
    assert settings_of(export_to("web", run.path, tmp_path / "out"))["prompt"] == "def é("


def test_no_prompt_ends_the_element_of_the_settings():
    page = web.render_page({"prompt": "a</script>b"})
    assert page.count("</script>") == 2


def test_an_empty_prompt_is_the_eos_of_our_documents(tmp_path, without_npm):
    out = export_to("web", make_run(tmp_path).path, tmp_path / "out")
    assert settings_of(out)["document_start"] == "</s>"


def test_an_empty_prompt_stays_empty_where_llama_cpp_adds_bos(tmp_path, without_npm):
    run = export_to("run", their_folder(tmp_path, "llama2"), tmp_path / "run")
    out = export_to("web", run, tmp_path / "out")
    assert settings_of(out)["document_start"] == ""


# --- the page, with a stand-in for wllama ---------------------------------------------------------

# It remembers what it is asked for. It writes two words, and then does what the prompt says.
STAND_IN = """
export const LoggerWithoutDebug = console;
export class Wllama {
  setCompat() {}
  async loadModel(files, options) { window.loaded = options; }
  getNumThreads() { return 1; }
  async createCompletion(options) {
    window.asked = options;
    if (options.prompt.startsWith("broken one")) throw new RangeError("of a byte");
    for (const text of [" one", " two"]) {
      const timings = { predicted_n: 2, predicted_per_second: 12.34 };
      options.onData({ choices: [{ text }], timings });
    }
    if (["fail", "broken"].includes(options.prompt)) throw new RangeError("of a byte");
    while (options.prompt === "forever") {
      if (options.abortSignal.aborted) throw new Error("aborted");
      await new Promise(resolve => setTimeout(resolve, 10));
    }
  }
}
"""
SETTINGS = {
    "name": "a-run", "parameters": 1234567, "dtype": "q8_0", "model": "model.gguf", "bytes": 5,
    "context": 128, "prompt": "def é(", "document_start": "</s>", "temperature": 0.8,
    "max_tokens": 200, "version": "3.13.0", "source": "this folder", "module": "wllama.js",
    "wasm": "wllama.wasm", "compat_worker": "compat.js", "compat_wasm": "compat.wasm"}


def write_page(folder: Path, **changes: Any) -> Path:
    """A folder with a page, a stand-in and something for a model."""
    folder.mkdir()
    (folder / "index.html").write_text(web.render_page(SETTINGS | changes), encoding="utf-8")
    (folder / "model.gguf").write_bytes(b"GGUF!")
    (folder / "wllama.js").write_text(STAND_IN, encoding="utf-8")
    for name in ("wllama.wasm", "compat.wasm"):
        (folder / name).touch()
    return folder


def read(browser: Browser, name: str) -> str:
    """The text that the element of this name shows."""
    return browser.run(f"document.getElementById({name!r}).textContent")


def open_page(browser: Browser, address: str, begins: str, **options: Any) -> None:
    """Open a page, and wait until it says that it is ready, or this."""
    browser.open(address, **options)
    wait_for(lambda: read(browser, "state").startswith(begins))


def type_in(browser: Browser, name: str, value: str | float) -> None:
    """Put this into a field."""
    browser.run(f"document.getElementById({name!r}).value = {json.dumps(value)}")


def click(browser: Browser, name: str) -> None:
    """Click on a button."""
    browser.run(f"document.getElementById({name!r}).click()")


def write(browser: Browser, prompt: str, ends: str = "Done", **fields: float) -> str:
    """What the page shows behind this prompt once it says that it is done."""
    type_in(browser, "prompt", prompt)
    for name, value in fields.items():
        type_in(browser, name.replace("_", "-"), value)
    click(browser, "write")
    wait_for(lambda: read(browser, "state") != "Writing")
    assert read(browser, "state").startswith(ends)
    return read(browser, "written")


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    """Chromium."""
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def shown(browser, tmp_path) -> Iterator[Browser]:
    """Chromium with a page that is ready to write."""
    with serve_here(write_page(tmp_path / "page")) as address:
        open_page(browser, address, "Ready")
        yield browser


def test_the_page_is_one_file():
    page = web.PAGE.read_text(encoding="utf-8")
    assert re.findall(r'\b(?:src|href)="(.*?)"|@import|url\(', page) == ["data:,"]


@pytest.mark.slow
def test_the_page_shows_its_settings(shown):
    assert read(shown, "name") == "a-run"
    assert read(shown, "about").startswith(
        "1,234,567 parameters, q8_0, 0.0 MB. It runs in this browser, by wllama 3.13.0, loaded "
        "from this folder.")
    assert shown.run("document.getElementById('prompt').value") == "def é("


@pytest.mark.slow
def test_text_and_speed_are_shown(shown):
    assert write(shown, "zero") == " one two"
    assert read(shown, "text") == "zero one two"
    assert read(shown, "speed") == "2 tokens, 12.3 a second"


@pytest.mark.slow
def test_the_fields_reach_wllama(shown):
    write(shown, "zero", temperature=0.25, max_tokens=7)
    asked = shown.run("window.asked")
    assert (asked["prompt"], asked["temperature"], asked["max_tokens"]) == ("zero", 0.25, 7)


@pytest.mark.slow
def test_every_token_may_be_drawn(shown):
    write(shown, "zero")
    asked = shown.run("window.asked")
    assert (asked["top_k"], asked["top_p"], asked["min_p"]) == (0, 1, 0)


@pytest.mark.slow
def test_a_field_out_of_range_is_not_sent(shown):
    type_in(shown, "max-tokens", 129)  # the context has 128
    click(shown, "write")
    assert shown.run("window.asked") is None


@pytest.mark.slow
def test_an_empty_prompt_begins_a_document(shown):
    write(shown, "")
    assert shown.run("window.asked.prompt") == "</s>"


@pytest.mark.slow
def test_half_a_character_in_a_prompt_becomes_a_sign(shown):
    shown.run(r"document.getElementById('prompt').value = 'a\ud83d'")
    click(shown, "write")
    assert shown.run("window.asked.prompt") == "a\ufffd"


@pytest.mark.slow
def test_stop_keeps_what_is_written(shown):
    type_in(shown, "prompt", "forever")
    click(shown, "write")
    assert read(shown, "state") == "Writing"
    click(shown, "stop")
    wait_for(lambda: read(shown, "state") == "Stopped")
    assert read(shown, "written") == " one two"
    assert write(shown, "again") == " one two"


@pytest.mark.slow
def test_a_text_goes_on_behind_an_error(shown):
    assert write(shown, "fail") == " one two one two"
    asked = shown.run("window.asked")
    assert (asked["prompt"], asked["max_tokens"]) == ("fail one two", 126)
    assert read(shown, "speed") == "4 tokens, 12.3 a second"


@pytest.mark.slow
def test_an_error_that_comes_back_keeps_what_is_written(shown):
    assert write(shown, "broken", ends="It cannot go on: of a byte") == " one two"
    assert write(shown, "again") == " one two"


@pytest.mark.slow
def test_nothing_is_started_while_it_writes(shown):
    type_in(shown, "prompt", "forever")
    click(shown, "write")
    assert shown.run("document.getElementById('write').disabled")
    click(shown, "stop")
    wait_for(lambda: read(shown, "state") == "Stopped")
    assert shown.run("document.getElementById('stop').disabled")


@pytest.mark.slow
def test_every_control_has_a_name(shown):
    nodes = shown.call("Accessibility.getFullAXTree")["nodes"]
    kinds = {"textbox", "spinbutton", "button", "status", "region"}
    names = [(node["role"]["value"], node["name"]["value"]) for node in nodes
             if not node["ignored"] and node["role"]["value"] in kinds]
    assert sorted(names) == [
        ("button", "Stop"), ("button", "Write"), ("region", "Text"), ("spinbutton", "Most tokens"),
        ("spinbutton", "Temperature"), ("status", ""), ("textbox", "Prompt")]


@pytest.mark.slow
def test_nothing_sticks_out_of_a_small_screen(browser, tmp_path):
    page = write_page(tmp_path / "page", name="small-rope-s1-" + 9 * "long", prompt=99 * "word")
    with serve_here(page) as address:
        open_page(browser, address, "Ready", width=400)
        write(browser, 99 * "word")
        assert browser.run("document.documentElement.scrollWidth") == 400


@pytest.mark.slow
def test_a_page_that_no_server_serves_says_so(browser, tmp_path):
    page = write_page(tmp_path / "page") / "index.html"
    open_page(browser, page.as_uri(), "It cannot start: a browser reads no model from a file. Run "
              "python -m http.server in this folder")


@pytest.mark.slow
def test_a_model_that_is_gone_is_named(browser, tmp_path):
    with serve_here(write_page(tmp_path / "page", model="gone.gguf")) as address:
        open_page(browser, address, "It cannot start: gone.gguf is missing (404)")


@pytest.mark.slow
def test_a_wllama_that_cannot_be_loaded_is_named(browser, tmp_path):
    with serve_here(write_page(tmp_path / "page", module="gone.js")) as address:
        open_page(browser, address, "It cannot start: wllama cannot be loaded from this folder: ")
        assert f"{address}/gone.js" in read(browser, "state")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wasm", "compat_wasm"])
def test_a_webassembly_that_is_gone_is_named(name, browser, tmp_path):
    with serve_here(write_page(tmp_path / "page", **{name: "gone.wasm"})) as address:
        open_page(browser, address, f"It cannot start: {address}/gone.wasm is missing (404)")


@pytest.mark.slow
def test_a_model_that_is_cut_is_refused(browser, tmp_path):
    with serve_here(write_page(tmp_path / "page", bytes=9)) as address:
        open_page(browser, address, "It cannot start: model.gguf has 5 bytes instead of 9: copy")


# --- the page, with wllama ------------------------------------------------------------------------


def with_wllama(run: RunDir, folder: Path) -> Path:
    """The export of a run, with the wllama that npm brings."""
    require_program("npm")
    out = export_to("web", run.path, folder)
    if not (out / "wllama").exists():
        skip_without("wllama")
    return out


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> RunDir:
    """A run that writes noise: also bytes that are no character."""
    return random_run(tmp_path_factory.mktemp("noise") / "runs", "noise")


@pytest.fixture(scope="module")
def noise_page(noise, browser, tmp_path_factory) -> Iterator[str]:
    """The address of its page."""
    with serve(with_wllama(noise, tmp_path_factory.mktemp("web") / "out")) as address:
        yield address


def text_run(folder: Path, **sizes: int) -> RunDir:
    """A run whose greedy text has characters only: neither special tokens, nor the byte 0, nor
    bytes from 0x80 on."""
    run = random_run(folder / "runs", "text", tie_embeddings=False, **sizes)
    weights = run.checkpoints.load_weights()
    weights["tok_embeddings.weight"][2] = weights["tok_embeddings.weight"][40]  # EOS, in a prompt
    first_byte = 3  # behind <unk>, <s> and </s>
    output = weights["output.weight"]
    output[: first_byte + 1] = 0  # never the largest logit
    output[first_byte + 0x80 : first_byte + 0x100] = 0
    save_weights(run, "best", weights)
    return run


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> RunDir:
    """A run of `text_run`."""
    return text_run(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def text_page(text, browser, tmp_path_factory) -> Iterator[str]:
    """The address of its page."""
    with serve_here(with_wllama(text, tmp_path_factory.mktemp("web") / "out")) as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [PROMPT, "naïve 🙂", ""])
def test_the_page_writes_what_generate_py_writes(prompt, browser, text, text_page):
    expected = load(text, device="cpu").generate(prompt, temperature=0, max_new_tokens=60)
    assert len(set(expected)) > 10
    open_page(browser, text_page, "Ready")
    assert write(browser, prompt, temperature=0, max_tokens=60) == expected
    assert re.fullmatch(r"60 tokens, \d+\.\d a second", read(browser, "speed"))


@pytest.mark.slow
def test_a_model_of_q8_0_writes(browser, tmp_path):
    run = text_run(tmp_path, **ROWS_OF_32)
    with serve_here(with_wllama(run, tmp_path / "out")) as address:
        open_page(browser, address, "Ready")
        assert "q8_0" in read(browser, "about")
        assert write(browser, "def", temperature=0, max_tokens=20)


@pytest.mark.slow
def test_bytes_that_are_no_character_are_not_written(browser, noise, noise_page):
    assert "�" in load(noise, device="cpu").generate(PROMPT, temperature=0, max_new_tokens=60)
    open_page(browser, noise_page, "Ready")
    text = write(browser, PROMPT, temperature=0, max_tokens=60)
    assert len(text) > 20
    assert "�" not in text


@pytest.mark.slow
def test_a_text_cut_inside_a_character_ends_before_it(browser, noise_page):
    open_page(browser, noise_page, "Ready")
    texts = [write(browser, PROMPT, temperature=0, max_tokens=n) for n in range(1, 31)]
    assert all(texts[-1].startswith(text) for text in texts)
    assert len(set(texts)) < 30  # some tokens make no character yet


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_is_an_error(browser, noise_page):
    open_page(browser, noise_page, "Ready")
    write(browser, 200 * "def ", ends="It cannot go on: request (400 tokens) exceeds")


@pytest.mark.slow
def test_stop_stops_wllama(browser, noise_page):
    open_page(browser, noise_page, "Ready")
    type_in(browser, "temperature", 0)
    type_in(browser, "max-tokens", 120)
    click(browser, "write")
    wait_for(lambda: read(browser, "written") != "")
    click(browser, "stop")
    wait_for(lambda: read(browser, "state") in ("Stopped", "Done"))
    assert write(browser, PROMPT, temperature=0, max_tokens=5)


@pytest.mark.slow
def test_an_old_browser_has_a_wllama_of_its_own(browser, noise_page):
    browser.call("Page.enable")
    script = browser.call("Page.addScriptToEvaluateOnNewDocument",
                          source="delete WebAssembly.Suspending")
    open_page(browser, noise_page, "Ready")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    loaded = browser.run("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert f"{noise_page}/wllama-compat/wasm/wllama.js" in loaded
    assert write(browser, PROMPT, temperature=0, max_tokens=5)
