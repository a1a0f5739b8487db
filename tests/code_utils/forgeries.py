"""Programs that know the exchange between program and test, and forge their side of it.

Decision: an attacker has read our source. `HEAD` gives programs the raw channel, and the end that answers for them, to
change as they please; what they are after is in each one's name.

    for what, (program, test) in FORGERIES.items(): ...    # none may pass
"""
# ruff: noqa: E501

HEAD = """
import builtins, json, os, struct, sys
sys.setrecursionlimit(10**6)
peer = sys._getframe(1).f_locals['peer']
real = peer._do
def give(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    os.write(4, struct.pack('I', len(data)) + data)
def take():
    size, = struct.unpack('I', os.read(4, 4))
    return json.loads(os.read(4, size))
def answer_by(change):
    # What the change gives is the answer; None: an honest one.
    def do(operation, target, *rest):
        found = change(operation, target, *rest)
        return real(operation, target, *rest) if found is None else found
    peer._do = do
def reply_by(forge):
    # What is forged is the reply as it stands; None: an honest one.
    while True:
        message = take()
        forged = forge(message[1], message[2])
        if forged is None: peer.answer(message)
        elif forged != 'no reply': give(forged)
def states(data):
    # As many as there are lists and their like in what was sent, all of them emptied.
    count = lambda part: type(part) is list and (part[:1] in (['list'], ['dict'], ['set'])) + sum(map(count, part))
    return [[[], None]] * count(data)
def names(**more):
    answer_by(lambda operation, target, *rest: {**real(operation, target, *rest), **more} if operation == 'names' else None)
"""
"""What every forgery begins with."""

_SAME = "lambda *a, **k: 1"


def _reply(forged: str) -> str:
    """Answers every call with this message."""
    return f"def f(*a): pass\nreply_by(lambda operation, data: {forged} if operation == 'call' else None)"


def _value(value: str) -> str:
    """Answers every call with this value, as it is written on the way."""
    return _reply(f"['value', states(data), {value}, '']")


def _error(kind: str, args: str = "[]") -> str:
    """Answers every call with this exception."""
    return _reply(f"['error', states(data), [{kind}, {args}, '', ['mine', 0]], '']")


def _known(module: str, name: str) -> str:
    return f"['exception', 99, '{module}', '{name}', [['exception', 98, 'builtins', 'Exception', []]]]"


_CASE = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 3)\n"
_RUN = "assert unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T)).wasSuccessful()"
_MODULE = "assert unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])).wasSuccessful()"
_ANSWER = "assert f([1]) == 3"

