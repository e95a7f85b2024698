#!/usr/bin/env bash
# fmchisel's fused forward KL divergence is the reverse one, and the other way around.
#
# Versions: fmchisel 0.1.2, liger-kernel 0.8.5, torch 2.13.0.
# Guess before the run: `use_liger=True` computes the same loss from hidden states in less memory,
#     up to the teacher's entropy, which forward KL leaves out, and has the same gradient, at each
#     temperature. (That beta is the wrong way around was suspected after reading the source.)
# Seen: ForwardKLDiv asks Liger for beta=1.0, which is KL(student || teacher) there, and
#     ReverseKLDiv for beta=0.0: the fused forward loss is the plain reverse one to 6 digits, and
#     gradients have a cosine of 0.1 with those that are due. The temperature isn't passed on, and
#     neither is ignore_index: 3 gives the loss of 1. JSDiv is right at a temperature of 1, and has
#     1/9 of the plain loss and gradient at 3: the factor of temperature^2 is missing there. In a
#     training, `distill_loss: forward_kl` with `distill_loss_kwargs: {use_liger: true}` takes these.
# For gyre: it has no distillation. There, use_liger only for JSDiv with a temperature of 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torch==2.13.0 numpy==2.4.6 packaging==25.0
"$folder/env/bin/pip" install --quiet --no-compile --no-deps fmchisel==0.1.2 liger-kernel==0.8.5
export TORCHDYNAMO_DISABLE=1
"$folder/env/bin/python" -W ignore - <<'PYTHON'
import importlib.util
import sysconfig

import torch

# the file of the losses alone: the package around it imports Lightning
path = f"{sysconfig.get_paths()['purelib']}/fmchisel/distillation/losses.py"
spec = importlib.util.spec_from_file_location("losses", path)
losses = importlib.util.module_from_spec(spec)
spec.loader.exec_module(losses)

VOCABULARY, WIDTH = 11, 16
torch.set_num_threads(1)
torch.manual_seed(0)
student_head, teacher_head = torch.randn(2, VOCABULARY, WIDTH)
student_states, teacher_states = torch.randn(2, 2, 6, WIDTH)
ids = torch.randint(0, VOCABULARY, (2, 6))
ids[0, :3] = -100


def evaluate(loss_class, fused, temperature):
    """Return the loss, and its gradient by the hidden states of the student."""
    states = student_states.clone().requires_grad_()
    loss = loss_class(use_liger=fused)
    if fused:
        value = loss(ids, states, teacher_states, temperature=temperature,
                     student_model_lm_head_weight=student_head,
                     teacher_model_lm_head_weight=teacher_head)
    else:
        value = loss(ids, states @ student_head.T, teacher_states @ teacher_head.T,
                     temperature=temperature)
    value.backward()
    return value.item(), states.grad


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()


plain, fused = {}, {}
for name in ["ForwardKLDiv", "ReverseKLDiv", "JSDiv"]:
    for temperature in [1.0, 3.0]:
        key = name, temperature
        plain[key] = evaluate(getattr(losses, name), False, temperature)
        fused[key] = evaluate(getattr(losses, name), True, temperature)
        ratio = (fused[key][1].norm() / plain[key][1].norm()).item()
        print(f"{name}, temperature {temperature}: loss {plain[key][0]:.5f} plain, "
              f"{fused[key][0]:.5f} fused; the fused gradient has {ratio:.2f} times the norm and "
              f"a cosine of {cosine(plain[key][1], fused[key][1]):.2f}")

# by hand, for the targets that are not ignored
valid = ids[:, 1:] != -100
log_q = (student_states @ student_head.T).log_softmax(-1)[:, :-1][valid]
log_p = (teacher_states @ teacher_head.T).log_softmax(-1)[:, :-1][valid]
forward = (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()
entropy = -(log_p.exp() * log_p).sum(-1).mean().item()
reverse = (log_q.exp() * (log_q - log_p)).sum(-1).mean().item()
print(f"by hand: KL(teacher || student) {forward:.5f}, KL(student || teacher) {reverse:.5f}, "
      f"entropy of the teacher {entropy:.5f}")
assert abs(plain["ForwardKLDiv", 1.0][0] - forward - entropy) < 1e-4
assert abs(plain["ReverseKLDiv", 1.0][0] - reverse) < 1e-4
for temperature in [1.0, 3.0]:
    assert abs(fused["ForwardKLDiv", temperature][0] - reverse) < 1e-4
    assert abs(fused["ReverseKLDiv", temperature][0] - forward) < 1e-4
assert cosine(fused["ForwardKLDiv", 1.0][1], plain["ReverseKLDiv", 1.0][1]) > 0.9999
assert cosine(fused["ForwardKLDiv", 1.0][1], plain["ForwardKLDiv", 1.0][1]) < 0.2
assert abs(fused["JSDiv", 1.0][0] - plain["JSDiv", 1.0][0]) < 1e-4
assert abs(fused["JSDiv", 3.0][0] * 9 - plain["JSDiv", 3.0][0]) < 1e-4
PYTHON
