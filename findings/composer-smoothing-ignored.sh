#!/usr/bin/env bash
# Composer's label smoothing trains the targets that are to be ignored.
#
# Versions: mosaicml 0.32.1 (composer), torch 2.7.0.
# Guess before the run: targets of -100 are ignored with label smoothing as without: logits there
#     have no gradient, and the loss is that of `F.cross_entropy(label_smoothing=0.1)`. A warning says
#     that they are ignored. (That they are not was suspected after reading the source.)
# Seen: an ignored target becomes a vector of zeros, and then each class gets 0.1 / classes. So it
#     counts as a tenth of a target, and what is right there is the uniform distribution. Where 15 %
#     of the tokens have a target, as in masked language modelling, the others have 36 % of the weight
#     and 32 % of the gradient, which makes their logits equal. Both grow with the padding. Without
#     ignored targets, loss and gradient are those of torch.
# For gyre: it has no label smoothing. There, give `label_smoothing` to the loss.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile mosaicml==0.32.1 torch==2.7.0 \
    torchvision==0.22.0 numpy==2.2.6
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import torch
import torch.nn.functional as F
from composer.algorithms.label_smoothing import smooth_labels
from composer.loss import soft_cross_entropy

CLASSES, SMOOTHING, TARGETS = 50, 0.1, 150
torch.set_num_threads(1)
torch.manual_seed(0)


def compare(n_tokens):
    """Return loss and gradients by composer and by torch; all but the first tokens are ignored."""
    logits = 3 * torch.randn(n_tokens, CLASSES)
    targets = torch.randint(CLASSES, (n_tokens,))
    targets[TARGETS:] = -100
    results = []
    for by_composer in (True, False):
        variable = logits.clone().requires_grad_()
        if by_composer:
            loss = soft_cross_entropy(variable, smooth_labels(variable, targets, SMOOTHING))
        else:
            loss = F.cross_entropy(variable, targets, label_smoothing=SMOOTHING)
        loss.backward()
        results += [loss.item(), variable.grad]
    return results


for n_tokens in (TARGETS, 300, 1000):
    torch.manual_seed(0)
    loss, gradient, due, due_gradient = compare(n_tokens)
    n_ignored = n_tokens - TARGETS
    ignored = gradient[TARGETS:].abs().sum().item()
    share = ignored / gradient.abs().sum().item()
    weight = SMOOTHING * n_ignored / (TARGETS + SMOOTHING * n_ignored)
    print(f"{n_tokens} tokens, {n_ignored} of them ignored: loss {loss:.3f} (due {due:.3f}); "
          f"{share:.0%} of the gradient is that of ignored tokens; their weight is {weight:.0%}")
    assert due_gradient[TARGETS:].abs().sum() == 0
    if n_ignored == 0:
        assert abs(loss - due) < 1e-5 and torch.allclose(gradient, due_gradient, atol=1e-7)
    else:
        uniform = torch.full((n_ignored, CLASSES), 1 / CLASSES)
        torch.manual_seed(0)
        logits = (3 * torch.randn(n_tokens, CLASSES))[TARGETS:]
        by_hand = (logits.softmax(1) - uniform) * SMOOTHING / (TARGETS + SMOOTHING * n_ignored)
        assert torch.allclose(gradient[TARGETS:], by_hand, atol=1e-6)
        assert share > 0.05
PYTHON
