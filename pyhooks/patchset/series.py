"""The patch series: parse, select and apply its patches, and export a tree's commits to it.

The series has four parts, each in a folder and on a git branch of the same name. Fixes may be opt-in: a build leaves
them out unless it is given their name.
"""

from __future__ import annotations

import email.header
import email.parser
import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.patchset.git import commit_of, git
from pyhooks.patchset.source_tree import BASELINE

# In order of application.
PARTS = ("fixes", "gate", "elr", "observe")
FIXES, TOP = PARTS[0], PARTS[-1]
# Patches of folders that the published sources lack, the same for every version; a build does not apply them.
CHECKOUT, CHECKOUT_FILES = "checkout", "tests/"
# Number of the series, the same on every version of Kafka.
REVISION = paths.REPO / "patch" / "revision"
_TAG = re.compile(r"^\[PATCH[^\]]*\] *")
_NAME = re.compile(rf"({'|'.join(PARTS)})/(\d{{4}})-[^/\s]+\.patch")
_TRAILER = re.compile(r"([A-Z][A-Za-z-]*):(?:[ \t]+(.*))?")
_FIX_NUMBERS = re.compile(r"\d{1,4}(, ?\d{1,4})*")
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
# Refs in the tree: each part's branch at the last import or export.
_SAVED = "refs/rackgate/parts"


@dataclass(frozen=True)
class Patch:
    """One file of the series.

    Attributes:
        name: its path below the folder of the series, such as ``fixes/0001-Subject.patch``.
        reason: the rest of the commit message, without the trailers.
    """

    path: Path
    name: str
    text: str
    subject: str
    reason: str
    trailers: tuple[tuple[str, str], ...]
    files: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def part(self) -> str:
        """The part of the series to which it belongs."""
        return self.name.partition("/")[0]

    @property
    def number(self) -> int:
        """The number in its file name, unique within its part."""
        return _number(self.name)

    @property
    def opt_in(self) -> str:
        """The name with which a build selects it, or empty if every build includes it."""
        return next(iter(self.values("Opt-in")), "")

    @property
    def depends(self) -> tuple[str, ...]:
        """Subjects or file numbers of the fixes it depends on, as written in its trailers."""
        dependencies: list[str] = []
        for value in self.values("Depends"):
            if value.lower() != "none":
                dependencies += re.split(r", ?", value) if _FIX_NUMBERS.fullmatch(value) else [value]
        return tuple(dependencies)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of all trailers with this key."""
        return tuple(value for name, value in self.trailers if name == key)

    def added_lines(self) -> tuple[int, int]:
        """Count the lines it adds to Kafka's main code, and to Kafka's tests and their common helpers."""
        counts = {False: 0, True: 0}
        for diff in file_diffs(self.text):
            counts[is_test(diff.file)] += sum(line.startswith("+") for hunk in diff.hunks for line in hunk)
        return counts[False], counts[True]


@dataclass(frozen=True)
class FileDiff:
    """Changes of one file in a patch.

    Attributes:
        header: lines that create, delete or rename it, or change its mode.
        hunks: lines of each hunk, each with its first character.
    """

    file: str
    header: list[str]
    hunks: list[list[str]]


def file_diffs(text: str) -> Iterator[FileDiff]:
    """Parse the changes of each file in the text of a patch."""
    diff: FileDiff | None = None
    old = new = 0
    for line in text.split("\n"):
        if diff and (old > 0 or new > 0):
            old -= line[:1] in (" ", "-", "")
            new -= line[:1] in (" ", "+", "")
            if not line.startswith("\\"):
                diff.hunks[-1].append(line)
        elif line.startswith("diff --git "):
            if diff:
                yield diff
            diff = FileDiff(line.rpartition(" b/")[2], [], [])
        elif diff and (match := _HUNK.match(line)):
            old, new = (1 if count is None else int(count) for count in match.groups())
            diff.hunks.append([])
        elif line == "-- ":
            break  # the signature with git's version follows
        elif diff and line and not line.startswith(("index ", "--- ", "+++ ", "\\")):
            diff.header.append(line)
    if diff:
        yield diff


def is_test(file: str) -> bool:
    """Return whether a file of Kafka's repository belongs to the tests or their common helpers."""
    return "/src/test/" in file or file.startswith(("test-common/", CHECKOUT_FILES))


