"""What a teacher's run needs beside what every run needs: an estimator that sees the reward's parts, and true answers.

>>> check_teaching(config, run, teaching)                            # raises ConfigError
>>> check_taught_rows(config["data"], run, teaching)                 # likewise
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.classmate.config import RunConfig
from verl.classmate.errors import ConfigError
from verl.classmate.frozen import frozen_readers
from verl.data_preprocessing.taught_dataset import has_truth, rows_of_a_question
from verl.teaching.config import NODE, TeachingConfig
from verl.teaching.held_out import held_out_hashes
from verl.teaching.reward_config import RLT_NODE
from verl.teaching.tags import is_blank
from verl.trainer.preflight.chats import sampled_chats
from verl.trainer.preflight.data import KEYS, data_files
from verl.trainer.preflight.reasoning import check_moving_reference
from verl.trainer.preflight.tables import column_values, open_table
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
    if run.max_response_length < teaching.protocol.max_teaching_tokens and teaching.reward.uses_rcl:
        key, most = f"{NODE}.protocol.max_teaching_tokens", run.max_response_length
        raise ConfigError(
            f"{key}={teaching.protocol.max_teaching_tokens} promises the teacher more tokens than it may write in all, "
            f"its private part among them: write {key}={max(1, most // 2)}, or more than "
            f"data.max_response_length={most}"
        )
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
    if teaching.ref_mix.enable:
        check_moving_reference(config, run, f"{NODE}.ref_mix.enable=true", never=f"{NODE}.ref_mix.enable=false")
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


def check_taught_rows(data: Mapping[str, Any], run: RunConfig, teaching: TeachingConfig) -> None:
    """Looks at the rows, behind `check_files`: each asks one thing, and holds what its reward needs.

    Args:
        data: the node `data`.
        run: its typed view.
        teaching: the typed node `rcl`.

    Raises:
        ConfigError: naming the file.
    """
    _check_one_file_each(data, run, teaching)
    readers = len(frozen_readers(run.reward))
    local = [(key, name) for key in KEYS for name in data_files(data, key) if "://" not in name]
    for key, name in local:
        _check_questions(key, name, data["prompt_key"])
        _check_named_students(key, name, len(run.reward.classmates) if key == "train_files" else readers)
        if teaching.reward.uses_rlt:
            _check_solutions(key, name)
        if teaching.reward.uses_rcl:
            _check_truths(key, name)


def rows_a_question(run: RunConfig, teaching: TeachingConfig) -> dict[str, int]:
    """How many rows are made of a question, in `train` and `val`."""
    return rows_of_a_question(
        teaching.protocol.student_assignment,
        students=len(run.reward.classmates),
        readers=len(frozen_readers(run.reward)),
    )


def _check_one_file_each(data: Mapping[str, Any], run: RunConfig, teaching: TeachingConfig) -> None:
    """Rows know by their files whether they are validated on, where that decides how many are made of a question."""
    train, val = (data_files(data, key) for key in KEYS)
    rows = rows_a_question(run, teaching)
    if train == val and rows["train"] != rows["val"]:
        raise ConfigError(
            f"data.val_files names the files of data.train_files, but a question has {rows['val']} rows in validation, "
            f"one for each student, and {rows['train']} in training; name another file, or a copy"
        )


def _check_questions(key: str, name: str, prompt_key: str) -> None:
    """A teacher is asked about one question, which is one turn: no other turn of a prompt would be read."""
    for row, messages in sampled_chats(name, prompt_key):
        roles = [str(message.get("role")) for message in messages]
        content = messages[-1].get("content") if messages else None
        where = f"data.{key}={name}, row {row}"
        if roles != ["user"]:
            raise ConfigError(
                f"{where}: its prompt has the turns {', '.join(roles) or '(none)'}, but a teacher's question is one "
                "turn of the user; write all of it there"
            )
        if not isinstance(content, str) or is_blank(content):
            raise ConfigError(f"{where}: its prompt has no text; take the row out, or write its question")


def _check_named_students(key: str, name: str, students: int) -> None:
    """A row that says which student it is for (`extra_info.student`) names one by its number."""
    import pyarrow as pa

    column = open_table(key, name)[1].field("extra_info").type
    if not pa.types.is_struct(column) or column.get_field_index("student") < 0:
        return
    for row, info in enumerate(column_values(Path(name).expanduser(), "extra_info")):
        named = (info or {}).get("student")
        if named is not None and (type(named) is not int or not 0 <= named < students):
            raise ConfigError(
                f"data.{key}={name}, row {row}: extra_info.student={named!r} says which student the row is for; write "
                f"a number from 0 to {students - 1}, or give the column another name"
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


_EXPLAINED = ("solution", "think_open", "think_close", "think_solution_delimiter", "solution_open")
"""What `extra_info` of a row must hold whose solution is explained."""


def _check_solutions(key: str, name: str) -> None:
    """Every row says what is to be explained, and how its student writes."""
    for number, info in enumerate(column_values(Path(name).expanduser(), "extra_info")):
        missing = [one for one in _EXPLAINED if (info or {}).get(one) is None]
        if missing or not str(info["solution"]).strip():
            raise ConfigError(
                f"data.{key}: row {number} of {name} has no extra_info.{(missing or ['solution'])[0]}; prepare it with "
                "python -m verl.data_preprocessing.teaching_rows --kind rlt"
            )


def _check_truths(key: str, name: str) -> None:
    """A file has a row with a ground truth; those without are left out when they are loaded, and counted."""
    rows = column_values(Path(name).expanduser(), "reward_model")
    if not any(has_truth({"reward_model": value}) for value in rows):
        raise ConfigError(
            f"data.{key}: no row of {name} has a ground truth (reward_model.ground_truth), which students' answers are "
            "compared with; name another file"
        )
