"""Resolve a command line of train.py: start a run, resume one, or branch off from one.

The names of what decides about a configuration (gyre/options.py says what a layer is):

    given       the options of the command line
    requested   the options of configuration files, with `given` over them
    saved       what the config.yaml of an older run has, or a section of it
"""

import math
import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from data.dataset import Prepared, label_text
from data.search import resolve_files
from data.sources import (
    AUTO,
    SOURCES,
    TEXT_NAMES,
    TEXT_OPTIONS,
    TEXT_ORIGIN,
    DataConfig,
    Files,
    check_use,
)
from data.tokenizer import open_tokenizer
from errors import UserError
from files import sha256
from gyre.compute import Compute
from gyre.fit import Draft, Layer, make_draft
from gyre.optim import OptimConfig
from gyre.options import Config, changed_options, flatten, make_config, named_source
from gyre.parser import Parser
from gyre.rundir import RunDir, clean_name
from gyre.wandb_log import LogConfig
from gyre.yaml_files import read_config, read_yaml, require_encoding
from model.config import CHANGEABLE, scale_length
from model.encodings import POSITIONS

LONGEST_TEXT = 24  # characters of a text's label in the name of a run
MODEL_SIZES = ("model.dim", "model.n_layers", "model.hidden_dim")


@dataclass
class StartOptions:
    """What training starts from; without any of these, a new model."""

    resume: str | None = None
    """Go on with this run, exactly where it was. auto: resume the run of --name if there is one,
    else start it, so that the same command can be repeated."""
    init_from: str | None = None
    """Start from the weights of this run, with its model and tokenizer."""
    branch_from: str | None = None
    """Go on from a checkpoint of this run as a new run, with other --train.steps, --optim.schedule
    or learning rates."""
    at: int | None = None
    """Branch off from the checkpoint of this step, which train.keep has kept. Default: the last
    one."""


@dataclass(frozen=True)
class Start:
    """What a command line of train.py asks for, and what the training starts from."""

    draft: Draft
    """The configuration, in which some numbers may still have to be chosen."""
    default_name: str
    """Name of a new run if the configuration has none. A number is added if it is taken."""
    argv: list[str]
    """The command line itself."""
    given: Layer
    """The options of Config that the command line names."""
    resumed: RunDir | None = None
    """The run to go on with. None: a new run."""
    trunk: RunDir | None = None
    """The run that a new one branches off from. None: no branch."""
    step: int | None = None
    """The step of the trunk at which the branch begins. None: the last one saved."""
    resumes_auto: bool = False
    """Whether the command says --resume auto. Then a finished run is no error."""
    ignores_file: bool = False
    """Whether the command has a --config, and resumes a run, which has its own."""
    has_default_sizes: bool = False
    """Whether the model of a new run has the default sizes because nothing names others: the
    command has no --config, no --init-from and no option of MODEL_SIZES."""
    ignored: Sequence[str] = ()
    """Options of the model in configuration files that differ from those of the run of --init-from,
    and are ignored."""

    @property
    def config(self) -> Config:
        """The configuration that is asked for. A number that is still to be chosen (`draft.fitted`)
        is at its limit, see gyre/fit.py."""
        return self.draft.config

    @property
    def source(self) -> RunDir | None:
        """The run whose checkpoint is restored: the resumed one, or the trunk of a branch. None:
        the weights are new, or those of --init-from."""
        return self.resumed if self.resumed is not None else self.trunk

    @property
    def is_fine_tuning(self) -> bool:
        """Whether the command starts a new run from the weights of --init-from."""
        return self.source is None and self.config.init_from is not None

    def has_checkpoint(self) -> bool:
        """Return whether the training starts from a checkpoint, by what is on the disk now.

        A new branch always does: `load_checkpoint` refuses a trunk without one. A run that was
        killed before its first save has none, and starts at step 0 when resumed. Raises UserError
        for a branch that was killed so early: it could not start where it should.
        """
        if self.trunk is not None:
            return True
        if self.resumed is None:
            return False
        if self.resumed.checkpoints.can_resume:
            return True
        if self.resumed.is_branch:
            advice = "remove it, and branch again"
            kept = self.resumed.checkpoints.kept_steps()
            if kept:
                advice = (f"go on by --branch-from {shlex.quote(str(self.resumed.path))} "
                          f"--at {kept[-1]}")
            raise UserError(f"{self.resumed.path} is a branch that was killed before its first "
                            f"checkpoint: {advice}")
        return False


