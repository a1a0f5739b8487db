#!/usr/bin/env bash
# Hosts classmates on OpenAI-compatible servers, for runs on this and other machines, until Ctrl-C. See docs/hosting.md.
#
#   bash my_scripts/host_classmate_model.sh [--backend auto|vllm|hf] [MODEL ...] [key=value ...]
#   bash my_scripts/host_classmate_model.sh --smoke    hosts one of the embedded world's models, asks it once, and ends
#
# Without MODEL the script hosts the classmates of the run config (--config-name, key=value). --help lists all options.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(bash "$root/scripts/find_python.sh")"
[[ "${1:-}" == --smoke ]] || exec "$python" -m verl.trainer.hosting.host_classmates "$@"

source "$root/my_scripts/common.sh"
[[ $# -eq 1 ]] || fail "--smoke hosts one of the embedded world's models; leave $2 out"
prepare_world
scratch="$(mktemp -d)"
mapping="$scratch/classmate_model_mapping.json"
"$python" -m verl.trainer.hosting.host_classmates --backend hf --mapping "$mapping" "$world/models/classmate_a" &
launcher=$!
trap 'kill "$launcher" 2>/dev/null || true; wait "$launcher" || true; rm -rf "$scratch"' EXIT
until grep -qs '"port"' "$mapping"; do
    kill -0 "$launcher" 2>/dev/null || fail "the server did not start; its launcher says above why"
    sleep 0.1
done
"$python" - "$mapping" <<'ASK'
import json
import sys
import urllib.request

[(model, server)] = json.load(open(sys.argv[1])).items()
body = {"model": model, "prompt": "Tom has 3 apples and gets 4 more.", "max_tokens": 8}
url = f"http://{server['local_host']}:{server['port']}/v1/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
# Requests to loopback must not go through a proxy that the environment names.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(request, timeout=60) as reply:
    print("answered", repr(json.load(reply)["choices"][0]["text"]))
ASK
