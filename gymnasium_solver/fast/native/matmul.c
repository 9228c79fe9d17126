/* Small matrix products of compiled programs. native/build.py compiles this text once per machine
 * and links it to every program.
 *
 * Plain C with GCC's vector extension, which clang has too, and no intrinsics: the same text on
 * x86-64 and aarch64.
 */
#include <string.h>

#define SIMD _Pragma("omp simd")
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

/* B is packed into panels of columns, A is read with any strides. A tile of C stays in registers:
 * MR rows by NR columns, and narrower panels for the last columns. */
#if defined(__AVX512F__)
#define VL 16
#define MR 8
#elif defined(__AVX__)
#define VL 8
#define MR 6
#else
#define VL 4
#define MR 8
#endif
#define NR (2 * VL)

typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
#if VL >= 8
typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
#endif
#if VL >= 16
typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
#endif

/* Width of the panel that holds the next columns, of which n are left. */
INLINE long panel_width(long n) {
    if (n > VL) return NR;
#if VL >= 16
    if (n > 8) return 16;
#endif
#if VL >= 8
    if (n > 4) return 8;
#endif
    return n > 1 ? 4 : 1;
}

/* 4 rows of 4 numbers as columns: out[i][c] = from[c][i]. */
INLINE void transpose_4(const float *from, long col, float *out, long width) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLE
#endif
#endif
#ifdef HAS_SHUFFLE
    v4 a = *(const v4 *)from, b = *(const v4 *)(from + col);
    v4 c = *(const v4 *)(from + 2 * col), d = *(const v4 *)(from + 3 * col);
    v4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    v4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(v4 *)out = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *(v4 *)(out + width) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *(v4 *)(out + 2 * width) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(v4 *)(out + 3 * width) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
#else
    for (long c = 0; c < 4; c++)
        for (long i = 0; i < 4; i++) out[i * width + c] = from[c * col + i];
#endif
}

/* A part [k, used] of B as a panel [k][width], if the columns of B are contiguous (a transposed
 * matrix). 16 rows at a time: whole cache lines of both sides. */
static void pack_columns(long k, long used, const float *b, long col, float *out, long width) {
    for (long start = 0; start < k; start += 16) {
        long stop = start + 16 < k ? start + 16 : k, whole = start + (stop - start) / 4 * 4, c = 0;
        for (; c + 4 <= used; c += 4) {
            for (long i = start; i < whole; i += 4)
                transpose_4(b + i + c * col, col, out + i * width + c, width);
            for (long i = whole; i < stop; i++)
                for (long j = c; j < c + 4; j++) out[i * width + j] = b[i + j * col];
        }
        for (; c < used; c++)
            for (long i = start; i < stop; i++) out[i * width + c] = b[i + c * col];
        for (long i = start; i < stop; i++)
            for (long j = used; j < width; j++) out[i * width + j] = 0.0f;
    }
}

/* Panels of NR columns from a B [k, n] whose rows are contiguous, some rows at a time: whole cache
 * lines of both sides. */
static void pack_rows(long k, long n, const float *b, long row, float *out) {
    enum { ROWS = 8 };
    for (long start = 0; start < k; start += ROWS) {
        const long stop = start + ROWS < k ? start + ROWS : k;
        for (long j = 0; j < n; j += NR)
            for (long i = start; i < stop; i++)
                SIMD for (long c = 0; c < NR; c++) out[j * k + i * NR + c] = b[i * row + j + c];
    }
}

/* B [k, n] with any strides as panels [k][width], with zeros beyond n. */
void gsolve_pack(long k, long n, const float *b, long row, long col, float *out) {
    long j = 0;
    if (col == 1) {
        j = n / NR * NR;
        pack_rows(k, j, b, row, out);
        out += k * j;
    }
    for (; j < n; j += NR) {
        long width = panel_width(n - j), used = n - j < width ? n - j : width;
        const float *from = b + j * col;
        if (row == 1 && col != 1) {
            pack_columns(k, used, from, col, out, width);
        } else {
            for (long i = 0; i < k; i++) {
                for (long c = 0; c < used; c++) out[i * width + c] = from[i * row + c * col];
                for (long c = used; c < width; c++) out[i * width + c] = 0.0f;
            }
        }
        out += k * width;
    }
}

