"""Which loop a run's own rows go through: a teacher's where the config has the node `rcl`, else the classmates'.

>>> loop = own_loop(config)(pipeline=pipeline, trainer_config=DictConfigWrap(config), ...)
"""

from omegaconf import DictConfig

from verl.experimental.agent_loop.row_loop import ClassmateAgentLoop
from verl.experimental.agent_loop.teacher_loop import TeacherAgentLoop
from verl.teaching.config import this_teaching


def own_loop(config: DictConfig) -> type[ClassmateAgentLoop]:
    """The class of the loop."""
    return ClassmateAgentLoop if this_teaching(config) is None else TeacherAgentLoop
