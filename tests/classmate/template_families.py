"""Chat templates that behave as those of published model families, written for these tests.

One decision: only behaviour is kept (what is refused, folded, dropped, opened, dated), in few lines of their own.

    >>> with templated(byte_bpe(), FAMILIES["gemma2"].template) as tokenizer: ...
"""

from dataclasses import dataclass, field

from verl.classmate.cot import CotMarkers

THINK = CotMarkers(start="<think>", end="</think>")
HARMONY = CotMarkers(start="<|channel|>analysis<|message|>", end="<|end|><|start|>assistant<|channel|>final<|message|>")


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family's template, and what is true of it."""

    template: str
    """Jinja."""
    thinks: bool
    """Whether its models think by themselves, between `markers`."""
    system: bool = True
    """Whether it takes the system role by itself."""
    alternates: bool = False
    """Whether two user turns in a row are refused."""
    dated: bool = False
    """Whether it asks for the day."""
    preopened: bool = False
    """Whether the generation prompt opens the thought."""
    markers: CotMarkers = field(default=THINK)
    """Of its thoughts."""


_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_ALTERNATION = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% endfor %}"
)
_GEMMA_TURNS = (
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim }}"
    "{{ '<end_of_turn>\n' }}"
)
_GEMMA_PROMPT = "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
_LLAMA_TURNS = (
    "{% for m in rest %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim }}"
    "{{ '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_LLAMA_SYSTEM = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{{ bos_token + '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n' }}"
    "{{ 'Today Date: ' + date_string + '\n\n' + system + '<|eot_id|>' }}"
)

