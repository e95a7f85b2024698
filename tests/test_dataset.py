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
@pytest.mark.parametrize("n, n_rows", [(8, 1), (20, 2), (21, 3), (1000, 142)])
def test_an_epoch_has_no_token_twice(tmp_path, n, n_rows, epoch):
    rows = epoch_rows(write_ids(tmp_path / "x.bin", range(n)), epoch)
    assert rows.shape == (n_rows, 7)
    assert len(rows.unique()) == rows.numel()


def test_epochs_differ_in_order(path):
    orders = {tuple(epoch_rows(path, epoch)[:, 0].tolist()) for epoch in range(12)}
    assert len(orders) == 12


def test_no_epoch_is_in_the_order_of_the_file(path):
    for epoch in range(12):
        first_tokens = epoch_rows(path, epoch)[:, 0].tolist()
        assert first_tokens != sorted(first_tokens)


def test_an_epoch_of_one_seed_is_no_epoch_of_another(path):
    """Studies have seeds that follow each other."""
    orders = {tuple(epoch_rows(path, epoch, seed=seed)[:, 0].tolist())
              for seed, epoch in itertools.product(range(4), range(4))}
    assert len(orders) == 16


def test_epochs_differ_in_their_cuts(path):
    phases = {epoch_rows(path, epoch)[:, 0].min().item() for epoch in range(12)}
    assert len(phases) > 3
    assert max(phases) < SEQ_LEN


@pytest.mark.parametrize("batch_size", [1, 4, 12])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_order_of_rows_depends_on_no_batch_or_rank(tmp_path, batch_size, size):
    """23 tokens, followed by the first of them again, have three rows an epoch. A batch may cross
    the end of an epoch, and the shares of the ranks may be unequal."""
    path = write_ids(tmp_path / "x.bin", range(23))
    ranks = [dataset(path, seed=5, batch_size=batch_size, rank=rank, world_size=size)
             for rank in range(size)]
    first_tokens = []
    for step in range(12 // batch_size):
        for rank in ranks:
            first_tokens += rank.batch(step)[0][:, 0].tolist()
    assert first_tokens == [4, 11, 18, 14, 0, 7, 5, 12, 19, 13, 6, 20]  # drawn for seed 5


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
SIZES = pytest.mark.parametrize(
    "n, size, batch_size", [*itertools.product((8, 9, 71, N), (1, 3), (1, 4, 1000))])


def all_windows(folder, n, size, batch_size):
    """Return the batches of each rank over a file of n ids that are their own positions."""
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


@pytest.mark.parametrize("n, size, batch_size", [(9, 1, 4), (8, 3, 1), (71, 3, 1), (1000, 3, 47)])
def test_windows_are_filled_up_with_zeros(tmp_path, n, size, batch_size):
    filling: list[int] = []
    for batches in all_windows(tmp_path, n, size, batch_size):
        for x, y in batches:
            filling += x[y == -100].tolist()
    assert {*filling} == {0}


@pytest.mark.parametrize("n, size, batch_size, n_filled", [
    (8, 1, 4, 0), (71, 1, 4, 0), (71, 3, 4, 0),
    (9, 1, 4, 6), (1000, 1, 4, 2), (1000, 3, 4, 2),  # the end of the short last row
    (8, 3, 1, 14), (71, 3, 1, 14),  # a whole row on two ranks
    (9, 3, 4, 13), (1000, 3, 1, 9), (1000, 3, 47, 9)])  # that end, and a row on one rank
def test_windows_are_filled_up_by_no_more_than_needed(tmp_path, n, size, batch_size, n_filled):
    targets: list[int] = []
    for batches in all_windows(tmp_path, n, size, batch_size):
        for _, y in batches:
            targets += y.flatten().tolist()
    assert targets.count(-100) == n_filled


@pytest.mark.parametrize("batch_size", [1, 4, 1000])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("n", [8, 9, 71, 1000])
def test_every_rank_has_equally_many_batches(tmp_path, n, size, batch_size):
    ranks = all_windows(tmp_path, n, size, batch_size)
    assert len({len(batches) for batches in ranks}) == 1


@pytest.mark.parametrize("n, size", [(8, 1), (9, 3), (1000, 3)])
def test_windows_have_the_length_of_training_rows(tmp_path, n, size):
    for batches in all_windows(tmp_path, n, size, batch_size=4):
        for x, y in batches:
            assert (x.shape[1], y.shape[1]) == (7, 7)


@SIZES
def test_batches_of_windows_are_no_larger_than_asked(tmp_path, n, size, batch_size):
    for batches in all_windows(tmp_path, n, size, batch_size):
        for x, y in batches:
            assert 0 < len(x) <= batch_size
            assert len(y) == len(x)


@SIZES
def test_a_row_without_targets_stands_alone(tmp_path, n, size, batch_size):
    """A rank that has a batch less than others yields a row without targets instead."""
    for batches in all_windows(tmp_path, n, size, batch_size):
        for _, y in batches:
            assert len(y) == 1 or (y[:, 0] != -100).all()


def test_large_ids_survive(tmp_path):
    ids = [2**16 + 5, 7, 2**31, 2**32 - 1, 0, 1, 2, 3, 4]
    path = write_ids(tmp_path / "x.bin", ids, "uint32")
    x, y = next(dataset(path, dtype="uint32", vocab_size=2**32).windows(2))
    assert x.flatten()[:8].tolist() == ids[:-1] and y.flatten()[:8].tolist() == ids[1:]


def test_a_window_with_an_id_outside_the_vocabulary_is_refused(path):
    """It would be an IndexError of the embedding, or worse on a GPU."""
    with pytest.raises(UserError, match="train.bin is damaged: it has the id 999"):
        list(dataset(path, vocab_size=999).windows(4))


def test_a_batch_with_an_id_outside_the_vocabulary_is_refused(tmp_path):
    """The one row of 8 ids, with its targets, has them all."""
    path = write_ids(tmp_path / "train.bin", range(8))
    with pytest.raises(UserError, match="train.bin is damaged: it has the id 7"):
        dataset(path, vocab_size=7).batch(0)


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
    """With a map, the memory of the process would grow by every page that it ever read."""
    data = dataset(path)
    held = [data.batch(0), *data.windows(3)]  # rows in use must not be views of a map
    assert held and str(path) not in Path("/proc/self/maps").read_text(encoding="utf-8")
