"""Data sets as parquet files in verl's row format, one module per data set, each with a command line."""
