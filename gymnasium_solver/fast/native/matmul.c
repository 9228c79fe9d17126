/* Small matrix products of compiled programs. native/build.py compiles this text once per machine
 * and links it to every program.
 *
 * Plain C with GCC's vector extension, which clang has too, and no intrinsics: the same text on
 * x86-64 and aarch64.
 */
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

/* B [k, n] with any strides as panels [k][width], with zeros beyond n. */
void gsolve_pack(long k, long n, const float *b, long row, long col, float *out) {
    for (long j = 0; j < n; j += NR) {
        long width = panel_width(n - j), used = n - j < width ? n - j : width;
        const float *from = b + j * col;
        if (row == 1 && col != 1) {
            pack_columns(k, used, from, col, out, width);
        } else if (col == 1 && used == NR) { /* a known length: two vectors a row */
            for (long i = 0; i < k; i++)
                SIMD for (long c = 0; c < NR; c++) out[i * NR + c] = from[i * row + c];
        } else {
            for (long i = 0; i < k; i++) {
                for (long c = 0; c < used; c++) out[i * width + c] = from[i * row + c * col];
                for (long c = used; c < width; c++) out[i * width + c] = 0.0f;
            }
        }
        out += k * width;
    }
}

/* A finished tile of which only some columns are wanted, to C, a row at a time. */
#define FINISH(V, NV)                                                                              \
    __attribute__((noinline)) static void finish_##V##_##NV(const V *tile, long rows, float *c,    \
                                                            long ldc, const float *bias, int adds, \
                                                            long used) {                           \
        for (long i = 0; i < rows; i++, tile += NV, c += ldc) {                                    \
            const float *x = (const float *)tile;                                                  \
            for (long j = 0; j < used; j++)                                                        \
                c[j] = x[j] + (bias ? bias[j] : 0.0f) + (adds ? c[j] : 0.0f);                      \
        }                                                                                          \
    }

#define TILE(NAME, ROWS, V, NV)                                                                    \
    __attribute__((noinline)) static void NAME(long k, const float *a, long ai, long ak,           \
                                               const float *b, float *c, long ldc,                 \
                                               const float *bias, int adds, long used) {           \
        enum { LANES = sizeof(V) / 4, WIDTH = LANES * NV };                                        \
        V acc[ROWS][NV];                                                                           \
        UNROLL for (int i = 0; i < ROWS; i++)                                                      \
            UNROLL for (int j = 0; j < NV; j++) acc[i][j] = (V){0};                                \
        for (long p = 0; p < k; p++) {                                                             \
            V bv[NV];                                                                              \
            UNROLL for (int j = 0; j < NV; j++) bv[j] = *(const V *)(b + p * WIDTH + j * LANES);   \
            const float *ap = a + p * ak;                                                          \
            UNROLL for (int i = 0; i < ROWS; i++) {                                                \
                float x = ap[i * ai];                                                              \
                UNROLL for (int j = 0; j < NV; j++) acc[i][j] += x * bv[j];                        \
            }                                                                                      \
        }                                                                                          \
        if (used != WIDTH) {                                                                       \
            V tile[ROWS][NV]; /* not `acc`, which stays in registers */                            \
            UNROLL for (int i = 0; i < ROWS; i++)                                                  \
                UNROLL for (int j = 0; j < NV; j++) tile[i][j] = acc[i][j];                        \
            finish_##V##_##NV((const V *)tile, ROWS, c, ldc, bias, adds, used);                    \
            return;                                                                                \
        }                                                                                          \
        if (bias) {                                                                                \
            UNROLL for (int j = 0; j < NV; j++) {                                                  \
                const V y = *(const V *)(bias + j * LANES);                                        \
                UNROLL for (int i = 0; i < ROWS; i++) acc[i][j] += y;                              \
            }                                                                                      \
        }                                                                                          \
        if (adds) {                                                                                \
            UNROLL for (int i = 0; i < ROWS; i++)                                                  \
                UNROLL for (int j = 0; j < NV; j++)                                                \
                    acc[i][j] += *(const V *)(c + i * ldc + j * LANES);                            \
        }                                                                                          \
        UNROLL for (int i = 0; i < ROWS; i++)                                                      \
            UNROLL for (int j = 0; j < NV; j++) *(V *)(c + i * ldc + j * LANES) = acc[i][j];       \
    }

