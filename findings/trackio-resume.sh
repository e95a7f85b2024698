#!/usr/bin/env bash
# A run of trackio that is resumed loses the hyperparameters of its first part.
#
# Versions: trackio 0.43.0.
# Guess before the run: a run that is resumed keeps its configuration, as it keeps its metrics, and
#     as it does in wandb, whose calls trackio takes; what is given at the resumption is added.
# Seen: the metrics are kept and the steps go on, but the stored configuration is replaced by what
#     is given at the resumption. Without any, the learning rate and the seed are gone; with one
#     more key, that key is all that is left. So a script that goes on, or one that only adds a
#     test score to a finished run, leaves a run that nobody can repeat. Nothing is said.
# For gyre: it writes its options to a file, and logs to wandb. There, give all of it each time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile trackio==0.43.0
cd "$folder"
export TRACKIO_DIR="$folder/trackio" HF_HUB_OFFLINE=1
env/bin/python - <<'PYTHON'
import trackio
from trackio.sqlite_storage import SQLiteStorage

CONFIG = {"lr": 0.001, "seed": 3}


def log(name, value, **options):
    """Log one value to a run, and return the configuration and the values that are stored."""
    trackio.init(project="study", name=name, embed=False, **options)
    trackio.log({"loss": value})
    trackio.finish()
    config = SQLiteStorage.get_run_config("study", name)
    config = {key: value for key, value in config.items() if not key.startswith("_")}
    return config, [(row["step"], row["loss"]) for row in SQLiteStorage.get_logs("study", name)]


for options, expected in [({}, {}), ({"config": {"test": True}}, {"test": True}),
                          ({"config": CONFIG}, CONFIG)]:
    name = f"run-{len(options.get('config', []))}-{len(expected)}"
    first, _ = log(name, 2.5, config=CONFIG)
    second, losses = log(name, 2.0, resume="must", **options)
    print(f"first {first}, resumed with {options}: {second}, steps and losses {losses}")
    assert first == CONFIG and losses == [(0, 2.5), (1, 2.0)]
    assert second == expected
PYTHON
