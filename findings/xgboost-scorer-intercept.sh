#!/usr/bin/env bash
# Scored by xgboost-scorer, models of today's XGBoost lose their intercept: 1.7 % becomes 29 %.
#
# Versions: xgboost-scorer 0.0.4 (Node.js 20), xgboost-cpu 3.2.0, numpy 2.4.6.
# Guess before the run: a model that was trained and dumped as the documentation says has the
#     probabilities of XGBoost. (The missing intercept was suspected; others know it of dumps.)
# Seen: since version 2, XGBoost estimates an intercept from the labels, and the dump does not have
#     it: each log odds is off by the same amount. With 1.7 % positives, the mean probability is
#     0.29 for 0.017, and 267 of 2,000 samples are above 0.5, where none is. The same model with
#     `base_score=0.5`, which was the default of old versions, is scored right. Nothing is said.
# For gyre: it has no trees. There, train with `base_score=0.5`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit xgboost-scorer@0.0.4
python3 -m venv env
env/bin/pip install --quiet --no-compile numpy==2.4.6 scipy==1.17.1
env/bin/pip install --quiet --no-compile --no-deps xgboost-cpu==3.2.0
cat > score.mjs <<'JAVASCRIPT'
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";

const Scorer = createRequire(import.meta.url)("xgboost-scorer").default;
const scorer = await Scorer.create(process.argv[2]);
const rows = JSON.parse(readFileSync("rows.json"));
writeFileSync("scores.json", JSON.stringify(await scorer.score(rows)));
JAVASCRIPT
env/bin/python -W ignore - <<'PYTHON'
import json
import subprocess

import numpy as np
import xgboost

NAMES = ["a", "b", "c"]


def log_odds(probabilities):
    return np.log(probabilities / (1 - probabilities))


generator = np.random.default_rng(0)
x = generator.normal(size=(2000, 3)).astype(np.float32)
y = (x[:, 0] + generator.normal(size=2000) > 3).astype(int)
with open("rows.json", "w") as file:
    json.dump([dict(zip(NAMES, row, strict=True)) for row in x.tolist()], file)
data = xgboost.DMatrix(x, y, feature_names=NAMES)
for options in [{}, {"base_score": 0.5}]:
    model = xgboost.train({"objective": "binary:logistic", "max_depth": 3, "eta": 0.1, "nthread": 1,
                           **options}, data, num_boost_round=20)
    model.dump_model("model.json", dump_format="json")
    subprocess.run(["node", "score.mjs", "model.json"], check=True)
    with open("scores.json") as file:
        scores = np.array(json.load(file))
    due = model.predict(data).astype(float)
    shift = log_odds(scores) - log_odds(due)
    print(f"{options}: positives {y.mean():.3f}; mean probability {due.mean():.3f} by XGBoost, "
          f"{scores.mean():.3f} by the scorer; above 0.5: {(due > 0.5).sum()} and "
          f"{(scores > 0.5).sum()}; log odds off by {np.median(shift):.3f}")
    intercept = 0 if options else log_odds(y.mean())
    assert (abs(shift + intercept) < 1e-3).mean() > 0.9
    assert (scores.mean() > 0.2) == (not options)
PYTHON
