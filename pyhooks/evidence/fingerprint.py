"""Fingerprints of source files and patches that ignore docstrings, comments and formatting (called "text" here).

A result stays current while the fingerprints of its dependencies are unchanged. If it is uncertain whether a part is a
comment, it counts as code: a result may become stale without need, but is never treated as current by mistake.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import parse_json, read_object, write_text
from pyhooks.patchset.series import Patch, file_diffs, is_test

# maximum number of cached fingerprints
CACHED = 2_000
# If a hunk has only lines with a leading asterisk, at least so many (a changed line and its context), they are part of
# a block comment for certain.
_STARRED_LINES = 4


@dataclass(frozen=True)
class Language:
    """Lexical grammar of a language."""

    # matches one token. Its groups are the kinds ``space``, ``line`` (comment), ``block`` (start of a block comment),
    # ``literal``, ``interpolated`` (start of an interpolated string) and ``code``
    token: re.Pattern[str]
    nests: bool = False
    newlines: bool = False  # whether line breaks separate statements
    unicode_escapes: bool = False  # whether Unicode escapes are replaced before the text is divided into tokens


_STRING = r'"(?:\\.|[^"\\\n])*"'
_CHARACTER = r"'(?:\\u+[0-9a-fA-F]{4}|\\[0-7]{1,3}|\\[^\n]|[^'\\\n])'"
_JAVA_OPERATORS = (
    ">>>=", "<<=", ">>=", ">>>", "...", "->", "::", "++", "--", "&&", "||", "==", "!=", "<=", ">=", "+=", "-=", "*=",
    "/=", "&=", "|=", "^=", "%=", "<<", ">>",
)  # fmt: skip


def _grammar(line: str, literal: str, code: str, interpolated: str = "(?!)") -> re.Pattern[str]:
    return re.compile(
        rf"(?P<space>\s+)|(?P<line>{line})|(?P<block>/\*)|(?P<interpolated>{interpolated})|(?P<literal>{literal})"
        rf"|(?P<code>[\w$]+|[][(){{}},;]|(?!\*/(?!\*))(?:{code}))",
        re.DOTALL,
    )


JAVA = Language(
    _grammar(
        line=r"//[^\n]*",
        literal=rf'"""(?:\\.|[^\\])*?"""|(?!"""){_STRING}|{_CHARACTER}',
        code="|".join(map(re.escape, _JAVA_OPERATORS)) + r"|[^\w\s\"']",
    ),
    unicode_escapes=True,
)
SCALA = Language(
    _grammar(
        line=r"//[^\n]*",
        interpolated=r"[^\W\d][\w$]*(?=\")",
        literal=rf'""".*?"""(?!")|(?!"""){_STRING}|{_CHARACTER}|`[^`\n]+`',
        # a single quote starts a symbol
        code=r"'(?=[^\W\d])|(?:(?!//|/\*|\*/(?!\*))[^\w\s\"'`$(){},;[\]])+",
    ),
    nests=True,
    newlines=True,
)
ALLOY = Language(
    _grammar(
        line=r"(?://|--)[^\n]*",
        literal=_STRING,
        # a single quote is a part of a name or the operator for the next state
        code=r"(?:(?!//|--|/\*|\*/(?!\*))[^\w\s\"$(){},;[\]])+",
    )
)
LANGUAGES = {".java": JAVA, ".scala": SCALA, ".als": ALLOY}

Token = tuple[str, int, int]


def fingerprint_of_file(path: Path, content: bytes) -> str:
    """Return the SHA-256 of a file's suffix and its content without text. The rest of the path does not count.

    The suffix selects the language. The syntax tree of Python depends on the minor version of Python, which
    ``pyproject.toml`` fixes.

    Raises:
        RackgateError: the content can't be parsed.
    """
    normalize: Callable[[bytes], bytes] = _NORMALIZERS.get(path.suffix, bytes)
    if path.suffix in LANGUAGES:
        normalize = _without_comments(LANGUAGES[path.suffix])
    try:
        normalized = normalize(content)
    # errors of tomllib, json and decoding are ValueErrors
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RackgateError(f"{path}: can't be parsed for its fingerprint: {error or type(error).__name__}") from error
    return hashlib.sha256(path.suffix.encode() + b"\0" + normalized).hexdigest()


def combined(fingerprints: Iterable[str]) -> str:
    """Return one SHA-256 of several fingerprints, in any order; repeated ones count."""
    return hashlib.sha256("\n".join(sorted(fingerprints)).encode()).hexdigest()


