"""The program in an answer: the last fenced block that is Python and defines what the tests ask for.

Decision: blocks are found in every way in which they can be meant (a fence in a docstring may close the block or not,
so may one at the end of a line), and Python's own parser says which of the readings are programs. Examples of use,
output and other languages behind the solution thus never take its place. Where nothing parses, the last block is run,
and fails as it should; where there is no fence, all of the text is.

    program_of("```python\\ndef f(): return 1\\n```\\nFor example:\\n```\\nf()\\n```", asked_names(["assert f() == 1"]))
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

_LONGEST = 200_000
"""Characters; a longer block is not parsed, and no program that was asked for is so long."""
_CUTS = 3
"""How often the text behind a program that no fence closes is cut off at the line that is no Python."""

_FENCE = re.compile(r"`{3,}|(?<!~)~{3,}")
_TAG = re.compile(r"\{?\.?(?P<name>[\w+#.-]{0,30})\}?(?:\s+[\w-]{1,30}=\S{1,200}|\s*\{[^{}]{0,200}\}){0,5}\s*")
_PYTHON = frozenset({"", "python", "py", "python3", "py3", "python2", "ipython", "ipython3"})
_LANGUAGE_FIRST = re.compile(r"\s*(?:python3?|py3?)\s+", re.IGNORECASE)
_QUOTED = re.compile(r"[ \t]{0,20}>[ \t]?")
# What may hide a fence outside of a string over several lines: a comment, and a string in one line.
_TOKEN = re.compile(r"""#.*|\"\"\"|'''|"(?:\\.|[^"\\])*+"?|'(?:\\.|[^'\\])*+'?""")


@dataclass(frozen=True, kw_only=True)
class _Block:
    """One reading of a fenced block, or of text outside of blocks."""

    line: int
    """Number of the line where it begins."""
    tag: str
    """What stands behind the fence, in small letters."""
    source: str
    """What is in it."""
    fenced: bool = True
    """Whether it is a fenced block at all."""
    closed: bool = True
    """Whether a fence ends it."""


def asked_names(tests: Sequence[str]) -> frozenset[str]:
    """The names that tests use and neither define nor import: what a program must define."""
    names: set[str] = set()
    for test in tests:
        tree = _parsed(test)
        if tree is not None:
            nodes = list(ast.walk(tree))
            loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
            names |= loaded - set().union(*map(_binds, nodes))
    # A task may ask for a function that is called like one of Python's own.
    return frozenset(names - set(dir(builtins)) or names)


def program_of(text: str, asked: Collection[str] | None = None) -> str:
    """The program of an answer.

    Args:
        text: the answer.
        asked: names that it must define; None: it reads and prints.
    """
    if not _FENCE.search(text):
        return text
    if _parsed(text) is not None:
        # A program without a fence around it, with fences in its docstrings.
        return text
    best, program = None, None
    last = None
    for block in sorted(_readings(text), key=lambda block: block.line):
        last = block if block.fenced else last
        found = _python(block)
        if found is None:
            continue
        source, tree = found
        worth = (*_worth(tree, asked), block.tag in _PYTHON, block.fenced)
        if (block.fenced or worth[0]) and (best is None or worth >= best):
            best, program = worth, source
    return program if program is not None else last.source if last is not None else text


def _readings(text: str) -> list[_Block]:
    """All blocks in all readings, each once."""
    lines = text.split("\n")
    found = [
        block
        for in_strings in (False, True)
        for in_line in (False, True)
        for block in _blocks(lines, in_strings=in_strings, in_line=in_line)
    ]
    return list(dict.fromkeys(found))


def _blocks(lines: Sequence[str], *, in_strings: bool, in_line: bool) -> Iterator[_Block]:
    """The blocks in one reading, and what stands outside of them.

    Args:
        lines: the text.
        in_strings: whether a fence inside of a string over several lines is part of the string.
        in_line: whether a fence at the end of a line of code closes the block.
    """
    number, outside = 0, 0
    while number < len(lines):
        fence = _FENCE.search(lines[number])
        before = lines[number][: fence.start()] if fence else ""
        if fence is None or (fence[0][0] == "~" and before.strip(" \t>")):
            number += 1
            continue
        yield from _outside(lines, outside, number)
        start, rest = number, lines[number][fence.end() :]
        number += 1
        if fence[0] in rest:
            yield _Block(line=start, tag="", source=_LANGUAGE_FIRST.sub("", rest.partition(fence[0])[0], count=1))
            outside = number
            continue
        tag = _TAG.fullmatch(rest.strip())
        body = [] if tag else [_LANGUAGE_FIRST.sub("", rest, count=1)]
        marker = len(before) if re.fullmatch(r"[ \t]*(?:[-*+]|\d{1,3}[.)])?[ \t]*", before) else 0
        string, closed = "", False
        while number < len(lines) and not closed:
            line = lines[number]
            line = _QUOTED.sub("", line, count=1) if ">" in before else line
            bare = line.strip()
            after = _string_after(line, string) if in_strings else ""
            if not string and len(bare) >= len(fence[0]) and not bare.strip(fence[0][0]):
                closed = True
            elif in_line and not (string or after) and _ends_in(line, fence[0], visibly=in_strings):
                body.append(line.rstrip()[: -len(fence[0])])
                closed = True
            else:
                body.append(line)
                string = after
            number += 1
        outside = number
        if not tag or tag["name"].lower() not in _PYTHON or not tag["name"]:
            # An answer that is fenced as a whole, with more backticks than its blocks.
            yield from _inner(body, fence[0], start, in_strings=in_strings, in_line=in_line)
        first = next((line for line in body if line.strip()), "")
        if first.startswith((" ", "\t")):
            body = [_unindented(line, marker) for line in body]
        name = tag["name"].lower() if tag else ""
        yield _Block(line=start, tag=name, source="\n".join([*body, ""]) if body else "", closed=closed)
    yield from _outside(lines, outside, number)


