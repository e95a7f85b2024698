#!/usr/bin/env bash
# A resumed StatefulDataLoader finishes its epoch right and shuffles the next one differently.
#
# Versions: torchdata 0.11.0, torch 2.13.0.
# Guess before the run: a state taken in the middle of an epoch brings back the rest of that epoch,
#     and every later epoch, as without the interruption.
# Seen: with num_workers=0 and a generator= of one's own, only the rest of the epoch comes back.
#     Every epoch draws a permutation, then a base seed, from the same generator. Loading sets the
#     generator back to before the permutation and draws that again, but not the seed: later
#     epochs are one draw behind. With workers, or without generator=, all epochs come back.
# For gyre: gyre's batches are a function of seed and step, so nothing is loaded. In a loop with
#     this loader, equal losses until the end of the epoch prove nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile torchdata==0.11.0 torch==2.13.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

N = 8


def make_loader(n_workers, own_generator):
    """Return a loader of the numbers below N, one at a time, shuffled by seed 3."""
    torch.manual_seed(3)
    options = {}
    if own_generator:
        options["generator"] = torch.Generator().manual_seed(3)
    return StatefulDataLoader(range(N), batch_size=1, shuffle=True,
                              num_workers=n_workers, **options)


def epoch(batches):
    return [int(batch) for batch in batches]


same = {}
for n_workers, own_generator in [(0, True), (0, False), (2, True)]:
    loader = make_loader(n_workers, own_generator)
    batches = iter(loader)
    for _ in range(N // 2):
        next(batches)
    state = loader.state_dict()
    whole = [epoch(batches), epoch(loader), epoch(loader)]

    loader = make_loader(n_workers, own_generator)
    loader.load_state_dict(state)
    resumed = [epoch(loader) for _ in range(3)]
    same[n_workers, own_generator] = [a == b for a, b in zip(whole, resumed, strict=True)]
    print(f"num_workers={n_workers}, own generator {own_generator}:\n"
          f"    not interrupted {whole}\n    resumed         {resumed}")

generator = torch.Generator().manual_seed(3)
torch.randperm(N, generator=generator)
print(f"the permutation after the first, no seed between: "
      f"{torch.randperm(N, generator=generator).tolist()}")

assert same == {(0, True): [True, False, False], (0, False): [True] * 3, (2, True): [True] * 3}
PYTHON
