"""Compare position encodings so that a reviewer believes it: a whole study by one command.

    python ablate.py                                 # three quarters of an hour on two CPU cores
    python ablate.py --tier smoke                    # under a minute: to see the whole path work
    python ablate.py --dry-run                       # measure the speed, print the plan, and stop
    python ablate.py --arms rope,sin --name pair --data.files mine.txt

It measures the speed, plans as many tokens as --budget-minutes allows, tunes the learning rate of
every arm on a seed of its own, trains all arms on the same seeds, measures every run, and writes
runs/STUDY/report.html. To go on after an interruption, give the same command again: what is
finished is not repeated. The other options are those of train.py, and hold for every run.
"""

import sys

from ablation.runner import Runner
from errors import exit_in_words


def main(argv: list[str] | None = None) -> None:
    with exit_in_words():
        try:
            runner = Runner(sys.argv[1:] if argv is None else argv, __doc__)
            with runner.locked():
                code = runner.run()
        except KeyboardInterrupt:
            code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
