#!/usr/bin/env bash
# Prints the Python of the active conda or virtual environment, else that of .venv in this repository.
# With --create it makes .venv if no environment is active. Every script of the repository asks here, so all agree.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fail() {
    echo "install: error: $*" >&2
    exit 1
}

# If both kinds are active, the one that was activated last comes first on PATH.
first="$(command -v python || true)"
for environment in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
    if [[ -n "$environment" && "$first" == "$environment/bin/python" ]]; then
        echo "$first"
        exit 0
    fi
done
for environment in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
    [[ -z "$environment" ]] && continue
    [[ -x "$environment/bin/python" ]] ||
        fail "no Python in the active environment $environment: \`conda install python=3.11\`, or deactivate it"
    echo "$environment/bin/python"
    exit 0
done

venv="$root/.venv"
if [[ -x "$venv/bin/python" ]] && "$venv/bin/python" -c "" 2>/dev/null; then
    echo "$venv/bin/python"
    exit 0
fi
[[ "${1:-}" == "--create" ]] || fail "no environment yet: run \`bash install.sh\` first"
[[ ! -e "$venv" ]] || fail "$venv does not work (moved, or made by a Python that is gone): delete it and run this again"

seen=""
for name in python3.11 python3.12 python3 python; do
    # A program on PATH may not run (pyenv's shims), or be another version.
    version="$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)"
    if [[ "$version" != 3.11 && "$version" != 3.12 ]]; then
        seen+="${version:+ $version}"
        continue
    fi
    if log="$("$name" -m venv "$venv" 2>&1)"; then
        echo "install: made $venv with Python $version" >&2
        echo "$venv/bin/python"
        exit 0
    fi
    rm -rf "$venv"
    case "$log" in
        *"No space left"*) fail "the disk of $venv is full: free some space, then run this again" ;;
        *"Permission denied"* | *"Read-only"*) fail "cannot write $venv: activate an environment of your own first" ;;
        *) reason="$name has no working venv module: \`apt install python$version-venv\`, or activate a conda environment" ;;
    esac
done
fail "${reason:-Python 3.11 or 3.12 is needed, found${seen:- none}: install it, or activate an environment that has it}"
