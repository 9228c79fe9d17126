/* Products of wide layers on CPUs with AMX, after matmul.c.
 *
 * AMX multiplies tiles of bfloat16, which has 8 bits of a float's 24, and adds up in float. So each
 * float is split into three bfloat16 whose sum is the float exactly, x = x1 + x2 + x3, and a product
 * of floats is six products of parts. The three that are left out (x2 y3, x3 y2, x3 y3) are below
 * the rounding of a float: the result is as precise as one from floats, at up to 2.7 times their
 * speed. Without AMX, or without the system's permission to use it, these are the products of
 * matmul.c.
 */
#if defined(__AMX_BF16__) && defined(__AVX512F__) && defined(__linux__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef uint32_t Pairs __attribute__((vector_size(64), aligned(4), may_alias));

/* A step of 32 along k: two tiles side by side, each in three parts. A tile is 16 lines of 16
 * pairs; a pair is the elements p and p + 16 of the step. */
enum { SIDE = 32, TILE = 16 * 16, STEP = 2 * 3 * TILE };

static int may_use_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    static int known; /* 1: no, 2: yes; the same in all threads */
    int now = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!now) {
        now = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? 2 : 1;
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == 2;
}

INLINE void transpose_tile(uint32_t *tile) {
    Pairs v[16], w[16];
    UNROLL for (int i = 0; i < 16; i++) v[i] = *(Pairs *)(tile + 16 * i);
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define MERGE(from, to)                                                                            \
    UNROLL for (int i = 0; i < 8; i++) {                                                           \
        to[2 * i] = __builtin_shufflevector(from[i], from[i + 8], LOW);                            \
        to[2 * i + 1] = __builtin_shufflevector(from[i], from[i + 8], HIGH);                       \
    }
    MERGE(v, w) MERGE(w, v) MERGE(v, w) MERGE(w, v)
    UNROLL for (int i = 0; i < 16; i++) *(Pairs *)(tile + 16 * i) = v[i];
}

/* Pairs of 16 numbers and 16 others, in three parts. */
INLINE void split_line(const float *from, long other, uint32_t *out) {
    v16 x = *(const v16 *)from, y = *(const v16 *)(from + other);
    UNROLL for (int part = 0; part < 3; part++) {
        Pairs a = (Pairs)x & 0xffff0000u, b = (Pairs)y & 0xffff0000u; /* cut off: exact */
        *(Pairs *)(out + part * 2 * TILE) = a >> 16 | b;
        x -= (v16)a;
        y -= (v16)b;
    }
}

/* One tile in three parts. Line i pairs the 16 numbers at from + i * line with those at `other`
 * behind them. */
INLINE void split_tile(const float *from, long line, long other, uint32_t *out, int transposes) {
    UNROLL for (int i = 0; i < 16; i++) split_line(from + i * line, other, out + 16 * i);
    if (transposes)
        UNROLL for (int part = 0; part < 3; part++) transpose_tile(out + part * 2 * TILE);
}

/* A step [32 along k, 32 across] of a matrix, as lines along k (of A) or across (of B). */
#define SPLIT_STEP(NAME, ALONG)                                                                    \
    __attribute__((noinline)) static void NAME(const float *from, long stride, uint32_t *out) {    \
        for (int half = 0; half < 2; half++, out += TILE) {                                        \
            if (ALONG) split_tile(from + half * 16 * stride, stride, 16, out, OF_B);               \
            else split_tile(from + half * 16, stride, 16 * stride, out, !OF_B);                    \
        }                                                                                          \
    }
#define OF_B 0
SPLIT_STEP(a_along, 1)
SPLIT_STEP(a_across, 0)
#undef OF_B
#define OF_B 1
SPLIT_STEP(b_along, 1)
SPLIT_STEP(b_across, 0)