class Cache:
    """Cache of fingerprints by content, for one version of Python and of this module."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version_hash = hashlib.sha256(sys.version.encode() + Path(__file__).read_bytes())
        try:
            stored = read_object(path, "")
        except RackgateError:
            # a missing or invalid cache is rebuilt
            stored = {}
        self._stored = {key: value for key, value in stored.items() if isinstance(value, str)}
        self._changed = False

    def get(self, content: bytes, compute: Callable[[], str]) -> str:
        """Return the fingerprint of a content; ``compute`` computes it if it is not in the cache."""
        digest = self._version_hash.copy()
        digest.update(content)
        key = digest.hexdigest()
        if key not in self._stored:
            self._stored[key] = compute()
            self._changed = True
        return self._stored[key]

    def save(self) -> None:
        """Write the cache if it has new entries, without the oldest beyond ``CACHED``; ignore a failure to write it."""
        if self._changed:
            with suppress(RackgateError):
                write_text(self._path, json.dumps(dict(list(self._stored.items())[-CACHED:])))


# -- files ------------------------------------------------------------------------------------------------------------


def _python(content: bytes) -> bytes:
    tree = ast.parse(content)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            statements = [statement for statement in body if not _is_text(statement)]
            node.body = statements if statements or isinstance(node, ast.Module) else [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree).encode("utf-8", "surrogatepass")


def _is_text(statement: ast.AST) -> bool:
    """Return whether a statement is only a string: a docstring, or the documentation of an attribute."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _toml(content: bytes) -> bytes:
    # JSON has no dates and times
    return json.dumps(tomllib.loads(content.decode()), sort_keys=True, default=repr).encode()


def _json(content: bytes) -> bytes:
    return json.dumps(parse_json(content.decode()), sort_keys=True).encode()


_NORMALIZERS = {".py": _python, ".toml": _toml, ".json": _json}


def _without_comments(language: Language) -> Callable[[bytes], bytes]:
    def normalize(content: bytes) -> bytes:
        text = content.decode().replace("\r\n", "\n")
        if language.unicode_escapes:
            text = _replace_unicode_escapes(text)
        if language.newlines:
            return "\n".join(filter(None, _code_lines(text, language))).encode("utf-8", "surrogatepass")
        tokens = (text[start:end] for kind, start, end in _tokens(text, language) if kind in ("literal", "code"))
        return "\n".join(tokens).encode("utf-8", "surrogatepass")

    return normalize


