"""The classmate method as pure functions and data: no Ray, no engine, no I/O.

A policy's chain of thought is found (`cot`), handed to other models (`prompts`), and what they answer is scored
(`scoring`). `config` holds every option and default. One decision: nothing is imported here, so that
`verl.classmate.config` stays light.

    >>> from verl.classmate import cot, prompts, scoring
    >>> span = cot.locate(response_ids, tokenizer, cot.CotMarkers(start="<think>", end="</think>"))
"""
