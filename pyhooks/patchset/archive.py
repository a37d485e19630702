"""``rackgate build --archive``: the overlay as one reproducible file for installation on brokers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyhooks.core import paths
from pyhooks.core.errors import RackgateError
from pyhooks.core.files import write
from pyhooks.core.templates import render_template
from pyhooks.patchset.compilation import read_jar
from pyhooks.patchset.distribution import MANIFEST, Distribution
from pyhooks.patchset.overlay import LICENSE, NOTICE
from pyhooks.patchset.sbom import SBOM, make_sbom

SUMS = "SHA256SUMS"
# 1980-01-01, as in the jars: some tools reject earlier times, and the time of the build must not affect the bytes.
_MTIME_S = 315_532_800
# Folder of Kafka in its published container images, and templates of files that add the overlay to them.
_KAFKA_IN_IMAGES = "/opt/kafka"
_TEMPLATES = {"INSTALL.md": "install.md.j2", "Dockerfile": "Dockerfile.j2", "strimzi.yaml": "strimzi.yaml.j2"}
# Keys of the distribution's manifest about the overlay; the others are about jars that are not in the archive.
_MANIFEST_KEYS = (
    "kafka_version", "revision", "scala_version", "javac_version", "tree_commit", "patch_hash", "opt_ins", "patches",
    "overlay",
)  # fmt: skip


@dataclass(frozen=True)
class Archive:
    """A written ``.tar.gz``; its checksum file, with the suffix ``.sha256``, is in the same folder."""

    path: Path
    sha256: str
    size: int
    names: tuple[str, ...]


def make_archive(distribution: Distribution, folder: Path | None = None) -> Archive:
    """Pack the overlay with installation instructions, container files, licence, notice, manifest, SBOM and checksums.

    The folder of the archive is ``build/kafka-<version>`` by default.

    Raises:
        RackgateError: the distribution is damaged, or its overlay is empty.
    """
    manifest = distribution.manifest
    if fault := distribution.damage():
        raise RackgateError(f"{distribution.root}: {fault}; run `rackgate build --force` first")
    if not manifest["overlay"]:
        raise RackgateError("the overlay is empty because the series changes no class; there is nothing to pack")
    top = f"kafka-rackgate-{manifest['kafka_version']}-overlay"
    if distribution.opt_ins:
        top = "-".join([top, "with", *sorted(distribution.opt_ins)])
    files = _contents(distribution, top)
    files[SUMS] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()
    folder = folder or paths.BUILD / f"kafka-{manifest['kafka_version']}"
    path = folder / f"{top}.tar.gz"
    content = pack(top, files)
    digest = hashlib.sha256(content).hexdigest()
    # Written atomically: a user may copy the file at any time.
    write({path: content, path.with_name(f"{path.name}.sha256"): f"{digest}  {path.name}\n"})
    return Archive(path, digest, len(content), tuple(sorted(files)))


def pack(top: str, files: Mapping[str, bytes]) -> bytes:
    """Return a ``.tar.gz`` of files below ``top`` whose bytes depend only on names, contents and the zlib version."""
    folders = {str(parent) for name in files for parent in Path(f"{top}/{name}").parents} - {"."}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted({*folders, *(f"{top}/{name}" for name in files)}):
            entry = tarfile.TarInfo(name)
            entry.mtime = _MTIME_S
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            if name in folders:
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o755
                tar.addfile(entry)
            else:
                content = files[name.removeprefix(f"{top}/")]
                entry.mode = 0o644
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    # By default gzip would add the file name and the current time.
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as zipped:
        zipped.write(stream.getvalue())
    return packed.getvalue()


def _contents(distribution: Distribution, top: str) -> dict[str, bytes]:
    manifest = distribution.manifest
    summary = {key: manifest[key] for key in _MANIFEST_KEYS}
    files = {
        f"overlay/{jar['jar']}": (distribution.root / "overlay" / jar["jar"]).read_bytes()
        for jar in manifest["overlay"]
    }
    files[MANIFEST] = (json.dumps(summary, indent=1, sort_keys=True) + "\n").encode()
    # Markdown, not HTML, so nothing is escaped
    values = _values(manifest, top)
    files |= {
        name: render_template(template, [Path(__file__).parent], values, escape=False).encode()
        for name, template in _TEMPLATES.items()
    }
    # All overlay jars contain the same licence and notice.
    first = read_jar(distribution.root / "overlay" / manifest["overlay"][0]["jar"])
    files["LICENSE"], files["NOTICE"] = first[LICENSE], first[NOTICE]
    files[SBOM] = make_sbom(manifest)
    return files


def _values(manifest: Mapping[str, Any], top: str) -> dict[str, Any]:
    folder = f"/opt/{top}"
    return {
        "version": manifest["kafka_version"],
        "revision": manifest["revision"],
        "patches": len(manifest["patches"]),
        "opt_ins": manifest["opt_ins"],
        "jars": manifest["overlay"],
        "series": manifest["patch_hash"],
        "top": top,
        "folder": folder,
        "classpath": f"{folder}/overlay/*",
        "kafka": _KAFKA_IN_IMAGES,
        "image": f"kafka-rackgate:{manifest['kafka_version']}",
    }
