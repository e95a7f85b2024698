#!/usr/bin/env bash
# Lightning's EMA callback does not wait for its first epoch, and may undo a training at its end.
#
# Versions: lightning 2.6.6, torch 2.13.0.
# Guess before the run: EMAWeightAveraging(update_starting_at_epoch=3) averages from epoch 3 on.
#     Where a training ends before the averages begin, the model keeps the weights it has
#     learned. (Both were suspected to be otherwise after reading the source.)
# Seen: the weights are averaged after every step from the first one on, whatever the epoch; from
#     that epoch on, the last weights of each epoch count once more. With update_starting_at_epoch=3
#     and a decay of 0.999, 96 % of the average after 4 epochs of 10 steps are the weights of the
#     first step. With update_starting_at_step, the averages do wait; but a training that ends
#     before, ends with the initial weights in the model: all that was learned is gone, in silence,
#     and a checkpoint's state_dict has them too.
# For gyre: it averages no weights. There, give update_starting_at_step, below the number of steps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile lightning==2.6.6 torch==2.13.0 numpy==2.4.6
cd "$folder"
env/bin/python -W ignore - <<'PYTHON'
import logging

import lightning
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging

DECAY = 0.999
N_EPOCHS = 4
EPOCH_LENGTH = 10
N_STEPS = N_EPOCHS * EPOCH_LENGTH
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Model(lightning.LightningModule):
    """A model whose weights are 1 at the step of their place, and 0 before and after.

    So their average tells the weight of each step; the last place has the initial weights.
    """

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(N_STEPS + 1)[-1])

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)

    def optimizer_step(self, epoch, batch_idx, optimizer, closure):
        optimizer.step(closure)
        step = epoch * EPOCH_LENGTH + batch_idx
        self.weight.data = torch.eye(N_STEPS + 1)[step]


def train(**options):
    """Return what is left in the model, and in the state_dict of a checkpoint."""
    callbacks = [EMAWeightAveraging(decay=DECAY, **options)] if options else []
    trainer = lightning.Trainer(
        max_epochs=N_EPOCHS, callbacks=callbacks, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=1)
    model = Model()
    trainer.fit(model, torch.utils.data.DataLoader(torch.zeros(EPOCH_LENGTH, 1)))
    trainer.save_checkpoint("checkpoint.ckpt")
    saved = torch.load("checkpoint.ckpt", weights_only=False)["state_dict"]["weight"]
    return model.weight.detach(), saved


for options in [{}, {"update_starting_at_step": 30}, {"update_starting_at_epoch": 3},
                {"update_starting_at_epoch": 100}, {"update_starting_at_step": 100}]:
    weight, saved = train(**options)
    shares = {"initial weights": weight[-1], "first step": weight[0], "step 31": weight[30],
              "last step": weight[N_STEPS - 1]}
    text = ", ".join(f"{name} {share.item():.4f}" for name, share in shares.items())
    print(f"{options}: shares in the model at the end: {text}")
    assert torch.equal(weight, saved)
    if not options:
        assert weight[N_STEPS - 1] == 1
    elif options == {"update_starting_at_step": 30}:
        assert weight[30] > 0.98 and weight[0] == 0
    elif options == {"update_starting_at_step": 100}:
        assert weight[-1] == 1
    else:
        assert weight[0] > 0.95
        twice = options["update_starting_at_epoch"] < N_EPOCHS
        assert abs(weight[N_STEPS - 1] - (1 + twice) * (1 - DECAY)) < 1e-4
PYTHON