/* The same from any strides, and with fewer than 32 numbers, as if zeros followed. */
static void split_step(const float *from, long across, long along, long n_across, long n_along,
                       uint32_t *out, int is_b) {
    float whole[SIDE * SIDE];
    if (n_across < SIDE || n_along < SIDE || (across != 1 && along != 1)) {
        memset(whole, 0, sizeof whole);
        for (long i = 0; i < SIDE && i < n_across; i++)
            for (long p = 0; p < SIDE && p < n_along; p++)
                whole[i * SIDE + p] = from[i * across + p * along];
        from = whole, across = SIDE, along = 1;
    }
    if (is_b) {
        if (along == 1) b_along(from, across, out);
        else b_across(from, along, out);
    } else {
        if (along == 1) a_along(from, across, out);
        else a_across(from, along, out);
    }
}

/* Eight tiles of 16 lines of 64 bytes. */
static const struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t lines[16];
} tiles = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* What is left to split of the next strip of A: lines [from, to) of its tiles, in their order. */
typedef struct {
    const float *a;
    long stride; /* of rows */
    uint32_t *out;
    long from, to;
} Ahead;

INLINE void split_ahead(Ahead *s) {
    if (s->from >= s->to) return;
    const long step = s->from >> 5, row = s->from & 31;
    split_line(s->a + step * SIDE + row * s->stride, 16, s->out + step * STEP + row * 16);
    s->from++;
}

/* 32 x 32 of C: a strip of A times a panel of B. Meanwhile other units of the CPU split lines of the
 * next strip, one after each product of tiles. */
INLINE void multiply_strip(long k, const uint32_t *a, const uint32_t *b, float *c, long ldc,
                           const float *bias, int adds, Ahead *ahead) {
    __asm__ volatile("" ::: "memory"); /* a compiler need not know that tiles are read from memory */
    if (bias) { /* the same line for all rows */
        _tile_loadd(0, bias, 0); _tile_loadd(1, bias + 16, 0);
        _tile_loadd(2, bias, 0); _tile_loadd(3, bias + 16, 0);
    } else if (adds) {
        _tile_loadd(0, c, 4 * ldc); _tile_loadd(1, c + 16, 4 * ldc);
        _tile_loadd(2, c + 16 * ldc, 4 * ldc); _tile_loadd(3, c + 16 * ldc + 16, 4 * ldc);
    } else {
        _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    }
    for (long p = 0; p < k; p += SIDE, a += STEP, b += STEP) {
#define LOAD_A(part)                                                                               \
    _tile_loadd(4, a + 2 * part * TILE, 64); _tile_loadd(5, a + (2 * part + 1) * TILE, 64);
#define LOAD_B(part)                                                                               \
    _tile_loadd(6, b + 2 * part * TILE, 64); _tile_loadd(7, b + (2 * part + 1) * TILE, 64);
#define MULTIPLY                                                                                   \
    _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
        /* Small products first, and one operand stays where possible. */
        LOAD_A(0) LOAD_B(2) MULTIPLY split_ahead(ahead);
        LOAD_B(1) MULTIPLY split_ahead(ahead);
        LOAD_A(1) MULTIPLY split_ahead(ahead);
        LOAD_B(0) MULTIPLY split_ahead(ahead);
        LOAD_A(2) MULTIPLY split_ahead(ahead);
        LOAD_A(0) MULTIPLY split_ahead(ahead);
    }
    _tile_stored(0, c, 4 * ldc); _tile_stored(1, c + 16, 4 * ldc);
    _tile_stored(2, c + 16 * ldc, 4 * ldc); _tile_stored(3, c + 16 * ldc + 16, 4 * ldc);
}

/* Fewer rows than a strip has. */
static void multiply_rest(long rows, long k, const uint32_t *a, const uint32_t *b, float *c,
                          long ldc, const float *bias, int adds) {
    float whole[SIDE * SIDE];
    if (adds)
        for (long i = 0; i < SIDE; i++)
            for (long j = 0; j < SIDE; j++) whole[i * SIDE + j] = i < rows ? c[i * ldc + j] : 0.0f;
    Ahead nothing = {0};
    multiply_strip(k, a, b, whole, SIDE, bias, adds, &nothing);
    for (long i = 0; i < rows; i++) memcpy(c + i * ldc, whole + i * SIDE, 4 * SIDE);
}