/* C is zero where the gate is not positive: a ReLU if the gate is C itself, and its derivative if
 * the gate is the result of the ReLU. GATED: the same of vectors. */
#define GATED(X, BY) ((__typeof__(X))(~((BY) <= 0.0f) & (__typeof__((X) <= (X)))(X)))
INLINE void apply_gate(long m, long n, float *c, const float *gate, long ldc) {
    for (long i = 0; i < m; i++) {
        float *to = c + i * ldc;
        const float *by = gate + i * ldc;
        SIMD for (long j = 0; j < n; j++) to[j] = by[j] <= 0.0f ? 0.0f : to[j];
    }
}

/* A finished tile of which only some columns are wanted, to C, a row at a time. */
#define FINISH(V, NV)                                                                              \
    __attribute__((noinline)) static void finish_##V##_##NV(V *tile, long rows, float *c, long ldc,\
                                                            const float *bias, int adds,           \
                                                            const float *gate, long used) {        \
        for (long i = 0; i < rows; i++) {                                                          \
            float *x = (float *)(tile + i * NV), *to = c + i * ldc;                                \
            if (bias) { SIMD for (long j = 0; j < used; j++) x[j] += bias[j]; }                    \
            if (adds) { SIMD for (long j = 0; j < used; j++) x[j] += to[j]; }                      \
            SIMD for (long j = 0; j < used; j++) to[j] = x[j];                                     \
        }                                                                                          \
        if (gate) apply_gate(rows, used, c, gate, ldc);                                            \
    }

/* aarch64 multiplies by one lane of a vector: four contiguous numbers of A are one load, where single
 * ones are four. The same sums, in the same order. */
#if VL == 4
#define BY_LANES(ROWS, V, NV)                                                                      \
    if (ak == 1) {                                                                                 \
        for (; p + 4 <= k; p += 4) {                                                               \
            v4 x[ROWS];                                                                            \
            UNROLL for (int i = 0; i < ROWS; i++) x[i] = *(const v4 *)(a + i * ai + p);            \
            UNROLL for (int q = 0; q < 4; q++) {                                                   \
                V bv[NV];                                                                          \
                UNROLL for (int j = 0; j < NV; j++) bv[j] = *(const V *)(b + (p + q) * ldb + j * LANES); \
                UNROLL for (int i = 0; i < ROWS; i++)                                              \
                    UNROLL for (int j = 0; j < NV; j++) acc[i][j] += x[i][q] * bv[j];              \
            }                                                                                      \
        }                                                                                          \
    } else if (ai == 1 && ROWS % 4 == 0) {                                                         \
        for (; p < k; p++) {                                                                       \
            v4 x[(ROWS + 3) / 4];                                                                  \
            V bv[NV];                                                                              \
            UNROLL for (int i = 0; i < ROWS / 4; i++) x[i] = *(const v4 *)(a + p * ak + 4 * i);    \
            UNROLL for (int j = 0; j < NV; j++) bv[j] = *(const V *)(b + p * ldb + j * LANES);     \
            UNROLL for (int i = 0; i < ROWS; i++)                                                  \
                UNROLL for (int j = 0; j < NV; j++) acc[i][j] += x[i / 4][i % 4] * bv[j];          \
        }                                                                                          \
    }
#else
#define BY_LANES(ROWS, V, NV)
#endif

/* Tiles of C, from ROWS rows of A each and a panel of B whose rows are `ldb` floats apart; returns
 * how many rows of C are done. */
