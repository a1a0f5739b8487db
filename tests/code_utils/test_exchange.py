"""What tests with statements see of a program in another process: as if it were their own, but for its say in the verdict."""
# ruff: noqa: E501

import pytest

from tests.code_utils.services import ask

RIGHT = {
    "values of every kind": (
        "import datetime, decimal, fractions, collections\nC = collections\n"
        "def f(): return [1, -1.5, 0.1, 1 + 2j, 'a\\ud800', b'\\xff', None, True, (1, [2]), {1, 'a'}, frozenset([()]), {(1,): {2: 3}}, "
        "bytearray(b'x'), range(1, 9, 2), slice(1, None), decimal.Decimal('1.10'), fractions.Fraction(1, 3), 1 << 5000, -(1 << 64), "
        "C.Counter('aab'), C.deque([1], 3), C.OrderedDict(a=1), C.defaultdict(list, {1: [2]}), datetime.date(2020, 1, 2), "
        "datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone.utc), datetime.timedelta(1, 2), datetime.time(1, 2), float('inf')]",
        "import datetime, decimal, fractions, collections\nC = collections\nvalues = f()\n"
        "expected = [1, -1.5, 0.1, 1 + 2j, 'a\\ud800', b'\\xff', None, True, (1, [2]), {1, 'a'}, frozenset([()]), {(1,): {2: 3}}, "
        "bytearray(b'x'), range(1, 9, 2), slice(1, None), decimal.Decimal('1.10'), fractions.Fraction(1, 3), 1 << 5000, -(1 << 64), "
        "C.Counter('aab'), C.deque([1], 3), C.OrderedDict(a=1), C.defaultdict(list, {1: [2]}), datetime.date(2020, 1, 2), "
        "datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone.utc), datetime.timedelta(1, 2), datetime.time(1, 2), float('inf')]\n"
        "assert values == expected and [type(v) for v in values] == [type(v) for v in expected], values\n"
        "assert repr(values) == repr(expected)\nassert values[20].maxlen == 3 and values[22][7] == []",
    ),
    "values that go in": (
        "def f(*values): return values",
        "import decimal\nfor v in [1, 'a', [1, [2]], {1: {2}}, (), None, 1.5, b'a', range(3), decimal.Decimal(1), 1 << 99, [{}, ()]]:\n"
        "    assert f(v, v) == (v, v) and type(f(v)[0]) is type(v)",
    ),
    "not a number": ("def f(): return float('nan'), -0.0", "import math\na, b = f()\nassert math.isnan(a) and str(b) == '-0.0'"),
    "a list that is changed": ("def f(x): x.append(1); x[0].sort()", "a = [[3, 2]]; b = a[0]; f(a); assert a == [[2, 3], 1] and b == [2, 3]"),
    "a list that is not": ("def f(x): return sorted(x)", "a = [3, 2]; assert f(a) == [2, 3] and a == [3, 2] and f(a) is not a"),
    "the same list": ("def f(x): x.append(1); return x", "a = []; assert f(a) is a and a == [1]"),
    "two names of one": ("def f(x, y): x.append(1); return x is y", "a = []; assert f(a, a) is True and f(a, []) is False"),
    "a list in itself": ("def f(x): return x[0] is x", "a = []; a.append(a); assert f(a)"),
    "other containers that are changed": (
        "def f(d, s, q): d['b'] = d.pop('a'); s.add(2); q.rotate()",
        "import collections\nd, s, q = {'a': 1, 'c': 2}, {1}, collections.deque([1, 2])\nf(d, s, q)\n"
        "assert list(d) == ['c', 'b'] and s == {1, 2} and list(q) == [2, 1]",
    ),
    "a change before an exception": (
        "def f(x): x.append(1); raise ValueError",
        "a = []\ntry: f(a)\nexcept ValueError: pass\nassert a == [1]",
    ),
    "exceptions": (
        "import json\nclass Wrong(ValueError):\n    def __init__(self, code): super().__init__(f'bad {code}'); self.code = code\n"
        "class Worse(Wrong): pass\ndef f(x):\n    if x == 0: raise Worse(7)\n    if x == 1: return {}['k']\n    return json.loads('{')",
        "import json\ntry: f(0); assert False\nexcept ValueError as e: assert str(e) == 'bad 7' and e.code == 7 and isinstance(e, Worse)\n"
        "try: f(0); assert False\nexcept Wrong as e: assert e.args == ('bad 7',)\n"
        "try: f(1); assert False\nexcept KeyError as e: assert e.args == ('k',)\n"
        "try: f(2); assert False\nexcept json.JSONDecodeError as e: pass\nassert issubclass(Worse, Wrong)",
    ),
    "functions that are passed": (
        "def f(g, xs): return sorted(xs, key=g), list(map(g, xs)), g.__name__",
        "seen = []\ndef negated(x): seen.append(x); return -x\nassert f(negated, [1, 2]) == ([2, 1], [-1, -2], 'negated') and seen == [1, 2, 1, 2]\n"
        "assert f(lambda x: x * 2, [1])[1] == [2]; assert f(len, ['ab'])[1] == [2]; assert f(str, [1])[1] == ['1']",
    ),
    "an exception in a function that is passed": (
        "def f(g):\n    try: g()\n    except ZeroDivisionError: return 'divided'",
        "assert f(lambda: 1 / 0) == 'divided'",
    ),
    "a function that is returned": ("def f(n): return lambda x: x + n", "add = f(3); assert add(4) == 7 and callable(add)"),
    "a decorator": (
        "import functools\ndef twice(g):\n    @functools.wraps(g)\n    def both(*a): return g(*a), g(*a)\n    return both",
        "@twice\ndef one(x): return x + 1\nassert one(1) == (2, 2) and one.__name__ == 'one'",
    ),
    "generators": (
        "def f(xs):\n    for x in xs: yield x * 2\nimport itertools\ndef g(): return itertools.count(5)\ndef h(xs): return map(str, xs)",
        "import itertools\nassert list(f(x for x in (1, 2))) == [2, 4] and next(f([3])) == 6\n"
        "assert list(itertools.islice(g(), 3)) == [5, 6, 7] and list(h(iter([1]))) == ['1'] and sorted(f({1: 2})) == [2]",
    ),
    "objects": (
        "class P:\n    kind = 'point'\n    def __init__(self, x): self.x = x; self.items = []\n    def add(self, y): self.items.append(y); return self\n"
        "    def __eq__(self, other): return isinstance(other, P) and self.x == other.x\n    def __add__(self, other): return P(self.x + other.x)\n    def __len__(self): return len(self.items)\n"
        "    def __getitem__(self, i): return self.items[i]\n    def __repr__(self): return f'P({self.x})'\n    def __lt__(self, other): return self.x < other.x\n"
        "    def __hash__(self): return hash(self.x)\n    def __bool__(self): return self.x > 0\n    def __enter__(self): return self\n    def __exit__(self, *a): self.x = 0\n"
        "    def __neg__(self): return P(-self.x)\n    def __float__(self): return self.x * 1.0\n    @property\n    def double(self): return self.x * 2\n    @staticmethod\n    def of(x): return P(x)",
        "p = P(1)\nassert p.add(5) is p and p.items == [5] and len(p) == 1 and p[0] == 5 and list(p) == [5] and 5 in p and P.kind == 'point'\n"
        "assert P(1) + P(2) == P(3) and P(1) != P(2) and P(1) < P(2) and repr(p) == 'P(1)' and f'{p}' == 'P(1)' and p.double == 2\n"
        "assert isinstance(p, P) and not isinstance(3, P) and len({P(1), P(1), P(2)}) == 2 and sorted([P(2), P(1)])[0].x == 1\n"
        "assert not P(0) and P.of(4).x == 4 and (-p).x == -1 and float(p) == 1.0 and hasattr(p, 'x') and not hasattr(p, 'y') and max([P(1), P(3)]).x == 3\n"
        "p.x = 9\nassert p.x == 9\nwith p as q: assert q is p\nassert p.x == 0\nassert p != 0 and not p == 0",
    ),
    "linked objects": (
        "class Node:\n    def __init__(self, v, n=None): self.v = v; self.next = n\ndef total(n): return n.v + total(n.next) if n else 0",
        "a = Node(1); a.next = Node(2); assert total(a) == 3 and a.next.v == 2 and a.next.next is None and a.next is a.next",
    ),
    "objects of the test": (
        "def total(n): return n.v + total(n.next) if n else 0\ndef change(n): n.v = 7; return n",
        "class Node:\n    def __init__(self, v, n=None): self.v = v; self.next = n\na = Node(1, Node(2)); assert total(a) == 3 and change(a) is a and a.v == 7",
    ),
    "named tuples, enumerations, kinds of one's own": (
        "import collections, enum\nT = collections.namedtuple('T', 'a b')\nclass E(enum.Enum): X = 1\nclass I(enum.IntEnum): Y = 2\nclass L(list):\n    def push(self, x): self.append(x)\n"
        "class S(str): pass\nclass N(int): pass\nclass D(dict): pass\ndef f(): return T(1, 2)",
        "t = f(); assert t == (1, 2) and t.b == 2 and t[0] == 1 and (1, 2) == t and tuple(t) == (1, 2) and [t] == [(1, 2)] and {t: 3}[(1, 2)] == 3\na, b = t\nassert b == 2\n"
        "assert E.X.value == 1 and E.X is E.X and E(1) == E.X and I.Y == 2 and I.Y.name == 'Y'\n"
        "l = L(); l.push(3); assert l == [3] and len(l) == 1 and S('a') == 'a' and S('a').upper() == 'A' and N(3) + 1 == 4 and D(a=1) == {'a': 1}",
    ),
    "views of a dictionary": ("def f(d): return d.keys()", "assert f({1: 2}) == {1} and set(f({1: 2})) == {1} and 1 in f({1: 2})"),
    "names and constants": ("LIMIT = 3\ndef f(): return LIMIT", "assert f() == LIMIT == 3\nfrom solution import f as g\nimport solution\nassert g() == 3 and solution.LIMIT == 3"),
    "a built-in name": ("def sum(a, b): return a + b + 1", "assert sum(10, 15) == 26"),
    "a built-in name that is checked": ("def sum(a, b): return a + b + 1", "def check(candidate):\n    assert abs(candidate(1, 2) - 4) < 1e-6\n    assert len([1]) == 1\ncheck(sum)"),
    "modules that only the program imports": ("import math\nfrom collections import Counter\ndef f(x): return math.sqrt(x)", "assert math.isclose(f(2) ** 2, 2)"),
    "a name of a module": ("class Q:\n    def push(self, x): return x\nqueue = Q()", "assert queue.push(3) == 3"),
    "what is printed": (
        "def f(): print('a'); print('b', end='')",
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as out: f()\nassert out.getvalue() == 'a\\nb'",
    ),
    "threads that call": ("def f(x): return x * 2", "import concurrent.futures as c\nwith c.ThreadPoolExecutor(4) as pool: assert list(pool.map(f, range(50))) == list(range(0, 100, 2))"),
    "threads of the program that call": (
        "import concurrent.futures as c\ndef f(g):\n    with c.ThreadPoolExecutor(4) as pool: return list(pool.map(g, range(50)))",
        "assert f(lambda x: x + 1) == list(range(1, 51))",
    ),
    "a deep recursion": ("def f(n): return n and 1 + f(n - 1)", "assert f(960) == 960\ntry: f(10**5); assert False\nexcept RecursionError: pass"),
    "a deep list": ("def f(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x", "x = f(500)\nfor _ in range(500): x = x[0]\nassert x == []"),
    "a unit test": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 1)\n        with self.assertRaisesRegex(ValueError, 'neg'): f(-1)\n"
        "assert unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T)).wasSuccessful()",
    ),
    "many values": ("def f(x): return x[::-1]", "assert f(list(range(200000))) == list(range(199999, -1, -1))"),
    "many calls": ("def f(x): return x + 1", "for i in range(2000): assert f(i) == i + 1"),
    "keywords and defaults": ("def f(a, *b, c=1, **d): return a, b, c, d", "assert f(1, 2, c=3, e=[4]) == (1, (2,), 3, {'e': [4]})"),
}  # fmt: skip
"""Programs that are right, with their tests."""