FAMILIES: dict[str, Family] = {
    "qwen3": Family(
        template=(
            "{% set ns = namespace(last=0) %}"
            "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
            "{% for m in messages %}{% set text = m.content %}{% set thought = '' %}"
            "{% if m.role == 'assistant' %}"
            "{% if m.reasoning_content is string %}{% set thought = m.reasoning_content %}"
            "{% elif '</think>' in text %}{% set thought = text.split('</think>')[0].split('<think>')[-1] %}"
            "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}{% endif %}"
            "{{ '<|im_start|>' + m.role + '\n' }}"
            "{% if m.role == 'assistant' and loop.index0 > ns.last %}"
            "{{ '<think>\n' + thought + '\n</think>\n\n' }}{% endif %}"
            "{{ text + '<|im_end|>\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
            "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
            "{% endif %}"
        ),
        thinks=True,
    ),
    "qwen3_instruct_2507": Family(template=_CHATML, thinks=False),
    "qwen3_thinking_2507": Family(
        template=_CHATML.replace("assistant\n", "assistant\n<think>\n"), thinks=True, preopened=True
    ),
    "qwen2_5": Family(
        template=(
            "{% if messages[0].role != 'system' %}"
            "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" + _CHATML
        ),
        thinks=False,
    ),
    "llama3_1": Family(
        template=(
            "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
            + _LLAMA_SYSTEM
            + _LLAMA_TURNS
        ),
        thinks=False,
    ),
    "llama3_2": Family(
        template=(
            "{%- if not date_string is defined %}{% if strftime_now is defined %}"
            "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}"
            "{% endif %}" + _LLAMA_SYSTEM + _LLAMA_TURNS
        ),
        thinks=False,
        dated=True,
    ),
    "gemma2": Family(
        template=(
            "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
            "{{ raise_exception('System role not supported') }}{% endif %}"
            + _ALTERNATION
            + "{% for m in messages %}"
            + _GEMMA_TURNS
            + "{% endfor %}"
            + _GEMMA_PROMPT
        ),
        thinks=False,
        system=False,
        alternates=True,
    ),
    "gemma3": Family(
        template=(
            "{{ bos_token }}{% set first = '' %}{% if messages[0].role == 'system' %}"
            "{% set first = messages[0].content + '\n\n' %}{% set messages = messages[1:] %}{% endif %}"
            + _ALTERNATION
            + "{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
            "{{ (first if loop.first else '') + m.content | trim + '<end_of_turn>\n' }}{% endfor %}" + _GEMMA_PROMPT
        ),
        thinks=False,
        alternates=True,
    ),
    "mistral_v0_1": Family(
        template=(
            "{{ bos_token }}" + _ALTERNATION + "{% for m in messages %}{% if m.role == 'user' %}"
            "{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
        ),
        thinks=False,
        system=False,
        alternates=True,
    ),
    "mistral_v0_3": Family(
        template=(
            "{% set system = '' %}{% if messages[0].role == 'system' %}{% set system = messages[0].content + '\n\n' %}"
            "{% set messages = messages[1:] %}{% endif %}{{ bos_token }}"
            + _ALTERNATION
            + "{% for m in messages %}{% if m.role == 'user' %}"
            "{{ '[INST] ' + (system if loop.last else '') + m.content + '[/INST]' }}"
            "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
        ),
        thinks=False,
        alternates=True,
    ),
    "mistral_small_3": Family(
        template=(
            "{%- set today = strftime_now('%Y-%m-%d') %}"
            "{% macro about() %}"
            "{{ 'The current date is ' + today + ', the year ' + strftime_now(format='%Y') }}{% endmacro %}"
            "{{ bos_token }}{% if messages[0].role == 'system' %}{% set text = messages[0].content %}"
            "{% set rest = messages[1:] %}{% else %}{% set text = about() %}{% set rest = messages %}{% endif %}"
            "{{ '[SYSTEM_PROMPT]' + text + '[/SYSTEM_PROMPT]' }}{% for m in rest %}{% if m.role == 'user' %}"
            "{{ '[INST]' + m.content + '[/INST]' }}{% elif m.role == 'assistant' %}{{ m.content + eos_token }}"
            "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}{% endfor %}"
        ),
        thinks=False,
        dated=True,
    ),
    "r1_distill": Family(
        template=(
            "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
            "{% set ns.system = m.content %}{% endif %}{% endfor %}{{ bos_token + ns.system }}"
            "{% for m in messages %}{% if m.role == 'user' %}{{ '<|User|>' + m.content }}"
            "{% elif m.role == 'assistant' %}"
            "{{ '<|Assistant|>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
        ),
        thinks=True,
        preopened=True,
    ),
    "olmo2": Family(
        template=(
            "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}"
            "{{ eos_token if m.role == 'assistant' else '' }}{{ '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
        ),
        thinks=False,
    ),
    "olmo3_think": Family(
        template=(
            "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are OLMo.<|im_end|>\n' }}{% endif %}"
            + _CHATML.replace("assistant\n", "assistant\n<think>")
        ),
        thinks=True,
        preopened=True,
    ),
    "phi4": Family(
        template=(
            "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
        ),
        thinks=False,
    ),
    "phi3_old": Family(
        # Turns of other roles are left out without a word.
        template=(
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
            "{{ '<|user|>\n' + m.content + '<|end|>\n<|assistant|>\n' }}{% elif m.role == 'assistant' %}"
            "{{ m.content + '<|end|>\n' }}{% endif %}{% endfor %}"
        ),
        thinks=False,
        system=False,
    ),
    "gpt_oss": Family(
        template=(
            "{%- macro about() %}{{ 'You are ChatGPT.\nCurrent date: ' + strftime_now('%Y-%m-%d') }}{% endmacro -%}"
            "{{ '<|start|>system<|message|>' + about() + '<|end|>' }}"
            "{% for m in messages %}{% if m.role == 'system' %}"
            "{{ '<|start|>developer<|message|># Instructions\n\n' + m.content + '<|end|>' }}"
            "{% elif m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
            "{% else %}{% if loop.last and m.thinking %}"
            "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}"
            "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
        ),
        thinks=True,
        dated=True,
        markers=HARMONY,
    ),
    "smollm2": Family(
        template=(
            "{% if messages[0].role != 'system' %}"
            "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM.<|im_end|>\n' }}{% endif %}" + _CHATML
        ),
        thinks=False,
    ),
    "smollm3": Family(
        template=(
            "{% set mode = '/think' if enable_thinking is not defined or enable_thinking else '/no_think' %}"
            "{{ '<|im_start|>system\n## Metadata\n\nToday Date: ' + strftime_now('%d %B %Y') }}"
            "{{ '\nReasoning Mode: ' + mode }}"
            "{% if messages[0].role == 'system' %}{{ '\n\n' + messages[0].content }}{% set rest = messages[1:] %}"
            "{% else %}{% set rest = messages %}{% endif %}{{ '<|im_end|>\n' }}"
            "{% for m in rest %}{{ '<|im_start|>' + m.role + '\n' }}"
            "{{ ('<think>\n\n</think>\n' if m.role == 'assistant' and mode == '/no_think' else '') + m.content }}"
            "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
            "{% if mode == '/no_think' %}{{ '<think>\n\n</think>\n' }}{% endif %}{% endif %}"
        ),
        thinks=True,
        dated=True,
    ),
    "nemotron": Family(
        # Thinks when its system prompt says so; the template only takes earlier thoughts out.
        template=(
            "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
            "{{ (m.content.split('</think>')[-1] | trim if m.role == 'assistant' else m.content) + '<|eot_id|>' }}"
            "{% endfor %}{% if add_generation_prompt %}"
            "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
        ),
        thinks=True,
    ),
}
