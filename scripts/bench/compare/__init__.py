"""What a training step costs here and in other trainers, on the same models, prompts and lengths.

One decision: the lengths are forced by the models and not by the trainers. The models can write no end of a turn, so
that every answer goes to its limit in any engine, at no cost; what differs between peers is then only how they work.

    python -m scripts.bench.compare --arms "ours/*" "trl/*" --repeats 3

A peer is one file here that says how to start it (`ours.py`, `plain_verl.py`, `trl_peer.py`); `arms.py` lists what is
run, `workload.py` makes what all of them work on, `runner.py` starts one run and measures it, `report.py` counts.
"""
