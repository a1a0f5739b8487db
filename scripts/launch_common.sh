# shellcheck shell=bash
# What launch.sh and launch_with_server.sh share. They source this file; it is never run.
set -euo pipefail

# launch plain|server [ARGUMENT ...]: the module that reads the arguments takes this process over.
launch() {
    local root python
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
    python="$(bash "$root/scripts/find_python.sh")"
    CLASSMATE_COT_STARTED_AT="${CLASSMATE_COT_STARTED_AT:-$(date +%s.%N)}"
    # Several processes share few cores. With one thread each they do not wait for one another.
    OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    TQ_NUM_THREADS="${TQ_NUM_THREADS:-1}"
    export CLASSMATE_COT_STARTED_AT OMP_NUM_THREADS TQ_NUM_THREADS
    exec "$python" -m verl.trainer.launchers "$@"
}
