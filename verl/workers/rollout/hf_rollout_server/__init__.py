"""The rollout engine "hf": transformers models behind verl's replica and server-adapter interface.

`engine` generates (no Ray, no verl), `server` is the Ray actor around it, `replica` starts servers where verl wants
them, `adapter` sends the trainer's weights. Nothing is imported here: a process pays only for what it uses.
"""
