# Read by the script of every consumer, which is called as `outside/NAME.sh [RUN]` with the python of
# gyre's environment on the PATH. Everything is made in a temporary folder, which is removed.
#
# OUTSIDE_MADE=FOLDER  what `python -m outside.make_runs FOLDER [RUN]` has made, to share it
# OUTSIDE_BASE=VENV    an environment whose packages, such as torch, need not be installed again
# OUTSIDE_KEEP=1       do not remove the folder, and say where it is

set -euo pipefail
outside=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
if [ -z "${OUTSIDE_KEEP:-}" ]; then
    trap 'rm -rf "$folder"' EXIT
else
    echo "$folder" >&2
fi
log=$folder/log
if [ -z "${OUTSIDE_MADE:-}" ]; then
    export OUTSIDE_MADE=$folder/made
    (cd "$outside/.." && python -m outside.make_runs "$OUTSIDE_MADE" "$@")
fi
export PYTHONPATH=$outside HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

# install NAME==VERSION ...: an environment with these packages. The first one is the consumer.
install() {
    name=${1%%==*} version=${1##*==}
    name=${name%%\[*}
    python3 -m venv "$folder/env"
    if [ -n "${OUTSIDE_BASE:-}" ]; then
        for packages in "$folder"/env/lib/python3*/site-packages; do
            echo "$OUTSIDE_BASE/lib/$(basename "$(dirname "$packages")")/site-packages" \
                > "$packages/base.pth"
        done
    fi
    "$folder/env/bin/pip" install --quiet --no-compile "$@" > "$log" 2>&1 || finish
}

# install_npm NAME@VERSION: the same for a package of npm. Without its scripts, which download more.
install_npm() {
    name=${1%@*} version=${1##*@}
    npm install --loglevel=error --no-fund --no-audit --ignore-scripts --prefix "$folder" "$1" > "$log" 2>&1 || finish
}

# ask: the program on stdin answers the questions in this environment. Prints the row.
ask() {
    (cd "$folder" && env/bin/python -) > "$log" 2>&1 || true
    finish
}

# ask_node: the same for a program of JavaScript.
ask_node() {
    cp "$outside/answer.mjs" "$folder"
    cat > "$folder/program.mjs"
    (cd "$folder" && node program.mjs) > "$log" 2>&1 || true
    finish
}

finish() {
    env -u PYTHONPATH python "$outside/compare.py" "$OUTSIDE_MADE" "$folder/answers.json" \
        "$name" "$version" "$log"
    exit
}
