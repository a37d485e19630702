"""The patch series: reads it, applies it, writes it back, and says what is wrong with it without a tree."""

from __future__ import annotations

import email.header
import email.parser
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyhooks.build.git import git
from pyhooks.build.layout import BASELINE
from pyhooks.errors import RackgateError

SUBJECT_MAX_COLUMNS = 75
_TAG = re.compile(r"^\[PATCH[^\]]*\] *")
_TRAILER = re.compile(r"^[A-Z][A-Za-z-]+(-by|): .*$|^(Link|Fixes|KIP): ")
_NUMBER = re.compile(r"^\d{4}-")


@dataclass(frozen=True)
class Patch:
    """One file of the series.

    Attributes:
        path: the file.
        text: its content.
        subject: the first line of the commit message, without ``[PATCH]``.
        reason: the rest of the message above the diff, trailers left out.
        files: paths that it changes, with ``a/`` and ``b/`` taken away.
    """

    path: Path
    text: str
    subject: str
    reason: str
    files: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def names(folder: Path) -> tuple[str, ...]:
    """The file names that ``series`` lists; an absent file is an empty series."""
    listing = folder / "series"
    if not listing.exists():
        return ()
    lines = (line.split("#")[0].strip() for line in listing.read_text(encoding="utf-8").splitlines())
    return tuple(filter(None, lines))


