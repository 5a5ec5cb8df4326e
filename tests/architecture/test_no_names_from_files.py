"""Nothing in the library resolves a name that comes from a file.

A checkpoint or a record that could name a class, a function or an attribute could run
code. What turns a string into an object is listed here, with the reason why no file can
choose the string.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src/oneproj", "paper/src/oneproj_paper")

RESOLVERS = frozenset(
    {"__import__", "compile", "delattr", "eval", "exec", "globals", "import_module"}
    | {"locals", "setattr"}
)
"""Functions that find or change an object by a name."""
READERS = frozenset({"load", "loads", "Unpickler", "read_pickle"})
"""What unpickles; NumPy's and torch's must say that they do not."""

ALLOWED = {
    "oneproj/progress.py: import_module": "a module that callers name literally",
    "oneproj/results.py: getattr": "fields of a dataclass",
    "oneproj_paper/experiments/plain_json.py: getattr": "fields of a dataclass",
    "oneproj/problem/float64.py: getattr": "torch's operators, by torch's names",
    "oneproj_paper/laboratory/records.py: getattr": "names listed in the code",
    "oneproj/projection/bundle.py: getattr": "names listed in the code",
    "oneproj/projection/bundle.py: setattr": "names listed in the code",
    "oneproj_paper/cli/exits.py: getattr": "signals, listed in the code",
}
"""Where a name is not a literal, and why no file can choose it."""


def name_of(call: ast.Call) -> str:
    """The last part of the name that is called."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def owner_of(call: ast.Call) -> str:
    """The name before it, or "" if there is none."""
    if not isinstance(call.func, ast.Attribute):
        return ""
    owner = call.func.value
    return owner.id if isinstance(owner, ast.Name) else "an expression"


def is_suspect(call: ast.Call) -> bool:
    """Whether a call may resolve a name, or build an object without its own code."""
    name, owner = name_of(call), owner_of(call)
    if name in RESOLVERS:
        # Methods of that name do other things: model.eval(), re.compile().
        return owner in ("", "importlib", "builtins")
    if name in ("getattr", "attrgetter", "methodcaller"):
        place = 1 if name == "getattr" else 0
        return len(call.args) > place and not isinstance(call.args[place], ast.Constant)
    if name == "__new__":
        return owner in ("object", "tuple")
    if owner in ("pickle", "marshal", "shelve", "dill", "cloudpickle"):
        return True
    if name in READERS and owner in ("torch", "np", "numpy", "joblib"):
        told = {keyword.arg: keyword.value for keyword in call.keywords}
        safe = told.get("weights_only") or told.get("allow_pickle")
        wanted = owner == "torch"
        return not (isinstance(safe, ast.Constant) and safe.value is wanted)
    return False


def suspects(source: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [name_of(call) for call in calls if is_suspect(call)]


def test_no_name_of_a_file_is_resolved() -> None:
    found = {
        f"{path.relative_to((ROOT / source).parent).as_posix()}: {name}"
        for source in SOURCES
        for path in (ROOT / source).rglob("*.py")
        for name in suspects(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED), "say why, or do without"


@pytest.mark.parametrize(
    "line",
    [
        "importlib.import_module(name)",
        "import_module(name)",
        "__import__(name)",
        "getattr(found, name)",
        "object.__new__(made)",
        "tuple.__new__(made, items)",
        "eval(text)",
        "exec(text)",
        "setattr(counts, name, value)",
        "pickle.loads(data)",
        "torch.load(stream)",
        "torch.load(stream, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "operator.attrgetter(name)(value)",
    ],
)
def test_what_resolves_a_name_is_found(line: str) -> None:
    assert len(suspects(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        'getattr(sys.stderr, "encoding", None)',
        "model.eval()",
        "re.compile(pattern)",
        "torch.load(stream, weights_only=True)",
        "np.load(file, allow_pickle=False)",
        "json.loads(text)",
    ],
)
def test_what_resolves_none_is_not(line: str) -> None:
    assert suspects(line) == []