FORGERIES: dict[str, tuple[str, str]] = {
    # Names that nobody asked for.
    "a built-in function": (f"names(abs={_SAME})\ndef f(x): return 9.0", "assert abs(f(1) - 2.5) == 1"),
    "a built-in type": (f"names(set={_SAME})\ndef f(x): return []", "assert set(f(1)) == set([1, 2])"),
    "all built-in functions": (
        f"names(__builtins__={{**{{name: {_SAME} for name in dir(builtins)}}, '__import__': __import__}})\ndef f(x): return []",
        "assert sorted(f(1)) == sorted([1, 2]) and set(f(1)) == set([1, 2])",
    ),
    "what imports": (
        "import types\nnames(__builtins__={'__import__': lambda *a: types.SimpleNamespace(isclose=lambda *a: True)})\ndef f(x): return 9.0",
        "import math\nassert math.isclose(f(1), 2.5)",
    ),
    "a module": (
        "import types\nnames(math=types.SimpleNamespace(isclose=lambda *a: True, pi=9.0))\ndef f(x): return 9.0",
        "assert math.isclose(f(1), math.pi)",
    ),
    "names in no dictionary": (
        "class D(dict):\n    turns = 0\n    def keys(self):\n        D.turns += 1\n        return set() if D.turns == 1 else ['abs', 'f']\n    def __getitem__(self, name): return (lambda *a: 1) if name == 'abs' else (lambda x: 9.0)\n"
        "answer_by(lambda operation, target, *rest: D() if operation == 'names' else None)",
        "assert abs(f(1) - 2.5) == 1",
    ),
    "names before they are asked for": (
        "give(['value', [[[], None]], ['dict', ['f', ['mine', 0], 'abs', ['mine', 1]], None], ''])\npeer.objects.ours += [lambda x: 9.0, lambda x: 1]",
        "assert abs(f(1) - 2.5) == 1",
    ),
    "a built-in function where only a module is asked for": (
        "def abs(x): return 1\ndef f(x): return 9.0",
        "from solution import f\nassert abs(f(1) - 2.5) == 1",
    ),
    "a built-in function where the module itself is asked for": (
        "def sorted(x): return 1\ndef f(x): return []",
        "import solution\nassert sorted(solution.f(1)) == sorted([1, 2])",
    ),
    "the other of two built-in names": ("def abs(x): return 1", "assert abs(max(1, 2) - 7) == 1"),
    "a hook of the test's own module": (
        "import types\ndef f(x): return 0\ndef load_tests(*a): return lambda result: None",
        f"import sys\n{_CASE}{_MODULE}",
    ),
    "a fixture of the test's own module": (
        "import unittest\ndef f(x): return 0\ndef setUpModule(): raise unittest.SkipTest('no')",
        f"{_CASE}{_RUN}",
    ),
    # Exceptions that end something quietly.
    "an end of an iteration": ("def f(x): raise StopIteration", "assert all(map(f, [1, 2])) and not any(map(f, [3, 4]))"),
    "an end of an iteration in a comparison": (
        "class A:\n    pass\ndef f(x): return [A()]\ndef change(operation, *rest):\n    if operation == 'plain': raise StopIteration\nanswer_by(change)",
        "import operator\nassert all(map(operator.eq, f(1), [3])) and not any(map(operator.ne, f(1), [3]))",
    ),
    "an end of an iteration in an attribute": (
        "class A:\n    @property\n    def x(self): raise StopIteration\ndef f(x): return A()",
        "import operator\nassert all(map(operator.attrgetter('x'), [f(1)])) and not any(map(operator.attrgetter('x'), [f(1)]))",
    ),
    "an end of an iteration of one's own class": (
        "class E(StopIteration): pass\ndef f(x): raise E",
        "assert all(map(f, [1, 2])) and not any(map(f, [3, 4]))",
    ),
    "a skipped test": ("import unittest\ndef f(x): raise unittest.SkipTest('no')", f"{_CASE}{_RUN}"),
    "a skipped test of one's own class": ("import unittest\nclass E(unittest.SkipTest): pass\ndef f(x): raise E('no')", f"{_CASE}{_RUN}"),
    "a skipped test that is forged": (_error(_known("unittest.case", "SkipTest")), f"{_CASE}{_RUN}"),
    "a test that should stop": ("import unittest\ndef f(x): raise unittest.case._ShouldStop", f"{_CASE}{_RUN}"),
    "a test that should not pass": ("import unittest\ndef f(x): raise unittest.case._UnexpectedSuccess", f"{_CASE}{_RUN}"),
    "an exit in a unit test": ("def f(x): raise SystemExit(0)", f"{_CASE}{_RUN}"),
    "an end of a generator": ("def f(x): raise GeneratorExit", "def g(): yield f(1) == 3\nassert all(g()) and not any(g())"),
    "an interrupt": ("def f(x): raise KeyboardInterrupt", f"{_CASE}{_RUN}"),
    # Replies that are none.
    **{
        f"a message that is {message}": (_reply(repr(message)), f"try: f(1)\nexcept BaseException: pass\nelse: {_ANSWER}")
        for message in ({}, [], {"0": "ask"}, "error", 5, True, [[]], ["value"], ["error", [], 1, ""], ["value", 1, 1, ""], ["value", [], {}, ""], ["value", [], [], ""])
    },
    "an exception that is none": (_error("['type', 'int']"), "try: f(1)\nexcept TypeError: pass"),
    "an exception that is a list": (_error("['list', [], None]"), "try: f(1)\nexcept TypeError: pass"),
    "an exception of a number": (_error("['exception', 99, 'x', 'E', [['type', 'int']]]", "[3]"), "try: f(1)\nexcept TypeError: pass"),
    "an exception class as a value": (_value("['exception', 99, 'x', 'E', [['type', 'int']]]"), "assert f(1)(3) == 3 and issubclass(f(1), int)"),
    "an exception class that is a function of the test": (
        "def f(g):\n    answer_by(lambda operation, *rest: None)\n"
        "    give(['error', [], [['yours', 0], [3], '', ['mine', 0]], ''])\n    take()",
        "seen = []\ndef g(x): seen.append(x); return ValueError()\ntry: f(g)\nexcept ValueError: assert seen == [3]",
    ),
    "a value of nobody's": (_value("['yours', 0]"), "assert f(1) or True"),
    "a value of nobody's, counted from behind": (_value("['yours', -1]"), "assert f(1) or True"),
    "a tag that is none": (_value("['__class__', 0]"), "assert f(1) or True"),
    "a tag that is a method": (_value("['value', 3]"), "assert f(1) or True"),
    "a key that is a list": (_value("['dict', [['list', [], None], 1], None]"), "assert f(1) or True"),
    "a dictionary with half a pair": (_value("['dict', [1], None]"), "assert f(1) or True"),
    "a factory that is a function of the test": (_value("['defaultdict', [], ['yours', 0]]"), "assert f(1) or True"),
    "a frame that never ends": ("def f(x): os.write(4, struct.pack('I', 1 << 31) + b'[1]')\n", "try: f(1)\nexcept BaseException: pass"),
    "a frame of nothing": ("def f(x): os.write(4, struct.pack('I', 0))", "try: f(1)\nexcept BaseException: pass"),
    "a flood": ("def f(x):\n    while True: give(b' ' * (1 << 20))", "try: f(1)\nexcept BaseException: pass"),
    "a nest in a reply": ("def f(x): give(b'[\"value\", [], ' + b'[\"tuple\", [' * 10**5 + b']]' * 10**5 + b', \"\"]')", "try: f(1)\nexcept BaseException: pass"),
    "a nest of lists": ("def f(x): give(b'[' * 10**6)", "try: f(1)\nexcept BaseException: pass"),
    "a number without end": ("def f(x): give(b'[\"value\", [], ' + b'9' * 10**6 + b', \"\"]')", "try: f(1)\nexcept BaseException: pass"),
    "printed text that is none": (_reply("['value', states(data), 3, ['list']]"), "assert f() == 3"),
    "a channel that is closed": ("import socket\ndef f(x): socket.socket(fileno=4).shutdown(socket.SHUT_RDWR)", "try: f(1)\nexcept BaseException: pass"),
    "a channel that is half closed": ("import socket\ndef f(x): socket.socket(fileno=4).shutdown(socket.SHUT_WR)", "try: f(1)\nexcept BaseException: pass"),
    "descriptors that are sent along": (
        "import array, socket\ndef f(x):\n    try: socket.socket(fileno=4).sendmsg([b'\\1\\0\\0\\0'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0, 1, 4]))])\n    except BaseException: pass\n    os.write(4, b'1')",
        "try: f(1)\nexcept BaseException: pass",
    ),
    "a reply of a child that stays": (
        "import time\nif os.fork():\n    time.sleep(60)\ndef f(x): return 9",
        _ANSWER,
    ),
    "replies for later": (
        "def f(x):\n    for value in (3, True, 1): give(['value', [], value, ''])\n    return 9",
        "assert f(0) == 7 and f(1) == 8",
    ),
    # Values that change, or look like others.
    "another value for each comparison": (
        "class A:\n    pass\ndef f(x): return A()\nturns = []\ndef change(operation, *rest):\n    if operation == 'plain':\n        turns.append(0)\n        return len(turns)\nanswer_by(change)",
        "r = f(1)\nassert r == 3 and r == 3",
    ),
    "yes to everything": ("answer_by(lambda operation, *rest: None if operation == 'names' else True)\ndef f(x): pass", _ANSWER),
    "a proxy to everything": ("class A: pass\nit = A()\nanswer_by(lambda operation, *rest: None if operation == 'names' else it)\ndef f(x): pass", _ANSWER),
    "a value that reflects": (_value("['same', 0]"), "x = [1]\nassert f(x) == [9]"),
    "arguments that are filled": (
        "def f(x): return x\nreply_by(lambda operation, data: ['value', [[[7, 8, 9], None], [[], None]], ['same', 0], ''] if operation == 'call' else None)",
        "x = [1]\nassert f(x) == [1] and x == [1]",
    ),
    "not a number": ("def f(x): return float('nan')", "assert f(1) == 3"),
    "a type for a value": ("f = int", "assert f is int and f(1) == 3"),
    "nonsense for a date": ("import datetime\ndef f(x): pass\n" + _value("['date', ['bytes', [7, 228, 1, 2]]]"), "import datetime\nassert f(1) == datetime.date(2021, 1, 2)"),
    # Questions to the test.
    "the frame of an error": (
        "def f(g):\n    try: g(1)\n    except Exception as e: return e.__traceback__.tb_frame.f_back.f_globals['answer']",
        "answer = 3\ndef g(x): raise ValueError\nassert f(g) == 3",
    ),
    **{
        f"a question for {name}": (
            f"def f(g):\n    give(['ask', 'get', [['yours', 0], {name!r}]])\n    return 3 if take()[0] == 'value' else 0",
            "def g(x): pass\nassert f(g) == 3",
        )
        for name in ("__globals__", "__code__", "__closure__", "__self__", "__class__", "__init__", "__dict__")
    },
    "a question by a name that is none": (
        "def f(g):\n    give(['ask', 'get', [['yours', 0], ['mine', 77]]])\n    while True:\n        message = take()\n        if message[0] == 'ask': give(['value', [], '__name__' if message[1] == 'plain' else False, ''])\n        else: return 3 if message[0] == 'value' else 0",
        "def g(x): pass\nassert f(g) == 3",
    ),
    "a question for the names of the test": (
        "def f(g):\n    give(['ask', 'names', [['list', ['answer'], None]]])\n    return 3 if take()[0] == 'value' else 0",
        "answer = 3\ndef g(x): pass\nassert f(g) == 3",
    ),
    "a write to a function of the test": (
        "def f(g):\n    for name in ('__code__', '__defaults__', '__kwdefaults__', '__globals__', '__class__'):\n        give(['ask', 'set', [['yours', 0], name, None]])\n        if take()[0] == 'value': return 3\n    return 0",
        "def g(x, y=3): pass\nassert f(g) == 3",
    ),
    **{
        f"a function that opens the test, {opener}": (
            f"def f(g, *a):\n    try: return 3 if g({args}) is not None else 0\n    except AttributeError: return 0",
            f"import operator\ndef own(): pass\nassert f({opener}, own) == 3",
        )
        for opener, args in {
            "getattr": "a[0], '__globals__'", "vars": "a[0]", "str.format": "'{0.__globals__}', a[0]", "operator.attrgetter": "'__globals__'",
            "operator.methodcaller": "'__repr__'", "eval": "'3'", "compile": "'3', '', 'eval'", "globals": "", "__import__": "'os'", "open": "3, 'wb', closefd=False",
        }.items()
    },
    "an end of an iteration, while one of another kind is known": (
        "def f(x): raise RuntimeError",
        "import contextlib\nwith contextlib.suppress(StopIteration): assert all(map(f, [1])) and not any(map(f, [2]))\nassert f(1)",
    ),
    "a class that is made in the test": (
        "def f(kind, x): return kind('Any', (), {'__eq__': lambda *a: True})()",
        "assert f(type, 1) == int",
    ),
    "a class that is made in the test by another kind": (
        "def f(kind, x): return kind('Any', (), {'__eq__': lambda *a: True})()",
        "import abc\nassert f(abc.ABCMeta, 1) == int",
    ),
    "an exception that one does not see": ("import asyncio\ndef f(x): raise asyncio.CancelledError", f"import asyncio\nasync def check(): {_ANSWER}\nasync def main():\n    async with asyncio.TaskGroup() as g: g.create_task(check())\nasyncio.run(main())"),
    "a script that would not be run": ("def f(x): return 9", "if __name__ == '__main__':\n    assert f(1) == 3"),
    "a look through a class of the test": (
        "def f(c):\n    found = 0\n    for name in ('__init__', '__dict__', '_hidden', '__subclasses__', '__mro__'):\n        give(['ask', 'get', [['yours', 0], name]])\n        found = 3 if take()[0] == 'value' else found\n    return found",
        "class C:\n    _hidden = 3\n    def __init__(self): pass\nassert f(C) == 3",
    ),
    "a write to a class of the test": (
        "def f(c):\n    give(['ask', 'set', [['yours', 0], 'right', None]])\n    return 3 if take()[0] == 'value' else 0",
        "class C:\n    right = 0\nassert f(C) == 3",
    ),
    "a traceback of the test": (
        "class A:\n    def __enter__(self): return self\n    def __exit__(self, kind, error, trace):\n        self.found = trace or error.__traceback__.tb_next\ndef f(): return A()",
        "a = f()\ntry:\n    with a: 1 / 0\nexcept ZeroDivisionError: pass\nassert a.found is not None",
    ),
    "an exception of the test's that is not one": (_value("['error', ['type', 'int'], [3], '', ['yours', 0]]"), _ANSWER),
    "an exception class that makes what it likes": (
        "class E(Exception):\n    def __new__(cls, *a): return [3]",
        "try: e = E(1)\nexcept TypeError: e = None\nassert e == [3]",
    ),
    "a number that nothing has": (
        "def f(x):\n    found = 0\n    for number in (-1, 0, 1, 2, 10**30, 0.5, True, '0', None):\n        give(['ask', 'call', [['yours', number], ['tuple', []], ['dict', [], None]]])\n        if take()[0] == 'value': found = 3\n    return found",
        _ANSWER,
    ),
}  # fmt: skip
"""None of these programs has a solution. By what is forged: the program, without `HEAD`, and the test."""

