"""Fingerprints of dependencies: they change with code, not with docstrings, comments or formatting."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.evidence import artifacts, fingerprint, runs
from pyhooks.evidence.claims import Claims
from pyhooks.evidence.rules import STALE
from pyhooks.evidence.runs import FinishedCommand
from pyhooks.patchset import series
from written_claims import GOOD, read

# -- contents ---------------------------------------------------------------------------------------------------------

PYTHON = '''"""Module."""
import os

LIMIT = 3  # of tries


class Reader:
    """Reads."""

    size: int = 1
    """Bytes."""

    def read(self, count=2):
        """Read."""
        # twice
        return f"{count} # {os.sep}" + "#"


def stub():
    """Nothing."""
'''
JAVA = r'''/** Racks. */
class Racks {
    // the limit
    static final int LIMIT = 3; /* of
      tries */
    String url = "http://host/*";
    char quote = '"'; // "
    char slash = '\''; /* ' */
    String text = """
        // "kept" \""" /*
        """;
    int read(int count) { return count+1 - LIMIT; }
}
'''
SCALA = r'''/** Racks. /* nested */ of a topic */
object Racks {
  // the limit
  val limit = 3 /* of
  tries */
  val url = "http://host/*"
  val quote = '"' // "
  val symbol = 'racks // '
  val raw = """C:\ // "kept" /*"""" // end
  val text = s"${racks.mkString("//")} and ${if (a) { "}" } else "/*"} $$ \" // kept" // end
  val page = s"""$limit // "" ${"}"}"" \""""" // end
  def read(count: Int): Int = count + limit
}
'''
ALLOY = """-- Racks
sig Rack { next: lone Rack } // one
/* facts
   of racks */
fact { all r: Rack | r not in r.^next and "--" != "//" }
pred move { Rack' = Rack }
run move for 3
"""
TOML = """# what a run uses
limit = 3 # of tries
name = "# racks"
day = 2026-01-01
[table]
seconds = 1.0
"""
JSON = '{"limit": 3, "name": "racks"}'
SOURCES = {".py": PYTHON, ".java": JAVA, ".scala": SCALA, ".als": ALLOY, ".toml": TOML, ".json": JSON, ".txt": "a // b"}


def fingerprint_of(suffix: str, text: str) -> str:
    return fingerprint.fingerprint_of_file(Path(f"some{suffix}"), text.encode())


@pytest.mark.parametrize(
    ("suffix", "old", "new"),
    [
        (".py", '"""Module."""', '"""Another\n\ntext."""'),
        (".py", '"""Module."""', ""),
        (".py", '"""Reads."""', '"""Parses."""'),
        (".py", '"""Bytes."""', '"""Octets."""'),
        (".py", '"""Read."""', "'''Return\n        it.'''"),
        (".py", '"""Nothing."""', "pass"),
        (".py", "# of tries", "# of attempts"),
        (".py", "        # twice\n", ""),
        (".py", "LIMIT = 3", "LIMIT=(3)"),
        (".py", "def read(self, count=2):", "def read(\n        self,\n        count=2,\n    ):"),
        (".py", "\n\n\n", "\n"),
        (".java", "/** Racks. */", "/**\n * Racks' and \"brokers.\n */"),
        (".java", "/** Racks. */", ""),
        (".java", "    // the limit\n", ""),
        (".java", "/* of\n      tries */", "// of tries"),
        (".java", "count+1 - LIMIT", "count + 1\n        -LIMIT"),
        (".java", "int read(int count) {", "int read( int count )\n    {"),
        (".java", "class", "cl\\u0061ss"),
        (".scala", "/* nested */", "/* deeper /* still */ */"),
        (".scala", "/** Racks. /* nested */ of a topic */", ""),
        (".scala", "  // the limit\n", ""),
        (".scala", "/* of\n  tries */", "// of tries"),
        (".scala", "'racks // '", "'racks"),
        (".scala", '"""" // end', '"""" // "'),
        (".scala", 'kept" // end', 'kept"'),
        (".scala", r'\""""" // end', r'\""""" // "'),
        (".scala", "(count: Int)", "( count:  Int )"),
        (".als", "-- Racks", "// Brokers -- and racks"),
        (".als", "// one", "-- /* one"),
        (".als", "/* facts\n   of racks */", ""),
        (".als", "fact { all", "fact {\n  all"),
        (".toml", "# what a run uses\n", ""),
        (".toml", "limit = 3 # of tries", "limit   = 3"),
        (".json", '{"limit": 3,', '{\n "limit":3,'),
    ],
)
def test_comments_and_formatting_do_not_change_a_fingerprint(suffix: str, old: str, new: str) -> None:
    source = SOURCES[suffix]
    assert source.count(old) >= 1
    assert fingerprint_of(suffix, source.replace(old, new)) == fingerprint_of(suffix, source)


@pytest.mark.parametrize(
    ("suffix", "old", "new"),
    [
        (".py", "LIMIT = 3", "LIMIT = 4"),
        (".py", "LIMIT = 3", "LIMIT = 3.0"),
        (".py", "LIMIT = 3", "BOUND = 3"),
        (".py", "count=2", "count=3"),
        (".py", "def read", "def parse"),
        (".py", '+ "#"', '+ "# "'),
        (".py", "{count} #", "{count} ##"),
        (".py", '"""Nothing."""', "return 1"),
        (".java", "LIMIT = 3", "LIMIT = 4"),
        (".java", "host/*", "host/**"),
        (".java", "http://host", "http://other"),
        (".java", "'\"'", "'`'"),
        (".java", "// \"kept\"", "// \"dropped\""),
        (".java", "        // \"kept\"", "            // \"kept\""),
        (".java", "int read(int", "int parse(int"),
        (".java", "count+1", "count + +1"),
        (".java", "static final int", "staticfinal int"),
        (".scala", "limit = 3", "limit = 4"),
        (".scala", "host/*", "host/**"),
        (".scala", '// "kept"', '// "dropped"'),
        (".scala", 'mkString("//")', 'mkString("///")'),
        (".scala", '$limit // ""', '$limit /// ""'),
        (".scala", r'\"""""', r'\""""'),
        (".scala", 'else "/*"', 'else "/**"'),
        (".scala", r'\" // kept', r'\" // dropped'),
        (".scala", "'racks", "'brokers"),
        (".scala", "def read", "def parse"),
        (".scala", "val symbol", "val\nsymbol"),
        (".als", '"--"', '"-- "'),
        (".als", '"//"', '"///"'),
        (".als", "lone Rack", "one Rack"),
        (".als", "for 3", "for 4"),
        (".als", "Rack' =", "Rack ="),
        (".toml", "limit = 3", "limit = 4"),
        (".toml", '"# racks"', '"# brokers"'),
        (".toml", "seconds = 1.0", "seconds = 1"),
        (".toml", "2026-01-01", "2026-01-02"),
        (".toml", "[table]", "[other]"),
        (".json", "3", "4"),
        (".txt", "// b", "// c"),
    ],
)  # fmt: skip
def test_code_changes_a_fingerprint(suffix: str, old: str, new: str) -> None:
    source = SOURCES[suffix]
    assert source.count(old) >= 1
    assert fingerprint_of(suffix, source.replace(old, new)) != fingerprint_of(suffix, source)


@pytest.mark.parametrize(
    ("suffix", "text", "place"),
    [
        (".py", "a = (", "line 1"),
        (".py", "a = 1\0", "null byte"),
        (".java", "class A {\n/* no end", "line 2"),
        (".java", 'String a = "no end;\n', "line 1"),
        (".java", "a\n*/ b", "line 2"),
        (".scala", "/* /* */", "line 1"),
        (".scala", 'val a = s"${b"', "line 1"),
        (".scala", 'val a = s"${b', "does not end"),
        (".als", "sig A {}\n/*", "line 2"),
        (".toml", "a = \n", "line 1"),
        (".json", '{"a": 1, "a": 2}', "twice"),
        (".json", "\ud800", "utf-8"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_named(suffix: str, text: str, place: str) -> None:
    with pytest.raises(RackgateError, match=place) as caught:
        fingerprint.fingerprint_of_file(Path(f"folder/some{suffix}"), text.encode("utf-8", "surrogatepass"))
    assert str(caught.value).startswith(f"folder/some{suffix}: ")
    assert "\n" not in str(caught.value)


def test_the_fingerprint_depends_on_the_language() -> None:
    assert fingerprint_of(".java", "a") != fingerprint_of(".scala", "a")


def test_reformatted_modules_keep_their_fingerprint() -> None:
    modules = [Path(artifacts.__file__), Path(fingerprint.__file__), Path(runs.__file__)]
    for module in modules:
        source = module.read_text(encoding="utf-8")
        written = ast.unparse(ast.parse(source))
        assert fingerprint_of(".py", written) == fingerprint_of(".py", source)


TOKENS = ["a", "b1", "3", "+", "-", "{", "}", "(", ";", '"//"', '"/*"', '"\\""', "'/'", "'\\''"]
GAPS = [" ", "\t", "  ", " /* + */ ", "/**/", " /* \" ' // */ "]
ENDS = ["\n", "// }\n", " // ' \"\n", "/* a\n * b */", " //* \n"]


@given(data=st.data(), suffix=st.sampled_from([".java", ".scala", ".als"]))
def test_any_comment_between_tokens_is_ignored(data: st.DataObject, suffix: str) -> None:
    usable = TOKENS if suffix != ".als" else [token for token in TOKENS if not token.startswith("'")]
    tokens = data.draw(st.lists(st.sampled_from(usable), min_size=1, max_size=12))
    # line breaks separate statements in Scala
    gaps = st.sampled_from(GAPS if suffix == ".scala" else GAPS + ENDS)
    text = "".join(token + data.draw(gaps) for token in tokens)
    assert fingerprint_of(suffix, text) == fingerprint_of(suffix, " ".join(tokens))
    place = data.draw(st.integers(0, len(tokens) - 1))
    other = data.draw(st.sampled_from([token for token in usable if token != tokens[place]]))
    assert fingerprint_of(suffix, " ".join([*tokens[:place], other, *tokens[place + 1 :]])) != fingerprint_of(
        suffix, text
    )


# -- patches ----------------------------------------------------------------------------------------------------------

MAIN, TEST = "core/src/main/java/A.java", "core/src/test/java/ATest.java"
BASE = ["class A {", "    int a = 1;", "", "    int sum(int b) {", "        return a + b;", "    }", "}"]
CHANGED = [
    "class A {", "    int a = 1;", "    // a limit", "    int limit = 3;", "", "    /**", "     * The sum.", "     */",
    "    int sum(int b) {", "        check(b); // of racks", "        return a + b;", "    }", "}",
]  # fmt: skip


def edited(old: str, new: str) -> list[str]:
    """Return the lines of CHANGED with a replaced text."""
    text = "\n".join(CHANGED)
    assert text.count(old) == 1
    return text.replace(old, new).split("\n")


def section(old: Sequence[str], new: Sequence[str], file: str = MAIN) -> str:
    """Return the diff of one file, as git writes it."""
    lines = difflib.unified_diff(old, new, f"a/{file}", f"b/{file}", lineterm="")
    return "\n".join([f"diff --git a/{file} b/{file}", "index 1..2 100644", *lines])


def patch(*sections: str, name: str = "gate/0001-Change.patch", why: str = "So.", trailer: str = "") -> series.Patch:
    head = f"From 0 Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] {name[10:-6]}\n\n{why}\n{trailer}"
    text = "\n".join([head, "---", *sections, ""])
    opt_in = trailer.removeprefix("\nOpt-in: ").strip()
    return series.Patch(Path(name), name, text, name[10:-6], why, (("Opt-in", opt_in),) if opt_in else (), (MAIN,))


def fingerprints(*patches: series.Patch) -> tuple[str, str]:
    """Return the fingerprints of the series, and of its production code alone."""
    return tuple(fingerprint.fingerprint_of_patches(patches, main_only=main_only) for main_only in (False, True))  # type: ignore[return-value]


PATCH = patch(section(BASE, CHANGED))


@pytest.mark.parametrize(
    "other",
    [
        patch(section(BASE, edited("// a limit", "// the limit of racks"))),
        patch(section(BASE, edited("    // a limit\n", ""))),
        patch(section(BASE, edited("The sum.", "Sum.\n     *\n     * It's checked."))),
        patch(section(BASE, edited("    /**\n     * The sum.\n     */\n", ""))),
        patch(section(BASE, edited(" // of racks", ""))),
        patch(section(BASE, edited("    // a limit\n", "    // a limit\n\n"))),
        patch(section(BASE, CHANGED), why="Another reason."),
        patch(section(BASE, CHANGED), name="gate/0007-Another.patch"),
        patch(section(["/* moved */", "", *BASE], ["/* moved */", "", *CHANGED])),
        patch(section(BASE, CHANGED) + "\n-- \n2.40.1"),
    ],
)
def test_comments_and_messages_of_a_patch_do_not_change_its_fingerprint(other: series.Patch) -> None:
    assert fingerprints(other) == fingerprints(PATCH)


@pytest.mark.parametrize(
    "other",
    [
        patch(section(BASE, edited("limit = 3", "limit = 4"))),
        patch(section(BASE, edited("    int limit = 3;\n", ""))),
        patch(section(BASE, edited("check(b);", "check(a);"))),
        patch(section(BASE, edited("check(b); // of racks\n        return a + b;", "return a + b;\ncheck(b);"))),
        patch(section(BASE, edited("check(b);", 'check(b, "//");'))),
        patch(section(BASE, edited("check(b);", "// check(b);"))),
        patch(section(BASE, [*edited("    // a limit\n    int limit = 3;\n\n", "")[:-1], "    int limit = 3;", "}"])),
        patch(section(BASE, CHANGED, "core/src/main/java/B.java")),
        patch(section(BASE, CHANGED).replace("index", "old mode 100644\nnew mode 100755\nindex")),
    ],
)
def test_code_of_a_patch_changes_its_fingerprint(other: series.Patch) -> None:
    assert fingerprints(other)[0] != fingerprints(PATCH)[0]
    assert fingerprints(other)[1] != fingerprints(PATCH)[1]


def test_the_fingerprint_does_not_depend_on_the_division_into_patches() -> None:
    half = edited("        check(b); // of racks\n", "")
    second = patch(section(half, CHANGED), name="gate/0002-Check.patch")
    assert fingerprints(patch(section(BASE, half)), second) == fingerprints(PATCH)
    assert fingerprints(patch(section(BASE, half)))[0] != fingerprints(PATCH)[0]


def test_tests_parts_and_options_change_only_the_fingerprint_of_the_series() -> None:
    tested = patch(section(BASE, CHANGED), section(["a"], ["b"], TEST))
    part = patch(section(BASE, CHANGED), name="fixes/0001-Change.patch")
    option = patch(section(BASE, CHANGED), trailer="\nOpt-in: some\n")
    assert len({fingerprints(each)[0] for each in (PATCH, tested, part, option)}) == 4
    assert len({fingerprints(each)[1] for each in (PATCH, tested, part, option)}) == 1


def test_a_line_that_may_be_code_changes_the_fingerprint() -> None:
    """Comments are ignored only if the hunk shows that the line is in one, and not in a literal."""

    def inserted(suffix: str, *lines: str) -> str:
        old = ["x;", "y;", "z;"]
        return fingerprints(patch(section(old, [*old[:2], *lines, old[2]], f"core/src/main/A{suffix}")))[0]

    assert inserted(".java", "* 2") != inserted(".java", "* 3")
    assert inserted(".java", '"""', "// a") != inserted(".java", '"""', "// b")
    assert inserted(".md", "// a") != inserted(".md", "// b")
    assert inserted(".java", "// a") == inserted(".java", "// b")
    assert inserted(".json", "// a") == inserted(".json", "// b")
    assert inserted(".json", '"//": 1') != inserted(".json", '"//": 2')


def test_a_hunk_inside_a_comment_does_not_change_the_fingerprint() -> None:
    before = ["class A {", "    int a;", "    /**", *(f"     * {line}" for line in range(12)), "     */", "    int b;"]
    for place, new in ((8, "     * It's another."), (13, "     * // the last")):
        after = [*before[:place], new, *before[place:]]
        assert fingerprints(patch(section(before, after), section([], ["a"], TEST)))[1] == fingerprints()[1]


@st.composite
def versions(draw: st.DrawFn) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return a file, two versions of it with the same code, and one with other code."""

    def commented(code: Sequence[int]) -> list[str]:
        comments = st.sampled_from([[], ["// it's"], ["/* a", " * b */"], ['/** "c" */', ""]])
        return [line for number in code for line in (f"int a{number} = {number};", *draw(comments))]

    order = st.lists(st.integers(0, 30), unique=True, min_size=6, max_size=14)
    base, code = draw(order), draw(order)
    other = draw(order.filter(lambda numbers: numbers != code))
    return commented(base), commented(code), commented(code), commented(other)


@given(versions())
def test_any_comment_of_a_patch_is_ignored(drawn: tuple[list[str], list[str], list[str], list[str]]) -> None:
    base, first, second, other = drawn
    expected = fingerprints(patch(section(base, first)))
    assert fingerprints(patch(section(base, second))) == expected
    # also if one patch changes the code and the next changes it back
    assert (
        fingerprints(patch(section(base, other)), patch(section(other, first), name="gate/0002-Then.patch")) == expected
    )
    assert fingerprints(patch(section(base, other)))[0] != expected[0]


# -- artifacts --------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.py").write_text(PYTHON, encoding="utf-8")
    (tmp_path / "input" / "b.py").write_text("B = 1\n", encoding="utf-8")
    (tmp_path / "input" / "a.toml").write_text(TOML, encoding="utf-8")
    folder = tmp_path / "patch" / paths.kafka_version()
    (folder / "gate").mkdir(parents=True)
    (folder / "series").write_text(f"{PATCH.name}\n", encoding="utf-8")
    (folder / PATCH.name).write_text(PATCH.text, encoding="utf-8")
    return tmp_path


def claims_of(root: Path, *depends: str) -> Claims:
    """Return claims whose run has these dependencies."""
    text = GOOD.replace('depends = ["input/*.txt"]', f"depends = {json.dumps(depends)}")
    return read(root, text)


@pytest.fixture
def stale(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Write an artifact; return a function that returns the dependencies that make it stale now."""
    monkeypatch.setattr(runs, "_check_build", lambda _: None)
    declared = ("input/*.py", "input/*.toml", "overlay")
    claims = claims_of(root, *declared)

    finished = FinishedCommand(0, '{"n": 1}')
    runs.execute_run(
        claims, claims.runs["sum"], folder=root / "kept", root=root, out=root / "logs", execute=lambda *_: finished
    )

    def stale_dependencies(*depends: str) -> list[str]:
        results = artifacts.read_results(claims_of(root, *(depends or declared)), root / "kept", root)
        reason = results.stale.get("sum", "")
        assert bool(reason) == (results.judged["one"].state == STALE)
        names = {"overlay": "the build of the patch series", "series": "the patch series"}
        return [name for name in (depends or declared) if names.get(name, name) in reason]

    return stale_dependencies


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_changed_docstring_leaves_a_result_current_and_a_changed_constant_does_not(
    root: Path, stale: Callable[..., list[str]]
) -> None:
    replace(root / "input" / "a.py", '"""Reads."""', '"""Parses."""')
    replace(root / "input" / "a.toml", "# of tries", "# of attempts")
    replace(root / "patch" / paths.kafka_version() / PATCH.name, "+    // a limit", "+    // the limit")
    assert stale() == []
    replace(root / "input" / "a.py", "LIMIT = 3", "LIMIT = 4")
    assert stale() == ["input/*.py"]
    replace(root / "input" / "a.py", "LIMIT = 4", "LIMIT = 3")
    assert stale() == []
    replace(root / "input" / "a.toml", "limit = 3", "limit = 4")
    replace(root / "patch" / paths.kafka_version() / PATCH.name, "limit = 3", "limit = 4")
    assert stale() == ["input/*.toml", "overlay"]


def test_a_moved_file_leaves_a_result_current(root: Path, stale: Callable[..., list[str]]) -> None:
    (root / "input" / "a.py").rename(root / "input" / "renamed.py")
    assert stale() == []
    (root / "other").mkdir()
    (root / "input" / "b.py").rename(root / "other" / "c.py")
    assert stale() == ["input/*.py"]
    assert stale("input/*.py", "other/*.py", "input/*.toml", "overlay") == []
    assert stale("*/*.py", "input/r*.py", "*/*.toml", "overlay") == []
    replace(root / "other" / "c.py", "1", "2")
    changed = stale("input/*.py", "other/*.py", "input/*.toml", "overlay")
    assert changed == ["input/*.py", "other/*.py"]


def test_an_added_or_deleted_file_makes_a_result_stale(root: Path, stale: Callable[..., list[str]]) -> None:
    copy = root / "input" / "copy.py"
    copy.write_bytes((root / "input" / "b.py").read_bytes())
    assert stale() == ["input/*.py"]
    copy.unlink()
    assert stale() == []
    (root / "input" / "b.py").unlink()
    assert stale() == ["input/*.py"]


def test_a_removed_dependency_leaves_a_result_current(root: Path, stale: Callable[..., list[str]]) -> None:
    replace(root / "input" / "b.py", "1", "2")
    assert stale("input/*.toml", "overlay") == []
    assert stale("series", "input/*.toml") == ["series"]


def test_a_file_that_cannot_be_parsed_is_an_error(root: Path, stale: Callable[..., list[str]]) -> None:
    replace(root / "input" / "b.py", "1", "(")
    with pytest.raises(RackgateError, match=r"input/b\.py: can't be parsed"):
        stale()


def test_the_cache_of_fingerprints_is_read_and_may_be_malformed(root: Path, stale: Callable[..., list[str]]) -> None:
    cache = root / "out" / "evidence" / "fingerprints.json"
    stored = json.loads(cache.read_text(encoding="utf-8"))
    assert len(stored) == 4
    cache.write_text(json.dumps(dict.fromkeys(stored, "other")), encoding="utf-8")
    assert stale() == ["input/*.py", "input/*.toml", "overlay"]
    for text in ("{", "[]", json.dumps(dict.fromkeys(stored, 1))):
        cache.write_text(text, encoding="utf-8")
        assert stale() == []
        assert json.loads(cache.read_text(encoding="utf-8")) == stored
