"""How the answers of other programs are compared with ours, in the table of docs/interop.md."""

import math

from outside.compare import compare


def model(*logits: float) -> dict[str, dict[str, list]]:
    """What a model says: these logits after both prompts, and one greedy token."""
    return {length: {"logits": [[*logits]], "greedy": [7]} for length in ("short", "long")}


def test_a_cell_has_the_largest_differences_and_the_equal_tokens():
    """Both after the short prompt and after the long one."""
    assert compare(model(1.0, 2.0), model(1.0, 2.25)) == "2e-01/2e-01; 1/1"


def test_another_model_is_bold():
    assert compare(model(1.0, 2.0), model(1.0, 4.0)) == "**2e+00/2e+00; 1/1**"


def test_a_logit_that_is_no_number_is_another_model():
    assert compare(model(1.0, 2.0), model(1.0, math.nan)) == "**nan/nan; 1/1**"
