"""Which part of an answer is the program, however it is fenced and whatever stands before and behind it."""

import ast
import json
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from verl.utils.reward_score.cot_monitor._program import asked_names, program_of


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("a\n```python\nx = 1\n```\nb", "x = 1\n"),
        ("```py\nx\n```\n```\ny\n```", "y\n"),
        ("x = 1", "x = 1"),
        ("no program at all", "no program at all"),
        ("- point\n  ```python\n  x\n  ```", "x\n"),
        ("```python\ns = '```'\n```", "s = '```'\n"),
        ("```python\nx = 1", "x = 1\n"),
        ("```python\n```", ""),
        ("```text\nthis is (no program\n```", "this is (no program\n"),
        ("```\nthis is (no program\n```\n\nSorry.", "this is (no program\n"),
    ],
)
def test_the_last_fenced_block_is_the_program(text: str, program: str) -> None:
    assert program_of(text) == program


SOLUTION = "import math\n\n\ndef f(x):\n    return 2 * x\n"
TRICKY = {
    "a docstring with fences": 'def f(x):\n    """Double.\n\n    ```py\n    f(2)\n    ```\n    """\n    return 2 * x\n',
    "a docstring with a fence at its margin": 'def f(x):\n    """Doubles.\n\n```\nf(2)\n```\n"""\n    return 2 * x\n',
    "one fence in a string": "def f(x):\n    s = '''\n```\n'''\n    return 2 * x\n",
    "a fence in a short string": 'def f(x):\n    s = "```"\n    return 2 * x\n',
    "a fence in a comment": "def f(x):\n    # not ```\n    return 2 * x\n",
    "tildes in a docstring": 'def f(x):\n    """\n    ~~~\n    f(2)\n    ~~~\n    """\n    return 2 * x\n',
    "quotation marks in comments": 'def f(x):\n    # don\'t use """ here\n    return 2 * x\n',
    "a class": "class f:\n    def __new__(cls, x):\n        return 2 * x\n",
    "an assignment": "f = lambda x: 2 * x\n",
    "an assignment with a type": "from typing import Any\n\nf: Any = lambda x: 2 * x\n",
    "another name": "def g(x):\n    return 2 * x\n\n\nf = g\n",
    "a part of another": "from functools import partial\nfrom operator import mul\n\nf = partial(mul, 2)\n",
    "a method": "class G:\n    def double(self, x):\n        return 2 * x\n\n\nf = G().double\n",
    "a wrapped function": "import functools\n\n\ndef g(x):\n    return 2 * x\n\n\nf = functools.lru_cache(None)(g)\n",
    "a definition in a condition": "if True:\n    def f(x):\n        return 2 * x\n",
    "an import": "from operator import neg as f\n",
}


def fenced(program: str) -> dict[str, str]:
    """A program in every way in which models write one."""
    return {
        "plain": f"```python\n{program}```",
        "no tag": f"```\n{program}```",
        "capital tag": f"```Python\n{program}```",
        "py": f"```py\n{program}```",
        "attributes": f'```python title="solution.py"\n{program}```',
        "braces": f"```{{.python}}\n{program}```",
        "blank before the tag": f"``` python\n{program}```",
        "text around": f"Here it is:\n\n```python\n{program}```\n\nIt doubles x, doesn't it?",
        "indented": "1. So:\n" + textwrap.indent(f"```python\n{program}```", "   ") + "\n\n2. Done.",
        "indented fences only": f"  ```python\n{program}  ```",
        "code indented, fences not": "```python\n" + textwrap.indent(program, "    ") + "```",
        "behind a list mark": "- ```python\n" + textwrap.indent(program, "  ") + "  ```",
        "in a quotation": textwrap.indent(f"```python\n{program}```", "> ", lambda line: True),
        "unclosed": f"So:\n```python\n{program}",
        "unclosed, with text behind": f"```python\n{program}\nThis doubles x.",
        "four backticks": f"````python\n{program}````",
        "four backticks around three": f"````markdown\n```python\n{program}```\n````",
        "more backticks at the end": f"```python\n{program}`````",
        "tildes": f"~~~python\n{program}~~~",
        "four tildes": f"~~~~\n{program}~~~~",
        "begins in mid-line": f"The program is: ```python\n{program}```",
        "begins in mid-line without a tag": f"The program is: ```\n{program}```",
        "ends in mid-line": f"```python\n{program.rstrip()}```",
        "ends in mid-line before text": f"```python\n{program.rstrip()} ```\n\nIt doubles x.",
        "bold title": f"**solution.py**```python\n{program}```",
        "windows": f"```python\n{program}```".replace("\n", "\r\n"),
    }


