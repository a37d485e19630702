"""Parser for Alloy's XML: the states of a trace."""

from __future__ import annotations

import xml.etree.ElementTree as ET  # the file is written by the Alloy that we started
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyhooks.core.errors import RackgateError
from pyhooks.core.files import read_text

Tuple = tuple[str, ...]


@dataclass(frozen=True)
class ModelState:
    """One state of a trace."""

    # tuples of atoms by the name of a signature or field without its module; tuples of a signature have one atom each.
    # Atoms are without Alloy's dollar sign ("Broker0")
    relations: Mapping[str, frozenset[Tuple]] = field(default_factory=dict)

    def atoms(self, name: str) -> frozenset[str]:
        """Return the atoms of a signature.

        Raises:
            RackgateError: the instance has no such signature.
        """
        return frozenset(tuple_[0] for tuple_ in self._tuples(name))

    def one(self, name: str) -> str:
        """Return the only atom of a signature.

        Raises:
            RackgateError: the signature has no atom, or several.
        """
        atoms = self.atoms(name)
        if len(atoms) != 1:
            raise RackgateError(f"the instance has {len(atoms)} atoms in {name}, not one")
        return next(iter(atoms))

    def join(self, atom: str, name: str) -> frozenset[str]:
        """Return the atoms to which a binary field relates an atom (Alloy's ``atom.name``)."""
        return frozenset(tuple_[1] for tuple_ in self._tuples(name) if tuple_[0] == atom)

    def lone(self, atom: str, name: str) -> str | None:
        """Return the only atom to which a binary field relates an atom, or None if there is none.

        Raises:
            RackgateError: there are several.
        """
        atoms = self.join(atom, name)
        if len(atoms) > 1:
            raise RackgateError(f"the instance has {len(atoms)} atoms in {atom}.{name}, not at most one")
        return next(iter(atoms), None)

    def _tuples(self, name: str) -> frozenset[Tuple]:
        if name not in self.relations:
            raise RackgateError(f"the instance has no {name}: is it of another model?")
        return self.relations[name]


def parse(text: str) -> tuple[ModelState, ...]:
    """Return the states of the trace in Alloy's XML, in order; Alloy writes the final loop of a trace only once.

    Raises:
        RackgateError: the text is not XML, or has no instance.
    """
    try:
        root = ET.fromstring(text)  # noqa: S314
    except ET.ParseError as error:
        raise RackgateError(f"Alloy's instance is not XML: {error}") from error
    states = tuple(_state(instance) for instance in root.iter("instance"))
    if not states:
        raise RackgateError("Alloy's XML has no instance")
    return states


def read(path: Path) -> tuple[ModelState, ...]:
    """Return the states of the trace in a file, as ``parse`` does.

    Raises:
        RackgateError: the file can't be read, is not XML, or has no instance.
    """
    return parse(read_text(path, "Alloy writes it"))


def _state(instance: ET.Element) -> ModelState:
    relations: dict[str, frozenset[Tuple]] = {}
    for element in instance:
        if element.get("builtin") or element.get("label") is None:
            continue
        name = str(element.get("label")).rpartition("/")[2]
        if element.tag == "sig":
            relations[name] = frozenset((_atom(atom),) for atom in element.findall("atom"))
        elif element.tag in ("field", "skolem"):
            relations[name] = frozenset(
                tuple(_atom(atom) for atom in row.findall("atom")) for row in element.findall("tuple")
            )
    return ModelState(relations)


def _atom(element: ET.Element) -> str:
    return str(element.get("label")).rpartition("/")[2].replace("$", "")
