"""A number that is `auto` is chosen for the text, below the number that the configuration has."""

import pytest

from errors import UserError
from gyre.fit import fit_row, fit_steps, make_draft

SMALL = {"data.vocab_size": 4096, "data.seq_len": 256, "train.steps": 1350, "train.batch_size": 8,
         "optim.warmup_steps": 40, "train.eval_interval": 450}
MINE = {"data.files": ["mine.txt"]}
ALL = {"data.vocab_size", "data.seq_len", "data.val_fraction", "train.steps",
       "optim.warmup_steps", "train.eval_interval"}


def manifest(train_tokens: int, vocab_size: int = 300) -> dict:
    """As far as it decides anything."""
    return {"vocab_size": vocab_size, "train": {"tokens": train_tokens}, "val": {"tokens": 500}}


def fitted(*layers) -> set[str]:
    return set(make_draft(*layers).fitted)


def test_a_configuration_keeps_its_numbers_for_its_own_text():
    draft = make_draft(SMALL)
    assert fitted(SMALL) == fitted(SMALL, {"data.source": "stdlib"}) == set()
    assert draft.fit(manifest(1000)) == (draft.config, {})


@pytest.mark.parametrize("text", [
    {"data.files": ["a"]}, {"data.source": "hub", "data.hub": "a/b"}, {"data": {"files": ["a"]}},
    {"data.source": "url", "data.url": "http://a"}], ids=str)
def test_another_text_makes_limits_of_the_numbers_before_it(text):
    assert fitted(SMALL, text) == ALL
    assert make_draft(SMALL, text).config.train.steps == 1350


# SMALL leaves data.val_fraction out; with this layer it has all of ALL.
HUNDREDTH = {"data.val_fraction": 0.01}


def test_a_share_chosen_for_another_text_is_that_of_the_run():
    config, chosen = make_draft(SMALL | HUNDREDTH, MINE).fit(manifest(9000) | {"val_fraction": 0.1})
    assert config.data.val_fraction == 0.1
    assert chosen["data.val_fraction"] == 0.1


def test_a_share_that_is_not_raised_is_not_told():
    prepared = manifest(9000) | {"val_fraction": 0.01}
    config, chosen = make_draft(SMALL | HUNDREDTH, MINE).fit(prepared)
    assert config.data.val_fraction == 0.01
    assert "data.val_fraction" not in chosen


def test_a_share_beside_the_text_is_kept():
    assert fitted(SMALL, MINE | {"data.val_fraction": 0.02}) == ALL - {"data.val_fraction"}


def test_the_sample_prompt_of_another_text_is_not_kept():
    prompted = SMALL | {"train.sample_prompt": "def "}
    assert make_draft(prompted).config.train.sample_prompt == "def "
    assert make_draft(prompted, MINE).config.train.sample_prompt == ""


def test_a_sample_prompt_given_with_the_text_is_kept():
    draft = make_draft({"train.sample_prompt": "def "}, MINE | {"train.sample_prompt": "Once"})
    assert draft.config.train.sample_prompt == "Once"


def test_numbers_beside_the_text_or_after_it_are_kept():
    assert fitted(SMALL | HUNDREDTH | MINE) == set()
    assert fitted(SMALL, MINE | {"train.steps": 90}) == ALL - {"train.steps"}
    assert fitted(SMALL, MINE, {"train.steps": 90}) == ALL - {"train.steps"}
    assert fitted(SMALL, {"train.steps": 90}, MINE) == ALL


def test_the_same_text_named_again_changes_nothing():
    assert fitted(SMALL | HUNDREDTH | MINE, MINE) == set()


def test_a_text_is_another_one_if_a_file_in_between_names_a_third():
    """The numbers of a file that names a text are for that one, whatever was named before."""
    standard = SMALL | HUNDREDTH | {"data.source": "stdlib"}
    assert fitted(MINE, standard, MINE) == ALL
    assert fitted(standard, {"data.source": "stdlib"}) == set()
    address = SMALL | HUNDREDTH | {"data.url": "https://example.org/a.txt"}
    assert fitted(address, {"data.source": "stdlib"}) == ALL
    assert fitted(address, address) == set()


def test_a_warm_up_fits_steps_that_are_chosen_later():
    """As it fits a given number of steps."""
    config, chosen = make_draft(SMALL, {"train.steps": "auto"}).fit(manifest(500))
    assert (config.train.steps, config.optim.warmup_steps) == (4, 0)
    assert chosen == {"train.steps": 4, "optim.warmup_steps": 0}


def test_auto_is_chosen_with_the_configurations_own_text_too():
    draft = make_draft(SMALL, {"train.steps": "auto"})
    assert draft.fitted == {"train.steps", "optim.warmup_steps"}
    assert draft.config.train.steps == 1350
    assert fitted({"data.seq_len": "auto"}) == {"data.seq_len"}


