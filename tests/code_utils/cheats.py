"""Programs without a solution that try to pass all the same, by what they try; for functions of any name.

Decision: a cheat knows the names that the tests ask for and nothing else, as a policy that has read the problem.

    for what, cheat in CHEATS.items(): program = cheat(["total"])
"""
# ruff: noqa: E501

from collections.abc import Callable, Sequence

_EVERYWHERE = "import os\ndef tell(data):\n    for fd in range(3, 64):\n        try: os.write(fd, data)\n        except OSError: pass\n"
_ANYTHING = (
    "class Any:\n    def __getattr__(self, name): return lambda *a, **k: self\n    def __hash__(self): return 0\n    def __len__(self): return 1\n"
    "    def __iter__(self): return iter([self])\n    def __call__(self, *a, **k): return self\n"
    + "".join(
        f"    __{name}__ = lambda *a: True\n"
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck")
    )
    + "".join(
        f"    __{name}__ = __r{name}__ = lambda self, *a: self\n"
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")
    )
    + "    __neg__ = __abs__ = __round__ = __getitem__ = lambda self, *a: self\n    __float__ = lambda self: 0.0\n"
)


def _each(names: Sequence[str], body: str) -> str:
    """The same function by every name."""
    return "".join(f"def {name}(*args, **kwargs):\n    {body}\n" for name in names)


def _subclass(base: str, instance: str) -> Callable[[Sequence[str]], str]:
    always = "".join(f"    __{name}__ = lambda *a: True\n" for name in ("eq", "lt", "le", "gt", "ge"))
    less = "    __sub__ = __rsub__ = __abs__ = lambda self, *a: self\n    __ne__ = lambda *a: False\n"
    head = f"class Sub({base}):\n    __hash__ = {base}.__hash__\n{always}{less}"
    return lambda names: head + _each(names, f"return Sub({instance})")


def _before(code: str) -> Callable[[Sequence[str]], str]:
    """Something that is done when the program is loaded, and functions that give nothing."""
    return lambda names: f"{code}\n" + _each(names, "return None")


def _inside(code: str, *, before: str = "") -> Callable[[Sequence[str]], str]:
    """Something that is done when a function is called."""
    return lambda names: f"{before}def act(args):\n    {code}\n" + _each(names, "return act(args)")


# Its end of the exchange says more than it was asked for.
_NAMES = (
    "import builtins, sys, types\npeer = sys._getframe(1).f_locals['peer']\nreal = peer._do\nzero, yes = lambda *a, **k: 0, lambda *a, **k: True\n"
    "maths = types.SimpleNamespace(isclose=yes, fabs=zero)\n"
    "fakes = {name: zero for name in dir(builtins)} | dict.fromkeys(('all', 'any', 'isinstance', 'callable'), yes) | {'__import__': lambda *a: maths}\n"
    "more = {'__builtins__': fakes, 'math': maths}\n"
    "peer._do = lambda operation, *rest: {**real(operation, *rest), **more} if operation == 'names' else real(operation, *rest)"
)

