"""What a teacher's run needs beside what every run needs: an estimator that sees the reward's parts, and true answers.

>>> check_teaching(config, run)                                      # raises ConfigError
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.config import RunConfig
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_readers
from verl.data_preprocessing.taught_dataset import has_truth
from verl.teaching.config import NODE, TeachingConfig
from verl.teaching.held_out import held_out_hashes
from verl.teaching.reward_config import RLT_NODE
from verl.trainer.preflight.data import data_files
from verl.trainer.preflight.tables import column_values
from verl.workers.classmates.placement import resolved_schedule, scores_at_any_temperature, taking_turns
from verl.workers.explaining import writing_temperature

ESTIMATORS = {"rcl": ("grpo",), "rlt": ("grpo",), "rcl+rlt": ("gdpo_classmate", "gdpo_wo_bn")}
"""By `rcl.reward.kind`: those in which each part of the reward is normalised as it should be."""


def check_teaching(config: Mapping[str, Any], run: RunConfig, teaching: TeachingConfig) -> None:
    """Looks at what only the whole config shows.

    Args:
        config: the whole, resolved.
        run: its typed view.
        teaching: its typed node `rcl`.

    Raises:
        ConfigError: one line that says what to write.
    """
    if not run.reward.classmates:
        raise ConfigError(f"no student is named; write '{NODE}.students=[{{model: PATH-OR-HUB-NAME}}]'")
    kind, estimator = teaching.reward.kind, run.algorithm.adv_estimator
    if estimator not in ESTIMATORS[kind]:
        raise ConfigError(
            f"algorithm.adv_estimator={estimator} does not know the parts of {NODE}.reward.kind={kind}; write "
            f"{' or '.join(ESTIMATORS[kind])}"
        )
    if run.algorithm.norm_adv_by_std_in_grpo and teaching.reward.uses_rcl and estimator == "grpo":
        shape = teaching.reward.shape
        if shape.degradation_penalty != 1 and teaching.reward.degradation_penalty is not None:
            raise ConfigError(
                f"{NODE}.reward.degradation_penalty has no effect where advantages are divided by their group's "
                "deviation; write algorithm.norm_adv_by_std_in_grpo=false"
            )
    if run.max_response_length < 2:
        raise ConfigError("data.max_response_length leaves no room for a teaching; write 64 or more")
    if teaching.protocol.teacher_asks:
        _check_author(config, run, teaching)
    if teaching.reward.uses_rlt:
        rollout = config["actor_rollout_ref"]["rollout"]
        _check_temperatures(rollout, run, teaching)
        _check_whole_distribution(rollout, kind)
        if not rollout["calculate_log_probs"]:
            raise ConfigError(
                f"{NODE}.reward.kind={kind} compares with the teacher's own log-probs; write "
                "actor_rollout_ref.rollout.calculate_log_probs=true"
            )
        _check_solutions(config["data"])
    if teaching.reward.uses_rcl:
        _check_truths(config["data"])
    if teaching.ref_mix.enable:
        _check_ref_mix(config)
    if teaching.collect.enable:
        held_out_hashes(teaching.collect.exclude_files)


def _check_author(config: Mapping[str, Any], run: RunConfig, teaching: TeachingConfig) -> None:
    """Students reply while the teacher's row is made, there is room for both of its turns, and both are trained."""
    key, protocol = f"{NODE}.protocol.probe.author", teaching.protocol
    schedule = resolved_schedule(config, run.reward)
    if taking_turns(run.reward, schedule):
        raise ConfigError(
            f"{key}=teacher asks students while rows are written, when classmate_schedule={schedule} has them asleep; "
            f"write reward_model.classmate_schedule=streamed, or {key}=student_prompt"
        )
    if taking_turns(run.reward, schedule, validate=True):
        raise ConfigError(
            f"{key}=teacher asks students while rows are written, when colocated unseen students are asleep; write "
            f"placement: dedicated into {NODE}.unseen_students, or {NODE}.unseen_students=[]"
        )
    if run.reward.token_level_main_reward_mode != "all_tokens":
        raise ConfigError(
            f"reward_model.token_level_main_reward_mode={run.reward.token_level_main_reward_mode} would train the "
            f"last turn alone, but {key}=teacher writes two; write all_tokens"
        )
    between = protocol.probe.max_question_tokens + protocol.max_probe_tokens
    if run.max_response_length <= between:
        raise ConfigError(
            f"data.max_response_length={run.max_response_length} holds the teacher's question, the reply (at most "
            f"{between} tokens), teacher_adaptive_template and the advice; write {between + 512} or more"
        )