def parse(path: Path) -> Patch:
    """Reads one patch in git's mail format.

    Raises:
        RackgateError: missing, or without subject or diff.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise RackgateError(f"{path.name}: listed in {path.parent / 'series'} but not there") from error
    except UnicodeDecodeError as error:
        raise RackgateError(f"{path.name}: not UTF-8 at byte {error.start}") from error
    mail = email.parser.Parser().parsestr(text[text.find("\n") + 1 :] if text.startswith("From ") else text)
    raw = "".join(
        part.decode(charset or "utf-8") if isinstance(part, bytes) else part
        for part, charset in email.header.decode_header(mail.get("Subject", ""))
    )
    subject = _TAG.sub("", " ".join(raw.split()))
    files = tuple(dict.fromkeys(re.findall(r"^diff --git a/\S+ b/(\S+)$", text, re.MULTILINE)))
    if not subject or not files:
        raise RackgateError(f"{path.name}: not a patch in `git format-patch` form (no subject or no diff)")
    body = str(mail.get_payload())
    message = re.split(r"^(?:---$|---\n|diff --git )", body, maxsplit=1, flags=re.MULTILINE)[0]
    reason = "\n".join(line for line in message.splitlines() if not _TRAILER.match(line)).strip()
    return Patch(path, text, subject, reason, files)


def load(folder: Path, first: int | None = None) -> tuple[Patch, ...]:
    """Reads the series, or its first patches.

    Args:
        folder: holds ``series`` and the patches.
        first: how many, or None for all.

    Raises:
        RackgateError: a patch is missing or unreadable, or there are not that many.
    """
    listed = names(folder)
    if first is not None and not 0 <= first <= len(listed):
        raise RackgateError(f"--patches {first}: the series has {len(listed)} patches")
    return tuple(parse(folder / name) for name in listed[:first])


def series_hash(patches: Sequence[Patch]) -> str:
    """One SHA-256 over names and contents of the patches in order."""
    digest = hashlib.sha256()
    for patch in patches:
        digest.update(f"{patch.path.name} {patch.sha256}\n".encode())
    return digest.hexdigest()


def built_hash(patches: Sequence[Patch]) -> str:
    """One SHA-256 over what the patches change of what is built: without their messages, and without tests."""
    digest = hashlib.sha256()
    for patch in patches:
        # below the last line of the diff git writes its version
        diff = patch.text.rpartition("\n-- \n")[0] or patch.text
        for section in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)[1:]:
            if "/src/test/" not in section.partition("\n")[0]:
                digest.update(section.rstrip("\n").encode() + b"\n")
    return digest.hexdigest()


def lint(folder: Path) -> tuple[str, ...]:
    """What is wrong with the series as text: one line a fault, none if it is in order."""
    faults: list[str] = []
    listed = names(folder)
    present = {path.name for path in folder.glob("*.patch")}
    faults += [f"{name}: listed twice in series" for name in sorted({n for n in listed if listed.count(n) > 1})]
    faults += [f"{name}: not listed in series" for name in sorted(present - set(listed))]
    subjects: dict[str, str] = {}
    for name in dict.fromkeys(listed):
        try:
            patch = parse(folder / name)
        except RackgateError as error:
            faults.append(str(error))
            continue
        if len(patch.subject) > SUBJECT_MAX_COLUMNS:
            faults.append(f"{name}: subject has {len(patch.subject)} columns, at most {SUBJECT_MAX_COLUMNS}")
        if not patch.reason:
            faults.append(f"{name}: the message gives no reason below the subject")
        other = subjects.setdefault(patch.subject, name)
        if other != name:
            faults.append(f"{name}: same subject as {other}")
    return tuple(faults)


def apply(tree: Path, patches: Sequence[Patch]) -> str:
    """Applies patches in order with ``git am`` and returns the new HEAD.

    Raises:
        RackgateError: a patch does not apply; names the patch and the file, and the tree is as before that patch.
    """
    for patch in patches:
        try:
            git(
                tree, "am", "--quiet", "--committer-date-is-author-date", "--no-gpg-sign", "--whitespace=nowarn",
                str(patch.path.resolve()), what=f"apply {patch.path.name}",
            )  # fmt: skip
        except RackgateError as error:
            git(tree, "am", "--abort", what="give the patch up")
            raise RackgateError(
                f"patch {patch.path.name} does not apply: {_why(error.detail)}", detail=error.detail
            ) from None
    return git(tree, "rev-parse", "HEAD", what="read the tree's head")


def check_applies(source: Path, folder: Path, patches: Sequence[Patch]) -> tuple[str, ...]:
    """Applies patches in order to the baseline, in an index without files, which takes a fraction of a second.

    Args:
        source: the laid-out sources.
        folder: for the index; must not exist.
        patches: the series.

    Returns:
        All files that differ from the baseline after the last patch.

    Raises:
        RackgateError: a patch does not apply; names the patch and the file.
    """
    what = "try the series"
    git(source, "clone", "--quiet", "--shared", "--no-checkout", ".", str(folder), what=what)
    git(folder, "read-tree", f"refs/tags/{BASELINE}", what=what)
    for patch in patches:
        try:
            git(folder, "apply", "--cached", "--whitespace=nowarn", str(patch.path.resolve()), what=what)
        except RackgateError as error:
            raise RackgateError(
                f"patch {patch.path.name} does not apply: {_why(error.detail)}", detail=error.detail, exit_status=1
            ) from None
    listed = git(folder, "diff", "--cached", "--name-only", "--no-renames", "-z", f"refs/tags/{BASELINE}", what=what)
    return tuple(sorted(filter(None, listed.split("\0"))))


def _why(output: str) -> str:
    for line in output.splitlines():
        if match := re.match(r"error: (?:patch failed: )?(.+?:\d+|[^ ]+: .+)$", line):
            return match[1]
    return output.splitlines()[0] if output else "git gives no reason"


def export(tree: Path, folder: Path) -> tuple[str, ...]:
    """Writes the commits on top of the baseline to ``folder`` and its ``series`` file.

    A patch keeps its file name as long as its subject stays; a new one is named after its subject. Nothing in
    the text depends on the machine, git's version or the number of patches.

    Args:
        tree: a repository made by ``rackgate patch import``.
        folder: the folder of the series.

    Returns:
        The file names in order.

    Raises:
        RackgateError: the tree has uncommitted changes, merges, or two commits with the same subject.
    """
    if git(tree, "status", "--porcelain", what="look at the tree"):
        raise RackgateError(f"{tree}: uncommitted changes; commit them (git commit, or --amend), then export")
    if git(tree, "rev-list", "--merges", f"{BASELINE}..HEAD", what="look at the tree"):
        raise RackgateError(f"{tree}: a merge on top of {BASELINE}; a series is a straight line (git rebase)")
    kept = {parse(folder / name).subject: name for name in names(folder) if (folder / name).exists()}
    commits = git(tree, "rev-list", "--reverse", f"{BASELINE}..HEAD", what="list the commits").split()
    texts: dict[str, str] = {}
    for commit in commits:
        text = git(
            tree, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature", "--no-stat", "--no-numbered",
            "--full-index", "--no-renames", "--diff-algorithm=myers", "--unified=3", "--no-encode-email-headers",
            "--no-thread", "--no-notes", "--no-base", "--no-ext-diff", "--no-color", commit,
            what=f"export {commit[:12]}",
        )  # fmt: skip
        subject = git(tree, "log", "-1", "--format=%s", commit, what=f"export {commit[:12]}")
        slug = re.sub(r"[^A-Za-z0-9]+", "-", subject).strip("-")[:60].strip("-")
        name = kept.get(subject, f"{slug}.patch")
        if name in texts:
            raise RackgateError(f"{tree}: two commits are called {subject!r}; tell them apart")
        texts[name] = text.rstrip("\n") + "\n"
    for name in set(names(folder)) - set(texts):
        (folder / name).unlink(missing_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    header = "# Applied in this order; written by `rackgate patch export`.\n"
    (folder / "series").write_text(header + "".join(f"{name}\n" for name in texts), encoding="utf-8")
    return tuple(texts)