@dataclass(frozen=True)
class Resolved:
    """A `Start` with all that its command line leaves open. Made by `gyre.auto.resolve_auto`."""

    start: Start
    config: Config
    """The final configuration."""
    data: Prepared
    """The text."""
    compute: Compute
    """How the training computes."""
    chosen: dict[str, int | float] = field(default_factory=dict)
    """What was chosen for the text and for train.minutes: numbers by dotted name."""
    timed: bool = False
    """Whether train.steps was chosen for train.minutes."""
    expected_seconds: float | None = None
    """About how long the steps of the training take: estimated, or 60 times train.minutes. None
    where it is not known."""


def resolve(argv: list[str], doc: str) -> Start:
    """Return what `argv` asks for; `doc` is the description for --help.

    Raises UserError for a configuration that is invalid, or that contradicts the run's.
    """
    options = Parser(doc, StartOptions, config=True).parse_args(argv)
    given = options.given
    if "" in (options.resume, options.init_from, options.branch_from):
        # Perhaps a variable of the shell is not set. Do not start a new run then.
        raise UserError("--resume, --init-from and --branch-from take a run, and no empty name")
    check_together(options, argv)
    if options.branch_from:
        return branch(RunDir.open(options.branch_from), argv, given, options.at)
    if options.resume and options.resume != AUTO:
        return resume(RunDir.open(options.resume), argv, given)
    config_layers = [read_yaml(name) for name in options.config]
    if options.resume == AUTO:
        path = find_named(config_layers, given)
        if path.exists():
            start = resume(RunDir.open(path), argv, given, resumes_auto=True)
            check_origin(start, options.init_from)
            return replace(start, ignores_file=bool(options.config))
    base = None
    if options.init_from:
        base = RunDir.open(options.init_from)
        draft = draft_from_run(base, config_layers, given)
    else:
        draft = make_draft(*config_layers, given)
    stem = make_stem(options, draft.config, base)
    # Only options of the command line: those in a configuration file may be for its own text.
    if "data.column" in given or "data.separator" in given:
        check_use(draft.config.data)
    start = begin(draft, argv, stem, given, resumes_auto=options.resume == AUTO)
    chooses_sizes = any(name in given for name in MODEL_SIZES)
    has_default_sizes = not (options.config or options.init_from or chooses_sizes)
    ignored = list_ignored(config_layers, draft.config, given) if base is not None else []
    return replace(start, has_default_sizes=has_default_sizes, ignored=ignored)


def make_stem(options: Namespace, config: Config, base: RunDir | None) -> str:
    """Return the name of a new run that is not given one, without its seed.

    `base` is the run of --init-from. An example is small-book-tuned-rope. Its parts are the
    configuration file, the text if the command line names it, "tuned" with --init-from, and the
    encoding. With --init-from and no configuration file, the first part is the name of the run to
    start from. That name usually has the encoding, so it is not added.
    """
    parts = ["gyre"]
    if options.config:
        parts = [Path(options.config[0]).stem]
    elif base is not None:
        parts = [base.path.name]
    if any(name in options.given for name in TEXT_NAMES):
        label = label_text(config.data)[:LONGEST_TEXT]
        parts.append(label.rstrip("-."))
    if base is not None:
        parts.append("tuned")
    if options.config or base is None:
        parts.append(config.model.position)
    return "-".join(parts)


def check_together(options: Namespace, argv: list[str]) -> None:
    """Raise UserError for options that do not go together."""
    if not argv:
        raise UserError("say what to train, such as --config small.yaml, or what to --resume "
                        "(--help lists all options)")
    if options.resume and options.branch_from:
        raise UserError("--resume goes on with a run and --branch-from starts another one: leave "
                        "one of them out")
    if options.at is not None and not options.branch_from:
        raise UserError(f"--at {options.at} has no effect without --branch-from")
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        check_restarted(options)
    # Not for --resume auto, whose run need not exist yet.
    has_run = options.branch_from or options.resume not in (None, AUTO)
    if has_run and (options.init_from or options.config):
        raise UserError("--resume and --branch-from take the weights and the configuration of "
                        "their run: leave out --init-from and --config")


