"""List the runs, and measure models on their own text or on any: loss, bits per byte, and more.

    python evaluate.py                                       # lists the runs
    python evaluate.py small-rope-s1 small-sinusoidal-s1     # compares them
    python evaluate.py small-rope-s1 HF_FOLDER --data.files book.txt    # any models on any text
    python evaluate.py small-rope-s1 --stride 32             # with more context for every token
    python evaluate.py runs/small-* --plot loss.png
    python evaluate.py zh ar --data.files book.txt --plot loss.png      # runs of different texts
    python evaluate.py small-rope-s1 --lengths --json all.json

A run is named by its folder, or by its name if that is in runs/. With --data.files, a folder of
Hugging Face's or Meta's, or a GGUF, is read where it lies, as export.py --to run reads it.

Loss is the mean over all tokens but the first, in nats; perplexity is its exponential. Documents
follow one another, each after an EOS, which is predicted as any token and counts in both. Bits per
byte are those of the text alone, without EOS, over its bytes: they compare models with different
tokenizers. A tokenizer that begins texts with BOS has it before every document, not before every
window. Like EOS, it does not count in bits per byte.

T is the length of the rows that a run was trained on (data.seq_len), or --context for a model from
elsewhere. gyre/measure.py explains what --json writes; null is a loss without a meaning, such as
that of a learned position past the end of its table.
"""

import interrupts  # first: from here on, Ctrl-C shows no traceback

import argparse
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from errors import Range, UserError, find_script, importing, report_errors, require_modules, say

with importing(__name__):
    import torch
    from torch import Tensor
    from tqdm import tqdm

    from data.dataset import label_text
    from data.search import resolve_files
    from data.sources import SOURCES, DataConfig, check_use
    from data.text import Text, open_text
    from data.tokenizer import open_tokenizer
    from files import (
        refuse_folder,
        refuse_other_file,
        refuse_stdout,
        refuse_unwritable,
        write_file,
        write_json,
    )
    from gyre import measure
    from gyre.compute import keep_freed_memory, resolve_device
    from gyre.load import WeightOptions, load
    from gyre.options import OPTIONS, Config
    from gyre.parser import JoinColumns, Parser
    from gyre.rundir import RunDir, is_foreign
    from gyre.yaml_files import read_config, require_encoding
    from model.config import SIZE
    from model.encodings import POSITIONS
    from model.transformer import Transformer

MANY_RUNS = 100  # so many take two seconds to read, and get a progress bar
MOST_IMPORTED_CONTEXT = 2048  # tokens in a window of an imported model, unless --context is given
LARGE_LOSS = 14  # the perplexity of a larger one, above a million, is shown in three digits


@dataclass
class Options:
    """What to measure, and where to write it."""

    context: Annotated[int | None, SIZE] = None
    """Tokens of the windows that a text is read in. Unset: data.seq_len; of a model that was not
    trained here the length that its configuration names, up to 2048."""
    stride: Annotated[int | None, Range(ge=1)] = None
    """By how many tokens windows move on. Behind the first window, a token then has between context
    - stride + 1 and context tokens before it. Smaller is slower and usually gives lower losses.
    Unset: the whole window."""
    lengths: bool = False
    """Measure losses by length of the context too, and what a shift of all positions costs."""
    plot: str | None = None
    """Draw the losses that the runs had in training into this .png, .pdf or .svg file. These are on
    the validation text of each run, with --data.files too."""
    json: str | None = None
    """Write all that was measured into this file."""


@dataclass
class Command(Options, WeightOptions):
    """A command line, checked."""

    runs: list[str] = field(default_factory=list)
    """The models to measure; none: all runs are listed."""
    given: dict[str, Any] = field(default_factory=dict)
    """The options of the text to read, by dotted name."""

    @property
    def max_spans(self) -> int | None:
        """In how many spans --lengths measures (gyre/measure.py); None without it."""
        return measure.MAX_SPANS if self.lengths else None


@dataclass
class Model:
    """What the command line names: a run, a folder of Hugging Face's or Meta's, or a GGUF."""

    path: Path
    run: RunDir
    config: Config
    weights: Iterable[tuple[str, Tensor]] | None = None
    """Those of a folder, which are read one at a time. None: those of the run's checkpoints."""

    def seq_len(self, context: int) -> int:
        """Return T, for windows of `context` tokens."""
        return context if self.run.is_imported else self.config.data.seq_len


