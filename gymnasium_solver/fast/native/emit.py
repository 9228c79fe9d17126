"""The kernels of a program (native/lower.py) as C text."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gymnasium_solver.fast.native.arrays import (
    C_BYTES,
    ONE,
    ZERO,
    Array,
    Shape,
    Storage,
    contiguous,
)
from gymnasium_solver.fast.native.kernels import (
    BatchSum,
    Kernel,
    Load,
    Loop,
    Lowered,
    Matmul,
    Pack,
    Reduce,
    Section,
)
from gymnasium_solver.fast.native.memory import (
    LINE,
    place_kept,
    place_scratch,
    place_uniform,
    rounded,
    storages_of,
)
from gymnasium_solver.fast.native.nest import Functions, Nest, joined, reduction

BLOCK = 32  # samples of a block, if a sample has one row
MANY_PARAMETERS = 32_768
# Many weights do not stay in the nearest caches, and each block reads all of them.
WIDE_BLOCK = 128
# Rows of a tile of a product: a step of a sequence has one row for each sample.
LEAST_BLOCK = 8


class Layout(NamedTuple):
    """What the caller has to allocate: bytes, but `sums` in floats."""

    block: int
    lanes: int
    sums: int  # a lane
    uniform: int
    scratch: int  # a thread
    kept: int  # a sample


class Source(NamedTuple):
    text: str
    kernels: list[str]  # functions that it calls
    layout: Layout


def emit(program: Lowered) -> Source:
    """C text of a program."""
    is_wide = program.n_sums > MANY_PARAMETERS
    samples = WIDE_BLOCK if is_wide else BLOCK
    block = max(LEAST_BLOCK, 2 ** int(math.log2(max(1, 2 * samples // (1 + program.widest)))))
    lanes = 4 if is_wide else 8
    sums = rounded(program.n_sums, LINE // 4)
    scratch = place_scratch(program, block)
    uniform = place_uniform(program.storages)
    kept = place_kept(program.storages)
    layout = Layout(block, lanes, sums, uniform, scratch, kept)
    writer = _Writer(program, layout)
    text = writer.text()
    return Source(text, writer.functions.texts(), layout)


class _Writer:
    def __init__(self, program: Lowered, layout: Layout):
        self.program, self.layout = program, layout
        self.lines: list[str] = []
        self.functions = Functions()
        self.tables: dict[int, None] = {}  # lengths of tables of positions

    def add(self, text: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + text)

    def text(self) -> str:
        for section in self.program.sections:
            if section.by_rows:
                self._rows(section)
            else:
                self._once(section)
        self._entry()
        longest = max(self.tables, default=0)
        numbers = ", ".join(str(i) for i in range(longest))
        table = [f"static const int64_t positions[] = {{{numbers}}};"] if longest else []
        layout = self.layout
        head = [
            f"#define BLOCK {layout.block}",
            f"#define LANES {layout.lanes}",
            f"#define SUMS {layout.sums}",
            f"#define SCRATCH {layout.scratch}L",
        ]
        return "\n".join([*head, *table, *self.functions.declarations(), *self.lines, ""])

    # -- functions ----------------------------------------------------------------------------

    def _once(self, section: Section) -> None:
        packs = self._packs(section)
        self.lines.append(f"static void once_{section.level}(const Call *c) {{")
        self.add("const double N = (double)c->n;")
        self.add("const long r = 0; const int first = 0; (void)N; (void)r; (void)first;")
        self._pointers(section)
        if packs:
            self.add(packs)
        for kernel in section.kernels:
            if not is_of_weights(kernel):
                self._kernel(kernel)
        self.lines.append("}")

    def _packs(self, section: Section) -> str:
        """The packing of weights, which threads share; returns the call. Constants come last: they
        are packed once for several calls."""
        n_params = self.program.n_params
        packs = [k for k in section.kernels if isinstance(k, Pack) and is_of_weights(k)]
        packs.sort(key=lambda k: k.source.storage.index >= n_params)
        if not packs:
            return ""
        name = f"pack_{section.level}"
        self.lines.append(f"static void {name}(void *with, long part, long thread) {{")
        self.add("const Call *c = with;")
        self.add("switch (part) {")
        counts = [0, 0]  # parts of parameters, of constants
        for kernel in packs:
            storage = kernel.source.storage
            sizes = [range(size.n) for size in kernel.source.shape[:-2]]
            for index in itertools.product(*sizes):
                self.add(f"case {sum(counts)}: {{")
                if is_for_many(kernel.source, n_params):
                    self.add("if (c->n <= FEW) break;", 2)
                self._pointer_to(storage, section)
                self._pointer_to(kernel.target, section)
                self.add(pack_call(kernel, [str(i) for i in index]), 2)
                self.add("break; }")
                counts[storage.index >= n_params] += 1
        self.add("}")
        self.lines.append("}")
        n_parts = f"c->again ? {counts[0]} : {sum(counts)}"
        return f"in_parts({name}, (void *)c, {n_parts}, c->threads);"

    def _rows(self, section: Section) -> None:
        level = section.level
        self.lines.append(
            f"static void block_{level}(const Call *c, char *scratch, float *sums, long start, "
            "long r, int first) {"
        )
        self.add("const double N = (double)c->n; (void)N; (void)scratch; (void)sums; (void)first;")
        self.add("const long whole = (c->n + 63) & ~63L; (void)whole;")
        self._pointers(section)
        for kernel in section.kernels:
            self._kernel(kernel)
        self.lines.append("}")
        self.lines.append(f"static void lane_{level}(void *with, long lane, long thread) {{")
        self.add("const Call *c = with;")
        self.add("const long blocks = (c->n + BLOCK - 1) / BLOCK, lanes = lanes_of(c->n);")
        self.add("const long step = step_of(c->n), own = lane % sums_of(c);")
        self.add("const long from = blocks * lane / lanes, to = blocks * (lane + 1) / lanes;")
        self.add("const long opens = blocks * own / lanes; /* the first block of these sums */")
        self.add("for (long b = from; b < to; b++) {")
        self.add("long start = b * step, r = c->n - start < step ? c->n - start : step;", 2)
        self.add(
            f"block_{level}(c, c->scratch + thread * SCRATCH, c->sums + own * SUMS, start, r, "
            "b == opens);",
            2,
        )
        self.add("}")
        self.lines.append("}")

    def _entry(self) -> None:
        n_passes = len(self.program.summed)
        helpers = [
            "static long lanes_of(long n) {",
            "    long blocks = (n + BLOCK - 1) / BLOCK;",
            "    return blocks < LANES ? blocks : LANES;",
            "}",
            "static long step_of(long n) { /* samples of a block, whole tiles where possible */",
            "    long blocks = (n + BLOCK - 1) / BLOCK, step = (n + blocks - 1) / blocks;",
            "    const long to = BLOCK < 8 ? BLOCK : 8;",
            "    return (step + to - 1) / to * to;",
            "}",
            "/* Lanes with sums of their own. If each has one block, one thread adds it to those",
            " * before it: the same sums, without a pass over the lanes at the end. */",
            "static long sums_of(const Call *c) {",
            "    const long blocks = (c->n + BLOCK - 1) / BLOCK, lanes = lanes_of(c->n);",
            "    return c->threads == 1 && blocks == lanes ? 1 : lanes;",
            "}",
        ]
        self.lines[:0] = helpers
        self.lines.append("void run_flushed(Call *c) {")
        for level in range(n_passes):
            self.add(f"once_{level}(c);")
            self.add(f"in_parts(lane_{level}, c, lanes_of(c->n), c->threads);")
            for start, size in _merged(self.program.summed[level]):
                self.add(f"sum_lanes(c, sums_of(c), SUMS, {start}, {size});")
        self.add(f"once_{n_passes}(c);")
        self.lines.append("}")

    # -- addresses ----------------------------------------------------------------------------

    def _pointers(self, section: Section) -> None:
        for s in storages_of(section):
            self._pointer_to(s, section)

    def _pointer_to(self, s: Storage, section: Section) -> None:
        kind = s.ctype
        if s.place == "scratch":
            self._declare(s, f"({kind} *)(scratch + {s.index}L)")
        elif s.place == "kept":
            per_row = f"start * {s.size.n * C_BYTES[kind]}L"
            self._declare(s, f"({kind} *)(c->kept + {s.index}L * whole + {per_row})")
        elif s.place == "uniform":
            self._declare(s, f"({kind} *)(c->uniform + {s.index}L)")
        elif s.place == "sums":
            base = "sums" if section.by_rows and self._is_written(s, section) else "c->sums"
            self._declare(s, f"{base} + {s.index}L")
        elif s.place == "tensor" and s.index < 0:
            self.tables[s.size.n] = None
            self.add(f"const int64_t *{s.name} = positions;")
        elif s.place == "tensor":
            self.add(f"const {kind} *{s.name} = (const {kind} *)c->tensors[{s.index}];")
        elif s.place == "number":
            self.add(f"const float *{s.name} = c->numbers + {s.index};")
        elif s.place == "out":
            self._declare(s, f"c->out + {s.index}")
        elif s.place == "row_out":
            self._declare(s, f"({kind} *)c->row_out[{s.index}] + start * {s.size.n}L")
        else:
            self._column(s)

    def _declare(self, s: Storage, text: str) -> None:
        self.add(f"{s.ctype} *{s.name} = {text};")

    def _is_written(self, storage: Storage, section: Section) -> bool:
        return any(
            isinstance(k, Matmul | BatchSum) and k.out.storage is storage for k in section.kernels
        )

    def _column(self, s: Storage) -> None:
        """The samples of the block: gathered by index, or where they are."""
        width, kind = s.size.n, s.ctype
        self.add(f"{kind} *{s.name} = ({kind} *)c->columns[{s.index}] + start * {width}L;")
        place = f"({kind} *)(scratch + {s.offset}L)"
        copy = f"for (long j = 0; j < {width}; j++) to[i * {width} + j] = from[j];"
        if width == 1:
            copy = "to[i] = from[0];"
        self.add("if (c->index) {")
        self.add(f"const {kind} *all = (const {kind} *)c->columns[{s.index}];", 2)
        self.add(f"{kind} *to = {s.name} = {place};", 2)
        self.add("for (long i = 0; i < r; i++) {", 2)
        self.add(f"const {kind} *from = all + c->index[start + i] * {width}L;", 3)
        self.add(copy, 3)
        self.add("}", 2)
        self.add("}")

    # -- kernels ------------------------------------------------------------------------------

    def _kernel(self, kernel: Kernel) -> None:
        if isinstance(kernel, Loop):
            if kernel.stores:
                self._shared(kernel, lambda: self._loop(kernel))
        elif isinstance(kernel, Pack):
            self._pack(kernel)
        elif isinstance(kernel, Matmul):
            self._matmul(kernel)
        else:
            self._shared(kernel, lambda: self._batchjoined(kernel))

    def _shared(self, kernel: Kernel, write: Callable[[], None]) -> None:
        lines, self.lines = self.lines, []
        write()
        body, self.lines = "\n".join(self.lines), lines
        self.add(self.functions.call(kernel, body))

    def _pack(self, kernel: Pack) -> None:
        stack = kernel.source.shape[:-2]
        depth, index, _ = self._stack_loops(stack)
        self.add(pack_call(kernel, index), depth)
        self._close(len(stack))

    def _matmul(self, kernel: Matmul) -> None:
        a, out = kernel.a, kernel.out
        stack = out.shape[:-2]
        depth, index, at = self._stack_loops(stack)
        (m, n), k = out.shape[-2:], kernel.k
        ai, ak = a.strides[-2:]
        bias = "0"
        if kernel.bias is not None:
            bias = address(kernel.bias, stack, index)
        gate = "0" if kernel.gate is None else address(kernel.gate, stack, index)
        adds = "!first" if k.by_rows else "0"
        b = kernel.b
        if b.rows is not None:
            panels, row = address(b.rows, stack, index), str(b.rows.strides[-2])
        else:
            panels = b.storage.name if b.is_shared else f"{b.storage.name} + {at} * {b.size}"
            row = "0"
        given = f"{m}, {n}, {k}, {address(a, stack, index)}, {ai}, {ak}"
        rest = f"{address(out, stack, index)}, {n}, {bias}, {adds}, {gate}"
        if b.source is not None and is_for_many(b.source, self.program.n_params):
            weights, col = address(b.source, stack, index), b.source.strides[-1]
            self.add(f"if (c->n <= FEW) gsolve_few({given}, {weights}, {col}, {rest});", depth)
            self.add("else", depth)
        self.add(f"gsolve_matmul({given}, {panels}, {row}, {rest});", depth)
        self._close(len(stack))

    def _stack_loops(self, stack: Shape) -> tuple[int, list[str], str]:
        index, at = [], "0"
        for d, size in enumerate(stack):
            self.add(f"for (long q{d} = 0; q{d} < {size}; q{d}++) {{", 1 + d)
            index.append(f"q{d}")
            at = f"q{d}" if at == "0" else f"({at} * {size} + q{d})"
        return 1 + len(stack), index, at

    def _close(self, n: int) -> None:
        for d in range(n, 0, -1):
            self.add("}", d)

    def _batchjoined(self, kernel: BatchSum) -> None:
        """The sum over the samples of a block, added to those of the blocks before it."""
        source, out = kernel.source, kernel.out
        kept = [d for d in range(len(source.shape)) if d not in kernel.dims]
        kept = [d for d in kept if source.shape[d] != ONE]
        summed = [d for d in kernel.dims if source.shape[d] != ONE]
        strides = {d: source.strides[d] for d in range(len(source.shape))}
        name = out.storage.name
        size = math.prod(source.shape[d].n for d in kept)
        if len(kept) == len(summed) == 1 and strides[kept[0]] == ONE:
            rows, row = source.shape[summed[0]], strides[summed[0]]
            self.add(f"column_sums({rows}, {size}, {source.start}, {row}, {name}, first);")
            return
        order = [*summed, *kept]
        places = dict(zip(kept, contiguous(tuple(source.shape[d] for d in kept)), strict=True))
        self.add(f"float total[{size}] = {{0}};" if kept else "float total = 0.0f;")
        for depth, d in enumerate(order):
            if depth == len(order) - 1:
                self.add("SIMD" if kept else "SUMS_SIMD(total)", 1 + depth)
            self.add(f"for (long i{d} = 0; i{d} < {source.shape[d]}; i{d}++)", 1 + depth)
        index = joined(f"i{d} * {strides[d]}" for d in order if strides[d] != ZERO)
        to = f"total[{joined(f'i{d} * {places[d]}' for d in kept)}]" if kept else "total"
        self.add(f"{to} += ({source.start})[{index}];", 1 + len(order))
        self.add(f"add_sums({size}, {'' if kept else '&'}total, {name}, first);")

    # -- loops --------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        nest = Nest(loop)
        self.add("{")
        for item in loop.body:
            if isinstance(item, Load) and nest.is_hoisted(item):
                self.add(nest.load(item), 2)
        order, has_inner = nest.order, loop.has_inner_loops
        for depth, d in enumerate(order):
            if depth == len(order) - 1 and not has_inner:
                self.add("SIMD", 2 + depth)
            bound = nest.sizes[d]
            end = " {" if depth == len(order) - 1 else ""
            self.add(f"for (long i{d} = 0; i{d} < {bound}; i{d}++){end}", 2 + depth)
        depth = 2 + len(order)
        for item in loop.body:
            if isinstance(item, str):
                self.add(item, depth)
            elif isinstance(item, Reduce):
                for line in reduction(item, nest):
                    self.add(line, depth)
            elif not nest.is_hoisted(item):
                self.add(nest.load(item), depth)
        for name, array, strides in loop.stores:
            self.add(f"{nest.element(array, strides)} = {name};", depth)
        if order:
            self.add("}", depth - 1)
        self.add("}")


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, size in sorted(ranges):
        if merged and sum(merged[-1]) == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + size)
        else:
            merged.append((start, size))
    return merged


def is_of_weights(kernel: Kernel) -> bool:
    """Whether a kernel packs a matrix that the caller gives: it depends on no other kernel."""
    return isinstance(kernel, Pack) and kernel.source.storage.place == "tensor"


def is_for_many(source: Array, n_params: int) -> bool:
    """Whether a forward pass packs these weights only for more than a few samples: their columns
    are contiguous, as those of a transposed matrix, and `gsolve_few` reads them as they are."""
    return n_params == 0 and source.storage.place == "tensor" and source.strides[-2] == ONE


def pack_call(kernel: Pack, index: Sequence[str]) -> str:
    """Packs the matrix at this index of the stack."""
    source = kernel.source
    stack, (k, n) = source.shape[:-2], source.shape[-2:]
    row, col = source.strides[-2:]
    at = "0"
    for i, size in zip(index, stack, strict=True):
        at = i if at == "0" else f"({at} * {size} + {i})"
    return (
        f"gsolve_pack({k}, {n}, {address(source, stack, index)}, {row}, {col}, "
        f"{kernel.target.name} + {at} * {kernel.size});"
    )


def address(array: Array, stack: Shape, index: Sequence[str]) -> str:
    missing = len(stack) + 2 - len(array.shape)
    strides = (ZERO,) * missing + array.strides
    parts = [f"{i} * {strides[d]}" for d, i in enumerate(index) if strides[d] != ZERO]
    return " + ".join([array.start, *parts])
