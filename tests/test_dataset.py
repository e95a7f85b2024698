"""Rows are addressed by seed, step and rank; an epoch and an evaluation visit everything once."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from data.dataset import TokenDataset
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
    assert len(seen) == len(seen.unique()) == n // SEQ_LEN * SEQ_LEN


def test_epochs_differ_in_order(path):
    orders = {tuple(epoch_rows(path, epoch)[:, 0].tolist()) for epoch in range(12)}
    assert len(orders) == 12
    in_order = tuple(sorted(epoch_rows(path, 0)[:, 0].tolist()))
    assert in_order not in orders


def test_an_epoch_of_one_seed_is_no_epoch_of_another(path):
    """Studies have seeds that follow each other."""
    orders = {tuple(epoch_rows(path, epoch, seed=seed)[:, 0].tolist())
              for seed, epoch in itertools.product(range(4), range(4))}
    assert len(orders) == 16


def test_epochs_differ_in_their_cuts(path):
    phases = {epoch_rows(path, epoch)[:, 0].min().item() for epoch in range(12)}
    assert len(phases) > 3
    assert max(phases) < SEQ_LEN


@pytest.mark.parametrize("batch_size", [1, 5, 12])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_share_the_rows_of_one_process(path, batch_size, size):
    """Each row once, in an order that does not depend on the size of the batch, also across the
    end of an epoch and in unequal parts."""
    n_windows = N // SEQ_LEN  # of an epoch
    # 350 rows: two epochs, and more than three batches of 12.
    rows = torch.cat([dataset(path, batch_size=50).batch(step)[0] for step in range(7)])
    ranks = [dataset(path, batch_size=batch_size, rank=rank, world_size=size)
             for rank in range(size)]
    for step in range(2 * n_windows // batch_size + 3):
        batch = torch.cat([rank.batch(step)[0] for rank in ranks])
        first = step * batch_size
        assert torch.equal(batch, rows[first : first + batch_size])


@pytest.mark.parametrize("batch_size, size, shares", [
    (1, 3, [0, 0, 1]), (5, 2, [2, 3]), (5, 3, [1, 2, 2]), (12, 3, [4, 4, 4])])
def test_shares_differ_by_at_most_one_row(path, batch_size, size, shares):
    ranks = [dataset(path, batch_size=batch_size, rank=rank, world_size=size)
             for rank in range(size)]
    assert [len(rank.batch(3)[0]) for rank in ranks] == shares


def test_targets_are_the_next_tokens(path):
    """The end of the file is followed by its beginning."""
    x, y = dataset(path, batch_size=12 * 142).batch(0)  # 12 epochs
    assert torch.equal(y, (x + 1) % N)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert (y < x).any()


def test_a_batch_is_contiguous_and_of_int64(path):
    for part in dataset(path, batch_size=5).batch(0):
        assert part.dtype == torch.int64
        assert part.is_contiguous()


def test_batches_do_not_depend_on_what_was_asked_before(path):
    data = dataset(path, batch_size=50)  # three steps an epoch
    forward = [data.batch(step)[0] for step in range(40)]
    for step in reversed(range(40)):
        list(data.windows(3))
        assert torch.equal(data.batch(step)[0], forward[step])


# Sizes of a file, of a world and of a batch.
SIZES = pytest.mark.parametrize("n, size, batch_size", [
    (n, size, batch_size) for n in (8, 9, 71, N) for size in (1, 3) for batch_size in (1, 4, 1000)])


def all_windows(folder, n, size, batch_size):
    """For each rank, the batches of windows over a file of n ids that are their own positions."""
    path = write_ids(folder / "val.bin", range(n))
    ranks = [dataset(path, rank=rank, world_size=size) for rank in range(size)]
    return [list(rank.windows(batch_size)) for rank in ranks]


@SIZES
def test_windows_score_every_token_but_the_first_once(tmp_path, n, size, batch_size):
    inputs: list[int] = []
    targets: list[int] = []
    for batches in all_windows(tmp_path, n, size, batch_size):
        for x, y in batches:
            inputs += x[y != -100].tolist()
            targets += y[y != -100].tolist()
    assert targets == list(range(1, n))
    assert inputs == list(range(n - 1))


@SIZES
def test_windows_are_filled_up_with_zeros(tmp_path, n, size, batch_size):
    for batches in all_windows(tmp_path, n, size, batch_size):
        for x, y in batches:
            assert (x[y == -100] == 0).all()


@SIZES
def test_windows_are_filled_up_by_no_more_than_needed(tmp_path, n, size, batch_size):
    """Filled are only the end of the short last row, and at most one whole row on each rank."""
    n_filled = 0
    for batches in all_windows(tmp_path, n, size, batch_size):
        for _, y in batches:
            n_filled += (y == -100).sum()
    assert n_filled < (1 + size) * SEQ_LEN


@SIZES
def test_every_rank_has_equally_many_batches(tmp_path, n, size, batch_size):
    ranks = all_windows(tmp_path, n, size, batch_size)
    assert len({len(batches) for batches in ranks}) == 1


@SIZES
def test_batches_of_windows_are_no_larger_than_asked(tmp_path, n, size, batch_size):
    for batches in all_windows(tmp_path, n, size, batch_size):
        for x, y in batches:
            assert x.shape == y.shape
            assert x.shape[1] == SEQ_LEN
            assert 0 < len(x) <= batch_size


@SIZES
def test_a_row_without_targets_stands_alone(tmp_path, n, size, batch_size):
    """In place of a batch that a rank has less than others, it yields a row without targets."""
    for batches in all_windows(tmp_path, n, size, batch_size):
        for _, y in batches:
            assert len(y) == 1 or (y[:, 0] != -100).all()


def test_large_ids_survive(tmp_path):
    ids = [2**16 + 5, 7, 2**31, 2**32 - 1, 0, 1, 2, 3, 4]
    path = write_ids(tmp_path / "x.bin", ids, "uint32")
    x, y = next(dataset(path, dtype="uint32", vocab_size=2**32).windows(2))
    assert x.flatten()[:8].tolist() == ids[:-1] and y.flatten()[:8].tolist() == ids[1:]


def test_an_id_outside_the_vocabulary_is_refused(path):
    """It would be an IndexError of the embedding, or worse on a GPU."""
    data = dataset(path, vocab_size=N - 1, batch_size=N // SEQ_LEN)
    damage = f"train.bin is damaged: it has the id {N - 1}"
    with pytest.raises(UserError, match=damage):
        list(data.windows(4))
    with pytest.raises(UserError, match=damage):
        for epoch in range(9):  # most of their cuts leave the last id out
            data.batch(epoch)


@pytest.mark.parametrize("name, n_tokens, message", [
    ("train", 2, "the train split has 2 tokens, and needs 8 or more: give more text, or a smaller "
                 "--data.seq_len"),
    ("train", 1, "the train split has 1 tokens, and needs 8 or more: give more text"),
    ("train", 0, "the train split has 0 tokens, and needs 8 or more: give more text"),
    ("val", 1, "the val split has 1 tokens, and needs 2 or more: give more text, or a larger "
               "--data.val_fraction (equal documents are in the same split)")])
def test_a_short_split_is_refused_with_advice(tmp_path, name, n_tokens, message):
    with pytest.raises(UserError) as caught:
        dataset(write_ids(tmp_path / f"{name}.bin", [1] * n_tokens))
    assert str(caught.value) == message


def test_one_row_needs_one_token_more(tmp_path):
    assert dataset(write_ids(tmp_path / "x.bin", range(8))).n_windows == 1
    with pytest.raises(UserError, match="7 tokens, and needs 8"):
        dataset(write_ids(tmp_path / "x.bin", range(7)))


def test_a_file_replaced_under_its_name_changes_no_running_training(path, tmp_path):
    data = dataset(path, batch_size=9)
    before = data.batch(3)[0]
    write_ids(tmp_path / "new.bin", [1] * N).replace(path)
    assert torch.equal(data.batch(3)[0], before)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_no_map_of_the_file_stays(path):
    """It would grow by every page that it ever touched, up to the whole file."""
    data = dataset(path)
    held = [data.batch(0), *data.windows(3)]  # rows in use must not be views of a map
    assert held and str(path) not in Path("/proc/self/maps").read_text(encoding="utf-8")