@dataclass(frozen=True)
class Selection:
    """Selection of the patches that a build applies; by default all that are not opt-in.

    Attributes:
        opt_ins: names of opt-in fixes to apply as well.
        last_part: the last part to apply, or empty for all parts.
        first: apply only the first this many of these patches, or None for all.
        fix: number of a single fix to apply after the fixes it depends on, or None. Overrides all other attributes.
    """

    opt_ins: frozenset[str] = frozenset()
    last_part: str = ""
    first: int | None = None
    fix: int | None = None

    @property
    def label(self) -> str:
        """Suffix that identifies the selection in file names; empty for the default."""
        parts = [f"fix-{self.fix:04}"] if self.fix is not None else []
        parts += [self.last_part] if self.last_part else []
        parts += [str(self.first)] if self.first is not None else []
        return "-".join([*parts, *(["with", *sorted(self.opt_ins)] if self.opt_ins else [])])

    def choose(self, patches: Sequence[Patch]) -> tuple[Patch, ...]:
        """Return the selected patches in order, given all patches of a series.

        Raises:
            RackgateError: an unknown fix or part, or the series has too few patches.
        """
        if self.fix is not None:
            wanted = next((p for p in patches if p.part == FIXES and p.number == self.fix), None)
            if wanted is None:
                raise RackgateError(f"the series has no fix {self.fix:04}")
            return with_dependencies(patches, wanted)
        known = opt_ins(patches)
        if unknown := sorted(self.opt_ins - set(known)):
            raise RackgateError(f"no fix is opt-in as {unknown[0]}; the series has: {', '.join(known) or 'none'}")
        if self.last_part and self.last_part not in PARTS:
            raise RackgateError(f"{self.last_part} is not a part of the series; the parts are {', '.join(PARTS)}")
        parts = PARTS[: PARTS.index(self.last_part or TOP) + 1]
        chosen = [p for p in patches if p.part in parts and (not p.opt_in or p.opt_in in self.opt_ins)]
        if self.first is not None and not 0 <= self.first <= len(chosen):
            raise RackgateError(f"--patches {self.first}: the series has {len(chosen)} patches")
        return tuple(chosen[: self.first])


DEFAULT = Selection()


def opt_ins(patches: Iterable[Patch]) -> tuple[str, ...]:
    """Return the names of the opt-in fixes, sorted."""
    return tuple(sorted({patch.opt_in for patch in patches} - {""}))


def with_dependencies(patches: Sequence[Patch], fix: Patch) -> tuple[Patch, ...]:
    """Return a fix and all fixes that it depends on, directly or indirectly, in the order of the series.

    Raises:
        RackgateError: a fix depends on one that is not in the series.
    """
    needed = {fix.name}
    waiting = [fix]
    while waiting:
        patch = waiting.pop()
        for text in patch.depends:
            other = find_fix(patches, text)
            if other is None:
                raise RackgateError(f"{patch.name}: depends on {text!r}, which is not a fix of the series")
            if other.name not in needed:
                needed.add(other.name)
                waiting.append(other)
    return tuple(patch for patch in patches if patch.name in needed)


def find_fix(patches: Iterable[Patch], text: str) -> Patch | None:
    """Return the fix with this subject or file number, or None."""
    fixes = (patch for patch in patches if patch.part == FIXES)
    if _FIX_NUMBERS.fullmatch(text):
        return next((patch for patch in fixes if patch.number == int(text)), None)
    return next((patch for patch in fixes if patch.subject == text), None)


def names(folder: Path) -> tuple[str, ...]:
    """Return the file names listed in the ``series`` file; a missing file is an empty series."""
    listing = folder / "series"
    if not listing.exists():
        return ()
    lines = (line.split("#")[0].strip() for line in listing.read_text(encoding="utf-8").splitlines())
    return tuple(filter(None, lines))


def parse(folder: Path, name: str) -> Patch:
    """Parse the patch ``name`` in the folder of the series, in git's mail format.

    Raises:
        RackgateError: the name is not of the form ``PART/NNNN-Subject.patch``, or the file is missing, not UTF-8,
            or lacks a subject or a diff.
    """
    if not _NAME.fullmatch(name):
        raise RackgateError(f"{name}: must be called PART/NNNN-Subject.patch, where PART is {', '.join(PARTS)}")
    path = folder / name
    if not path.exists():
        raise RackgateError(f"{name}: listed in {folder / 'series'}, but missing")
    return _parse(path, name)


def load_checkout(folder: Path = paths.REPO / "patch") -> tuple[Patch, ...]:
    """Parse the patches that apply only to a checkout of apache/kafka, in the order of their numbers.

    Raises:
        RackgateError: a patch is unreadable.
    """
    found = sorted((folder / CHECKOUT).glob("*.patch"))
    return tuple(_parse(path, f"{CHECKOUT}/{path.name}") for path in found)


