#!/usr/bin/env bash
# In DuckDB and pandas, a hash of an id and a seed splits the rows alike with every seed.
#
# Versions: duckdb 2.0.1, pandas 3.1.1; beside them polars 2.1.0, whose `hash` takes a seed.
# Guess, written down after a first look at duckdb: `hash(id, seed) % 8` deals the rows to eight
#     folds, with other companions for each seed, as it would if the seed were part of the text.
# Seen: for a number of folds that is a power of two, the folds are the same sets of rows for every
#     seed; only their numbers change. With 10 folds, rows of one fold for one seed are in five of
#     the ten for another; a split of 1 % in 100 has either 0 or 4 % of its rows in common with
#     that of another seed. The lowest bits of a combined hash depend on the lowest bits of each
#     part and on nothing else (multiply and xor). So it is with pandas' hash of two columns. With 5
#     or 7 folds there is no such effect, and none in polars.
# For gyre: it splits by SHA-256 of the text. In SQL, hash a text of both, hash(id || '-' || seed).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile duckdb==2.0.1 pandas==3.1.1 polars==2.1.0 \
    numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import duckdb
import numpy as np
import pandas as pd
import polars as pl

N_ROWS = 100_000
N_SEEDS = 4
names = pl.Series([f"doc-{number}" for number in range(N_ROWS)])


def hash_duckdb(seed):
    table = f"(select 'doc-' || i as id, {seed} as seed from range({N_ROWS}) rows(i))"
    return duckdb.sql(f"select hash(id, seed) as h from {table}").fetchnumpy()["h"]


def hash_duckdb_text(seed):
    query = f"select hash('doc-' || i || '-' || {seed}) as h from range({N_ROWS}) rows(i)"
    return duckdb.sql(query).fetchnumpy()["h"]


def hash_pandas(seed):
    frame = pd.DataFrame({"id": names.to_list(), "seed": seed})
    return pd.util.hash_pandas_object(frame, index=False).to_numpy()


def hash_polars(seed):
    return names.hash(seed=seed).to_numpy()


def share_of_pairs(first, second, n_folds):
    """Return which share of the pairs of a fold of `first` and one of `second` have rows."""
    pairs = np.unique(first % n_folds * n_folds + second % n_folds)
    return len(pairs) / n_folds**2


salted = {function.__name__: [function(seed) for seed in range(N_SEEDS)]
          for function in [hash_duckdb, hash_pandas, hash_polars, hash_duckdb_text]}
for name, hashes in salted.items():
    for n_folds, linked in {2: 1 / 2, 8: 1 / 8, 10: 1 / 2, 100: 1 / 4, 5: 1, 7: 1}.items():
        sizes = np.bincount(hashes[0] % n_folds)
        shares = {share_of_pairs(hashes[0], other, n_folds) for other in hashes[1:]}
        print(f"{name}, {n_folds} folds of {sizes.min()} to {sizes.max()} rows: of the pairs of a "
              f"fold of seed 0 and one of another seed, {shares} have rows in common")
        assert sizes.min() > 0.8 * N_ROWS / n_folds
        independent = name in ["hash_polars", "hash_duckdb_text"]
        if independent:
            assert min(shares) > 0.99
        else:
            assert shares == {linked}

first = salted["hash_duckdb"][0] % 100 == 0
for seed in range(1, N_SEEDS):
    second = salted["hash_duckdb"][seed] % 100 == 0
    common = (first & second).sum() / first.sum()
    print(f"duckdb, hash(id, seed) % 100 = 0, seeds 0 and {seed}: {common:.3f} in common")
    assert common == 0 or common > 0.025
PYTHON