def _replace_unicode_escapes(text: str) -> str:
    """Replace Unicode escapes as a Java compiler does (JLS 3.3): a backslash after a backslash starts no escape."""
    return re.sub(r"\\\\|\\u+([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)) if match[1] else match[0], text)


# -- tokens -----------------------------------------------------------------------------------------------------------


def _tokens(
    text: str, language: Language, position: int = 0, *, partial: bool = False, in_comment: bool = False
) -> Iterator[Token]:
    """Divide a text into tokens.

    Args:
        text: the source.
        language: its grammar.
        position: start position.
        partial: whether the text is only a part of a file, so that it may end inside a block comment.
        in_comment: whether it begins inside a block comment.

    Yields:
        Kind (``space``, ``comment``, ``literal``, ``code``), start and end.

    Raises:
        ValueError: a literal or a comment does not end, or a character starts no token.
    """
    if in_comment:
        end = _comment_end(text, position, language, partial=partial)
        yield "comment", position, end
        position = end
    while position < len(text):
        match = language.token.match(text, position)
        if match is None:
            raise ValueError(
                f"line {text.count(chr(10), 0, position) + 1}: {text[position : position + 10]!r} starts no token"
            )
        kind, end = str(match.lastgroup), match.end()
        if kind == "block":
            kind, end = "comment", _comment_end(text, end, language, partial=partial)
        elif kind == "line":
            kind = "comment"
        elif kind == "interpolated":
            kind, end = "literal", _interpolated_end(text, end, language)
        yield kind, position, end
        position = end


def _comment_end(text: str, position: int, language: Language, *, partial: bool) -> int:
    """Return the end of the block comment that is open at a position."""
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(text, position):
        if match[0] == "*/":
            depth -= 1
        elif language.nests:
            depth += 1
        if not depth:
            return match.end()
    if partial:
        return len(text)
    raise ValueError(f"line {text.count(chr(10), 0, position) + 1}: the comment does not end")


def _interpolated_end(text: str, quote: int, language: Language) -> int:
    """Return the end of Scala's interpolated string whose first quote is at a position."""
    triple = text.startswith('"""', quote)
    position = quote + (3 if triple else 1)
    while match := re.compile(r'\$\{|\$[$"]|\\.|["\n]', re.DOTALL).search(text, position):
        position = match.end()
        if match[0] == "${":
            position = _block_end(text, position, language)
        elif triple and match[0] == '"':
            if text.startswith('""', position) and not text.startswith('"""', position):
                return position + 2
        elif triple and match[0].startswith("\\"):
            # in a triple-quoted string a backslash escapes nothing
            position = match.start() + 1
        elif match[0] == '"':
            return position
        elif match[0] == "\n" and not triple:
            break
    raise ValueError(f"line {text.count(chr(10), 0, quote) + 1}: the string does not end")


def _block_end(text: str, position: int, language: Language) -> int:
    """Return the end of the block whose code starts at a position."""
    depth = 1
    for _, start, end in _tokens(text, language, position):
        depth += {"{": 1, "}": -1}.get(text[start:end], 0)
        if not depth:
            return end
    raise ValueError("the block in a string does not end")


def _code_lines(text: str, language: Language, *, partial: bool = False, in_comment: bool = False) -> list[str]:
    """Return the tokens of each line, separated by spaces; the line is empty if it has only comments."""
    lines: list[list[str]] = [[]]
    for kind, start, end in _tokens(text, language, partial=partial, in_comment=in_comment):
        first, *further_lines = text[start:end].split("\n")
        if kind in ("space", "comment"):
            lines += ([] for _ in further_lines)
        else:
            lines[-1].append(first)
            lines += ([line] for line in further_lines)
    return [" ".join(tokens) for tokens in lines]


# -- patches ----------------------------------------------------------------------------------------------------------


def fingerprint_of_patches(patches: Sequence[Patch], *, main_only: bool) -> str:
    """Return the SHA-256 of the code changes of patches, without comments.

    It covers, for each file, the pairs of adjacent lines of code that all patches together add and remove. It depends
    on the order and the neighbours of changed lines. It does not depend on line numbers, commit messages, names of
    patches, or the division of a change into patches of the same part.

    Args:
        patches: patches in the order in which they are applied.
        main_only: cover only what is built from the patches: skip tests, and ignore the part of a patch.
    """
    changes: dict[tuple[str, str, str], Counter[tuple[str, str]]] = {}
    for patch in patches:
        for diff in file_diffs(patch.text):
            if main_only and is_test(diff.file):
                continue
            part = ("", "") if main_only else (patch.part, patch.opt_in)
            pairs = changes.setdefault((*part, diff.file), Counter())
            pairs.update(("", line) for line in diff.header)
            for hunk in diff.hunks:
                old, new = _sides(hunk, diff.file)
                pairs.update(_pairs(new))
                pairs.subtract(_pairs(old))
    changed_pairs = [
        [*key, sorted([*pair, count] for pair, count in pairs.items() if count)]
        for key, pairs in sorted(changes.items())
        if any(pairs.values())
    ]
    return hashlib.sha256(json.dumps(changed_pairs).encode()).hexdigest()


def _sides(hunk: Iterable[str], file: str) -> tuple[list[str], list[str]]:
    """Return the lines of code before and after a hunk; comments are removed if both sides can be parsed."""
    hunk = list(hunk)
    sides = tuple([line[1:] for line in hunk if line[:1] in (" ", sign, "")] for sign in "-+")
    suffix = Path(file).suffix
    if suffix in LANGUAGES:
        parsed = [_partial_code(side, LANGUAGES[suffix]) for side in sides]
    else:
        # Kafka's message definitions have comments; no string of JSON spans lines
        parsed = [[line for line in side if suffix != ".json" or not line.lstrip().startswith("//")] for side in sides]
    old, new = (
        [line.strip() for line in (side if tokens is None or None in parsed else tokens) if line.strip()]
        for side, tokens in zip(sides, parsed, strict=True)
    )
    return old, new


def _partial_code(lines: Sequence[str], language: Language) -> list[str] | None:
    """Return the tokens of each of a part's lines, or None if it is uncertain which of them are comments."""
    starred = list(takewhile(lambda line: line.lstrip().startswith("*"), lines))
    in_comment = any("*/" in line for line in starred) or len(starred) == len(lines) >= _STARRED_LINES
    try:
        return _code_lines("\n".join(lines), language, partial=True, in_comment=in_comment)
    except ValueError:
        return None


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return pairs of each line and the line before it."""
    return zip(("", *lines), lines, strict=False)
