"""The parts of `RowPipeline` (`verl.workers.row_pipeline`): asking classmates, and a row as tensors."""
