"""Compare position encodings, or any configurations, with paired seeds and intervals.

    python ablate.py                                 # three encodings to a million tokens
    python ablate.py --tier smoke                    # to see the whole path work
    python ablate.py --tier full                     # five arms to 8 million tokens: many hours
    python ablate.py --dry-run                       # print the plan, and stop
    python ablate.py --arms rope,sin --name pair --data.files mine.txt
    python ablate.py --arms rope --arm b500=model.theta=500 --baseline rope
    python ablate.py --tier full --arms rope,rope_b100 --seeds 3 --tokens 4M --name base
    python ablate.py --arm mine=model.position=log --beside studies/five

It tunes the learning rate of every arm on seeds of their own, trains all arms on the same seeds,
measures every run, and writes runs/STUDY/RESULTS.md. Each arm and seed is one run at a constant
rate, from which a run with a cooldown branches off for each length. The work is done by Dask
workers on this machine, or by those of --scheduler. To go on after an interruption, give the same
command again: what is finished is not repeated.

The other options are those of train.py, for every run, and their defaults below are those of a
training. A study has those of configs/ablation.yaml instead, or of the file that --config names,
such as a copy of it with a smaller model. What the study sets itself is refused.
"""

import interrupts  # first: from here on, Ctrl-C shows no traceback

import sys

from errors import importing, report_errors

with importing(__name__):
    from ablation.runner import run_study
    from train import run_training


def main(argv: list[str] | None = None) -> None:
    with report_errors():
        code = run_study(run_training, sys.argv[1:] if argv is None else argv, __doc__)
    sys.exit(code)


if __name__ == "__main__":
    main()