def main(argv: list[str] | None = None) -> None:
    """List the runs, or measure models and print tables once all is measured."""
    with report_errors(), ExitStack() as held:
        command = parse(sys.argv[1:] if argv is None else argv)
        if command.plot:  # before anything is measured
            require_modules("matplotlib", advice="leave --plot out")
        if not command.runs:
            print(list_runs(open_all_runs()))
            return
        if resolve_device(command.device).type == "cpu":
            keep_freed_memory()
        models = open_models(command.runs, command.given, held)
        check_weights(models, command.checkpoint)
        drawn = choose_drawn(models, command.plot) if command.plot else []
        if command.given:
            results = measure_on_text(models, command)
        else:
            results = measure_on_own_text(models, command)
        measure.add_differences(results)
        print(tabulate_losses(results))
        if command.lengths:
            print(f"\n{tabulate_lengths(results)}")
        if command.json:
            write_json(Path(command.json), {"runs": results})
        if command.plot:
            from ablation.plots import draw_losses  # slow to import

            figure = draw_losses(drawn, in_bits=not have_same_data(drawn),
                                 on_own_text=bool(command.given), format=plot_format(command.plot))
            write_file(Path(command.plot), figure)
            say(f"plot    {command.plot}")


def parse(argv: list[str]) -> Command:
    """Return a command line. UserError, before any work, where it is wrong."""
    parser = Parser(__doc__, WeightOptions, Options)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="A run, or with --data.files a "
                        "folder of Hugging Face's or Meta's, or a GGUF. Without one: list all "
                        "runs.")
    group = parser.add_argument_group("The text to read, if it is not the validation text of the "
                                      "runs")
    for name in SOURCES["files"].options:
        option = OPTIONS[f"data.{name}"]
        action: Any = "store"
        if name == "column":
            action = JoinColumns
        if name == "files":  # given twice, it adds up
            option = replace(option, hint=list[str])
            action = "extend"
        parser.add_option(group, f"--data.{name}", option, action=action,
                          dest=f"given.data.{name}", default=argparse.SUPPRESS)
    command = Command(**vars(parser.parse_args(argv)))
    if argv and not command.runs:
        raise UserError("name the runs to measure: python evaluate.py lists them")
    for name in command.given:
        if "data.files" not in command.given:
            raise UserError(f"--{name} has no effect without --data.files")
    check_outputs(command.json, command.plot)
    return command


def check_outputs(json: str | None, plot: str | None) -> None:
    """Raise UserError for files that cannot be written, or that are something else."""
    refuse_stdout("--json", json)
    refuse_folder("--json", json)
    refuse_folder("--plot", plot)
    refuse_unwritable("--json", json)
    refuse_unwritable("--plot", plot)
    refuse_other_file("--json", json, rb'{\s*"runs"')
    refuse_other_file("--plot", plot, rb"\x89PNG|%PDF|<\?xml")
    if plot:
        plot_format(plot)
        if json and Path(plot).resolve() == Path(json).resolve():
            raise UserError(f"--json and --plot would both be written to {plot}: give each a file "
                            "of its own")


