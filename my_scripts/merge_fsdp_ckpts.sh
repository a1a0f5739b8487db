#!/usr/bin/env bash
# Merges the FSDP shards of checkpoints into model folders that transformers and vLLM load.
#
#   bash my_scripts/merge_fsdp_ckpts.sh MAIN_DIR [--step N] [--target DIR] [--repo_name NAME] [--force]
#   bash my_scripts/merge_fsdp_ckpts.sh --smoke
#
#   MAIN_DIR            a run folder, with global_step_N in it
#   --step N            merges only this step; default: all steps that have a model
#   --target DIR        folder for the model of one step; default: global_step_N/actor/huggingface
#   --repo_name NAME    afterwards uploads by upload_ckpts_to_huggingface.py: all steps, the one of --step, or the model
#                       in --target, which goes to main only
#   --force             merges again what is merged
#   --dry-run           prints the commands and starts nothing
#   --smoke             merges a checkpoint of the warm-up's smoke run; starts that run first if there is none
#
# A step whose model folder holds all weights is left alone. Runs write these folders by themselves, unless
# actor_rollout_ref.actor.checkpoint.save_contents says otherwise. Merged weights are bf16.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

main_dir="" step="" target="" repo_name="" force=""
split_options "$@"
set -- "${words[@]}"
while [[ $# -gt 0 ]]; do
    case "$1" in
        --step) step="$(option_value "$@")"; shift ;;
        --target) target="$(option_value "$@")"; shift ;;
        --repo_name) repo_name="$(option_value "$@")"; shift ;;
        --force) force=1 ;;
        --dry-run) dry_run=1 ;;
        --smoke) smoke=1 ;;
        -h | --help) print_header; exit 0 ;;
        -*) fail "$1 is not an option of this script; --help lists them" ;;
        *) [[ -z "$main_dir" ]] || fail "two folders, $main_dir and $1; name one" && main_dir="$1" ;;
    esac
    shift
done
python="$(bash "$root/scripts/find_python.sh")"

if [[ -n "$smoke" ]]; then
    [[ -z "$main_dir$step$target$force" ]] ||
        fail "--smoke merges a run of its own; leave MAIN_DIR, --step, --target and --force out"
    runs=outputs/classmate_cot/qwen3_warmup_sycophancy_smoke
    if [[ -z "$(last_finished_run "$runs")" ]]; then
        warmup=(bash "$root/my_scripts/qwen3_warmup_sycophancy.sh" --smoke)
        # The commands after the warm-up depend on what it leaves.
        [[ -z "$dry_run" ]] || { printf '%q ' "${warmup[@]}" && echo && exit; }
        "${warmup[@]}"
    fi
    main_dir="$(last_finished_run "$runs")"
    target="$main_dir/merged"
    force=1
fi
[[ -n "$main_dir" ]] || fail "no folder is named; write bash my_scripts/merge_fsdp_ckpts.sh MAIN_DIR"

if [[ -n "$step" ]]; then
    steps=("$main_dir/global_step_$step")
else
    # Some folders have no model: upstream removes the parts of an old checkpoint, and keeps the rest.
    mapfile -t steps < <(
        find "$main_dir" -mindepth 2 -maxdepth 2 -path '*/global_step_*/actor' -type d -printf '%h\n' | sort -V
    )
    [[ ${#steps[@]} -gt 0 ]] || fail "$main_dir holds no global_step_N with a model; name a run folder with checkpoints"
fi
[[ -z "$target" || ${#steps[@]} -eq 1 ]] || fail "--target is for one step, $main_dir has ${#steps[@]}; write --step N"

if [[ -n "$repo_name" ]]; then
    # Checked before hours of merging, not after.
    "$python" -c 'import sys; from huggingface_hub.utils import validate_repo_id as check; check(sys.argv[1])' \
        "$repo_name" 2>/dev/null ||
        fail "--repo_name $repo_name is not a name of a repository; write NAME or ORGANISATION/NAME"
    upload=("$python" "$root/upload_ckpts_to_huggingface.py" --repo_name "$repo_name")
    if [[ -n "$target" ]]; then
        upload+=(--main_only_path "$target")
    else
        upload+=(--root_path "$main_dir" ${step:+--step "$step"})
    fi
fi

# Upstream writes file by file. So only a whole merge is moved to its place, and the index, which lists the rest, last.
merge() {
    local actor="$1" folder="$2" partial="$2.partial"
    rm -rf "$partial"
    "$python" -m verl.model_merger merge --backend fsdp --local_dir "$actor" --target_dir "$partial"
    # The merger writes LoRA's adapters beside the weights that the run began with; this merges them.
    "$python" -m verl.utils.checkpoint.lora "$partial"
    mkdir -p "$folder"
    rm -f "$folder"/model*.safetensors "$folder"/model.safetensors.index.json
    find "$partial" -mindepth 1 -maxdepth 1 ! -name '*.index.json' -exec mv -f -t "$folder" {} +
    find "$partial" -mindepth 1 -maxdepth 1 -exec mv -f -t "$folder" {} +
    rmdir "$partial"
    has_weights "$folder" || fail "$folder lacks weights after merging"
}

for checkpoint in "${steps[@]}"; do
    actor="$checkpoint/actor"
    folder="${target:-$actor/huggingface}"
    [[ -f "$actor/fsdp_config.json" ]] || fail "$actor holds no FSDP checkpoint (fsdp_config.json is missing)"
    if [[ -z "$force" ]] && has_weights "$folder"; then
        echo "$folder is whole; --force merges it again"
    elif [[ -n "$dry_run" ]]; then
        printf '%q ' "$python" -m verl.model_merger merge --backend fsdp --local_dir "$actor" --target_dir "$folder"
        echo
    else
        merge "$actor" "$folder"
        echo "merged $folder"
    fi
done

if [[ -n "$repo_name" ]]; then
    if [[ -n "$dry_run" ]]; then
        printf '%q ' "${upload[@]}"
        echo
    else
        exec "${upload[@]}"
    fi
fi