def check_restarted(options: Namespace) -> None:
    """Raise UserError for a command that starts another run each time torchrun restarts it."""
    if options.branch_from:
        raise UserError("torchrun has restarted this command, which would start another branch: to "
                        "go on with the one that it has made, say --resume auto --name and its "
                        "name, without --branch-from")
    if not options.resume:
        raise UserError("torchrun has restarted this command, which would start another run: say "
                        "--resume auto")


def merge_layers(config_layers: list[Layer], given: Layer) -> Layer:
    """Return what is requested: the options of configuration files, and of the command line."""
    requested: Layer = {}
    for layer in (*config_layers, given):
        source = named_source(layer)
        if source in SOURCES:  # the text replaces another one
            for name in TEXT_OPTIONS:
                if name.removeprefix("data.") not in SOURCES[source].options:
                    requested.pop(name, None)
        requested |= layer
    return requested


def merge_for_text(config_layers: list[Layer], given: Layer) -> Layer:
    """Return what is requested, without a file whose text is replaced by a later one: its column,
    separator and share are for its own text."""
    layers = [*config_layers, given]
    naming = [layer for layer in layers if named_source(layer) is not None]
    requested: Layer = {}
    for layer in layers:
        if named_source(layer) is None or layer is naming[-1]:
            requested |= layer
    return requested


def find_named(config_layers: list[Layer], given: Layer) -> Path:
    """Return the folder of the run that --resume auto starts or goes on with.

    Raises UserError without a name.
    """
    requested = merge_layers(config_layers, given)
    if requested.get("name") is None:
        raise UserError("--resume auto needs a --name: that of the run to start or go on with")
    return Path(requested.get("log.runs", LogConfig.runs), requested["name"]).expanduser()


def check_origin(start: Start, init_from: str | None) -> None:
    """Raise UserError if --resume auto names other weights than the run was started from.

    Only their paths are compared, because the weights may be gone by now.
    """
    if init_from is None:
        return
    assert start.resumed is not None, "only a run that exists has an origin"
    saved = start.config.init_from
    if saved is None or not may_be_same_run(saved, init_from):
        origin = "a new model" if saved is None else saved
        raise UserError(f"{start.resumed.path.name} was started from {origin}, and not from "
                        f"{init_from}: choose another --name, or leave out --init-from")


def may_be_same_run(saved: str, init_from: str) -> bool:
    """Return whether `init_from` may name the run whose path an earlier --init-from has `saved`.

    If the saved path is relative, the working directory of that time is not known. Then any path
    that ends like it counts as the same.
    """
    ending = tuple(part for part in Path(saved).parts if part != "..")
    for named in (Path(init_from), Path("runs", init_from)):
        if named.resolve() == Path(saved).resolve():
            return True
        parts = Path(os.path.abspath(named)).parts
        if not Path(saved).is_absolute() and parts[-len(ending) :] == ending:
            return True
    return False


def begin(
    draft: Draft, argv: list[str], stem: str, given: Layer, resumes_auto: bool = False
) -> Start:
    """Return how to start a new run of this configuration, by the command line `argv`.

    Without a name it is called by its `stem` and its seed.
    """
    check_rates(draft.config.optim)
    default_name = f"{clean_name(stem)}-s{draft.config.seed}"
    return Start(draft, default_name, argv, given, resumes_auto=resumes_auto)


def check_rates(optim: OptimConfig) -> None:
    """Raise UserError if a training would change no weight."""
    trains_by_muon = optim.optimizer == "muon" and optim.muon_lr not in (None, 0)
    if optim.lr == 0 and not trains_by_muon:
        raise UserError("optim.lr 0 would change no weight: choose a learning rate above 0")


