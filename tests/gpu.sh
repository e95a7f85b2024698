#!/usr/bin/env bash
# What only a GPU shows, in some ten minutes: `tests/gpu.sh` writes gpu.md, a table for docs/benchmarks.md.
# `tests/gpu.sh cpu` tries the script itself.
set -u
cd "$(dirname "$0")/.."
device=${1:-cuda} report=$PWD/gpu.md work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny="--config tiny.yaml --log.runs $work --log.wandb disabled --train.steps 60 --train.eval_interval 30"

row() { # NAME COMMAND: run it; add its exit code, its seconds and its last line to the table
    local started=$SECONDS code
    timeout 400 bash -c "$2" > "$work/log" 2>&1
    code=$?
    echo "| $1 | $code | $((SECONDS - started)) | $(grep -v '^ *$' "$work/log" | tail -n 1 | tr '|\r' '  ' | cut -c 1-900) |" |
        tee -a "$report"
}

trained() { # NAME OPTIONS: train, and compare every loss with the same run's on the CPU in float32
    row "$1" "python ${program:-train.py} $tiny --name '$1' --train.device $device $2 && python - <<'END'
from gyre.rundir import RunDir
a, b = ({p['step']: p['train/loss'] for p in RunDir.open(f'$work/{name}').metrics() if 'train/loss' in p}
        for name in ('cpu', '$1'))
print(f'losses differ from the CPU by {max(abs(a[n] - b[n]) for n in a):.2g} at most; the last is {b[60]:.4f}')
END"
}

{
    python -c "import torch; print('#', torch.cuda.get_device_name() if '$device' == 'cuda' else 'CPU', torch.__version__)"
    echo "$(git rev-parse HEAD), $(date -u +%F)"
    printf '\n| what | exit code | seconds | last line |\n|---|---|---|---|\n'
} > "$report"
row "quick tier" 'pytest -m "not slow"'
row cpu "python train.py $tiny --name cpu --train.device cpu --train.dtype float32 --train.compile false"
trained float32 "--train.dtype float32 --train.compile false"
trained compiled "--train.dtype float32 --train.compile true"
trained bfloat16 "--train.dtype bfloat16 --train.compile true"
cat > "$work/fsdp.py" <<'END'
import sys
from functools import partial
import torch
import torch.distributed as dist
sys.path.insert(0, ".")
import gyre.build, train
from gyre.sharding import Sharded
backend = "nccl" if torch.cuda.is_available() else "gloo"
dist.init_process_group(backend, init_method="tcp://127.0.0.1:29555", rank=0, world_size=1)
gyre.build.Replicated = partial(Sharded, shards=1)
train.main()
END
program=$work/fsdp.py trained fsdp-of-one "--train.dtype float32 --train.compile false"
for options in "" --compile; do
    generate="python generate.py --run $work/float32 --device $device --prompt 'def ' --temperature 0 $options"
    row "generate${options/--/ }" "$generate 2> $work/said | md5sum > $work/sum && echo \$(cat $work/sum) \$(tail -n 1 $work/said)"
done
row "small.yaml" "python train.py --config small.yaml --log.runs $work --log.wandb disabled --train.device $device &&
    python evaluate.py $work/small-rope-s1 --device $device"
row "bench.py" "python bench.py --train.device $device --repeats 3 --new-tokens 200 --json $work/bench.json"
printf '\n```\n%s\n```\n' "$(cat "$work/bench.json")" >> "$report"