static void pack_amx(long k, long n, const float *b, long row, long col, uint32_t *out) {
    for (long j = 0; j < n; j += SIDE)
        for (long p = 0; p < k; p += SIDE, out += STEP)
            split_step(b + p * row + j * col, col, row, n - j, k - p, out, 1);
}

INLINE void gate_panel(long m, long i, long j, float *c, const float *gate, long ldc) {
    const long at = i * ldc + j * SIDE;
    apply_gate(m - i < SIDE ? m - i : SIDE, SIDE, c + at, gate + at, ldc);
}

static void matmul_amx(long m, long n, long k, const float *a, long ai, long ak, const uint32_t *b,
                       float *c, long ldc, const float *bias, int adds, const float *gate) {
    const long steps = (k + SIDE - 1) / SIDE, panels = n / SIDE;
    uint32_t strips[2][steps * STEP] __attribute__((aligned(64)));
    _tile_loadconfig(&tiles);
    for (long p = 0; p < steps; p++)
        split_step(a + p * SIDE * ak, ai, ak, m, k - p * SIDE, strips[0] + p * STEP, 0);
    for (long i = 0; i < m; i += SIDE) {
        const uint32_t *strip = strips[i / SIDE & 1];
        uint32_t *next = strips[(i / SIDE + 1) & 1];
        const long left = m - i - SIDE;
        const float *below = a + (i + SIDE) * ai;
        const int by_line = ak == 1 && left >= SIDE && k % SIDE == 0;
        Ahead ahead = {below, ai, next};
        for (long j = 0; j < panels; j++) {
            const uint32_t *panel = b + j * steps * STEP;
            const float *own = bias ? bias + j * SIDE : 0;
            float *to = c + i * ldc + j * SIDE;
            ahead.to = by_line ? steps * SIDE * (j + 1) / panels : 0;
            if (left < 0) multiply_rest(m - i, k, strip, panel, to, ldc, own, adds);
            else multiply_strip(k, strip, panel, to, ldc, own, adds, &ahead);
            while (ahead.from < ahead.to) split_ahead(&ahead);
            /* Of the panel before: this one is still being computed. */
            if (gate && j) gate_panel(m, i, j - 1, c, gate, ldc);
            if (left > 0 && !by_line)
                for (long p = steps * j / panels; p < steps * (j + 1) / panels; p++)
                    split_step(below + p * SIDE * ak, ai, ak, left, k - p * SIDE, next + p * STEP, 0);
        }
        if (gate) gate_panel(m, i, panels - 1, c, gate, ldc);
    }
    _tile_release();
}
#define WITH_AMX(does) \
    if (may_use_amx()) { does; return; }
#else
#define WITH_AMX(does)
#endif

/* As gsolve_pack and gsolve_matmul; n is a multiple of 32. B takes 3/2 floats for each of its
 * elements, with k rounded up to a multiple of 32. No sum has a bias. */
void gsolve_pack_wide(long k, long n, const float *b, long row, long col, float *out) {
    WITH_AMX(pack_amx(k, n, b, row, col, (uint32_t *)out))
    gsolve_pack(k, n, b, row, col, out);
}

void gsolve_matmul_wide(long m, long n, long k, const float *a, long ai, long ak, const float *b,
                        float *c, long ldc, const float *bias, int adds, const float *gate) {
    WITH_AMX(matmul_amx(m, n, k, a, ai, ak, (const uint32_t *)b, c, ldc, bias, adds, gate))
    gsolve_matmul(m, n, k, a, ai, ak, b, c, ldc, bias, adds, gate);
}
