"""Rows are addressed by seed, step and rank; an epoch and an evaluation visit everything once."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data.dataset import TokenDataset
from data.sources import DataConfig
from errors import UserError

N, SEQ_LEN = 1000, 7  # 142 windows, and 6 tokens left over


def write_ids(path, ids, dtype="uint16"):
    np.array(ids, dtype=dtype).tofile(path)
    return path


@pytest.fixture
def path(tmp_path):
    """Each id is its own position, so that a row says where it comes from."""
    return write_ids(tmp_path / "train.bin", range(N))


def dataset(path, **options):
    defaults = {"dtype": "uint16", "vocab_size": N, "seq_len": SEQ_LEN, "seed": 5}
    return TokenDataset(path, **{**defaults, **options})


def epoch_rows(path, epoch, **options):
    """The x of every row of one epoch."""
    n_windows = dataset(path, **options).n_windows
    return dataset(path, batch_size=n_windows, **options).batch(epoch)[0]


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize("n", [8, 20, 21, N])
def test_an_epoch_has_no_token_twice(tmp_path, n, epoch):
    path = write_ids(tmp_path / "x.bin", range(n))
    assert dataset(path).n_windows == n // SEQ_LEN
    seen = epoch_rows(path, epoch).flatten()
    assert len(seen) == len(seen.unique()) == n // SEQ_LEN * SEQ_LEN > n - SEQ_LEN


def test_epochs_and_seeds_differ_in_order_and_in_cuts(path):
    orders = [epoch_rows(path, epoch)[:, 0].tolist() for epoch in range(12)]
    assert len(set(map(tuple, [*orders, epoch_rows(path, 0, seed=6)[:, 0].tolist()]))) == 13
    assert all(order != sorted(order) for order in orders)
    phases = {min(order) for order in orders}
    assert len(phases) > 3 and max(phases) < SEQ_LEN


@pytest.mark.parametrize("batch_size", [1, 5, 12])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_share_the_batch_of_one_process(path, batch_size, size):
    """Every row once, in an order that does not depend on the size of the batch, also across the
    end of an epoch and in unequal parts. Targets are the next tokens."""
    rows = torch.cat([dataset(path, batch_size=50).batch(step)[0] for step in range(7)])
    ranks = [dataset(path, batch_size=batch_size, rank=rank, world_size=size)
             for rank in range(size)]
    for step in range(2 * ranks[0].n_windows // batch_size + 3):
        parts = [rank.batch(step) for rank in ranks]
        first = step * batch_size
        assert torch.equal(torch.cat([x for x, _ in parts]), rows[first : first + batch_size])
        for x, y in parts:
            assert x.dtype == y.dtype == torch.int64 and x.is_contiguous() and y.is_contiguous()
            assert torch.equal(y, (x + 1) % N)  # the end of the file is followed by its beginning
            assert torch.equal(x[:, 1:], y[:, :-1])
        assert {len(x) for x, _ in parts} <= {batch_size // size, -(-batch_size // size)}


def test_batches_do_not_depend_on_what_was_asked_before(path):
    data = dataset(path, batch_size=50)  # three steps an epoch
    forward = [data.batch(step)[0] for step in range(40)]
    for step in reversed(range(40)):
        list(data.windows(3))
        assert torch.equal(data.batch(step)[0], forward[step])


@pytest.mark.parametrize("n", [8, 9, 71, N])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 4, 1000])
def test_windows_score_every_token_but_the_first_once(tmp_path, n, size, batch_size):
    """And every rank has equally many batches, of which a last one may be empty of targets."""
    path = write_ids(tmp_path / "val.bin", range(n))
    batches = [list(dataset(path, rank=rank, world_size=size).windows(batch_size))
               for rank in range(size)]
    assert len({len(of_rank) for of_rank in batches}) == 1
    for x, y in (batch for of_rank in batches for batch in of_rank):
        assert x.shape == y.shape and x.shape[1] == SEQ_LEN and 0 < len(x) <= batch_size
        assert len(y) == 1 or (y[:, 0] != -100).all()  # only the last row of a rank may be empty
    inputs, targets = (torch.cat([batch[i].flatten() for of_rank in batches for batch in of_rank])
                       for i in (0, 1))
    scored = targets != -100
    assert targets[scored].tolist() == list(range(1, n))
    assert inputs[scored].tolist() == list(range(n - 1))
    assert (inputs[~scored] == 0).all() and (~scored).sum() < (1 + size) * SEQ_LEN


def test_large_ids_survive(tmp_path):
    ids = [2**16 + 5, 7, 2**31, 2**32 - 1, 0, 1, 2, 3, 4]
    path = write_ids(tmp_path / "x.bin", ids, "uint32")
    x, y = next(dataset(path, dtype="uint32", vocab_size=2**32).windows(2))
    assert x.flatten()[:8].tolist() == ids[:-1] and y.flatten()[:8].tolist() == ids[1:]


def test_an_id_outside_the_vocabulary_is_refused(path):
    """It would be an IndexError of the embedding, or worse on a GPU."""
    data = dataset(path, vocab_size=N - 1, batch_size=N // SEQ_LEN)
    for rows in (data.windows(4), map(data.batch, range(9))):
        with pytest.raises(UserError, match=f"train.bin is damaged: it has the id {N - 1}"):
            list(rows)


def test_a_text_too_short_for_one_row_names_numbers_and_knobs(tmp_path):
    path = write_ids(tmp_path / "x.bin", range(SEQ_LEN))
    with pytest.raises(UserError, match="7 tokens.*needs 8.*--data.seq_len"):
        dataset(path)
    assert dataset(write_ids(path, range(SEQ_LEN + 1))).n_windows == 1


def test_a_file_replaced_under_its_name_does_not_change_a_running_training(path, tmp_path):
    data = dataset(path, batch_size=9)
    before = data.batch(3)[0]
    write_ids(tmp_path / "new.bin", [1] * N).replace(path)
    assert torch.equal(data.batch(3)[0], before)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_no_map_of_the_file_stays(path):
    """It would grow by every page that it ever touched, up to the whole file."""
    data = dataset(path)
    held = [data.batch(0), *data.windows(3)]
    assert held and str(path) not in Path("/proc/self/maps").read_text(encoding="utf-8")


# The configuration


def test_files_replace_any_source():
    """And its options. That they replace the standard library is seen in test_sources.py."""
    hub = {"hub": "a/b", "hub_config": "c", "hub_split": "d", "hub_revision": "e"}
    config = DataConfig(source="hub", **hub, files=["a.txt"], column="story")
    config.check()
    assert config == DataConfig(source="files", files=["a.txt"], column="story")