BEHIND = {
    "usage": "\n\nExample:\n```python\nprint(f(2))\nassert f(3) == 6\n```",
    "usage with a name": "\n\nExample:\n```python\nresult = f(2)\nprint(result)\n```\n",
    "usage that imports": "\n\nExample:\n```python\nfrom solution import f\nprint(f(2))\n```\n",
    "usage that takes the name": "\n\nUsage:\n```python\nf = f(2)\nprint(f)\n```\n",
    "usage that takes the name in a loop": "\n\nUsage:\n```python\nfor f in map(f, range(3)):\n    print(f)\n```\n",
    "usage that takes the name of a result": "\n\n```python\nwith open('x') as f:\n    f.read()\n```\n",
    "the name itself": "\n\n```python\nf = f\n```\n",
    "a number of that name": "\n\n```python\nf = 4\nprint(f)\n```\n",
    "tests": "\n\n```python\ndef test_f():\n    assert f(2) == 4\n\ntest_f()\n```\n",
    "output": "\n\nOutput:\n```\n4\n```\n",
    "output with words": "\n\nOutput:\n```text\nthe result is: 4\n```\n",
    "empty": "\n\n```\n```\n",
    "shell": "\n\nRun it:\n```bash\n$ python solution.py\n4\n```\n",
    "install": "\n\n```sh\npip install numpy\n```\n",
    "session": "\n\n```pycon\n>>> f(2)\n4\n```\n",
    "json": '\n\n```json\n{"x": 2}\n```\n',
    "another language": "\n\nIn C:\n```c\nint f(int x) { return 2 * x; }\n```\n",
    "javascript": "\n\n```js\nconst f = (x) => 2 * x;\n```\n",
    "tildes": "\n\n~~~\nf(2)\n~~~\n",
    "an unclosed fence": "\n\nExample:\n```\nf(2)\n",
    "inline code": "\n\nHere `f(2)` is ```4```.\n",
    "the head alone": "\n\nIts head:\n```python\ndef f(x):\n    ...\n```\n",
    "a formula": "\n\n```math\nf(x) = 2x\n```\n",
    "two of them": "\n\n```python\nprint(f(2))\n```\nwhich prints\n```\n4\n```\n",
}
BEFORE = {
    "a plan": "Plan:\n```\nread, double, return\n```\n\n",
    "a first attempt": "```python\ndef f(x):\n    return x + 2\n```\nNo, that adds.\n\n",
    "the question": "```python\nassert f(2) == 4\n```\n\n",
    "a helper": "```python\ndef g(x):\n    return x\n```\n\n",
    "shell": "```bash\npip install x\n```\n\n",
    "inline code": "Use ```f``` so: \n\n",
}


def same(one: str, other: str) -> bool:
    """Whether two sources are one program, apart from the blanks in docstrings."""
    try:
        return meaning(one) == meaning(other)
    except SyntaxError:
        return False


@cache
def meaning(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as docstring):
                docstring.value = " ".join(text.split())
    return ast.dump(tree)


@pytest.mark.parametrize("form", fenced(SOLUTION))
@pytest.mark.parametrize("program", [SOLUTION, *TRICKY.values()])
def test_however_it_is_fenced(program: str, form: str) -> None:
    if form == "in a quotation" and "docstring" in next(
        (name for name, known in TRICKY.items() if known == program), ""
    ):
        program = program.replace("\n\n", "\n")
    text = fenced(program)[form]
    assert same(program_of(text, {"f"}), program), program_of(text, {"f"})