#define TILES(NAME, ROWS, V, NV)                                                                   \
    __attribute__((noinline)) static long NAME(long m, long k, const float *a, long ai, long ak,   \
                                               const float *b, long ldb, float *c, long ldc,       \
                                               const float *bias, int adds, const float *gate,     \
                                               long used) {                                        \
        enum { LANES = sizeof(V) / 4, WIDTH = LANES * NV };                                        \
        long done = 0;                                                                             \
        for (; done + ROWS <= m; done += ROWS, a += ROWS * ai, c += ROWS * ldc) {                  \
            V acc[ROWS][NV];                                                                       \
            UNROLL for (int i = 0; i < ROWS; i++)                                                  \
                UNROLL for (int j = 0; j < NV; j++) acc[i][j] = (V){0};                            \
            long p = 0;                                                                            \
            BY_LANES(ROWS, V, NV)                                                                  \
            for (; p < k; p++) {                                                                   \
                V bv[NV];                                                                          \
                UNROLL for (int j = 0; j < NV; j++) bv[j] = *(const V *)(b + p * ldb + j * LANES); \
                const float *ap = a + p * ak;                                                      \
                UNROLL for (int i = 0; i < ROWS; i++) {                                            \
                    float x = ap[i * ai];                                                          \
                    UNROLL for (int j = 0; j < NV; j++) acc[i][j] += x * bv[j];                    \
                }                                                                                  \
            }                                                                                      \
            const float *by = gate ? gate + done * ldc : 0;                                        \
            if (used != WIDTH) {                                                                   \
                V tile[ROWS][NV]; /* not `acc`, which stays in registers */                        \
                UNROLL for (int i = 0; i < ROWS; i++)                                              \
                    UNROLL for (int j = 0; j < NV; j++) tile[i][j] = acc[i][j];                    \
                finish_##V##_##NV((V *)tile, ROWS, c, ldc, bias, adds, by, used);                  \
                continue;                                                                          \
            }                                                                                      \
            if (bias) {                                                                            \
                UNROLL for (int j = 0; j < NV; j++) {                                              \
                    const V y = *(const V *)(bias + j * LANES);                                    \
                    UNROLL for (int i = 0; i < ROWS; i++) acc[i][j] += y;                          \
                }                                                                                  \
            }                                                                                      \
            if (adds) {                                                                            \
                UNROLL for (int i = 0; i < ROWS; i++)                                              \
                    UNROLL for (int j = 0; j < NV; j++)                                            \
                        acc[i][j] += *(const V *)(c + i * ldc + j * LANES);                        \
            }                                                                                      \
            if (by == c) {                                                                         \
                UNROLL for (int i = 0; i < ROWS; i++)                                              \
                    UNROLL for (int j = 0; j < NV; j++) acc[i][j] = GATED(acc[i][j], acc[i][j]);   \
            } else if (by) {                                                                       \
                UNROLL for (int i = 0; i < ROWS; i++)                                              \
                    UNROLL for (int j = 0; j < NV; j++)                                            \
                        acc[i][j] = GATED(acc[i][j], *(const V *)(by + i * ldc + j * LANES));      \
            }                                                                                      \
            UNROLL for (int i = 0; i < ROWS; i++)                                                  \
                UNROLL for (int j = 0; j < NV; j++) *(V *)(c + i * ldc + j * LANES) = acc[i][j];   \
        }                                                                                          \
        return done;                                                                               \
    }

#define REST(NAME, ROWS)                                                                           \
    if (i + ROWS <= m)                                                                             \
        i += NAME(m - i, k, a + i * ai, ai, ak, b, ldb, c + i * ldc, ldc, bias, adds,              \
                  gate ? gate + i * ldc : 0, used);