def resume(run: RunDir, argv: list[str], given: Layer, resumes_auto: bool = False) -> Start:
    """Return how to go on with a run, with what the command line changes of it.

    With `resumes_auto` (--resume auto), the command line is the one that started the run. Its
    --config, --data.tokenizer, --train.minutes and every option whose value is `auto` are ignored,
    because the run has saved what they stood for.
    """
    saved = read_trained(run)
    if resumes_auto:
        given = {option: value for option, value in given.items()
                 if option not in ("data.tokenizer", "train.minutes") and value != AUTO}
    refuse_minutes(given, "--resume")
    check_warmup(run, saved, given)
    config = make_config(asdict(saved), given)
    fixed = ["name", "optim"]
    if not resumes_auto:  # which has found the run by its log.runs
        fixed.append("log.runs")
    check_unchanged(run, saved, config, "--resume", also_fixed=fixed)
    return Start(Draft.of_final(config), run.path.name, argv, given, resumed=run,
                 resumes_auto=resumes_auto)


def check_warmup(run: RunDir, saved: Config, given: Layer) -> None:
    """Raise UserError if --train.steps would end a resumed or branched run in its warm-up."""
    if "optim.warmup_steps" in given:  # `Config.check` compares two numbers of one command
        return
    steps = given.get("train.steps")
    warmup_steps = saved.optim.warmup_steps
    if steps is None or steps == AUTO:  # `make_config` refuses `auto`
        return
    if steps < warmup_steps:
        raise UserError(f"--train.steps {steps} would end in the warm-up of {run.path} "
                        f"(optim.warmup_steps {warmup_steps}): give more than those, and than it "
                        "has taken")


def branch(run: RunDir, argv: list[str], given: Layer, step: int | None) -> Start:
    """Return how to start a new run from a checkpoint of another one."""
    saved = read_trained(run)
    # The config.yaml of the branch is written here, and its paths have to lead to the text from
    # here. A run that is resumed keeps its own config.yaml, so `resume` need not do this.
    saved = replace(saved, data=run.resolve_data_paths(saved.data))
    refuse_minutes(given, "--branch-from")
    check_warmup(run, saved, given)
    reset: Layer = {"name": None, "train.keep": []}
    if given.get("optim.schedule", saved.optim.schedule) != saved.optim.schedule:
        reset["optim.cooldown"] = None  # it belongs to the other schedule
    config = make_config(asdict(saved), reset, given)
    check_unchanged(run, saved, config, "--branch-from")
    check_rates(config.optim)
    default_name = clean_name(f"{run.path.name}-branch")  # a moved folder may have any name
    return Start(Draft.of_final(config), default_name, argv, given, trunk=run, step=step)


def draft_from_run(run: RunDir, config_layers: list[Layer], given: Layer) -> Draft:
    """Return the configuration of a new run that starts from the weights of another one.

    The model and the tokenizer are those of the other run. The command line can change the options
    of the model in CHANGEABLE, on which no weight depends; raises UserError for others. A
    configuration file can change the dropout; its other options of the model are ignored.

    The text is that of the other run unless another one is given. If that one shares a file with
    it, the same share is held out. Otherwise the new run could validate on what the other run was
    trained on. Of an unrelated text more may be held out, so that a short one is not validated on a
    few tokens only.
    """
    saved = read_config(run.path / "config.yaml")
    require_encoding(run.path, saved)
    check_given(run, saved, given)
    requested = merge_layers(config_layers, given)
    inherited: Layer = {"train.steps": AUTO, "optim.warmup_steps": AUTO,
                        "train.eval_interval": AUTO}
    model = inherit_model(saved, requested, given)
    from_run: Layer = {"init_from": str(run.path), "model": model}
    pinned: Layer = {"data.tokenizer": str(run.path),
                     "data.vocab_size": open_tokenizer(run.path).vocab_size}
    if not run.is_imported:
        text = run.resolve_text_paths(saved.data)
        shares = shares_text(run, text, requested)
        if not any(name in requested for name in TEXT_ORIGIN):
            check_text(run, text)
        inherited["data"] = inherit_data(text, requested, shares)
        asked = merge_for_text(config_layers, given)
        if shares:
            from_run["data"] = keep_division(text, asked)
        if shares and "data.val_fraction" not in asked:
            pinned["data.val_fraction"] = saved.data.val_fraction
    else:
        context = given.get("model.max_positions", model["max_positions"])
        inherited["data.seq_len"] = min(DataConfig.seq_len, context)
    # Each layer overrides those before it. A configuration file can change what is inherited, but
    # not what is in `from_run`. The command line can also change that, and what `check_given`
    # allows of the model. Nothing is over `pinned`.
    return make_draft(inherited, *map(leave_out_model, config_layers), from_run, given, pinned)


