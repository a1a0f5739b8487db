"""Data sets of questions with solutions and, often, thoughts: how each writes them, and what teachers are made of it.

>>> from verl.data_preprocessing.reasoning_traces import DATA_CONFIGS
>>> DATA_CONFIGS["bespoke_stratos"].think_open
'<|begin_of_thought|>'
"""

from verl.data_preprocessing.reasoning_traces.completions import Completion, TagFormat
from verl.data_preprocessing.reasoning_traces.formats import DATA_CONFIGS, DataConfig, data_config, register_data_config
from verl.data_preprocessing.reasoning_traces.rows import Columns, TracedRow

__all__ = [
    "DATA_CONFIGS",
    "Columns",
    "Completion",
    "DataConfig",
    "TagFormat",
    "TracedRow",
    "data_config",
    "register_data_config",
]
