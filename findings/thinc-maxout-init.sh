#!/usr/bin/env bash
# thinc's Maxout takes its number of pieces for the number of inputs when it draws its weights.
#
# Versions: thinc 9.1.1, numpy 2.4.6.
# Guess before the run: with the default, Glorot's uniform initialization, the weights of a Maxout
#     with nI inputs and nO outputs reach sqrt(6 / (nI + nO)), those of `he_normal_init` have a
#     deviation of sqrt(2 / nI), and other numbers of pieces change neither; `normal_init(mean=m)`
#     draws weights around m. (That none of it holds was suspected after reading the source.)
# Seen: the weights of Maxout have the shape (nO, nP, nI), and the initializers read the second size
#     as that of the inputs. With 512 inputs and 64 outputs, weights of the default are 2.9 times too
#     large, and those of He 13 times with 3 pieces; with Linear they are right. Outputs of three
#     layers of 512 have a size of 4.2, where 1.4 is due. The "mean" of `normal_init` is a deviation
#     around 0: by default all weights are 0.
# For gyre: it has no Maxout. There, draw the weights as for Linear, and reshape them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile thinc==9.1.1 numpy==2.4.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from thinc.api import Linear, Maxout, NumpyOps, chain
from thinc.initializers import configure_normal_init, glorot_uniform_init, he_normal_init

INPUTS, OUTPUTS, ROWS = 512, 64, 256
ops = NumpyOps()
np.random.seed(0)
x = np.random.normal(size=(ROWS, INPUTS)).astype("f")
factors = {}
for name, create in [
        ("Linear, default", lambda: Linear(OUTPUTS, INPUTS)),
        ("Maxout with 2 pieces, default", lambda: Maxout(OUTPUTS, INPUTS, 2)),
        ("Maxout with 3 pieces, default", lambda: Maxout(OUTPUTS, INPUTS, 3)),
        ("Linear, he_normal_init", lambda: Linear(OUTPUTS, INPUTS, init_W=he_normal_init)),
        ("Maxout with 3 pieces, he_normal_init",
         lambda: Maxout(OUTPUTS, INPUTS, 3, init_W=he_normal_init))]:
    layer = create()
    layer.initialize()
    deviation = layer.get_param("W").std()
    due = np.sqrt(2 / INPUTS if "he" in name else 2 / (INPUTS + OUTPUTS))
    factors[name] = deviation / due
    print(f"{name}: weights have a deviation of {deviation:.4f} where {due:.4f} is due")
    assert abs(factors[name] - 1) < 0.05 if "Linear" in name else factors[name] > 2.5
assert factors["Maxout with 3 pieces, he_normal_init"] > 10


def glorot_due(ops, shape):
    """Glorot's initialization of a Maxout's weights of shape (outputs, pieces, inputs)."""
    return np.concatenate([glorot_uniform_init(ops, (shape[0], shape[2]))[:, None]
                           for _ in range(shape[1])], 1)


sizes = []
for init in [glorot_uniform_init, glorot_due]:
    model = chain(*[Maxout(INPUTS, INPUTS, 3, init_W=init) for _ in range(3)])
    model.initialize()
    sizes.append(float(np.sqrt(np.square(model.predict(x)).mean())))
print(f"three layers of Maxout: outputs have a root mean square of {sizes[0]:.1f}, with Glorot's "
      f"limits {sizes[1]:.1f}")
assert sizes[0] > 1.3 * sizes[1]

for arguments in [{}, {"mean": 0.5}]:
    weights = configure_normal_init(**arguments)(ops, (1000, 100))
    print(f"normal_init with {arguments}: mean {weights.mean():.3f}, deviation {weights.std():.3f}")
    assert abs(weights.mean()) < 0.01
    assert abs(weights.std() - arguments.get("mean", 0)) < 0.01
PYTHON