@pytest.mark.parametrize("form", fenced(SOLUTION))
@pytest.mark.parametrize("behind", BEHIND)
def test_whatever_stands_around_it(form: str, behind: str) -> None:
    if "unclosed" in form or form == "four backticks around three":
        behind = "inline code" if behind != "an unclosed fence" else behind
    for before in ("", *BEFORE.values()):
        text = f"{before}{fenced(SOLUTION)[form]}{BEHIND[behind] if 'unclosed' not in form else ''}"
        assert same(program_of(text, {"f"}), SOLUTION), text


def test_without_a_fence_of_its_own() -> None:
    for behind in ("usage", "output", "shell", "two of them"):
        assert same(program_of(SOLUTION + BEHIND[behind].replace("Example:", ""), {"f"}), SOLUTION), behind
    for program in TRICKY.values():
        assert program_of(program, {"f"}) == program


def test_the_last_definition_counts() -> None:
    wrong = "```python\ndef f(x):\n    return x + 2\n```"
    right = f"```python\n{SOLUTION}```"
    assert same(program_of(f"{wrong}\nNo:\n{right}", {"f"}), SOLUTION)
    assert not same(program_of(f"{right}\nNo:\n{wrong}", {"f"}), SOLUTION)
    assert same(program_of(f"{right}\nNo:\n```python\ndef f(x)\n    return x + 2\n```", {"f"}), SOLUTION)


def test_a_program_that_reads_and_prints() -> None:
    program = "for line in open(0):\n    print(line.strip())\n"
    for behind in ("output", "output with words", "shell", "json", "empty", "session", "tildes"):
        assert same(program_of(fenced(program)["plain"] + BEHIND[behind]), program), behind


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        (["assert f(2) == 4", "assert g(f(1))"], {"f", "g"}),
        (["four = 4\nassert f(2) == four"], {"f"}),
        (["import math\nassert math.isclose(f(2), 4)"], {"f"}),
        (["def check(candidate):\n    assert candidate(2) == 4\n\ncheck(f)"], {"f"}),
        (["assert sorted(f([2, 1])) == [x for x in range(1, 3)]"], {"f"}),
        (["assert C().f(2) == 4"], {"C"}),
        (["assert sum(10, 15) == 6"], {"sum"}),
        (["this is (no Python"], set()),
        ([], set()),
    ],
)
def test_what_tests_ask_for(tests: list[str], names: set[str]) -> None:
    assert asked_names(tests) == names


def real_tasks(sample_data: Callable[[str], Path]) -> Iterator[tuple[str, frozenset[str], str]]:
    """Solution, names that the tests ask for, and the name of the function, of every task at hand."""
    for line in sample_data("humaneval.jsonl").open():
        task = json.loads(line)
        head, name = task["prompt"], task["entry_point"]
        tests = [f"{head.partition(f'def {name}(')[0].strip()}\n{task['test'].rstrip()}\n\ncheck({name})\n"]
        yield head + task["canonical_solution"], asked_names(tests), name
    for line in sample_data("mbpp_sanitized.jsonl").open():
        task = json.loads(line)
        tests = ["\n".join([*task["test_imports"], test]) for test in task["test_list"]]
        yield task["code"].rstrip() + "\n", asked_names(tests), ""


def test_every_real_solution_in_every_form(sample_data: Callable[[str], Path]) -> None:
    count, wrong = 0, []
    for number, (solution, asked, name) in enumerate(real_tasks(sample_data)):
        assert asked
        assert not name or name in asked
        used = sorted(asked)[0]
        behind = (
            list(BEHIND.values())[number % len(BEHIND)].replace("f(", f"{used}(").replace("import f", f"import {used}")
        )
        for form, text in fenced(solution).items():
            count += 1
            text = text if "unclosed" in form else text + behind
            if not same(program_of(text, asked), solution):
                wrong.append((number, form, behind))
    assert count == 479 * len(fenced(""))
    assert not wrong, (len(wrong), wrong[:10])