#define PANEL(V, NV)                                                                               \
    FINISH(V, NV)                                                                                  \
    TILE(tile_m_##V##_##NV, MR, V, NV)                                                             \
    TILE(tile_2_##V##_##NV, 2, V, NV)                                                              \
    TILE(tile_1_##V##_##NV, 1, V, NV)                                                              \
    static void panel_##V##_##NV(long m, long k, const float *a, long ai, long ak, const float *b, \
                                 float *c, long ldc, const float *bias, int adds, long used) {     \
        long i = 0;                                                                                \
        for (; i + MR <= m; i += MR)                                                               \
            tile_m_##V##_##NV(k, a + i * ai, ai, ak, b, c + i * ldc, ldc, bias, adds, used);       \
        for (; i + 2 <= m; i += 2)                                                                 \
            tile_2_##V##_##NV(k, a + i * ai, ai, ak, b, c + i * ldc, ldc, bias, adds, used);       \
        for (; i < m; i++)                                                                         \
            tile_1_##V##_##NV(k, a + i * ai, ai, ak, b, c + i * ldc, ldc, bias, adds, used);       \
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
                        const float *bias, int adds, long used) {
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
            finish_v4_1((const v4 *)rows, ROWS, c + i * ldc, ldc, bias, adds, used);
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
    if (i < m) panel_v4_1(m - i, k, a + i, 1, ak, b, c + i * ldc, ldc, bias, adds, used);
}

/* One column of C, as the last layer of a critic has: vectors along the rows of A or along its
 * columns, whichever are contiguous. A tile would use one lane of each vector. */
static void one_column(long m, long k, const float *a, long ai, long ak, const float *b, float *c,
                       long ldc, const float *bias, int adds) {
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
                if (ak == 1) {
                    _Pragma("omp simd reduction(+ : x)") for (long p = 0; p < k; p++) x += from[p] * b[p];
                } else {
                    for (long p = 0; p < k; p++) x += from[p * ak] * b[p];
                }
                sums[j] = x;
            }
        }
        for (long j = 0; j < rows; j++) {
            float *to = c + (i + j) * ldc;
            *to = sums[j] + (bias ? *bias : 0.0f) + (adds ? *to : 0.0f);
        }
    }
}

/* C is zero where the gate is not positive: a ReLU if the gate is C itself, and its derivative if
 * the gate is the result of the ReLU. */
INLINE void apply_gate(long m, long n, float *c, const float *gate, long ldc) {
    for (long i = 0; i < m; i++) {
        float *to = c + i * ldc;
        const float *by = gate + i * ldc;
        SIMD for (long j = 0; j < n; j++) to[j] = by[j] <= 0.0f ? 0.0f : to[j];
    }
}

/* C [m, n] = A [m, k] B [k, n] (+ the bias of each column) (+ C if `adds`), with B packed. `gate`:
 * null, or see apply_gate; with the strides of C. */
void gsolve_matmul(long m, long n, long k, const float *a, long ai, long ak, const float *b,
                   float *c, long ldc, const float *bias, int adds, const float *gate) {
    for (long j = 0; j < n; j += NR) {
        long width = panel_width(n - j), used = n - j < width ? n - j : width;
        const float *own = bias ? bias + j : 0;
        if (width == 1) one_column(m, k, a, ai, ak, b, c + j, ldc, own, adds);
        else if (width == 4 && ai == 1) few_columns(m, k, a, ak, b, c + j, ldc, own, adds, used);
        else if (width == 4) panel_v4_1(m, k, a, ai, ak, b, c + j, ldc, own, adds, used);
#if VL >= 8
        else if (width == 8) panel_v8_1(m, k, a, ai, ak, b, c + j, ldc, own, adds, used);
#endif
#if VL >= 16
        else if (width == 16) panel_v16_1(m, k, a, ai, ak, b, c + j, ldc, own, adds, used);
#endif
        else WIDE(m, k, a, ai, ak, b, c + j, ldc, own, adds, used);
        if (gate) apply_gate(m, used, c + j, gate + j, ldc); /* while it is in the nearest cache */
        b += k * width;
    }
}