def _inner(body: Sequence[str], fence: str, start: int, *, in_strings: bool, in_line: bool) -> Iterator[_Block]:
    """The blocks in a block whose fence is longer than three marks."""
    if len(fence) > 3 and any(_FENCE.search(line) for line in body):
        # Shorter fences only, so that this goes one level down at most.
        inner = [line if fence[:4] not in line else "" for line in body]
        for block in _blocks(inner, in_strings=in_strings, in_line=in_line):
            yield replace(block, line=start + 1 + block.line)


def _ends_in(line: str, fence: str, *, visibly: bool) -> bool:
    """Whether a line ends in a fence; visibly: not in a comment or a string."""
    return (_TOKEN.sub("", line) if visibly else line).rstrip().endswith(fence)


def _outside(lines: Sequence[str], start: int, stop: int) -> Iterator[_Block]:
    """The lines between two blocks; a program may stand there without a fence."""
    if any(line.strip() for line in lines[start:stop]):
        yield _Block(line=start, tag="", source="\n".join(lines[start:stop]), fenced=False, closed=False)


def _unindented(line: str, width: int) -> str:
    """Without the blanks that the fence's own indentation explains."""
    return line[min(width, len(line) - len(line.lstrip(" \t"))) :]


def _string_after(line: str, string: str) -> str:
    """The quotation mark of the string over several lines that is open behind a line of Python; empty if none is."""
    at = 0
    while True:
        if string:
            end = line.find(string, at)
            if end < 0:
                return string
            at, string = end + 3, ""
        token = _TOKEN.search(line, at)
        if token is None:
            return ""
        at = token.end()
        if token[0] in ('"""', "'''"):
            string = token[0]


def _python(block: _Block) -> tuple[str, ast.Module] | None:
    """Source and syntax tree of a block; None if it is no Python."""
    for source in (block.source, textwrap.dedent(block.source)):
        tree = _parsed(source)
        if tree is not None:
            return source, tree
    source = block.source
    for _ in range(0 if block.closed else _CUTS):
        lines = source.split("\n")
        try:
            _parse(source)
        except SyntaxError as error:
            source = "\n".join(lines[: max(0, (error.lineno or 1) - 1)])
        except (ValueError, RecursionError, MemoryError):
            return None
        if source.strip() and (tree := _parsed(source)) is not None:
            return source, tree
    return None


def _parse(source: str) -> ast.Module:
    if len(source) > _LONGEST:
        raise ValueError("too long to be a program")
    return ast.parse(source)


def _parsed(source: str) -> ast.Module | None:
    try:
        return _parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _worth(tree: ast.Module, asked: Collection[str] | None) -> tuple[int, int]:
    """How much of what is asked for a program has: functions and classes that it defines, and names that it has at all.

    Of a program that reads and prints: whether it does the one and the other.
    """
    if asked is None:
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        return bool(names & {"print", "stdout", "write"}) + bool(names & {"input", "stdin", "open", "read"}), 0
    defined: set[str] = set()
    bound_only: set[str] = set()
    functions = _functions(tree)
    statements: list[ast.AST] = list(tree.body)
    while statements:
        node = statements.pop()
        bound = _binds(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined |= bound if not _is_stub(node) else set()
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            defined |= names if node.value is not None and _is_function(node.value, functions - names) else set()
        else:
            # An import, the index of a loop, a result: what a usage of the program binds too.
            bound_only |= bound
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # Statements in statements: `if`, `try`, `with`; targets of assignments.
            statements += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.Lambda)]
    return len(defined & set(asked)), len((defined | bound_only) & set(asked))


def _functions(tree: ast.Module) -> set[str]:
    """Names that stand for functions in a program: its own, what it imports and Python's."""
    nodes = list(ast.walk(tree))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    return set(dir(builtins)).union(*(_binds(node) for node in nodes if isinstance(node, kinds)))


def _is_function(value: ast.expr, functions: Collection[str]) -> bool:
    """Whether a value is one: a lambda, a function by its name, or one made from such, as by `partial(f, 1)`."""
    match value:
        case ast.Lambda():
            return True
        case ast.Name(id=name):
            return name in functions
        case ast.Attribute(value=owner):
            return _is_function(owner, functions) or (
                isinstance(owner, ast.Call) and _is_function(owner.func, functions)
            )
        case ast.Call(func=maker, args=arguments):
            made_from = [part for part in arguments if isinstance(part, ast.Lambda | ast.Name | ast.Attribute)]
            by = maker.func if isinstance(maker, ast.Call) else maker
            return _is_function(by, functions) and any(_is_function(part, functions) for part in made_from)
    return False


def _binds(node: ast.AST) -> set[str]:
    """The names that one node of a syntax tree binds."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
    return set()


def _is_stub(node: ast.AST) -> bool:
    """Whether it is a function of which only the head is there: a docstring, `pass` or `...`."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in node.body
    )