def plot_format(path: str) -> str:
    """Return the format of a figure by the suffix of its file. UserError for other formats."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--plot {path} must end in .png, .pdf or .svg")
    return suffix[1:]


# --- which models ---------------------------------------------------------------------------------


def open_all_runs(folder: str = "runs") -> list[Model]:
    """Return the runs in a folder, the oldest first. UserError if there is none."""
    paths = []
    for path in sorted(Path(folder).glob("[!.]*")):
        is_study = (path / "plan.json").exists()
        if path.name != "wandb" and not is_study:
            paths.append(path)
    opened = map(open_run_or_skip, paths)
    models = [model for model in opened if model is not None]
    if not models:
        advice = "make one with `python train.py --config small.yaml`"
        in_studies = sorted(file.parent for file in Path(folder).glob("[!.]*/[!.]*/run.json"))
        if in_studies:
            advice = f"give a run of a study by its path, such as {in_studies[0]}, or {advice}"
        raise UserError(f"no run in {Path(folder).absolute()}/ yet: {advice}")
    return sorted(models, key=lambda model: model.run.created)


def open_run(path: Path) -> Model:
    """Return a run, by its path or its name in runs/. UserError if it cannot be read."""
    run = RunDir.open(path)
    return Model(run.path, run, read_config(run.path / "config.yaml"))


def open_run_or_skip(path: Path, advice: str = "") -> Model | None:
    """Return a run. None, with a message, for a path that is none or cannot be read.

    advice: added to the message if the path is a file
    """
    try:
        return open_run(path)
    except UserError as error:
        hint = advice if path.is_file() else ""
        say(f"skipped: {error}{hint}")
        return None


def open_models(names: list[str], given: dict[str, Any], held: ExitStack) -> list[Model]:
    """Return what these words of the command line name, in this order.

    Folders are open until `held` is closed. Raises UserError for what is not there, for a model
    without a text, and for a file among the runs if there is a text.
    """
    models = []
    for name in names:
        path = Path(name)
        if is_foreign(path):
            if not given:
                raise UserError(f"{name} is no run, and has no validation text of its own: give a "
                                "text with --data.files")
            models.append(open_foreign(path, held))
        elif given and path.is_file():
            raise UserError(f"{name} is a file, and no run: give every file with --data.files, and "
                            "quote its globs")
        elif path.exists():  # it may come of a glob, so what is no run is skipped
            model = open_run_or_skip(path, "; a text to measure comes after --data.files")
            if model is not None:
                models.append(model)
        else:  # a name, which has to be that of a run
            models.append(open_run(path))
    if not models:
        raise UserError("none of these is a run")
    return models


def check_weights(models: list[Model], checkpoint: measure.Checkpoint) -> None:
    """Raise UserError for a run without this checkpoint: it may have been started just now.

    Prints a note for each run whose last weights stand in for the best ones.
    """
    runs = [model.run for model in models if model.weights is None]
    for run in runs:
        run.checkpoints.find(checkpoint)
    if checkpoint == "best":
        for run in runs:
            run.note_missing_best()


def open_foreign(path: Path, held: ExitStack) -> Model:
    """Return the model in a folder of Hugging Face's or Meta's, or in a GGUF, which is open until
    `held` is closed."""
    from formats.folders import open_model  # slow to import, and not needed for runs

    run, weights = held.enter_context(open_model(path))
    return Model(path, run, read_config(run.path / "config.yaml"), weights)


def choose_drawn(models: list[Model], plot: str) -> list[RunDir]:
    """Return the runs that --plot draws: those that were trained here.

    The others are named in a note. UserError if none was trained here.
    """
    drawn = []
    left_out = []
    for model in models:
        if model.run.is_imported:
            left_out.append(str(model.path))
        else:
            drawn.append(model.run)
    if not drawn:
        raise UserError("--plot draws what runs measured in training, and none of these was "
                        "trained here: leave it out")
    if left_out:
        say(f"note: not trained here, and left out of {plot}: {', '.join(left_out)}")
    return drawn


def have_same_data(runs: list[RunDir]) -> bool:
    """Return whether runs validated on the same tokens in training, so that their losses compare.
    """
    first = measure.identify_data(runs[0].manifest, runs[0].path)
    return all(measure.identify_data(run.manifest, run.path) == first for run in runs)


def check_comparable(runs: list[RunDir]) -> None:
    """Raise UserError if losses in one table would be about different texts.

    Tokenizers may differ, because bits per byte compare all the same.
    """
    reasons = {"text": "were trained on different texts",
               "split": "hold out different parts of the text, by data.val_fraction, "
                        "data.second_val or the documents that it is divided into"}
    first = measure.identify_data(runs[0].manifest, runs[0].path)
    for run in runs[1:]:
        data = measure.identify_data(run.manifest, run.path)
        for part, reason in reasons.items():
            if data[part] != first[part]:
                raise UserError(f"{runs[0].path} and {run.path} {reason}: evaluate each alone, or "
                                "give a text for both with --data.files")


# --- measuring ------------------------------------------------------------------------------------


def measure_on_own_text(models: list[Model], command: Command) -> list[dict[str, Any]]:
    """Return what the command asks to measure of each run, on the validation text of all.

    UserError, before anything is measured, for runs that do not compare, or whose text is gone.
    """
    check_comparable([model.run for model in models])
    for model in models:
        seq_len = model.config.data.seq_len
        context = seq_len if command.context is None else command.context
        check_windows(model, context, command.stride)
        measure.open_prepared_of_run(model.run, model.config)  # refuses a text that has changed
        if command.lengths:
            measure.check_length(model.run.manifest["val"]["tokens"], seq_len,
                                 "the text held out for validation")
    results = []
    for model in show_progress(models):
        results.append(measure.measure(
            model.run, command.checkpoint, command.max_spans, command.device,
            context=command.context, stride=command.stride))
    return results


def measure_on_text(models: list[Model], command: Command) -> list[dict[str, Any]]:
    """Return what the command asks to measure of each model, on the text that it names."""
    if command.checkpoint != "best" and all(model.weights is not None for model in models):
        raise UserError("--checkpoint has no effect on folders that are no runs")
    contexts = []
    for model in models:
        context = choose_context(model) if command.context is None else command.context
        check_windows(model, context, command.stride)
        contexts.append(context)
    fields = {name.removeprefix("data."): value for name, value in command.given.items()}
    source = DataConfig(**fields)
    source.check()
    check_use(source)
    with open_text(source) as text:
        documents = text.counts["documents"]
        size = text.counts["bytes"]
        unit = "byte" if size == 1 else "bytes"
        noun = "document" if documents == 1 else "documents"
        say(f"text    {size:,} {unit} in {documents:,} {noun}")
        note_training_text(models, source, text)
        if command.lengths:  # before anything is measured
            for model, context in zip(models, contexts, strict=True):
                check_text_length(model, context, text)
        results = []
        for model, context in show_progress(list(zip(models, contexts, strict=True))):
            results.append(measure_model(model, context, text, command))
        return results


def note_training_text(models: list[Model], source: DataConfig, text: Text) -> None:
    """Print a note that names the models which were trained on the text, or on a file of it."""
    paths = resolve_files(source.files or [])
    trained = []
    for model in models:
        data = model.run.resolve_text_paths(model.config.data)
        has_same_text = model.run.manifest.get("text", {}).get("sha256") == text.counts["sha256"]
        if has_same_text or paths & resolve_files(data.files or []):
            trained.append(str(model.path))
    if trained:
        say(f"note: trained on this text, or on a file of it: {', '.join(trained)}. Such a loss "
            "says little of other text; without --data.files, what a run held out is measured")


def check_text_length(model: Model, context: int, text: Text) -> None:
    """Raise UserError if a text is too short for --lengths in the tokens of a model."""
    # They are encoded again when the model is measured: those of all models may not fit in memory.
    tokens = len(text.encode(open_tokenizer(model.run.path)).ids)
    measure.check_length(tokens, model.seq_len(context))


def measure_model(model: Model, context: int, text: Text, command: Command) -> dict[str, Any]:
    """Return what the command asks to measure of one model on a text."""
    if model.weights is None:
        trained = load(model.run, command.checkpoint, command.device)
    else:
        with tqdm(model.weights, f"loading {model.path.name}", unit="tensor", delay=2,
                  leave=False) as weights:
            trained = load(model.run, device=command.device, weights=weights)
    return measure.measure_text(
        trained, model.path, command.checkpoint, text, seq_len=model.seq_len(context),
        context=context, stride=command.stride, max_spans=command.max_spans)


def choose_context(model: Model) -> int:
    """Return the default length of a window in tokens: that of a training row.

    Of a model from elsewhere this length is not known. A note says which one is taken instead.
    """
    length = model.config.data.seq_len
    if not model.run.is_imported:
        return length
    # The import has set seq_len to the number of positions of the model, without its scaling.
    context = min(length, MOST_IMPORTED_CONTEXT)
    reason = "as its configuration says, which need not be the length of its training rows"
    if context < length:
        reason = f"and its positions reach to {length:,}"
    say(f"note: {model.path} is read in windows of {context:,} tokens, {reason}: --context takes "
        "another length")
    return context


def check_windows(model: Model, context: int, stride: int | None) -> None:
    """Raise UserError for windows that leave tokens out, or that the model cannot read."""
    if stride is not None and stride > context:
        raise UserError(f"--stride {stride} is longer than the windows of {context} tokens in "
                        f"which {model.path} is read, and would leave tokens out: give a smaller "
                        "one, or a longer --context")
    require_encoding(model.path, model.config)
    positions = model.config.model.max_positions
    if context > positions and not POSITIONS[model.config.model.position].extrapolates:
        raise UserError(f"--context {context} is longer than the table of positions of "
                        f"{model.path}, which has {positions}: give a shorter one")


def show_progress(models: list[Any]) -> Iterable[Any]:
    """Return the models, with a progress bar over them if there are several.

    While one model is measured, it shows a bar of its own.
    """
    return tqdm(models, "measuring", unit="model", dynamic_ncols=True, leave=False,
                disable=len(models) == 1)


# --- the list of runs -----------------------------------------------------------------------------


def list_runs(models: list[Model]) -> str:
    """Return one row per run: what it is, how far it is, and its best validation so far."""
    header = ["run", "text", "encoding", "parameters", "lr", "steps", "bits/byte", "loss", "when"]
    rows = []
    tokenizers = set()
    for model in tqdm(models, "reading", unit="run", leave=False, disable=len(models) < MANY_RUNS):
        points = model.run.metrics()
        best = best_validation(model.run, points)
        if best:
            tokenizers.add(measure.hash_tokenizer(model.run.record["sha256"]))
        rows.append(run_row(model, points, best))
    notes = []
    bits_column = header.index("bits/byte")
    if any("*" in row[bits_column] for row in rows):
        notes.append("*: of an older version, which counted EOS between documents in: python "
                     f"{find_script('evaluate.py')} RUN measures it again")
    if len(tokenizers) > 1:  # no column for numbers that do not compare
        notes.append("losses in nats per token are left out, because the tokenizers differ: "
                     f"python {find_script('evaluate.py')} RUN prints them")
        loss_column = header.index("loss")
        for row in (header, *rows):
            del row[loss_column]
    return "\n".join([align([header, *rows], left=3), *notes])


def run_row(model: Model, points: list[dict[str, Any]], best: dict[str, Any]) -> list[str]:
    """Return the row of a run, whose metrics and best validation are given."""
    run = model.run
    config = model.config
    bits = show(best.get("val/bpb"))
    if best:
        bits += " " if "val/eos_share" in best else "*"
    rate = "-" if model.run.is_imported else f"{config.optim.lr:g}"
    return [run.path.name, label_run_text(run, config), config.model.position,
            count_parameters(config), rate, show_steps(run, config, points), bits,
            show(best.get("val/loss")), f"{run.created:%Y-%m-%d %H:%M}"]


def best_validation(run: RunDir, points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the point of the validation whose weights are `best`; {} if there was none.

    It is not the lowest loss of all points: a branch inherits losses of other weights.
    """
    best = run.checkpoints.saved_step("best")
    if best == 0:  # there is none; the validation of step 0, of a fine-tuning's base, is not meant
        return {}
    for point in points:
        if point["step"] == best and "val/loss" in point:
            return point
    return {}