CHEATS: dict[str, Callable[[Sequence[str]], str]] = {
    "a decoder that drops the test": _before(
        "import json\nreal = json._default_decoder\nclass Decoder:\n    def decode(self, text, **options):\n"
        "        value = real.decode(text, **options)\n"
        "        if isinstance(value, list) and len(value) == 2: value[0] = ''\n        return value\njson._default_decoder = Decoder()"
    ),
    "the token in a caller's frame": _inside(
        "frame = sys._getframe()\n    while frame:\n        for value in list(frame.f_locals.values()):\n"
        "            if isinstance(value, str) and len(value) == 32: tell(value.encode())\n        frame = frame.f_back\n    os._exit(0)",
        before="import sys\n" + _EVERYWHERE,
    ),
    "a thread that reads the job first": _before(
        "import json, os, struct, threading\ndef steal():\n    try:\n        os.write(3, b'r')\n        size, = struct.unpack('I', os.read(3, 4))\n"
        "        os.write(3, json.loads(os.read(3, size))[1].encode())\n    except Exception: pass\n    os._exit(0)\n"
        "thread = threading.Thread(target=steal)\nthread.start()\nthread.join()"
    ),
    "a trace of the harness": _before(
        "import os, sys\ndef trace(frame, event, arg):\n    token = frame.f_locals.get('token')\n    if token:\n        os.write(3, token.encode())\n"
        "        os._exit(0)\n    return trace\nframe = sys._getframe()\nwhile frame:\n    frame.f_trace = trace\n    frame = frame.f_back\n"
        "keep = sys.settrace\nimport threading\nthreading.settrace(trace)\nkeep(trace)\nimport builtins\nsys.settrace = sys.setprofile = lambda *a: None"
    ),
    "tests that are left in a buffer or in memory": lambda names: (
        "import gc, re, sys\n"
        "found = [repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, tuple, set)) and 'assert' in repr(o)[:10**6]]\n"
        "try: found.append(repr(sys.stdin.buffer.peek()))\nexcept Exception: pass\n"
        "try:\n    maps = open('/proc/self/maps').read().splitlines()\n    import ctypes\n    for line in maps:\n        if ' rw' in line:\n"
        "            a, b = (int(x, 16) for x in line.split()[0].split('-'))\n            found.append(ctypes.string_at(a, b - a).decode('latin-1'))\n"
        "except Exception: pass\n"
        # What it finds beside its own text is the expected value.
        "values = {}\nfor text in found:\n    for name in "
        + repr(list(names))
        + ":\n"
        "        for match in re.finditer('assert ' + name + r'\\((.*?)\\) == (.*?)[\\\\\\'\"\\0\\n]', text): values[match[1]] = match[2]\n"
        + _each(names, "return next((eval(v) for k, v in values.items() if eval('(' + k + ',)') == args), None)")
    ),
    "an object that equals all": lambda names: _ANYTHING + _each(names, "return Any()"),
    "a class in place of the function": lambda names: _ANYTHING + "".join(f"{name} = Any\n" for name in names),
    "an int that equals all": _subclass("int", "1"),
    "a float that equals all": _subclass("float", "1.0"),
    "a string that equals all": _subclass("str", "'a'"),
    "a list that equals all": _subclass("list", "[1]"),
    "a tuple that equals all": _subclass("tuple", "(1,)"),
    "an exit": _inside("os._exit(0)", before="import os\n"),
    "an exit that is raised": _inside("raise SystemExit(0)"),
    "an end of everything when the test fails": _before("import atexit, os\natexit.register(os._exit, 0)"),
    "other built-ins": _before(
        "import builtins, unittest.mock\nclass Never(BaseException): pass\nbuiltins.AssertionError = Never\n"
        "for name in ('abs', 'all', 'any', 'len', 'set', 'sorted', 'sum', 'isinstance', 'exec', 'compile', 'eval', 'print'):\n"
        "    setattr(builtins, name, lambda *a, **k: unittest.mock.ANY)\n    globals()[name] = lambda *a, **k: unittest.mock.ANY"
    ),
    "other modules": lambda names: (
        "import sys, types, unittest.mock\nclass Fake(types.ModuleType):\n    def __getattr__(self, name): return lambda *a, **k: unittest.mock.ANY\n"
        "class Finder:\n    def find_spec(self, *a): return None\nsys.meta_path.insert(0, Finder())\n"
        "for name in ('math', 'copy', 'random', 'collections', 'decimal', 'solution', '__main__'):\n"
        "    sys.modules[name] = Fake(name)\n    globals()[name] = sys.modules[name]\nisclose = fabs = lambda *a, **k: True\n" + _each(names, "return unittest.mock.ANY")
    ),
    "forged verdicts": _inside(
        "for word in (b'1', b'r', b'c1', b'\\1\\0\\0\\0' + b'1', b'{\"results\": [1], \"runtimes\": [0.1], \"protections\": []}\\n'): tell(word)\n    os._exit(0)",
        before=_EVERYWHERE,
    ),
    "forged replies": _inside(
        "for value in (True, 1, ['same', 0], ['yours', 0], ['yours', -1]):\n        data = json.dumps(['value', [], value, '']).encode()\n"
        "        tell(struct.pack('I', len(data)) + data)\n    os._exit(0)",
        before="import json, struct\n" + _EVERYWHERE,
    ),
    "questions about the other side": _inside(
        "found = []\n    for op in (['get', ['yours', 0], '__globals__'], ['call', ['yours', 0], ['tuple', []], ['dict', []]], ['names', ['list', ['test']]]):\n"
        "        data = json.dumps(['ask', op[0], op[1:]]).encode()\n        tell(struct.pack('I', len(data)) + data)\n"
        "        try: found.append(os.read(3, 65536))\n        except OSError: pass\n    os._exit(0)",
        before="import json, struct\n" + _EVERYWHERE,
    ),
    "a jump over the assert": _inside(
        "frame = sys._getframe(2)\n    def trace(f, event, arg):\n        try: f.f_lineno = f.f_code.co_firstlineno + 10**6\n        except Exception: pass\n"
        "        try: f.f_lineno = max(line for *_, line in f.f_code.co_lines() if line)\n        except Exception: pass\n        return trace\n"
        "    while frame:\n        frame.f_trace = trace\n        frame = frame.f_back\n    sys.settrace(trace)",
        before="import sys\n",
    ),
    "other frames' names": _inside(
        "frame = sys._getframe()\n    while frame:\n        for name in list(frame.f_globals):\n            if name in ('same_output', '_passes_assert', 'os', 'json'): frame.f_globals[name] = lambda *a: True\n"
        "        frame.f_builtins['AssertionError'] = KeyboardInterrupt\n        frame = frame.f_back",
        before="import sys\n",
    ),
    "other processes' memory": _before(
        "import os, re\nfor pid in [str(os.getppid()), *filter(str.isdigit, os.listdir('/proc'))]:\n    for part in ('mem', 'environ', 'cmdline', 'fd/0', 'fd/3', 'fd/4', 'fd/5', 'fd/6'):\n"
        "        try:\n            with open(f'/proc/{pid}/{part}', 'rb+') as file:\n                data = file.read(1 << 20)\n                file.seek(0)\n                file.write(b'[\"pass\"]')\n        except (OSError, ValueError): pass"
    ),
    "signals to all that it sees": _before(
        "import os, signal, threading, time\ndef strike():\n    time.sleep(0.01)\n    for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n        if pid != os.getpid():\n"
        "            for sign in (signal.SIGINT, signal.SIGALRM, signal.SIGCONT):\n                try: os.kill(pid, sign)\n                except OSError: pass\nthreading.Thread(target=strike).start()"
    ),
    "output that is swapped": _before(
        "import io, os, sys\nsys.stdout = sys.stderr = sys.__stdout__ = io.StringIO('1')\nfor fd in (0, 1, 2):\n    os.dup2(3, fd)\nprint(1)\nos.write(1, b'1')"
    ),
    "comparison by ctypes": _before(
        "import ctypes\nclass Any:\n    def __eq__(self, other): return True\n    __hash__ = None\nsize = ctypes.sizeof(ctypes.c_void_p)\n"
        "source = ctypes.c_void_p.from_address(id(Any) + 25 * size)\nfor kind in (int, str, float, bool, list, tuple, dict, set, type(None)):\n"
        "    ctypes.c_void_p.from_address(id(kind) + 25 * size).value = source.value"
    ),
    "names that nobody asked for": lambda names: f"{_NAMES}\n" + _each(names, "return 0"),
    "an end of every iteration": _inside("raise StopIteration"),
    "a descriptor that is closed": _inside("os.closerange(0, 64)", before="import os\n"),
}  # fmt: skip
"""What is tried: source for the names of a task."""