@pytest.mark.parametrize("limit, train_tokens, seq_len", [
    (256, 8192, 256), (256, 8191, 128), (250, 3999, 62)])
def test_rows_are_halved_until_an_epoch_has_four_batches(limit, train_tokens, seq_len):
    assert fit_row(limit, train_tokens, batch_size=8) == seq_len


@pytest.mark.parametrize("limit, seq_len", [(256, 32), (16, 16)])
def test_rows_are_not_halved_below_32_tokens(limit, seq_len):
    assert fit_row(limit, train_tokens=40, batch_size=8) == seq_len


@pytest.mark.parametrize("train_tokens, seq_len", [(33, 32), (32, 31), (2, 1), (1, 1)])
def test_a_text_shorter_than_a_row_is_one_row(train_tokens, seq_len):
    """Of one token less, because every token has to be followed by its target."""
    assert fit_row(256, train_tokens, batch_size=8) == seq_len


@pytest.mark.parametrize("train_tokens, steps", [
    (500, 4), (10_000, 49), (100_000, 331), (600_000, 1350), (50_000_000, 1350), (2, 1),
    (0, 1)])
def test_a_short_text_is_read_more_often(train_tokens, steps):
    assert fit_steps(1350, train_tokens, step_tokens=2048) == steps


def test_a_warm_up_longer_than_later_steps_is_a_tenth():
    draft = make_draft(SMALL, {"train.steps": 20})
    config, chosen = draft.fit(manifest(100_000))
    assert (config.train.steps, config.optim.warmup_steps) == (20, 2)
    assert chosen == {"optim.warmup_steps": 2}
    assert draft.config.optim.warmup_steps == 20


def test_a_warm_up_longer_than_the_steps_beside_it_is_refused():
    with pytest.raises(UserError, match=r"optim.warmup_steps must be in \[0, 20\], not 40"):
        make_draft(SMALL, {"train.steps": 20, "optim.warmup_steps": 40}).fit(manifest(9))


def test_the_vocabulary_is_that_of_the_prepared_text():
    config, chosen = make_draft(SMALL, MINE).fit(manifest(100_000, vocab_size=777))
    assert config.data.vocab_size == config.model.vocab_size == 777
    assert chosen["data.vocab_size"] == 777


def test_the_context_follows_the_fitted_length_of_rows():
    draft = make_draft(SMALL, MINE)
    assert draft.config.model.max_positions == 1024
    config, _ = draft.fit(manifest(800))
    assert (config.data.seq_len, config.model.max_positions) == (32, 128)


def test_samples_fit_into_the_fitted_context():
    config, _ = make_draft(SMALL | {"train.sample_tokens": 120}, MINE).fit(manifest(800))
    assert (config.model.max_positions, config.train.sample_tokens) == (128, 64)


@pytest.mark.parametrize("layers", [
    (SMALL, MINE, {"train.sample_tokens": 120}), (SMALL, MINE | {"train.sample_tokens": 120}),
    (SMALL, {"data.seq_len": "auto", "train.sample_tokens": 120})], ids=["after", "with", "auto"])
def test_a_length_of_samples_given_with_the_text_is_kept(layers):
    config, _ = make_draft(*layers).fit(manifest(800))
    assert config.train.sample_tokens == 120


@pytest.mark.parametrize("context, tokens", [(120, 60), (50, 25), (1, 0), (121, 120)])
def test_samples_are_shortened_for_a_later_context(context, tokens):
    first = {"data.seq_len": 1, "train.sample_tokens": 120}
    assert make_draft(first, {"model.max_positions": context}).config.train.sample_tokens == tokens


def test_a_length_of_samples_that_is_asked_for_is_not_shortened():
    asked = {"data.seq_len": 8, "model.max_positions": 50, "train.sample_tokens": 50}
    with pytest.raises(UserError, match=r"train.sample_tokens must be in \[0, 50\), not 50"):
        make_draft(asked)


def test_minutes_leave_the_steps_to_a_measurement():
    draft = make_draft(SMALL, {"train.minutes": 2.0})
    assert draft.fitted == {"train.steps", "optim.warmup_steps", "train.eval_interval"}
    config, chosen = draft.fit(manifest(100_000))
    assert (config.train.steps, chosen) == (1350, {})


def test_minutes_do_not_shorten_a_warm_up_to_the_steps_they_replace():
    draft = make_draft({"optim.warmup_steps": 2000}, {"train.minutes": 60.0})
    assert draft.config.train.steps == 1000
    assert draft.config.optim.warmup_steps == 2000


@pytest.mark.parametrize("beside", [
    {"optim.warmup_steps": 2000}, {"train.keep": [1351]}], ids=str)
def test_numbers_beside_minutes_are_not_judged_by_the_steps_they_replace(beside):
    config, _ = make_draft(SMALL, {"train.minutes": 2.0}, beside).fit(manifest(100_000))
    assert config.train.steps == 1350