def list_ignored(config_layers: list[Layer], config: Config, given: Layer) -> list[str]:
    """Return the options of the model in configuration files that --init-from has ignored.

    These are the ones whose values `config` does not have. Options that are `given`, on the command
    line, would have replaced those of the files anyway.
    """
    model = dict(flatten({"model": asdict(config.model)}))
    requested = merge_layers(config_layers, {})
    return [option for option, value in requested.items()
            if option.startswith("model.") and option not in given and model.get(option) != value]


def leave_out_model(layer: Layer) -> Layer:
    """Return a layer without the options of the model."""
    return {option: value for option, value in layer.items() if not option.startswith("model.")}


def keep_division(saved: DataConfig, asked: Layer) -> dict[str, Any]:
    """Return how the text of another run was read and divided into documents, where the new run
    shares that text and nothing else is asked of it (`merge_for_text`).

    A file that names a text of its own, as small.yaml does, removes what is inherited of it.
    """
    source = "files" if asked.get("data.files") else saved.source
    return {option: getattr(saved, option) for option in SOURCES[source].options
            if f"data.{option}" not in (*asked, *TEXT_ORIGIN)}


def inherit_model(saved: Config, requested: Layer, given: Layer) -> dict[str, Any]:
    """Return the model of another run as a new run takes it over."""
    model = asdict(saved.model)
    # The other model options of a file are ignored: they may be meant for models of other shapes.
    if "model.dropout" in requested:
        model["dropout"] = requested["model.dropout"]
    if saved.model.rope_scaling is None and "model.rope_scaling.type" in given:
        # Without scaling, the trained length is data.seq_len.
        model["rope_scaling"] = {"original_positions": saved.data.seq_len}
    model["max_positions"] = max(saved.model.max_positions, find_reach(model, given))
    return model


def find_reach(model: Layer, given: Layer) -> int:
    """Return the length of text that the scaling of a model is meant for; 0 without a scaling.

    Fields of the scaling that are in `given` replace those of the model. Also returns 0 if there is
    no factor, or one that is not finite, which is refused later.
    """
    scaling = dict(model["rope_scaling"] or {})
    for option, value in given.items():
        if option.startswith("model.rope_scaling."):
            scaling[option.removeprefix("model.rope_scaling.")] = value
    factor = scaling.get("factor", 0)
    length = scaling.get("original_positions", 0)
    return scale_length(factor, length) if math.isfinite(factor * length) else 0


def check_given(run: RunDir, saved: Config, given: Layer) -> None:
    """Raise UserError for an option that --init-from always takes from its run."""
    fixed = ["data.tokenizer", "data.vocab_size"]
    if not POSITIONS[saved.model.position].extrapolates:  # a weight has a row for each position
        fixed.append("model.max_positions")
    for option in given:
        section, _, name = option.partition(".")
        is_shape = section == "model" and name.partition(".")[0] not in CHANGEABLE
        if is_shape or option in fixed:
            raise UserError(f"--{option} cannot be given with --init-from: it is that of "
                            f"{run.path}")


def check_text(run: RunDir, data: DataConfig) -> None:
    """Raise UserError if the files of a run's text, which a new run takes over, are not there."""
    try:
        if data.source == "files":
            Files(data).find()
    except UserError as error:
        raise UserError(f"--init-from takes the text of {run.path} too, and {error}: name another "
                        "one with --data.files") from error


