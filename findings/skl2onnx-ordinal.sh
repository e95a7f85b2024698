#!/usr/bin/env bash
# skl2onnx groups the rare categories of each column as those of the first one, and keeps no NaN.
#
# Versions: skl2onnx 1.20.0, scikit-learn 1.9.1, onnxruntime 1.32.0, numpy 2.4.6.
# Guess before the run: a converted OrdinalEncoder gives the codes of scikit-learn, whatever its
#     options are. (That it does not was suspected after reading the source.)
# Seen: 1. With `min_frequency` or `max_categories`, all columns of an input are grouped as the
#     first one is: where its last three of four categories are rare, and the second column's first
#     is, three common categories of that column become one, and the rare one is kept. 70 % of its
#     codes are wrong. Nothing is said if the columns have as many categories. One column alone is
#     right.
#     2. NaN is encoded as NaN by default. Here numbers get -1, or what `unknown_value` says, also
#     where `encoded_missing_value` says something else; texts get the code of a category more.
# For gyre: it has no such encoders. There, give each column an input of its own, and fill missing
#     values before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet --no-compile skl2onnx==1.20.0 onnx==1.23.2 onnxruntime==1.32.0 \
    scikit-learn==1.9.1 numpy==2.4.6
env/bin/python - <<'PYTHON'
import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.preprocessing import OrdinalEncoder

generator = np.random.default_rng(0)
N_ROWS = 1000


def convert_and_run(model, x):
    """Return the codes of onnxruntime, (rows, columns)."""
    converted = to_onnx(model, x[:1], target_opset=21)
    session = onnxruntime.InferenceSession(converted.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def group_by_hand(column, min_frequency):
    """Return the codes of a column: frequent categories in order, then one for the others."""
    categories, counts = np.unique(column, return_counts=True)
    frequent = categories[counts >= min_frequency].tolist()
    return np.array([frequent.index(c) if c in frequent else len(frequent) for c in column])


first = generator.choice(4, N_ROWS, p=[0.91, 0.03, 0.03, 0.03])
second = generator.choice(4, N_ROWS, p=[0.01, 0.33, 0.33, 0.33])
numbers = np.stack([first, second], 1).astype(np.int64)
texts = np.array(list("abcd"), dtype=object)[numbers]
for name, x in [("integers", numbers), ("floats", numbers.astype(np.float32)), ("texts", texts)]:
    for option in [{"min_frequency": 100}, {}]:
        model = OrdinalEncoder(**option).fit(x)
        exact, converted = model.transform(x), convert_and_run(model, x)
        wrong = (exact != converted).mean(0)
        print(f"{name}, {option or 'no option'}: wrong codes in the two columns {wrong}")
        assert wrong[0] == 0
        if option:
            by_hand = np.stack([group_by_hand(column, 100) for column in x.T], 1)
            assert (exact == by_hand).all()
            assert wrong[1] > 0.5
            # The second column is grouped as the first one: the first category, and the others.
            assert (converted[:, 1] == (numbers[:, 1] > 0)).all()
            alone = OrdinalEncoder(**option).fit(x[:, 1:])
            assert (convert_and_run(alone, x[:, 1:]) == exact[:, 1:]).all()
        else:
            assert wrong[1] == 0

missing = np.array([[5.0], [np.nan], [7.0]], np.float32)
missing_text = np.array([["a"], [np.nan], ["b"]], dtype=object)
unknown = {"handle_unknown": "use_encoded_value", "unknown_value": -5}
for x, option, code, due in [
        (missing, {}, -1, np.nan), (missing_text, {}, 2, np.nan), (missing, unknown, -5, np.nan),
        (missing, unknown | {"encoded_missing_value": -1}, -5, -1)]:
    model = OrdinalEncoder(**option).fit(x)
    exact, converted = model.transform(x)[:, 0], convert_and_run(model, x)[:, 0]
    print(f"{x[:, 0].tolist()}, {option or 'no option'}: {exact} by scikit-learn, {converted} by "
          f"onnxruntime")
    assert np.array_equal(exact, [0, due, 1], equal_nan=True)
    assert converted.tolist() == [0, code, 1]
PYTHON