HONEST: dict[str, tuple[str, str]] = {
    "an exception that the test makes": (
        "class E(Exception):\n    def __init__(self, need, have):\n        super().__init__(f'need {need}')\n        self.need, self.have = need, have\n    def gap(self): return self.need - self.have\ndef f(g):\n    try: g()\n    except E as e: return e.need",
        "e = E(5, 3)\nassert e.need == 5 and str(e) == 'need 5' and e.gap() == 2 and e.args == ('need 5',) and not hasattr(e, 'other')\ndef g(): raise e\nassert f(g) == 5",
    ),
    "exceptions as values": (
        "class E(ValueError): pass\nit = E(3)\ndef f(e=it): return e",
        "mine = KeyError(1)\nassert f(mine) is mine and f() is f() is it and isinstance(it, E) and isinstance(f(), ValueError) and f().args == (3,)\n"
        "try: raise f(); assert False\nexcept E as e: assert e is it",
    ),
    "an exception of the test that goes through": (
        "def f(g): g()\ndef again(g):\n    try: g()\n    except ValueError as e: raise e",
        "class Mine(ValueError):\n    def __init__(self, *, code): self.code = code\n    def __eq__(self, other): return False\nmine = Mine(code=3)\ndef g(): raise mine\n"
        "for h in (f, again):\n    try: h(g); assert False\n    except Mine as e: assert e is mine and e.code == 3",
    ),
    "a context manager by a generator": (
        "import contextlib\n@contextlib.contextmanager\ndef f(seen):\n    try: yield 3\n    except KeyError: seen.append('caught')",
        "seen = []\nwith f(seen) as x: assert x == 3\nwith f(seen): {}['a']\ntry:\n    with f(seen): 1 / 0\n    assert False\nexcept ZeroDivisionError: pass",
    ),
    "a function that ends an iteration": ("def f(it): return next(it)", "try: f(iter([])); assert False\nexcept StopIteration: pass"),
    "documentation": (
        "import functools\ndef f(x):\n    'doubles'\n    return 2 * x\ndef same(g):\n    @functools.wraps(g)\n    def h(*a): return g(*a)\n    return h",
        "assert f.__doc__ == 'doubles'\n@same\ndef own():\n    'mine'\nassert own.__doc__ == 'mine' and own.__name__ == 'own'",
    ),
    "classes and files of the test": (
        "def f(c): return c.RED, c.kind\ndef g(s):\n    print('c', file=s)\n    return s.getvalue()",
        "import enum, io\nclass C(enum.Enum):\n    RED = 1\n    @property\n    def kind(self): return 0\nclass D: RED = 2; kind = 3\nassert f(D) == (2, 3) and f(C.RED)[0] is C.RED and g(io.StringIO('ab')) == 'c\\n'",
    ),
    "a test that runs as a script": ("def f(x): return x + 2", f"import unittest\n{_CASE}if __name__ == '__main__':\n    assert unittest.main(exit=False).result.wasSuccessful()"),
    "a parameter with the name of the function": ("def f(x): return x + 1", "def check(f):\n    assert f(1) == 2\ncheck(f)"),
    "a local name of another function": ("def f(x): return x + 1", "def other():\n    f = 3\n    return f\nassert f(1) == 2 and other() == 3"),
    "a method with the name of the function": ("def f(x): return x + 1", "class C:\n    def f(self): return 0\nassert f(1) == 2 and C().f() == 0"),
    "a variable of a comprehension": ("def f(x): return x + 1", "assert [f for f in [1]] == [1] and f(1) == 2"),
    "a name that is given another meaning": ("def f(x): return x + 1", "g = f\nf = lambda x: g(x)\nassert f(1) == 2"),
    "a global name of a function": ("def f(x): return x + 1\nLIMIT = 3", "def check():\n    global seen\n    seen = f(LIMIT)\ncheck()\nassert seen == 4"),
    "a built-in name beside another": ("def sum(a, b): return a + b + 1", "def check(candidate):\n    assert abs(candidate(1, 2) - 4) < 1e-6\n    assert len([1]) == 1\ncheck(sum)"),
    "a built-in name by itself": ("def sum(a, b): return a + b + 1", "assert sum(10, 15) == 26"),
    "a built-in name that is imported": ("def sum(a, b): return a + b + 1", "from solution import sum\nassert sum(10, 15) == 26 and abs(sum(1, 1)) == 3"),
    "steps of a generator": (
        "def f():\n    got = yield 1\n    yield got\n    return 5\nclass I:\n    def __iter__(self): return self\n    def __next__(self): raise StopIteration",
        "g = f(); next(g); assert g.send(7) == 7\ntry: g.send(0); assert False\nexcept StopIteration as e: assert e.value == 5\n"
        "try: next(f_ := I()); assert False\nexcept StopIteration: pass\ntry: I().__next__(); assert False\nexcept StopIteration: pass\n"
        "h = f(); next(h)\ntry: h.throw(ValueError); assert False\nexcept ValueError: pass\nassert list(f()) == [1, None] and list(I()) == []",
    ),
    "a function that steps": ("def f(it): return next(it, None)", "assert f(iter([4])) == 4 and f(iter([])) is None"),
    "errors in callbacks": ("def f(g):\n    try: g()\n    except StopIteration: return 'ended'", "def g(): raise StopIteration\nassert f(g) == 'ended'\nassert f(iter([]).__next__) == 'ended'"),
    "a unit test of the module itself": ("def f(x): return x + 2", f"import sys\n{_CASE}{_MODULE}"),
    "a unit test of the imported module": ("def f(x): return x + 2", f"import solution, unittest\nfrom solution import f as g\nassert g is f and solution.f is f and solution.f(1) == 3\n{_CASE}{_RUN}"),
    "a context manager that ignores": (
        "class Ignore:\n    def __init__(self, kind): self.kind = kind\n    def __enter__(self): return self\n    def __exit__(self, kind, *rest): return kind is not None and issubclass(kind, self.kind)",
        "with Ignore(ZeroDivisionError): 1 / 0\ntry:\n    with Ignore(KeyError): 1 / 0\n    assert False\nexcept ZeroDivisionError: pass",
    ),
    "exceptions of its own": (
        "class E(Exception): pass\nclass F(E, KeyError): pass\ndef f(x): raise F(x)",
        "try: f(1); assert False\nexcept KeyError as e: assert isinstance(e, E) and isinstance(e, F) and e.args == (1,)",
    ),
    "a class of the test that is thrown": (
        "def f(kind):\n    try: raise kind(3)\n    except kind as e: raise",
        "class Mine(ValueError): pass\ntry: f(Mine); assert False\nexcept Mine as e: assert e.args == (3,)",
    ),
    "functions of Python's own": (
        "def f(g, xs): return [g(x) for x in xs]\ndef h(g, xs, *a): return [g(x, *a) for x in xs]",
        "import operator\nassert f(type, [1, 'a', [2]]) == [int, str, list] and f(len, ['ab']) == [2] and f(str.upper, ['a']) == ['A'] and f(operator.neg, [1]) == [-1]\n"
        "assert h(isinstance, [1, 'a'], int) == [True, False] and h(max, [1, 4], 2) == [2, 4] and f('{}!'.format, [1]) == ['1!'] and f(operator.itemgetter(0), ['ab']) == ['a']",
    ),
}  # fmt: skip
"""Programs that are right, with tests whose names, exceptions and steps are easily taken for something else."""
