"""A teacher's evaluation: with what it says, and with what others would say, against students who are told nothing.

    python -m verl.evaluation.teaching RUN

`sources` says who is evaluated on what, `serving` lets the models answer, `exam` asks, `fixed` looks for the best fixed
advice, `summary` counts, `document` is the file that stays, `view` the table.
"""