def count_parameters(config: Config) -> str:
    """Return the number of parameters; - for an encoding that this version does not have."""
    with suppress(UserError), torch.device("meta"):  # without memory
        return f"{sum(p.numel() for p in Transformer(config.model).parameters()):,}"
    return "-"


def label_run_text(run: RunDir, config: Config) -> str:
    """Return the label of the text of a run, and the start of its hash; - if it was imported."""
    digest = run.manifest.get("text", {}).get("sha256")
    if digest is None:
        return "-"
    return f"{label_text(run.resolve_text_paths(config.data))} {digest[:6]}"


def show_steps(run: RunDir, config: Config, points: list[dict[str, Any]]) -> str:
    """Return how many steps a run has taken, and of how many.

    A resume may have changed the number of all steps. It is in the checkpoints that were saved
    since then. Before the first of them, the old number is shown until the run has passed it, and
    from then on a ?.
    """
    if not points:
        return "-"
    taken = points[-1]["step"]
    planned = config.train.steps
    for name in ("previous", "last"):  # `last`, where there is one, overrides `previous`
        with suppress(UserError):  # there is no such checkpoint, or it is damaged
            training = run.checkpoints.load_training(run.path / name)
            planned = training.get("steps", planned)
    if taken > planned:
        return f"{taken} of ?"
    return f"{taken} of {planned}"