def shares_text(run: RunDir, saved: DataConfig, requested: Layer) -> bool:
    """Return whether the text that is requested is that of a run, or shares a file with it.

    A copy of a file counts as the file.
    """
    files = requested.get("data.files")
    if files is not None:
        paths = resolve_files(files)
        saved_files = saved.files or []
        if paths & resolve_files(saved_files):
            return True
        if has_copy(paths, saved_files, run.manifest.get("text", {})):
            return True
    saved_options = {f"data.{name}": value for name, value in asdict(saved).items()}
    # Without an option that names a text, the saved text is meant.
    return all(requested.get(name, saved_options[name]) == saved_options[name]
               for name in TEXT_ORIGIN)


def has_copy(paths: set[str], names: list[str], text: dict[str, Any]) -> bool:
    """Return whether one of the files at `paths` is a copy of a file of a run's text.

    `names` lead to the files of that text, as far as they are still there. `text` has the size and
    the hash of the whole text. They identify it even if it was a single file that is gone.
    """
    sizes = measure_files(paths)
    original_sizes = measure_files(resolve_files(names))
    # A copy has the size of its original. Do not read other files, which may be large.
    common_sizes = set(sizes.values()) & set(original_sizes.values())
    known_hashes = {sha256(path) for path, size in original_sizes.items() if size in common_sizes}
    known_hashes.add(text.get("sha256", ""))
    possible_sizes = {*common_sizes, text.get("bytes")}
    hashes = {sha256(path) for path, size in sizes.items() if size in possible_sizes}
    return not hashes.isdisjoint(known_hashes)


def measure_files(paths: set[str]) -> dict[Path, int]:
    """Return the size of each file that is there and not empty."""
    sizes = {Path(path): os.path.getsize(path) for path in paths if os.path.isfile(path)}
    return {path: size for path, size in sizes.items() if size > 0}


def inherit_data(saved: DataConfig, requested: Layer, shares: bool) -> dict[str, Any]:
    """Return the settings of another run's text that a new run takes over.

    If the new run `shares` a text with the other one, all settings are taken over. Its files are
    then read and divided into documents as before, because another division would hold out some of
    what the other run was trained on. If not, the settings that name the text or say how it is read
    are left out.
    """
    data = asdict(saved)
    files = requested.get("data.files")
    if shares:
        if files is not None and resolve_files(files) == resolve_files(saved.files or []):
            # The same files by other names. `make_draft` would take new names for another text.
            data["files"] = files
        return data
    for name in TEXT_OPTIONS:
        del data[name.removeprefix("data.")]
    return data


def refuse_minutes(given: Layer, option: str) -> None:
    """Raise UserError for train.minutes, which measures the first steps of a new run."""
    if given.get("train.minutes") is not None:
        raise UserError(f"train.minutes is for a new run: with {option} give --train.steps")


def read_trained(run: RunDir) -> Config:
    """Return the configuration that a run was started with. UserError if it was imported."""
    if run.is_imported:
        raise UserError(f"{run.path} was imported, not trained: start from it with --init-from")
    config = read_config(run.path / "config.yaml")
    require_encoding(run.path, config)
    return config


def check_unchanged(
    run: RunDir, saved: Config, config: Config, option: str, also_fixed: Sequence[str] = ()
) -> None:
    """Raise UserError if an option that must match the checkpoints of a run has changed.

    `option` is --resume or --branch-from, and `also_fixed` has further options and sections that
    cannot change with it. data.prepared can, because it is only a place.
    """
    config = replace(config, data=replace(config.data, prepared=saved.data.prepared))
    needed = ("seed", "init_from", "model", "data", "optim.optimizer", "train.batch_size")
    changed = changed_options(asdict(saved), asdict(config))
    for part in (*needed, *also_fixed):
        # `part` is an option, or a section with options.
        names = [name for name in changed if name == part or name.startswith(f"{part}.")]
        if not names:
            continue
        advice = "leave it out, or start a new run for that"
        if part == "optim":
            advice = (f"say --branch-from {shlex.quote(str(run.path))} instead, which starts "
                      "another run where it stands")
        raise UserError(f"{', '.join(names)} of {run.path} cannot change on {option}: {advice}")