WRONG = {
    "a name that is not there": ("", "f"),
    "one of two built-in names": ("def sum(a, b): return 0\ndef abs(x): return 0", "assert abs(sum(1, 2) - 3) == 0"),
    "a built-in function beside a name": ("def abs(x): return 0\ndef f(x): return 9", "assert abs(f(1) - 2.5) < 1e-6"),
    "a module that is not one": ("class math:\n    isclose = lambda *a: True\ndef f(): return 9", "assert math.isclose(f(), 2)"),
    "an operator with the expected value": ("class A:\n    def __sub__(self, x): return 0\ndef f(): return A()", "assert abs(f() - 3) < 1"),
    "an order with the expected value": ("class A:\n    def __lt__(self, x): return True\ndef f(): return A()", "assert f() < 3"),
    "a container of all": ("class A:\n    def __contains__(self, x): return True\n    def __iter__(self): return iter([1])\ndef f(): return A()", "assert 3 in f()"),
    "one true among false": ("def f(): return 1", "assert f() is True"),
    "an exception in place of another": ("def f(): raise AssertionError", "try: f(); assert False\nexcept ValueError: pass"),
    "an exit that the test would catch": ("import os\ndef f(): os._exit(0)", "try: f()\nexcept: pass"),
    "nonsense that the test would catch": ("import os\ndef f(): os.write(4, b'\\1\\0\\0\\0x'); os.closerange(3, 9)", "try: f()\nexcept: pass"),
    "an early exit of the test": ("def f(): raise SystemExit(0)", "f()"),
    "a closed channel": ("import os\nos.closerange(3, 64)", "assert True"),
    "a look into a function of the test": ("def f(g): return g.__globals__['answer']", "answer = 3\nassert f(lambda: 0) == 3"),
    "a look into an object of the test": ("def f(o): return o.__init__.__globals__['answer']", "class O:\n    def __init__(self): pass\nanswer = 3\nassert f(O()) == 3"),
    "a look into a method of the test": ("def f(o): return o.m.__func__.__globals__['answer']", "class O:\n    def m(self): pass\nanswer = 3\nassert f(O()) == 3"),
    "a look into a generator of the test": ("def f(o): return o.gi_frame.f_globals['answer']", "answer = 3\nassert f(x for x in ()) == 3"),
    "a look through an exception of the test": (
        "def f(g):\n    try: g()\n    except Exception as e: return e.__traceback__.tb_frame.f_back.f_globals['answer']",
        "answer = 3\ndef g(): 1 / 0\nassert f(g) == 3",
    ),
    "a text that formats": ("def f(o): return '{0.__globals__}'.format(o)", "def g(): pass\nassert 'g' in f(g)"),
}  # fmt: skip
"""Programs that must not pass."""


@pytest.mark.parametrize("what", RIGHT)
def test_right_programs_pass(url: str, what: str) -> None:
    program, test = RIGHT[what]
    assert ask(url, program, [test], seconds=20) == [1]


@pytest.mark.parametrize("what", WRONG)
def test_wrong_programs_do_not(url: str, what: str) -> None:
    program, test = WRONG[what]
    assert ask(url, program, [test], seconds=10) == [0]
