"""Documented commands of the launchers, and some of the keys that their configs must have."""

_SFT_8 = {
    "model.path": "Qwen/Qwen2.5-7B-Instruct",
    "trainer.n_gpus_per_node": 8,
    "data.train_batch_size": 16,
    "data.max_length": 16384,
    "optim.lr": 1e-5,
    "optim.lr_scheduler_type": "cosine",
    "trainer.total_epochs": 10,
    "trainer.default_local_dir": "path/to/save/pre_rl_model",
    "data.source": "bespokelabs/Bespoke-Stratos-17k",
    "engine.param_offload": False,
}

DOCUMENTED: dict[str, dict[str, object]] = {
    "./launch.sh 8 configs/run/teacher_sft.yaml output_dir=path/to/save/pre_rl_model": _SFT_8,
    "./launch.sh 8 configs/run/teacher_sft.yaml output_dir=path/to/save/pre_rl_model offload report_to=null": {
        **_SFT_8,
        "engine.param_offload": True,
        "engine.optimizer_offload": True,
        "trainer.logger": ["console"],
    },
    "./launch.sh 4 teacher_sft model_name_or_path=my/custom/model zero1": {
        "model.path": "my/custom/model",
        "engine.reshard_after_forward": False,
        "engine.optimizer_offload": False,
        "trainer.default_local_dir": "results/pre_rl_model",
    },
    "./launch_with_server.sh 4 4 configs/run/teacher_rcl.yaml model_name_or_path=path/of/saved/pre_rl_model "
    "results_dir=path/to/save/rcl_model": {
        "actor_rollout_ref.model.path": "path/of/saved/pre_rl_model",
        "trainer.n_gpus_per_node": 4,
        "trainer.device": "cuda",
        "rcl.students": [{"model": "Qwen/Qwen3-4B", "backend": "openai"}],
        "rcl.reward.preset": "rcl_readme",
        "data.train_batch_size": 4,
        "actor_rollout_ref.rollout.n": 32,
        "data.max_prompt_length": 4096,
        "data.max_response_length": 4096,
        "actor_rollout_ref.actor.kl_loss_coef": 0.04,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "trainer.total_training_steps": 250,
        "rcl.ref_mix.enable": False,
    },
    "./launch_with_server.sh 1 3 configs/run/teacher_rcl.yaml dataset_id_or_path=my/data/path learning_rate=0.0001 "
    "degradation_penalty=2.0 model_name_or_path=Qwen/Qwen2.5-7B-Instruct offload train_batch_size=96": {
        "data.source": "my/data/path",
        "actor_rollout_ref.actor.optim.lr": 0.0001,
        "rcl.reward.degradation_penalty": 2.0,
        "trainer.n_gpus_per_node": 3,
        "data.train_batch_size": 3,
        "actor_rollout_ref.actor.fsdp_config.param_offload": True,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload": True,
        "actor_rollout_ref.ref.fsdp_config.param_offload": True,
    },
    "./launch_with_server.sh 4 4 run/teacher_rlt.yaml reward=rlt data=teacher_custom dataset_id_or_path=rows.parquet": {
        "rcl.reward.kind": "rlt",
        "rcl.ref_mix.enable": True,
        "rcl.ref_mix.every": 32,
        "data.train_batch_size": 16,
        "actor_rollout_ref.rollout.n": 64,
        "data.train_files": "rows.parquet",
        "data.format": "custom",
        "data.max_prompt_length": 16384,
        "trainer.total_training_steps": 125,
    },
    "./launch_with_server.sh 0 1 configs/run/teacher_rcl_1gpu.yaml": {
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-0.5B-Instruct",
        "rcl.students": [{"model": "Qwen/Qwen2.5-0.5B-Instruct", "placement": "colocated"}],
        "data.source": "openai/gsm8k",
        "trainer.n_gpus_per_node": 1,
    },
}
"""Commands -> some of the keys of their configs."""