# --- tables ---------------------------------------------------------------------------------------


def have_same_ids(results: list[dict[str, Any]]) -> bool:
    """Return whether all results are about the same tokens, so that their losses compare."""
    return len({result["ids_sha256"] for result in results}) == 1


def tabulate_losses(results: list[dict[str, Any]]) -> str:
    """Return one row per record of gyre/measure.py, with what `add_differences` has added."""
    same_ids = have_same_ids(results)
    names = name_models(results)
    rows = [["run", "context", "loss", "perplexity", "bits/byte", "difference"]]
    for name, result in zip(names, results, strict=True):
        rows.append(losses_row(name, result, results[0], same_ids))
    notes = ["context: tokens before a predicted token, least and most; in the first window from 1",
             "bits/byte: of the text alone, without EOS between documents",
             "±: standard error, of other text of this kind, and not of another seed"]
    if len(results) == 1:
        return "\n".join([align([row[:-1] for row in rows]), *notes])
    measured = "loss" if same_ids else "bits/byte"
    notes.append(f"difference: {measured} minus that of {names[0]} on the same text")
    if not same_ids:
        notes.append(f"*: of other tokens than those of {names[0]}: only bits/byte compare")
    dtypes = list_dtypes(names, results)
    if dtypes:
        notes.append(f"trained in other dtypes, which moves a loss, too: {dtypes}")
    if have_other_contexts(results):
        notes.append("contexts differ. Up to the length of training more context usually lowers "
                     "a loss: --context and --stride make them equal")
    return "\n".join([align(rows), *notes])


