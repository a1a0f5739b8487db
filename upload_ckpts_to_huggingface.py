#!/usr/bin/env python3
"""Uploads the checkpoints of a run to the Hugging Face hub.

    python upload_ckpts_to_huggingface.py --root_path outputs/run --repo_name me/model --dry_run
    python upload_ckpts_to_huggingface.py --root_path outputs/run --repo_name me/model --private
    python upload_ckpts_to_huggingface.py --root_path outputs/run --step 40 --repo_name me/model
    python upload_ckpts_to_huggingface.py --main_only_path outputs/run/global_step_80 --repo_name me/model

Every global_step_N goes to a branch of that name, the newest to main as well; shards are merged first where a
checkpoint has no whole model yet. The same command continues an upload that was broken off.
"""

import argparse
from pathlib import Path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--root_path", type=Path, help="run folder, or any folder with global_step_N in it")
    source.add_argument("--main_only_path", type=Path, help="one global_step_N or model folder, to main only")
    parser.add_argument("--step", type=int, help="with --root_path: only this step; to main too if it is the newest")
    parser.add_argument("--repo_name", required=True, help="organisation/name, or name for your own account")
    parser.add_argument("--organization", help="organisation, if --repo_name names none")
    parser.add_argument("--private", action="store_true", help="make the repository private")
    parser.add_argument("--license", help="for the model card, in the hub's spelling, such as apache-2.0")
    parser.add_argument("--training_state", action="store_true", help="also shards, optimizer and dataloader")
    parser.add_argument("--dry_run", action="store_true", help="show what would be sent; needs no login")
    arguments = parser.parse_args()
    if arguments.step is not None and arguments.main_only_path:
        parser.error("--step is for --root_path: leave it out, since --main_only_path names one checkpoint")
    if arguments.organization is not None and "/" in arguments.repo_name:
        parser.error("--repo_name already names an organisation: leave out --organization")

    from tqdm import tqdm

    from verl.data_preprocessing.common import run_command
    from verl.hub.checkpoints import read_folder, read_run
    from verl.hub.upload import Target, describe, upload

    def work() -> None:
        root, name, owner = arguments.root_path, arguments.repo_name, arguments.organization
        run = read_run(root, step=arguments.step) if root else read_folder(arguments.main_only_path)
        target = Target(
            repo_id=name if owner is None else f"{owner}/{name}",
            private=arguments.private,
            licence=arguments.license,
            training_state=arguments.training_state,
            main_only=arguments.main_only_path is not None,
        )
        if arguments.dry_run:
            print("\n".join(describe(run, target)))
        else:
            upload(run, target, say=tqdm.write)

    run_command(work)


if __name__ == "__main__":
    main()