def _check_temperatures(rollout: Mapping[str, Any], run: RunConfig, teaching: TeachingConfig) -> None:
    """Teacher and students are scored at the temperatures that `rcl.reward.rlt` asks for."""
    rlt = teaching.reward.rlt
    able = all(scores_at_any_temperature(one, policy_engine=run.policy_engine) for one in frozen_readers(run.reward))
    for validate, key in ((False, "temperature"), (True, "val_kwargs.temperature")):
        key = f"actor_rollout_ref.rollout.{key}"
        heat = writing_temperature(rollout, validate=validate)
        teacher, _ = rlt.temperatures(heat, any_temperature=able, key=key)
        if teacher != heat:
            raise ConfigError(
                f"{RLT_NODE}.unbias_teacher_log_probs=false scores the teacher at 1, but engines tell of what it "
                f"writes at {key}={heat:g}; write unbias_teacher_log_probs=true, or {key}=1"
            )


def _check_whole_distribution(rollout: Mapping[str, Any], kind: str) -> None:
    """What is drawn of the likeliest tokens alone has log-probs that the students' cannot be compared with."""
    for name, node in (("", rollout), ("val_kwargs.", rollout["val_kwargs"])):
        if name and not float(node["temperature"]):
            # Nothing is drawn.
            continue
        for key, whole, cuts in (("top_p", "1", float(node["top_p"]) < 1), ("top_k", "-1", int(node["top_k"]) > 0)):
            if cuts:
                raise ConfigError(
                    f"actor_rollout_ref.rollout.{name}{key}={node[key]} biases {NODE}.reward.kind={kind}, whose "
                    "students are scored over all tokens; write "
                    f"actor_rollout_ref.rollout.{name}{key}={whole}"
                )


def _check_ref_mix(config: Mapping[str, Any]) -> None:
    """There is a reference, and each of its shards is of the same weights as the policy's."""
    policy, key = config["actor_rollout_ref"], f"{NODE}.ref_mix.enable"
    actor, reference, model = policy["actor"], policy["ref"], policy["model"]
    if not actor["use_kl_loss"]:
        raise ConfigError(
            f"{key}=true moves a reference, but nothing is compared with one; write "
            f"actor_rollout_ref.actor.use_kl_loss=true, or {key}=false"
        )
    if (model.get("lora") or {}).get("rank") or model.get("lora_rank") or model.get("lora_adapter_path"):
        raise ConfigError(
            f"{key}=true needs a reference of its own, but with adapters it is the policy without them; write "
            f"{key}=false"
        )
    if not actor["strategy"] == reference["strategy"] == "fsdp2":
        raise ConfigError(
            f"{key}=true mixes the shards of FSDP2; write actor_rollout_ref.actor.strategy=fsdp2 "
            "actor_rollout_ref.ref.strategy=fsdp2"
        )
    size, other = actor["fsdp_config"]["fsdp_size"], reference["fsdp_config"]["fsdp_size"]
    if size != other:
        raise ConfigError(
            f"{key}=true needs policy and reference in the same shards; write "
            f"actor_rollout_ref.ref.fsdp_config.fsdp_size={size} (it is {other})"
        )


_EXPLAINED = ("solution", "think_open", "think_close", "think_solution_delimiter", "solution_open")
"""What `extra_info` of a row must hold whose solution is explained."""


def _check_solutions(data: Mapping[str, Any]) -> None:
    """Every row says what is to be explained, and how its student writes."""
    for key in ("train_files", "val_files"):
        for name in data_files(data, key):
            path = Path(name).expanduser()
            if "://" in name or path.suffix != ".parquet":
                continue
            for number, info in enumerate(column_values(path, "extra_info")):
                missing = [one for one in _EXPLAINED if info.get(one) is None]
                if missing or not str(info["solution"]).strip():
                    raise ConfigError(
                        f"data.{key}: row {number} of {name} has no extra_info.{(missing or ['solution'])[0]}; prepare "
                        "it with python -m verl.data_preprocessing.teaching_rows --kind rlt"
                    )


def _check_truths(data: Mapping[str, Any]) -> None:
    """Each file has a row with a ground truth; those without are left out when they are loaded, and counted."""
    for key in ("train_files", "val_files"):
        for name in data_files(data, key):
            path = Path(name).expanduser()
            if "://" in name or path.suffix != ".parquet":
                continue
            if not any(has_truth({"reward_model": value}) for value in column_values(path, "reward_model")):
                raise ConfigError(
                    f"data.{key}: no row of {name} has a ground truth (reward_model.ground_truth), which students' "
                    "answers are compared with; name another file"
                )
