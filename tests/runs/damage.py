"""Ways to damage or forge the files of a run: each takes the run's folder and a random generator.

`MUTATIONS` has three kinds: damage to any file (truncate, flip, delete, ...), odd values in JSON
files, and forged checkpoints. What changes a checkpoint signs it again, so that the checksums hold
and the loading code itself is tried.
"""

import hashlib
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Mutation = Callable[[Path, random.Random], str]

DEEP = b"[" * 100_000
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "U8": 1, "BOOL": 1}
ODD_VALUES: list[Any] = [
    None, True, -1, 0, 7, 10**30, -(10**30), 1e308, "x", "", "\x1b]0;title\x07\x1b[2J", [], {},
    [[]], {"a": {"b": []}}, "9" * 50, ["x"], [1e999], 2.5,
]  # fmt: skip


# -- damage to any file ---------------------------------------------------------------------------


def truncate(run: Path, rng: random.Random) -> str:
    file = _pick(_files(run), rng)
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data) + 1)])
    return f"truncated {file.relative_to(run)}"


def flip(run: Path, rng: random.Random) -> str:
    file = _pick([f for f in _files(run) if f.stat().st_size], rng)
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"flipped bits of {file.relative_to(run)}"


def delete(run: Path, rng: random.Random) -> str:
    path = _pick(_files(run) + [p for p in run.rglob("*") if p.is_dir()], rng)
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return f"deleted {path.relative_to(run)}"


def put_folder(run: Path, rng: random.Random) -> str:
    file = _pick(_files(run), rng)
    file.unlink()
    file.mkdir()
    return f"a folder instead of {file.relative_to(run)}"


def put_bytes(run: Path, rng: random.Random) -> str:
    file = _pick(_files(run), rng)
    file.write_bytes(rng.choice((DEEP, b"\xff\xfe\x80", b"{}", b"[]", b"null\n", b"", b"NaN\n")))
    return f"replaced {file.relative_to(run)}"


def add_line(run: Path, rng: random.Random) -> str:
    file = run / rng.choice(("metrics.jsonl", "events.jsonl", "run.log"))
    lines = (b"{}", b"[]", b"\xff", DEEP, b'{"env_steps": NaN}', b'{"kind": "eval"}', b"")
    with file.open("ab") as stream:
        stream.write(rng.choice(lines) + b"\n")
    return f"a line more in {file.name}"


def damage_segment(run: Path, rng: random.Random) -> str:
    files = sorted((run / "replay").glob("*"))
    if not files:
        return truncate(run, rng)
    file = _pick(files, rng)
    file.unlink()
    if rng.random() < 0.5:
        file.mkdir()
    return f"replay segment {file.name} gone or a folder"


# -- odd values in JSON ---------------------------------------------------------------------------


def _odd(file: Path, rng: random.Random) -> str:
    """Replace or remove one entry of a JSON file."""
    value = json.loads(file.read_text())
    what = _change(value, rng)
    file.write_text(json.dumps(value))
    return f"{file.name}: {what}"


def odd_meta(run: Path, rng: random.Random) -> str:
    return _odd(run / "meta.json", rng)


def odd_row(run: Path, rng: random.Random) -> str:
    file = run / rng.choice(("metrics.jsonl", "events.jsonl"))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    what = _change(rows[rng.randrange(len(rows))], rng)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"{file.name}: {what}"


def odd_state(run: Path, rng: random.Random) -> str:
    checkpoint = _checkpoint(run, rng)
    what = _odd(checkpoint / rng.choice((*["state.json"] * 3, "metrics.json")), rng)
    sign(checkpoint)
    return what


def odd_manifest(run: Path, rng: random.Random) -> str:
    file = _checkpoint(run, rng) / "manifest.json"
    what = _odd(file, rng)
    _sign_manifest(file.parent, json.loads(file.read_text()))
    return what


# -- forged checkpoints ---------------------------------------------------------------------------


def forge_tensor(run: Path, rng: random.Random) -> str:
    """Another dtype, another shape, a missing or renamed tensor."""
    checkpoint = _checkpoint(run, rng)
    file = _pick(sorted(checkpoint.glob("*.safetensors")), rng)
    if not read_safetensors(file):
        return forge_file(run, rng)
    changes = ("dtype", "dtype", "shape", "shape", "missing", "renamed", "filled")
    what = _forge(file, rng.choice(changes), rng)
    sign(checkpoint)
    return f"{file.relative_to(run)}: {what}"


def forge_segment(run: Path, rng: random.Random) -> str:
    """Replay rows of another dtype, another shape or odd values, listed with their checksum."""
    checkpoint = (run / "checkpoints" / "last").resolve()
    state = json.loads((checkpoint / "state.json").read_text())
    segments = state.get("replay", {}).get("segments")
    if not segments:
        return forge_tensor(run, rng)
    entry = _pick(segments, rng)
    file = run / "replay" / entry["file"]
    what = _forge(file, rng.choice(("dtype", "shape", "filled", "filled", "missing")), rng)
    entry |= _fingerprint(file.read_bytes())
    (checkpoint / "state.json").write_text(json.dumps(state))
    sign(checkpoint)
    return f"{file.relative_to(run)}: {what}"


