"""Data files as Arrow gives them: number of rows, schema, and columns in pieces.

>>> rows, schema = open_table("train_files", "train.parquet")
>>> next(column_values(Path("train.parquet"), "data_source"))
'hinted_arithmetic'
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl.classmate.errors import ConfigError


def open_table(key: str, name: str) -> tuple[int, Any]:
    """Number of rows and Arrow schema."""
    import pyarrow.json
    import pyarrow.parquet

    path = Path(name)
    try:
        if path.suffix in (".json", ".jsonl"):
            table = pyarrow.json.read_json(path)
            return table.num_rows, table.schema
        file = pyarrow.parquet.ParquetFile(path)
        return file.metadata.num_rows, file.schema_arrow
    except Exception as error:
        raise ConfigError(
            f"data.{key}={name} cannot be read as {'JSON lines' if path.suffix.startswith('.json') else 'parquet'} "
            f"({type(error).__name__}); make it again or name another file"
        ) from error


def column_values(path: Path, column: str) -> Iterator[Any]:
    """The values of one column, read as they are asked for."""
    for chunk in column_chunks(path, column):
        yield from chunk.to_pylist()


def column_chunks(path: Path, column: str) -> Iterator[Any]:
    """The values of one column as Arrow arrays, read as they are asked for."""
    import pyarrow.json
    import pyarrow.parquet

    if path.suffix in (".json", ".jsonl"):
        yield from pyarrow.json.read_json(path).column(column).chunks
        return
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=256, columns=[column]):
        yield batch.column(0)