def list_dtypes(names: list[str], results: list[dict[str, Any]]) -> str:
    """Return in which dtype each run was trained, if they differ; else ""."""
    dtypes = {}
    for name, result in zip(names, results, strict=True):
        train = result["config"].get("train")  # an imported model says nothing of its training
        if train is not None:
            dtypes[name] = train["dtype"]
    if len({*dtypes.values()}) < 2:
        return ""
    return ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())


def have_other_contexts(results: list[dict[str, Any]]) -> bool:
    """Return whether the contexts of records differ by their windows.

    Where each window holds the whole text, its contexts differ only because tokenizers cut the text
    into different numbers of tokens.
    """
    contexts = {(result["least_context"], result["most_context"]) for result in results}
    hold_all = all(result["most_context"] == result["text_tokens"] - 1 for result in results)
    return len(contexts) > 1 and not hold_all


def losses_row(
    name: str, result: dict[str, Any], first: dict[str, Any], same_ids: bool
) -> list[str]:
    """Return the row of a record, with its difference from the first one.

    same_ids: all records are about the same tokens. Else differences are those of bits per byte,
    and a star marks losses about other tokens than the first one's.
    """
    prefix = ""
    mark = ""
    if not same_ids:
        prefix = "bpb_"
        mark = " " if result["ids_sha256"] == first["ids_sha256"] else "*"
    difference = ""
    if result is not first:
        difference = show_error(result[f"{prefix}difference"], result[f"{prefix}difference_se"],
                                "+z.4f")
    perplexity = show(result["perplexity"], ".2f" if result["loss"] < LARGE_LOSS else ".3g")
    return [name, f"{result['least_context']} to {result['most_context']}",
            show_error(result["loss"], result["se"]) + mark, perplexity + mark,
            show_error(result["bpb"], result["bpb_se"]), difference]


def tabulate_lengths(results: list[dict[str, Any]]) -> str:
    """Return one row per record of gyre/measure.py."""
    contexts = []
    for multiple in measure.CONTEXTS:
        length = measure.in_lengths(multiple)
        contexts += [f"cut {length}", f"slide {length}"]
    rows = [["run", "encoding", "parameters", "tokens", "T", *contexts, "shift T"]]
    for name, result in zip(name_models(results), results, strict=True):
        tokens = f"{result['tokens']:,}" if "tokens" in result else "-"
        losses = [show(row["loss"]) for row in result["context"]]
        rows.append([name, result["config"]["model"]["position"], f"{result['parameters']:,}",
                     tokens, str(result["seq_len"]), *losses, show(result["shift"], "+z.4f")])
    notes = ["cut, slide: of a part of the text, whose targets have 8T tokens or more before them, "
             "so cut T is not the loss above",
             "cut C: loss in windows of C tokens end to end; a target sees from 1 to C tokens",
             "slide C: loss of the same targets in windows that move on by T/2; a target sees more "
             "than C - T/2",
             "shift T: change of the loss when every position moves on by T",
             "-: undefined for this encoding"]
    return "\n".join([align(rows), *notes])


def name_models(results: list[dict[str, Any]]) -> list[str]:
    """Return a name for each result: that of its folder, or its whole path if names repeat."""
    paths = [result["run"] for result in results]
    names = [Path(path).name for path in paths]
    if "" in names or len({*names}) < len(names):
        return paths
    return names


def show(value: float | None, form: str = ".4f") -> str:
    """Return a number, with four digits unless `form` is given, or - for None."""
    return "-" if value is None else format(value, form)


def show_error(value: float, error: float | None, form: str = ".4f") -> str:
    """Return a number with its standard error."""
    return f"{value:{form}} ± {show(error)}"


def align(rows: list[list[str]], left: int = 1) -> str:
    """Return columns of equal width: the first `left` to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            cells.append(cell.ljust(width) if at < left else cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    main()