def test_a_negative_number_of_steps_is_refused_in_its_own_name():
    with pytest.raises(UserError, match=r"^train.steps must be in \[1, 1e12\], not -5$"):
        make_draft(SMALL, {"train.steps": -5})


@pytest.mark.parametrize("steps, warmup_steps, eval_interval", [(300, 30, 100), (90_000, 40, 450)])
def test_measured_steps_decide_warm_up_and_validations(steps, warmup_steps, eval_interval):
    draft = make_draft(SMALL, {"train.minutes": 2.0})
    assert draft.fit_to_steps(steps, 4096, 1000) == {
        "optim.warmup_steps": warmup_steps, "train.eval_interval": eval_interval}


@pytest.mark.parametrize("steps, eval_interval", [(1, 1), (2, 1), (10, 4)])
def test_few_steps_have_at_most_three_validations(steps, eval_interval):
    draft = make_draft(SMALL, {"train.minutes": 2.0})
    assert draft.fit_to_steps(steps, 4096, 1000)["train.eval_interval"] == eval_interval


@pytest.mark.parametrize("val_tokens, eval_interval", [
    (49_999, 4), (60_000, 4),
    (80_000, 4),  # three validations take as long as 80,000 tokens of training
    (81_000, 5), (120_000, 5), (121_000, 10), (9_000_000, 10)])
def test_validations_take_a_quarter_of_the_steps_time_or_there_is_one(val_tokens, eval_interval):
    """320,000 tokens are trained on, and a quarter of them is 80,000."""
    draft = make_draft(SMALL, {"train.minutes": 2.0})
    assert draft.fit_to_steps(10, 32_000, val_tokens)["train.eval_interval"] == eval_interval


def test_small_validations_are_three_in_any_training():
    draft = make_draft(SMALL, {"train.minutes": 2.0})
    assert draft.fit_to_steps(10, 32, 49_999)["train.eval_interval"] == 4


def test_minutes_and_steps_contradict_each_other():
    with pytest.raises(UserError, match="train.minutes chooses train.steps: leave one of them out"):
        make_draft(SMALL, {"train.minutes": 2.0, "train.steps": 9})


def test_a_later_number_of_steps_replaces_minutes():
    config, _ = make_draft(SMALL, {"train.minutes": 2.0}, {"train.steps": 7}).fit(manifest(9999))
    assert (config.train.steps, config.train.minutes) == (7, None)


def test_minutes_that_are_replaced_fit_nothing():
    draft = make_draft({"optim.warmup_steps": 100}, {"train.minutes": 5.0}, {"train.steps": 500})
    assert draft.fit_to_steps(500, 4096, 1000) == {}


def test_steps_replace_minutes_that_two_layers_had():
    draft = make_draft({"train.minutes": 5.0}, {"train.minutes": 3.0}, {"train.steps": 500})
    assert draft.fitted == set()


def test_minutes_that_a_later_layer_takes_back_fit_nothing():
    assert fitted({"train.minutes": 5.0}, {"train.minutes": None}) == set()


def test_steps_that_replace_minutes_leave_a_warm_up_that_is_auto():
    layers = ({"train.minutes": 5.0}, {"optim.warmup_steps": "auto"}, {"train.steps": 500})
    assert fitted(*layers) == {"optim.warmup_steps"}


def test_steps_that_replace_minutes_leave_numbers_that_a_text_made_limits():
    layers = (SMALL, {"train.minutes": 5.0}, MINE, {"train.steps": 500})
    assert fitted(*layers) == ALL - {"train.steps"}


def test_later_minutes_replace_a_number_of_steps():
    draft = make_draft({"train.steps": 7}, {"train.minutes": 2.0})
    assert "train.steps" in draft.fitted and draft.config.train.minutes == 2


def test_minutes_may_stand_beside_automatic_steps():
    draft = make_draft(SMALL, {"train.minutes": 2.0, "train.steps": "auto"})
    assert "train.steps" in draft.fitted


def test_rows_are_no_longer_than_the_context_of_a_model_that_is_given():
    draft = make_draft({"data.seq_len": 256}, {"data.files": ["a.txt"]},
                       {"model": {"max_positions": 128}})
    config, _ = draft.fit(manifest(10_000_000))
    assert config.data.seq_len == 128


@pytest.mark.parametrize("seq_len", [32, 256])
def test_rows_are_as_long_as_a_table_of_positions_that_is_given(seq_len):
    draft = make_draft({"data.seq_len": seq_len}, MINE,
                       {"model": {"position": "learned", "max_positions": 128}})
    config, chosen = draft.fit(manifest(800))
    assert config.data.seq_len == 128
    assert "data.seq_len" not in chosen


def test_rows_of_learned_positions_are_fitted_with_their_table():
    config, _ = make_draft(SMALL | {"model.position": "learned", "train.sample_tokens": 9},
                           MINE).fit(manifest(800))
    assert (config.data.seq_len, config.model.max_positions) == (32, 32)
