"""Parser of Java class files: name, superclass, and the parts that other classes are compiled against."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_PRIVATE, _SYNTHETIC = 0x0002, 0x1000
# Number of bytes after each constant pool tag; UTF-8 entries (tag 1) have variable length.
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_TWO_SLOTS = frozenset({5, 6})


@dataclass(frozen=True)
class ClassHeader:
    """Header of a class file.

    Attributes:
        parent: the superclass, as a path; empty for java.lang.Object, which has none.
        texts: all UTF-8 constants, among them the descriptors of annotations.
    """

    name: str
    parent: str
    flags: int
    texts: frozenset[bytes]


def header(content: bytes) -> ClassHeader:
    """Parse the header of a class file.

    Raises:
        ValueError: not a class file.
    """
    pool, at = _pool(content)
    flags, this, parent = struct.unpack_from(">3H", content, at)
    texts = frozenset(value for value in pool.values() if isinstance(value, bytes))
    return ClassHeader(_class(pool, this), _class(pool, parent), flags, texts)


def surface(content: bytes) -> frozenset[str]:
    """Return the parts of a class that are visible to other classes, one string each.

    These are its flags, its supertypes, and its fields and methods that are neither private nor synthetic, with
    descriptors, flags and the values of constants, which compilers copy into other classes. Format: JVMS chapter 4.

    Raises:
        ValueError: not a class file.
    """
    pool, at = _pool(content)
    flags, _, parent, count = struct.unpack_from(">4H", content, at)
    at += 8
    interfaces = struct.unpack_from(f">{count}H", content, at)
    at += 2 * count
    declarations = {
        f"flags {flags}",
        f"extends {_class(pool, parent)}",
        *(f"implements {_class(pool, i)}" for i in interfaces),
    }
    for kind in ("field", "method"):
        (members,) = struct.unpack_from(">H", content, at)
        at += 2
        for _ in range(members):
            access, name, descriptor, attributes = struct.unpack_from(">4H", content, at)
            at += 8
            constant = ""
            for _ in range(attributes):
                attribute, length = struct.unpack_from(">HI", content, at)
                if pool[attribute] == b"ConstantValue":
                    (index,) = struct.unpack_from(">H", content, at + 6)
                    value = pool[index]
                    constant = f" = {value!r}" if not isinstance(value, int) else f" = {pool[value]!r}"
                at += 6 + length
            if not access & (_PRIVATE | _SYNTHETIC):
                declarations.add(f"{kind} {_text(pool, name)} {_text(pool, descriptor)} {access}{constant}")
    return frozenset(declarations)


def parent(content: bytes) -> str:
    """Return the full name of a class's superclass, with dots; see ``header``."""
    return header(content).parent.replace("/", ".")


def _pool(content: bytes) -> tuple[dict[int, bytes | int], int]:
    """Return the constant pool and its end offset; the pool maps an index to bytes or to the referenced index."""
    if content[:4] != b"\xca\xfe\xba\xbe":
        raise ValueError("not a class file")
    (count,) = struct.unpack_from(">H", content, 8)
    pool: dict[int, bytes | int] = {}
    at, index = 10, 1
    while index < count:
        tag = content[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", content, at + 1)
            pool[index] = content[at + 3 : at + 3 + length]
            at += 3 + length
        elif tag in _SIZES:
            size = _SIZES[tag]
            body = content[at + 1 : at + 1 + size]
            pool[index] = int.from_bytes(body) if tag in {7, 8} else body
            at += 1 + size
        else:
            raise ValueError(f"constant pool entry {index} has tag {tag}")
        index += 2 if tag in _TWO_SLOTS else 1
    return pool, at


def _text(pool: dict[int, bytes | int], index: int) -> str:
    value = pool[index]
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _class(pool: dict[int, bytes | int], index: int) -> str:
    reference = pool.get(index, 0)
    return _text(pool, reference) if isinstance(reference, int) and reference else ""
