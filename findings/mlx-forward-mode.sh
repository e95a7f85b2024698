#!/usr/bin/env bash
# In forward mode, mlx ignores alpha and beta of addmm, and shortens the tangent of irfft.
#
# Versions: mlx 0.32.4, NumPy 2.4.6.
# Guess before the run: derivatives by `mx.jvp`, `mx.grad` and finite differences agree, for each function that mlx differentiates
#     without an error.
# Seen: of about 800 calls, nearly all do. But `mx.jvp` of `addmm(c, a, b, alpha=0.5, beta=2)` has twice the derivative by a
#     and b and half of that by c: it is that of alpha = beta = 1, and with beta = 0 it is not zero. `mx.grad` is right.
#     The tangent of `mx.fft.irfft(x, n=5)` has four values for five: it is that of `n=4`.
#     The remainder of `mx.divmod` has a derivative of zero in both modes, where `mx.remainder` has 1 and -floor(a / b).
# Cause: `AddMM::jvp` never reads alpha_ and beta_, and `DivMod::vjp` and `jvp` give zeros for both outputs
#     (mlx/primitives.cpp); of irfft, the tangent has an even length. No issue was found.
# For gyre: it trains by backward passes. There, write `alpha * (a @ b) + beta * c`, even lengths, and `remainder`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile "mlx[cpu]==0.32.4" numpy==2.4.6
export HOME="$folder"
cd "$folder"
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
random = np.random.default_rng(0)


def draw(*shape):
    return mx.array(random.normal(size=shape).astype(np.float32))


def differentiate_forward(function, point, tangent):
    return np.array(mx.jvp(function, [point], [tangent])[1][0])


def differentiate_numerically(function, point, tangent, step=1e-2):
    return (np.array(function(point + step * tangent)) - np.array(function(point - step * tangent))) / (2 * step)


c, a, b = draw(3, 2), draw(3, 4), draw(4, 2)
for alpha, beta in [(1.0, 1.0), (0.5, 2.0), (1.0, 0.0)]:
    functions = {
        "c": (c, lambda z: mx.addmm(z, a, b, alpha=alpha, beta=beta)),
        "a": (a, lambda z: mx.addmm(c, z, b, alpha=alpha, beta=beta)),
        "b": (b, lambda z: mx.addmm(c, a, z, alpha=alpha, beta=beta)),
    }
    for name, (point, function) in functions.items():
        tangent, weights = draw(*point.shape), draw(3, 2)
        forward = differentiate_forward(function, point, tangent)
        numerical = differentiate_numerically(function, point, tangent)
        backward = float((mx.grad(lambda z: (function(z) * weights).sum())(point) * tangent).sum())
        assert abs(backward - (numerical * np.array(weights)).sum()) < 1e-3
        factor = beta if name == "c" else alpha
        print(f"addmm, alpha {alpha}, beta {beta}, by {name}: largest tangent {abs(forward).max():.3f}, due {abs(numerical).max():.3f}")
        assert np.allclose(factor * forward, numerical, atol=1e-3)
        assert np.abs(forward).max() > 0.1

spectrum = draw(4) + 1j * draw(4)
tangent = draw(4) + 1j * draw(4)
for n in (6, 5, 7):
    def invert(z):
        return mx.fft.irfft(z, n=n)

    forward = differentiate_forward(invert, spectrum, tangent)
    numerical = differentiate_numerically(invert, spectrum, tangent)
    print(f"irfft, n={n}: {len(forward)} values {forward.round(2).tolist()}, due {len(numerical)} {numerical.round(2).tolist()}")
    if n % 2 == 0:
        assert np.allclose(forward, numerical, atol=1e-3)
    else:
        assert len(forward) == n - 1 and len(numerical) == n
        assert np.allclose(forward, differentiate_numerically(lambda z: mx.fft.irfft(z, n=n - 1), spectrum, tangent), atol=1e-3)

x, y = mx.array([7.5, -2.25, 5.0]), mx.array([2.0, 1.5, 3.0])
by_divmod = [mx.grad(lambda u, v: mx.divmod(u, v)[1].sum(), argnums=arg)(x, y).tolist() for arg in (0, 1)]
by_remainder = [mx.grad(lambda u, v: mx.remainder(u, v).sum(), argnums=arg)(x, y).tolist() for arg in (0, 1)]
print(f"gradients of the remainder: {by_divmod} by divmod, {by_remainder} by remainder")
assert by_divmod == [[0, 0, 0], [0, 0, 0]] and by_remainder == [[1, 1, 1], [-3, 2, -1]]
PYTHON