def _parse(path: Path, name: str) -> Patch:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise RackgateError(f"{name}: not UTF-8 at byte {error.start}") from error
    mail = email.parser.Parser().parsestr(text[text.find("\n") + 1 :] if text.startswith("From ") else text)
    raw = "".join(
        part.decode(charset or "utf-8") if isinstance(part, bytes) else part
        for part, charset in email.header.decode_header(mail.get("Subject", ""))
    )
    subject = _TAG.sub("", " ".join(raw.split()))
    files = tuple(dict.fromkeys(re.findall(r"^diff --git a/\S+ b/(\S+)$", text, re.MULTILINE)))
    if not subject or not files:
        raise RackgateError(f"{name}: not a patch in `git format-patch` form (no subject or no diff)")
    body = str(mail.get_payload())
    message = re.split(r"^(?:---$|---\n|diff --git )", body, maxsplit=1, flags=re.MULTILINE)[0]
    reason, trailers = split_trailers(message)
    return Patch(path, name, text, subject, reason, trailers, files)


def split_trailers(message: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Split the body of a commit message into text and trailers.

    As in git, the last paragraph holds the trailers if each of its lines is ``Key: value`` or starts with white space
    and continues the previous line.
    """
    head, gap, last = message.strip().rpartition("\n\n")
    trailers: list[tuple[str, str]] = []
    for line in last.splitlines():
        match = _TRAILER.fullmatch(line)
        if match:
            trailers.append((match[1], (match[2] or "").strip()))
        elif trailers and line[:1] in {" ", "\t"}:
            trailers[-1] = (trailers[-1][0], f"{trailers[-1][1]} {line.strip()}".strip())
        else:
            return (head + gap + last).strip(), ()
    return head.strip(), tuple(trailers)


def _number(name: str) -> int:
    return int(name.partition("/")[2][:4])


def load_all(folder: Path) -> tuple[Patch, ...]:
    """Parse the whole series in ``folder``, including opt-in fixes.

    Raises:
        RackgateError: a patch is missing or unreadable.
    """
    return tuple(parse(folder, name) for name in names(folder))


def load(folder: Path, selection: Selection = DEFAULT) -> tuple[Patch, ...]:
    """Parse the series in ``folder`` and return the selected patches; by default all that are not opt-in.

    Raises:
        RackgateError: a patch is missing or unreadable, or the selection is invalid.
    """
    return selection.choose(load_all(folder))


def revision() -> str:
    """Return the name of this revision of the series, such as ``rackgate-1``, the same on every version of Kafka.

    Raises:
        RackgateError: the file with the number is missing or has something else.
    """
    text = REVISION.read_text(encoding="utf-8").strip() if REVISION.is_file() else "missing"
    if not re.fullmatch(r"[1-9]\d*", text):
        raise RackgateError(f"{REVISION}: must be a number of at least 1, is {text:.40}")
    return f"rackgate-{text}"


def series_hash(patches: Sequence[Patch]) -> str:
    """Return the SHA-256 over names and contents of the patches in order."""
    digest = hashlib.sha256()
    for patch in patches:
        digest.update(f"{patch.name} {patch.sha256}\n".encode())
    return digest.hexdigest()


def check_build(manifest: Mapping[str, Any], patches: Sequence[Patch]) -> None:
    """Check that a distribution with this manifest was built from these patches.

    Raises:
        RackgateError: it was built from others.
    """
    if manifest["patch_hash"] != series_hash(patches):
        raise RackgateError("the build does not match the current series; run `rackgate build` first")


def apply(tree: Path, patches: Sequence[Patch]) -> str:
    """Apply patches in order with ``git am`` and return the new HEAD.

    Raises:
        RackgateError: a patch does not apply. The message names the patch and the file; the tree keeps the state
            before that patch.
    """
    for patch in patches:
        try:
            git(
                tree, "am", "--quiet", "--committer-date-is-author-date", "--no-gpg-sign", "--whitespace=nowarn",
                str(patch.path.resolve()), task=f"apply {patch.name}",
            )  # fmt: skip
        except RackgateError as error:
            git(tree, "am", "--abort", task="abort the patch")
            raise RackgateError(
                f"patch {patch.name} does not apply: {_why(error.detail)}", detail=error.detail
            ) from None
    return git(tree, "rev-parse", "HEAD", task="read the tree's head")


class Trial:
    """Trial application of patches in a git index without a work tree, which takes a fraction of a second.

    Args:
        folder: for the clone with the index; must not exist.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        git(source, "clone", "--quiet", "--shared", "--no-checkout", ".", str(folder), task="try the series")
        self._folder = folder

    def apply(self, patches: Sequence[Patch], where: str = "") -> tuple[str, ...]:
        """Apply patches in order to the baseline; return all files that then differ from it.

        Raises:
            RackgateError: a patch does not apply; the message names the patch and the file.
        """
        task, baseline = "try the series", f"refs/tags/{BASELINE}"
        git(self._folder, "read-tree", baseline, task=task)
        for patch in patches:
            try:
                git(self._folder, "apply", "--cached", "--whitespace=nowarn", str(patch.path.resolve()), task=task)
            except RackgateError as error:
                raise RackgateError(
                    f"patch {patch.name} does not apply{where}: {_why(error.detail)}",
                    detail=error.detail,
                    exit_status=1,
                ) from None
        listed = git(self._folder, "diff", "--cached", "--name-only", "--no-renames", "-z", baseline, task=task)
        return tuple(sorted(filter(None, listed.split("\0"))))


def _why(output: str) -> str:
    for line in output.splitlines():
        if match := re.match(r"error: (?:patch failed: )?(.+?:\d+|[^ ]+: .+)$", line):
            return match[1]
    return output.splitlines()[0] if output else "git gives no reason"


def apply_parts(tree: Path, patches: Sequence[Patch]) -> None:
    """Apply a whole series to a fresh clone, with a branch at the last commit of each part.

    The branch of the last part is checked out. ``git rebase`` updates the other branches (``rebase.updateRefs``).

    Raises:
        RackgateError: a patch does not apply.
    """
    task = "make the branches of the parts"
    former = git(tree, "symbolic-ref", "HEAD", task=task)
    for part in PARTS:
        tip = apply(tree, [patch for patch in patches if patch.part == part])
        git(tree, "update-ref", f"refs/heads/{part}", tip, task=task)
    git(tree, "symbolic-ref", "HEAD", f"refs/heads/{TOP}", task=task)
    if former not in {f"refs/heads/{part}" for part in PARTS}:
        git(tree, "update-ref", "-d", former, task=task)
    git(tree, "config", "rebase.updateRefs", "true", task=task)
    mark_saved(tree)


def mark_saved(tree: Path) -> None:
    """Record in refs that the branches of the parts match the series."""
    for part in PARTS:
        git(tree, "update-ref", f"{_SAVED}/{part}", commit_of(tree, f"refs/heads/{part}"), task="mark the parts")


def unexported(tree: Path) -> str:
    """Describe the changes in a working tree since the last import or export; empty if there are none."""
    if git(tree, "status", "--porcelain", task="read the state of the tree"):
        return "has uncommitted changes"
    branches = [[commit_of(tree, f"{space}/{part}") for space in ("refs/heads", _SAVED)] for part in PARTS]
    if any(now != saved or not saved for now, saved in branches) or not _contains(tree, TOP, "HEAD"):
        return "has commits that were not exported"
    return ""


def _contains(tree: Path, branch: str, other: str) -> bool:
    """Return whether ``branch`` contains all commits of ``other``."""
    return git(tree, "rev-list", "--count", f"{branch}..{other}", task="compare the branches") == "0"


def part_commits(tree: Path) -> dict[str, list[str]]:
    """Return the commits of each part, oldest first, from the branches that ``apply_parts`` creates.

    Raises:
        RackgateError: uncommitted changes, a merge, a branch that is missing or not on top of the previous part's,
            or commits that no branch of a part contains.
    """
    task = "read the state of the tree"
    if git(tree, "status", "--porcelain", task=task):
        raise RackgateError(f"{tree}: uncommitted changes; commit them (git commit, or --amend), then export")
    below = BASELINE
    for part in PARTS:
        if not commit_of(tree, f"refs/heads/{part}"):
            raise RackgateError(
                f"{tree}: branch {part} is missing; create it at the last commit of that part: "
                f"`git branch {part} COMMIT` ({below} if the part is empty)"
            )
        if not _contains(tree, part, below):
            remedy = (
                f"move it up (`git branch -f {part} {below}`) or {below} down"
                if _contains(tree, below, part)
                else f"rebase it (`git rebase {below} {part}`), and then the later branches"
            )
            raise RackgateError(f"{tree}: branch {part} must contain branch {below}; {remedy}")
        below = part
    if not _contains(tree, TOP, "HEAD"):
        remedy = (
            f"`git branch -f {TOP} HEAD` makes them a part of {TOP}"
            if _contains(tree, "HEAD", TOP)
            else f"rebase them onto {TOP} (`git rebase {TOP}`), then `git branch -f {TOP} HEAD`"
        )
        raise RackgateError(f"{tree}: HEAD has commits above branch {TOP}; {remedy}")
    if git(tree, "rev-list", "--merges", f"{BASELINE}..{TOP}", task=task):
        raise RackgateError(f"{tree}: a merge on top of {BASELINE}; a series must be linear (git rebase)")
    ranges = zip((BASELINE, *PARTS), PARTS, strict=False)
    return {
        part: git(tree, "rev-list", "--reverse", f"{start}..{part}", task="list the commits").split()
        for start, part in ranges
    }


def export(tree: Path, folder: Path, *, renumber: bool = False) -> tuple[str, ...]:
    """Write the commits on top of the baseline to ``folder`` and its ``series`` file.

    A patch keeps its file name while its subject and part are unchanged. A new patch is named after its subject. Its
    number is one above the previous patch's or, if that is taken, one above the highest in its part. The text of the
    patches does not depend on the machine, git's version or the number of patches.

    Returns:
        The file names in order.

    Raises:
        RackgateError: ``part_commits`` rejects the tree, two commits have the same subject, or a fix is referenced by
            a number that another fix would get.
    """
    parts = part_commits(tree)
    listed = [name for name in names(folder) if _NAME.fullmatch(name) and (folder / name).exists()]
    before = [parse(folder, name) for name in listed]
    kept = {} if renumber else {(patch.part, patch.subject): patch.name for patch in before}
    texts: dict[str, str] = {}
    subjects: set[str] = set()
    for part, commits in parts.items():
        subjects_of_part = [
            git(tree, "log", "-1", "--format=%s", commit, task=f"export {commit[:12]}") for commit in commits
        ]
        used_numbers = {_number(kept[part, title]) for title in subjects_of_part if (part, title) in kept}
        last = 0
        for commit, subject in zip(commits, subjects_of_part, strict=True):
            if subject in subjects:
                raise RackgateError(f"{tree}: two commits have the subject {subject!r}; rename one")
            subjects.add(subject)
            name = kept.get((part, subject))
            if name is None:
                number = last + 1 if last + 1 not in used_numbers else max(used_numbers) + 1
                slug = re.sub(r"[^A-Za-z0-9]+", "-", subject).strip("-")[:60].strip("-")
                name = f"{part}/{number:04}-{slug}.patch"
            last = _number(name)
            used_numbers.add(last)
            text = git(
                tree, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature", "--no-stat",
                "--no-numbered", "--full-index", "--no-renames", "--diff-algorithm=myers", "--unified=3",
                "--no-encode-email-headers", "--no-thread", "--no-notes", "--no-base", "--no-ext-diff", "--no-color",
                commit,
                task=f"export {commit[:12]}",
            )  # fmt: skip
            texts[name] = text.rstrip("\n") + "\n"
    _write(folder, texts, before)
    return tuple(texts)


def _write(folder: Path, texts: Mapping[str, str], before: Sequence[Patch]) -> None:
    """Replace the series in ``folder`` with patches of these names and texts; ``before`` is the old series."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as fresh:
        for name, text in texts.items():
            (Path(fresh) / name).parent.mkdir(exist_ok=True)
            (Path(fresh) / name).write_bytes(text.encode())
        patches = [parse(Path(fresh), name) for name in texts]
        for patch in patches:
            for text in filter(_FIX_NUMBERS.fullmatch, patch.depends):
                was, now = find_fix(before, text), find_fix(patches, text)
                if was and (now is None or now.subject != was.subject):
                    raise RackgateError(
                        f"{patch.subject!r} depends on fix {text}, {was.subject!r}, which gets another number; "
                        "name it by its subject in the Depends: trailer"
                    )
        for name in set(names(folder)) - set(texts):
            (folder / name).unlink(missing_ok=True)
        for part in PARTS:
            (folder / part).mkdir(exist_ok=True)
        for patch in patches:
            patch.path.replace(folder / patch.name)
        for part in PARTS:
            if not any((folder / part).iterdir()):
                (folder / part).rmdir()
    header = "# Applied in this order; written by `rackgate patch export`.\n"
    (folder / "series").write_text(header + "".join(f"{name}\n" for name in texts), encoding="utf-8")