#define PANEL(V, NV)                                                                               \
    FINISH(V, NV)                                                                                  \
    TILES(tiles_m_##V##_##NV, MR, V, NV)                                                           \
    TILES(tiles_2_##V##_##NV, 2, V, NV)                                                            \
    TILES(tiles_1_##V##_##NV, 1, V, NV)                                                            \
    static void panel_##V##_##NV(long m, long k, const float *a, long ai, long ak, const float *b, \
                                 long ldb, float *c, long ldc, const float *bias, int adds,        \
                                 const float *gate, long used) {                                   \
        long i = 0;                                                                                \
        REST(tiles_m_##V##_##NV, MR)                                                               \
        REST(tiles_2_##V##_##NV, 2)                                                                \
        REST(tiles_1_##V##_##NV, 1)                                                                \
    }

PANEL(v4, 1)
#if VL >= 8
PANEL(v8, 1)
#endif
#if VL >= 16
PANEL(v16, 1)
PANEL(v16, 2)
#define WIDE panel_v16_2
#define WIDEST v16
#elif VL >= 8
PANEL(v8, 2)
#define WIDE panel_v8_2
#define WIDEST v8
#else
PANEL(v4, 2)
#define WIDE panel_v4_2
#define WIDEST v4
#endif

/* Up to four columns of C from a transposed A, as the gradient of a layer with few inputs has: vectors
 * along the rows of C, since a tile would use four lanes of each. The same sums, in the same order. */
static void few_columns(long m, long k, const float *a, long ak, const float *b, float *c, long ldc,
                        const float *bias, int adds, const float *gate, long used) {
    enum { ROWS = 2 * VL };
    long i = 0;
    for (; i + ROWS <= m; i += ROWS) {
        WIDEST acc[4][2];
        UNROLL for (int j = 0; j < 4; j++) acc[j][0] = acc[j][1] = (WIDEST){0};
        for (long p = 0; p < k; p++) {
            const float *from = a + i + p * ak;
            const WIDEST one = *(const WIDEST *)from, two = *(const WIDEST *)(from + VL);
            UNROLL for (int j = 0; j < 4; j++) {
                acc[j][0] += b[4 * p + j] * one;
                acc[j][1] += b[4 * p + j] * two;
            }
        }
        float sums[4][ROWS];
        UNROLL for (int j = 0; j < 4; j++) {
            *(WIDEST *)sums[j] = acc[j][0];
            *(WIDEST *)(sums[j] + VL) = acc[j][1];
        }
        float rows[ROWS][4];
        for (long q = 0; q < ROWS; q += 4) transpose_4(sums[0] + q, ROWS, rows[q], 4);
        if (used < 4) {
            finish_v4_1((v4 *)rows, ROWS, c + i * ldc, ldc, bias, adds, 0, used);
            continue;
        }
        for (long q = 0; q < ROWS; q++) {
            float *to = c + (i + q) * ldc;
            v4 y = *(const v4 *)rows[q];
            if (bias) y += *(const v4 *)bias;
            if (adds) y += *(const v4 *)to;
            *(v4 *)to = y;
        }
    }
    if (i < m) panel_v4_1(m - i, k, a + i, 1, ak, b, 4, c + i * ldc, ldc, bias, adds, 0, used);
    if (gate) apply_gate(m, used, c, gate, ldc);
}

/* The sum of products of two contiguous vectors. */
INLINE float dot(long k, const float *x, const float *y) {
    WIDEST one = {0}, two = {0};
    long p = 0;
    for (; p + 2 * VL <= k; p += 2 * VL) {
        one += *(const WIDEST *)(x + p) * *(const WIDEST *)(y + p);
        two += *(const WIDEST *)(x + p + VL) * *(const WIDEST *)(y + p + VL);
    }
    float sums[VL], rest = 0.0f;
    *(WIDEST *)sums = one + two;
    for (; p < k; p++) rest += x[p] * y[p];
#if VL >= 16
    *(v8 *)sums += *(v8 *)(sums + 8);
#endif
#if VL >= 8
    *(v4 *)sums += *(v4 *)(sums + 4);
#endif
    return (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest;
}

/* One column of C, as the last layer of a critic has: vectors along the rows of A or along its
 * columns, whichever are contiguous. A tile would use one lane of each vector. */
static void one_column(long m, long k, const float *a, long ai, long ak, const float *b, float *c,
                       long ldc, const float *bias, int adds, const float *gate) {
    enum { ROWS = 64 };
    for (long i = 0; i < m; i += ROWS) {
        const long rows = m - i < ROWS ? m - i : ROWS;
        float sums[ROWS] = {0};
        if (ai == 1 && rows == ROWS) {
            for (long p = 0; p < k; p++) {
                const float *from = a + i + p * ak, x = b[p];
                SIMD for (long j = 0; j < ROWS; j++) sums[j] += x * from[j];
            }
        } else {
            for (long j = 0; j < rows; j++) {
                const float *from = a + (i + j) * ai;
                float x = 0.0f;
                if (ak == 1) x = dot(k, from, b);
                else for (long p = 0; p < k; p++) x += from[p * ak] * b[p];
                sums[j] = x;
            }
        }
        for (long j = 0; j < rows; j++) {
            float *to = c + (i + j) * ldc;
            *to = sums[j] + (bias ? *bias : 0.0f) + (adds ? *to : 0.0f);
        }
    }
    if (gate) apply_gate(m, 1, c, gate, ldc);
}

/* B [k, n] whose rows are contiguous needs no packing if it is small: its rows are read where they
 * are. Those of a larger one, at distances of a power of two, would push each other out of the
 * nearest cache, so each panel is copied before its tiles; all panels at once where one is narrower
 * than a cache line. */
#define SMALL 8192 /* floats */
#define MOST_FLOATS 131072 /* on the stack */
#define IS_NARROW (4 * NR < 64)
#define MOST_COPIED 512 /* rows */

/* C [m, n] = A [m, k] B [k, n] (+ the bias of each column) (+ C if `adds`). `ldb`: 0 if B is
 * packed, or the distance of its rows; then k is at most MOST_COPIED, or B is SMALL. `gate`: null, or
 * see apply_gate; with the strides of C. */
static void matmul(long m, long n, long k, const float *a, long ai, long ak, const float *b, long ldb,
                   float *c, long ldc, const float *bias, int adds, const float *gate) {
    float copied[MOST_COPIED * NR] __attribute__((aligned(64)));
    for (long j = 0; j < n; j += NR) {
        long width = panel_width(n - j), used = n - j < width ? n - j : width, row = width;
        const float *own = bias ? bias + j : 0, *by = gate ? gate + j : 0, *panel = b;
        if (ldb && used == NR && k * ldb <= SMALL) row = ldb;
        else if (ldb) gsolve_pack(k, used, b, ldb, 1, copied), panel = copied;
        if (width == 1) one_column(m, k, a, ai, ak, panel, c + j, ldc, own, adds, by);
        else if (width == 4 && ai == 1)
            few_columns(m, k, a, ak, panel, c + j, ldc, own, adds, by, used);
        else if (width == 4) panel_v4_1(m, k, a, ai, ak, panel, row, c + j, ldc, own, adds, by, used);
#if VL >= 8
        else if (width == 8) panel_v8_1(m, k, a, ai, ak, panel, row, c + j, ldc, own, adds, by, used);
#endif
#if VL >= 16
        else if (width == 16)
            panel_v16_1(m, k, a, ai, ak, panel, row, c + j, ldc, own, adds, by, used);
#endif
        else WIDE(m, k, a, ai, ak, panel, row, c + j, ldc, own, adds, by, used);
        b += ldb ? NR : k * width;
    }
}

/* The same; copies all panels of a large B at once if they are narrow. */
static void matmul_with_panels(long m, long n, long k, const float *a, long ai, long ak,
                               const float *b, long ldb, float *c, long ldc, const float *bias,
                               int adds, const float *gate) {
    if (!IS_NARROW || k * ldb <= SMALL || k * (n + NR) > MOST_FLOATS)
        return matmul(m, n, k, a, ai, ak, b, ldb, c, ldc, bias, adds, gate);
    float panels[k * (n + NR)] __attribute__((aligned(64)));
    gsolve_pack(k, n, b, ldb, 1, panels);
    matmul(m, n, k, a, ai, ak, panels, 0, c, ldc, bias, adds, gate);
}

INLINE int is_zero(const float *x, long n) {
    int bits = 0; /* all but the signs */
    _Pragma("omp simd reduction(| : bits)") for (long j = 0; j < n; j++) {
        int own;
        memcpy(&own, x + j, 4);
        bits |= own << 1;
    }
    return !bits;
}

/* The rows of A that are not zero; all of them if the first ones are not: then there is no reason to
 * look for others. */
static long rows_not_zero(long m, long k, const float *a, long ai, long *found) {
    enum { STEP = 2 * VL };
    long n = 0;
    for (long i = 0; i < m; i++) {
        if (i == MR && n == MR) return m;
        const float *row = a + i * ai;
        long p = 0;
        while (p + STEP <= k && is_zero(row + p, STEP)) p += STEP;
        if (p + STEP <= k || !is_zero(row + p, k - p)) found[n++] = i;
    }
    return n;
}

/* A product of the rows of A that are not zero, copied together; the others give zeros. Half of the
 * rows are, where a loss takes the lower of two critics: the gradient goes through one of them. */
static void matmul_of_rows(const long *rows, long n_rows, long m, long n, long k, const float *a,
                           long ai, const float *b, long ldb, float *c, long ldc,
                           const float *gate) {
    const long whole = (n_rows + MR) / MR * MR; /* whole tiles, at least one */
    float from[whole * k], to[whole * n];
    for (long i = 0; i < n_rows; i++) memcpy(from + i * k, a + rows[i] * ai, 4 * k);
    memset(from + n_rows * k, 0, 4 * (whole - n_rows) * k);
    matmul_with_panels(whole, n, k, from, k, 1, b, ldb, to, n, 0, 0, 0);
    for (long i = 0, next = 0; i < m; i++) {
        if (next < n_rows && rows[next] == i) memcpy(c + i * ldc, to + next++ * n, 4 * n);
        else memset(c + i * ldc, 0, 4 * n);
    }
    if (gate) apply_gate(m, n, c, gate, ldc);
}

/* A product of a transposed A with many columns, as that for the weights of a wide layer is: the
 * lines of its rows, at distances of a power of two, push each other out of the nearest cache. So
 * some rows of A at a time are copied together. The same sums, in the same order. */
static void matmul_of_copies(long m, long n, long k, const float *a, long ak, const float *b,
                             long ldb, float *c, long ldc, const float *bias, int adds,
                             const float *gate) {
    enum { ROWS = 32 };
    float rows[k * ROWS], panels[k * (n + NR)] __attribute__((aligned(64)));
    if (ldb) gsolve_pack(k, n, b, ldb, 1, panels), b = panels;
    for (long i = 0; i < m; i += ROWS) {
        const long own = m - i < ROWS ? m - i : ROWS;
        for (long p = 0; p < k; p++) memcpy(rows + p * ROWS, a + i + p * ak, 4 * own);
        matmul(own, n, k, rows, 1, ROWS, b, 0, c + i * ldc, ldc, bias, adds,
               gate ? gate + i * ldc : 0);
    }
}

/* The same, where many rows of A may be zero. */
void gsolve_matmul(long m, long n, long k, const float *a, long ai, long ak, const float *b,
                   long ldb, float *c, long ldc, const float *bias, int adds, const float *gate) {
    const int is_gradient = !bias && !adds && ak == 1; /* of the inputs of a layer */
    if (is_gradient && k >= NR && n >= VL && m >= 4 * MR && m * (k + n) <= MOST_FLOATS) {
        long rows[m], n_rows = rows_not_zero(m, k, a, ai, rows);
        if (4 * n_rows <= 3 * m)
            return matmul_of_rows(rows, n_rows, m, n, k, a, ai, b, ldb, c, ldc, gate);
    }
    const int is_wide = ai == 1 && k >= 64 && m >= 128 && n >= 128;
    if (is_wide && k * (n + NR) <= MOST_FLOATS)
        return matmul_of_copies(m, n, k, a, ak, b, ldb, c, ldc, bias, adds, gate);
    matmul_with_panels(m, n, k, a, ai, ak, b, ldb, c, ldc, bias, adds, gate);
}

/* The same for a few rows of A and a B [k, n] whose columns are contiguous, `col` floats apart: dot
 * products, which read B once. Packing would take longer than the product. */
void gsolve_few(long m, long n, long k, const float *a, long ai, long ak, const float *b, long col,
                float *c, long ldc, const float *bias, int adds, const float *gate) {
    for (long i = 0; i < m; i++) {
        const float *x = a + i * ai;
        float *to = c + i * ldc, row[ak == 1 ? 1 : k];
        if (ak != 1) {
            for (long p = 0; p < k; p++) row[p] = x[p * ak];
            x = row;
        }
        for (long j = 0; j < n; j++)
            to[j] = dot(k, x, b + j * col) + (bias ? bias[j] : 0.0f) + (adds ? to[j] : 0.0f);
    }
    if (gate) apply_gate(m, n, c, gate, ldc);
}
