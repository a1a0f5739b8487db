"""Entry point of supervised training: a teacher's warm-up, and a student's training on what a teacher has left.

    python -m verl.trainer.teacher_sft model.path=MODEL data.train_files=train.parquet \\
        trainer.default_local_dir=outputs/pre_rl_model
"""

from verl.trainer.run import launch
from verl.trainer.sft import run

if __name__ == "__main__":
    launch.main(run.CONFIG, run.train, hardware=run.HARDWARE, help_text=run.HELP)
