"""The embedded world: tokenizers, files, reuse and repair (on a tiny world), and what the real one starts from."""

import os
from dataclasses import replace
from functools import partial

import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl.data_preprocessing import arithmetic_problems, hinted_arithmetic
from verl.data_preprocessing.common import read_manifest, run_command
from verl.data_preprocessing.embedded_models import generate, load_model
from verl.data_preprocessing.embedded_tokenizers import train_tokenizer
from verl.data_preprocessing.embedded_world import fingerprint, make_world, summary
from verl.data_preprocessing.worlds.lessons import prompt_text
from verl.data_preprocessing.worlds.presets import HINTED_ARITHMETIC

MODELS = ("policy", "classmate_a", "classmate_b")
DEFAULT = HINTED_ARITHMETIC
TINY = replace(
    DEFAULT,
    train_rows=40,
    val_rows=12,
    policy=replace(DEFAULT.policy, steps=3),
    readers=tuple(replace(reader, model=replace(reader.model, steps=2)) for reader in DEFAULT.readers),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedded") / "world"
    make_world(folder, TINY)
    return folder


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_tokenizers_lose_no_text_and_split_no_digits_or_markers(algorithm):
    texts = [p.prompt for p in arithmetic_problems.iter_problems(seed=0, split="train", count=300)]
    tokenizer = train_tokenizer(algorithm, texts, vocab_size=400)
    for text in ["Tom has 47 apples.", "1,234.5\n\n\ttab  two", "Ünïcödé 中文 \N{GRINNING FACE}", "", " lead"]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
    digits = [tokenizer.convert_tokens_to_ids(d) for d in "4711"]
    for context in ("4711", "a 4711 b", "=4711,", "+4711."):
        assert str(digits)[1:-1] in str(tokenizer(context)["input_ids"])
    spelled = "<think>\nOnes\n</think>\nThe answer is 1.<|im_end|>"
    ids = tokenizer(spelled)["input_ids"]
    for marker in ("<think>", "</think>", "<|im_end|>"):
        assert ids.count(tokenizer.convert_tokens_to_ids(marker)) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == spelled.removesuffix("<|im_end|>")
    assert ids[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


def test_models_load_alone_and_differ_in_size_and_tokenizer(world):
    models = [AutoModelForCausalLM.from_pretrained(world / "models" / name) for name in MODELS]
    tokenizers = [AutoTokenizer.from_pretrained(world / "models" / name) for name in MODELS]
    assert len({model.num_parameters() for model in models}) == 3
    assert 200_000 < models[0].num_parameters() < 400_000
    text = "Tom has 47 apples and gets 38 more."
    assert len({tuple(tokenizer(text)["input_ids"]) for tokenizer in tokenizers}) == 3
    for model, tokenizer in zip(models, tokenizers, strict=True):
        assert model.config.architectures == ["Qwen3ForCausalLM"]
        assert str(model.dtype) == "torch.float32"
        assert model.config.vocab_size == len(tokenizer)
        assert model.generation_config.eos_token_id == tokenizer.eos_token_id
        assert model.generation_config.pad_token_id == tokenizer.pad_token_id


def test_lessons_and_chat_template_agree(world):
    tokenizer = AutoTokenizer.from_pretrained(world / "models" / "policy")
    row = pq.read_table(world / "val.parquet").to_pylist()[3]
    problem = arithmetic_problems.make_problem(seed=0, split="val", index=3)
    render = partial(tokenizer.apply_chat_template, row["prompt"], tokenize=False, add_generation_prompt=True)
    assert render() == render(enable_thinking=True) == prompt_text(problem)
    assert render(enable_thinking=False) == prompt_text(problem) + "<think>\n\n</think>\n\n"


def test_parquet_files_hold_the_rows_of_the_spec(world):
    train, val = (pq.read_table(world / f"{split}.parquet").to_pylist() for split in ("train", "val"))
    assert (len(train), len(val)) == (40, 12)
    assert train[5] == arithmetic_problems.make_dataset_row(
        arithmetic_problems.make_problem(seed=0, split="train", index=5), split="train", index=5
    )


def test_a_whole_world_is_reused(world):
    before = {path: path.stat().st_mtime_ns for path in world.rglob("*")}
    manifest = make_world(world, TINY)
    assert manifest["reused"]
    assert before == {path: path.stat().st_mtime_ns for path in world.rglob("*")}
    assert "found" in summary(world, manifest)
    assert not [path for path in world.parent.iterdir() if path != world]


def test_a_damaged_world_is_built_again_to_the_same_bytes(world):
    hashes = read_manifest(world)["sha256"]
    weights = world / "models" / "policy" / "model.safetensors"
    os.truncate(weights, 100)
    assert read_manifest(world) is None
    assert not make_world(world, TINY)["reused"]
    assert read_manifest(world)["sha256"] == hashes
    assert fingerprint(replace(TINY, seed=1)) != fingerprint(TINY)


def test_foreign_folders_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit, match=r"^error: .*choose an empty or new folder"):
        run_command(partial(hinted_arithmetic.main, ["--output_dir", str(tmp_path)]))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_generation_is_reproducible_and_independent_of_padding(world):
    model, tokenizer = load_model(world / "models" / "policy")
    ask = partial(generate, model, tokenizer, max_new_tokens=8)
    assert ask(["Tom", "Ann has"], temperature=1.0, seed=3) == ask(["Tom", "Ann has"], temperature=1.0, seed=3)
    alone, together = ask(["Tom"], temperature=0.0, seed=0), ask(["Tom", "Ann has 47 pens"], temperature=0.0, seed=0)
    assert alone[0] == together[0]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_world_starts_where_rl_has_something_to_learn(tmp_path):
    manifest = make_world(tmp_path / "world", DEFAULT)
    start = manifest["start"]
    assert 0.3 <= start["policy_accuracy"] <= 0.7
    assert 0.3 <= start["policy_follows_hint"] <= 0.65
    for name in MODELS[1:]:
        assert start[f"{name}_agrees"] > 0.8
        assert abs(start[f"{name}_accuracy"] - start["policy_accuracy"]) < 0.15
