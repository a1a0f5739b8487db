#!/usr/bin/env bash
# Builds the image of my_scripts/Dockerfile and makes a container of it. The container has all GPUs, and sees this
# checkout, the data and this machine's cache of the hub.
#
#   bash my_scripts/create_docker.sh [OPTION ...] [-- ARGUMENT_OF_DOCKER_CREATE ...]
#   docker start verl
#   docker exec -it verl bash
#
#   --name NAME         name of the container; default: verl
#   --image NAME        name of the image; default: classmate-cot-verl
#   --data DIR          mounted as data/ of the checkout; default: this checkout's own
#   --hf-cache DIR      models and data of the hub; default: $HF_HOME or ~/.cache/huggingface
#   --shm-size SIZE     shared memory, for NCCL and Ray; default: 64g
#   --gpus WHICH        GPUs, as docker takes them; default: all
#   --dry-run, --smoke  prints the commands and starts nothing
#
# Arguments after -- go to `docker create`.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

container=verl image=classmate-cot-verl data="" shm_size=64g gpus=all
hf_cache="${HF_HOME:-$HOME/.cache/huggingface}"
split_options "$@"
set -- "${words[@]}"
while [[ $# -gt 0 && "$1" != -- ]]; do
    case "$1" in
        --name) container="$(option_value "$@")"; shift ;;
        --image) image="$(option_value "$@")"; shift ;;
        --data) data="$(option_value "$@")"; shift ;;
        --hf-cache) hf_cache="$(option_value "$@")"; shift ;;
        --shm-size) shm_size="$(option_value "$@")"; shift ;;
        --gpus) gpus="$(option_value "$@")"; shift ;;
        --dry-run | --smoke) dry_run=1 ;;
        -h | --help) print_header; exit 0 ;;
        *) fail "$1 is not an option of this script; --help lists them, docker's own come behind --" ;;
    esac
    shift
done
[[ "${1:-}" != -- ]] || shift

inside=/workspace/classmate-cot-verl
build=(docker build --file "$root/my_scripts/Dockerfile" --tag "$image")
for variable in PIP_INDEX_URL PIP_EXTRA_INDEX_URL MAX_JOBS; do
    # Without a value docker takes the variable from the environment, so that no login in an address is shown.
    [[ -z "${!variable:-}" ]] || build+=(--build-arg "$variable")
done
build+=("$root")
create=(
    docker create --name "$container" --gpus "$gpus" --shm-size "$shm_size"
    --ulimit memlock=-1 --ulimit stack=67108864
    --volume "$root:$inside"
    --volume "$(realpath -m "$hf_cache"):/cache/huggingface"
)
[[ -z "$data" ]] || create+=(--volume "$(realpath -m "$data"):$inside/data")
create+=(--workdir "$inside" "$@" "$image")

if [[ -n "$dry_run" ]]; then
    printf '%q ' "${build[@]}" && echo
    printf '%q ' "${create[@]}" && echo
    exit
fi
command -v docker >/dev/null ||
    fail "docker is not installed; see docs/setup.md, or install into an environment by \`bash install.sh --gpu\`"
if docker container inspect "$container" >/dev/null 2>&1; then
    fail "there is a container $container; \`docker start $container\` starts it, \`docker rm $container\` removes it, and --name makes another"
fi
mkdir -p "$hf_cache"
"${build[@]}"
"${create[@]}"
echo "made the container $container; now: docker start $container && docker exec -it $container bash"