def _forge(file: Path, change: str, rng: random.Random) -> str:
    """Change one of its tensors."""
    tensors = read_safetensors(file)
    name = _pick(sorted(tensors), rng)
    dtype, shape, data = tensors.pop(name)
    n = len(data) // WIDTHS.get(dtype, 4)
    if change == "dtype":
        dtype = rng.choice(sorted(WIDTHS))
        data = (data * 8)[: n * WIDTHS[dtype]]
    elif change == "shape":
        shape = rng.choice(([*shape, 1], [n], [1, *shape], shape[::-1], [0], [n, 0], []))
        size = math.prod(shape) * (len(data) // n if n else 4)
        data = (data or b"\0" * 4)[:size].ljust(size, b"\0")
    elif change == "filled":
        data = bytes([rng.choice((0, 1, 0x7F, 0xFF))]) * len(data)
    if change != "missing":
        tensors[f"{name}.x" if change == "renamed" else name] = (dtype, shape, data)
    write_safetensors(file, tensors)
    return f"{name} {change} {dtype} {shape}"


def forge_file(run: Path, rng: random.Random) -> str:
    """A file of tensors missing, empty, or of another name."""
    checkpoint = _checkpoint(run, rng)
    file = _pick(sorted(checkpoint.glob("*.safetensors")), rng)
    change = rng.choice(("missing", "empty", "other name", "garbage"))
    if change == "empty":
        write_safetensors(file, {})
    elif change == "garbage":
        file.write_bytes(bytes(rng.randrange(256) for _ in range(64)))
    elif change == "missing":
        file.unlink()
    else:
        file.rename(file.with_name("other.safetensors"))
    sign(checkpoint)
    return f"{file.relative_to(run)} {change}"


def forge_name(run: Path, rng: random.Random) -> str:
    """A manifest that names files outside its folder."""
    checkpoint = _checkpoint(run, rng)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    outside = (run / "config.yaml").read_bytes()
    name = rng.choice(("../../config.yaml", str(run / "config.yaml"), "..", "a/../b", "", "."))
    manifest["files"][name] = _fingerprint(outside)
    _sign_manifest(checkpoint, manifest)
    return f"manifest names {name!r}"


MUTATIONS: list[Mutation] = [
    truncate, flip, delete, put_folder, put_bytes, add_line, damage_segment,
    odd_meta, odd_row, odd_state, odd_state, odd_manifest,
    forge_tensor, forge_tensor, forge_tensor, forge_file, forge_name, forge_segment,
]  # fmt: skip


# -- files ----------------------------------------------------------------------------------------

Tensors = dict[str, tuple[str, list[int], bytes]]  # name -> dtype, shape, data


def read_safetensors(file: Path) -> Tensors:
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def write_safetensors(file: Path, tensors: Tensors) -> None:
    """Any dtype, also those that NumPy does not have."""
    header: dict[str, Any] = {}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + body)


def sign(checkpoint: Path) -> None:
    """Make the manifest and `done` agree with the files that are there now."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"] = {
        file.name: _fingerprint(file.read_bytes())
        for file in sorted(checkpoint.iterdir())
        if file.name not in ("manifest.json", "done")
    }
    _sign_manifest(checkpoint, manifest)


def _sign_manifest(checkpoint: Path, manifest: Any) -> None:
    data = json.dumps(manifest).encode()
    (checkpoint / "manifest.json").write_bytes(data)
    (checkpoint / "done").write_text(hashlib.sha256(data).hexdigest())


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file() and not p.parent.is_symlink())


def _checkpoint(run: Path, rng: random.Random) -> Path:
    """The checkpoint that resumes and evaluations read, or sometimes another."""
    named = [p for p in (run / "checkpoints").iterdir() if p.is_symlink()]
    if named and rng.random() < 0.8:
        return _pick(sorted(named), rng).resolve()
    return _pick(sorted(p for p in (run / "checkpoints").iterdir() if p.is_dir()), rng)


def _pick(items: list[Any], rng: random.Random) -> Any:
    return items[rng.randrange(len(items))]


def _change(value: Any, rng: random.Random) -> str:
    """Replace or remove one entry, anywhere inside; return what."""
    places = list(_places(value))
    if not places:
        return "nothing"
    container, key, name = _pick(places, rng)
    if isinstance(container, dict) and rng.random() < 0.25:
        del container[key]
        return f"{name} removed"
    container[key] = rng.choice(ODD_VALUES)
    return f"{name} = {container[key]!r}"


def _places(value: Any, name: str = "") -> Iterator[tuple[Any, Any, str]]:
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in list(enumerate(value))[:3] if isinstance(value, list) else list(items):
        yield value, key, f"{name}.{key}"
        yield from _places(inner, f"{name}.{key}")
