"""What a notebook shows of objects and of errors."""

from __future__ import annotations

import traceback
from html.parser import HTMLParser

import numpy as np
import pytest
from boxes import BoxBackend

import arrayferry as af
from arrayferry import _notebook, _repr


class Cells(HTMLParser):
    """Collects the cells of tables, the other text, and what is wrong with the tags."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.texts, self.open = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        assert "color:" not in str(attributes).replace("color: inherit", "")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data
        else:
            self.texts.append(data)


def html_of(value):
    return Cells(value._repr_html_())


def test_a_conversion():
    shown = html_of(af.converter("torch", copy=True, narrowing="allow"))
    assert shown.texts == ["Conversion to torch"]
    assert shown.cells == ["options", "copy=Truenarrowing='allow'"]
    convert = af.converter("numpy", copy=True)
    assert html_of(convert).cells == ["options", "copy=True"]
    for _ in range(2):
        convert({"<b>": np.ones(2)})
    shown = html_of(convert)
    assert shown.texts[1] == "Code for structures that it has converted: 1"
    assert shown.texts[2] == convert.explain()


def test_a_route():
    shown = html_of(af.route("dask", "torch"))
    assert shown.texts == ["dask (cpu) to torch (cpu)"]
    assert shown.cells == [
        *("result", "has memory of its own"),
        *("from", "to", "how", "by"),
        *("dask (cpu)", "numpy (cpu)", "computed", "its plugin"),
        *("numpy (cpu)", "torch (cpu)", "shared", "NumpyToTorch"),
    ]
    assert html_of(af.route("torch", "torch")).cells == ["steps", "none: arrays are there already"]


def test_backends():
    shown = html_of(af.backends()).cells
    assert shown[:4] == ["name", "plugin", "installed", "memory"]
    first = shown.index("jax")
    assert shown[first : first + 4] == [
        "jax",
        "arrayferry_plugins.jax_.backend",
        "yes",
        "immutable",
    ]


def test_a_trace():
    with af.trace() as t:
        af.convert(np.ones(2), "torch")
    assert "numpy -> torch" in html_of(t).cells
    assert html_of(t.table()).cells == html_of(t).cells


def test_text_is_escaped_and_cut():
    shown = Cells(_repr.html_facts("<i>", {"<b>": "x" * 1000, "none": "", "two": "a\n<c>\x1b"}))
    assert shown.texts == ["<i>"]
    assert shown.cells == ["<b>", "x" * 197 + "...", "two", "a<c>\\x1b"]


@pytest.mark.parametrize("cls", [af.Conversion])
def test_an_object_that_is_incomplete_is_shown_as_text(cls):
    empty = cls.__new__(cls)
    assert empty._repr_html_() is None
    assert repr(empty) == f"<{cls.__name__}, incomplete>"


def frames_shown(error):
    """Return the names of the functions that IPython would show, for the error and each of its causes."""
    text = "".join(error._render_traceback_())
    parts = text.split("\nThe above exception was the direct cause")
    return [
        [line.rpartition(" in ")[2] for line in part.splitlines() if line.startswith('  File "')]
        for part in reversed(parts)
    ]


def test_an_error_ends_in_one_frame_of_ours():
    with pytest.raises(af.UnsupportedDtypeError) as caught:
        af.convert({"a": [np.array("text")]}, "torch")
    complete = traceback.extract_tb(caught.value.__traceback__)
    assert len(complete) > 4
    (shown,) = frames_shown(caught.value)
    assert shown == ["test_an_error_ends_in_one_frame_of_ours", "convert"]
    assert traceback.extract_tb(caught.value.__traceback__) == complete


def test_generated_code_is_ours():
    convert = af.converter("torch", narrowing="forbid")
    for _ in range(3):
        convert({"a": np.ones(2)})
    with pytest.raises(af.UnsupportedDtypeError) as caught:
        convert({"a": np.array("text")})
    assert frames_shown(caught.value) == [["test_generated_code_is_ours", "__call__"]]


class OfAnotherAuthor(BoxBackend):
    package = "numpy"

    def from_numpy(self, x, device=None):
        return helper(x)


def helper(x):
    raise RuntimeError("in a helper")


def test_frames_of_a_plugin_stay():
    with pytest.raises(af.ContractError) as caught:
        af.convert(np.ones(2), OfAnotherAuthor())
    shown, cause = frames_shown(caught.value)
    assert shown == ["test_frames_of_a_plugin_stay", "convert"]
    assert cause == ["from_numpy", "helper"]


def test_a_cause_of_our_own_keeps_a_frame():
    ours = {"__name__": "arrayferry.somewhere"}
    exec("def outer():\n    inner()\ndef inner():\n    raise KeyError('x')\n", ours)
    try:
        ours["outer"]()
    except KeyError as error:
        cause = error.with_traceback(error.__traceback__.tb_next)  # as from another thread
    error = af.OptionError("wrong")
    error.__cause__ = cause
    assert frames_shown(error) == [[], ["outer"]]


def test_causes_that_go_round_in_a_circle():
    first, second = af.OptionError("first"), af.OptionError("second")
    first.__cause__, second.__cause__ = second, first
    assert list(_notebook._chain(first)) == [first, second]
    assert "first" in first._render_traceback_()[-1]


CELLS = """
import arrayferry as af
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor", history_length=0)
shell.run_cell("import arrayferry as af, numpy as np")
shell.run_cell("def mine():\\n    return af.convert({'a': [np.array('text')]}, 'torch')\\nmine()")
shell.run_line_magic("xmode", "Minimal")
shell.run_cell("mine()")
print(shell.display_formatter.format(af.converter("torch"))[0]["text/html"])
"""


def test_in_ipython(run_python, tmp_path):
    pytest.importorskip("IPython")
    out = run_python(CELLS, env={"IPYTHONDIR": str(tmp_path)})
    error, _, rest = out.partition("UnsupportedDtypeError: ")
    assert "in mine()" in error
    assert error.count("\nFile ") == 1
    assert ", in convert(value, to, " in error
    assert rest.count("UnsupportedDtypeError: ") == 1
    assert rest.count("\nFile ") == 0
    assert "<strong>Conversion to torch</strong>" in rest
