/* What every compiled text starts with (native/build.py puts it there): mathematical functions, the
 * argument of a program, and what the objects of a program call in each other. Loops over elements
 * are vectorised by the compiler (omp simd).
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIMD _Pragma("omp simd")
/* Vectors of the whole width, where gcc takes half of it; sums over elements keep eight lanes,
 * and so their bits. */
#if defined(__AVX512F__) && !defined(__clang__) && __GNUC__ >= 8
#pragma GCC target("prefer-vector-width=512")
#define SUMS_SIMD(X) PRAGMA(omp simd simdlen(8) reduction(+ : X))
#else
#define SUMS_SIMD(X) PRAGMA(omp simd reduction(+ : X))
#endif
#define PRAGMA(X) _Pragma(#X)
#define UNROLL _Pragma("GCC unroll 16")
#define INLINE static inline __attribute__((always_inline))

/* in matmul.c */
void gsolve_pack(long k, long n, const float *b, long row, long col, float *out);
void gsolve_matmul(long m, long n, long k, const float *a, long ai, long ak, const float *b,
                   long ldb, float *c, long ldc, const float *bias, int adds, const float *gate);

void gsolve_few(long m, long n, long k, const float *a, long ai, long ak, const float *b, long col,
                float *c, long ldc, const float *bias, int adds, const float *gate);
#define FEW 4 /* samples for which weights are not packed */

/* ---- functions of one number: without branches, so that loops of them are vectorised ------- */
INLINE float as_float(int32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE int32_t as_bits(float x) { int32_t bits; memcpy(&bits, &x, 4); return bits; }

/* x between two bounds; NaN stays NaN. */
INLINE float within(float low, float x, float high) {
#if defined(__aarch64__) /* four instructions, where the two comparisons below take twenty */
    float y = __builtin_fminf(__builtin_fmaxf(x, low), high);
    return x == x ? y : x;
#else
    x = x > high ? high : x;
    return x < low ? low : x;
#endif
}

/* e^r - 1 for |r| <= ln(2) / 2. */
INLINE float small_expm1(float r) {
    float p = 1.9841270e-4f;
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    return p * r * r + r;
}

#define ROUND 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */
#define LOG2E 1.44269504f
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f

INLINE float f_exp(float x) {
    float y = within(-104.0f, x, 89.0f);
    float whole = y * LOG2E + ROUND;
    int32_t n = as_bits(whole) - as_bits(ROUND);
    whole -= ROUND;
    float r = y - whole * LN2_HIGH;
    r -= whole * LN2_LOW;
    int32_t half = n >> 1; /* 2^n in two factors: it may exceed the largest exponent */
    return (small_expm1(r) + 1.0f) * as_float((half + 127) << 23) *
           as_float((n - half + 127) << 23);
}

/* x P(x^2) / Q(x^2), with the coefficients of Eigen; beyond the bound it is 1 in float32. */
INLINE float f_tanh(float x) {
    const float most = 7.90531110763549805f;
    x = within(-most, x, most);
    float z = x * x, p = -2.76076847742355e-16f, q = 1.19825839466702e-06f;
    p = p * z + 2.00018790482477e-13f;
    p = p * z - 8.60467152213735e-11f;
    p = p * z + 5.12229709037114e-08f;
    p = p * z + 1.48572235717979e-05f;
    p = p * z + 6.37261928875436e-04f;
    p = p * z + 4.89352455891786e-03f;
    q = q * z + 1.18534705686654e-04f;
    q = q * z + 2.26843463243900e-03f;
    q = q * z + 4.89352518554385e-03f;
    return x * p / q;
}

INLINE float f_log(float x) {
    int32_t bits = as_bits(x), up = (bits + (0x3f800000 - 0x3f3504f3)) >> 23;
    int32_t exponent = up - 127;
    float m = as_float(bits - (exponent << 23)) - 1.0f; /* sqrt(1/2) - 1 .. sqrt(2) - 1 */
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float z = m * m, e = (float)exponent;
    float y = m * z * p + e * LN2_LOW - 0.5f * z + m + e * LN2_HIGH;
    y = x == 0.0f ? -INFINITY : y;
    y = x == INFINITY ? x : y;
    return x >= 0.0f ? y : NAN;
}

INLINE float f_log1p(float x) {
    float w = 1.0f + x;
    float y = f_log(w) + (x - (w - 1.0f)) / w;
    return w > 0.0f && w < INFINITY ? y : f_log(w);
}
INLINE float f_expm1(float x) {
    float e = f_exp(x), t = f_tanh(0.5f * x); /* e^x - 1 = (e^x + 1) tanh(x / 2) */
    return x > 80.0f ? e : (e + 1.0f) * t;
}
INLINE float f_sigmoid(float x) { return 1.0f / (1.0f + f_exp(-x)); }
INLINE float f_max(float a, float b) { return a > b || a != a ? a : b; } /* NaN stays NaN */
INLINE float f_min(float a, float b) { return a < b || a != a ? a : b; }
INLINE float clamp_max(float x, float most) { return x > most ? most : x; }
INLINE float f_softplus(float x) { return f_max(x, 0.0f) + f_log1p(f_exp(-fabsf(x))); }
INLINE float f_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x; }

/* ---- denormal numbers are zero, in every thread: the CPU computes with them ten times slower - */
#if defined(__SSE__)
INLINE uint64_t begin_flush(void) {
    uint32_t old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(old | 0x8040);
    return old;
}
INLINE void end_flush(uint64_t old) { __builtin_ia32_ldmxcsr((uint32_t)old); }
#elif defined(__aarch64__)
INLINE uint64_t begin_flush(void) {
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" ::"r"(old | (1 << 24)));
    return old;
}
INLINE void end_flush(uint64_t old) { __asm__ volatile("msr fpcr, %0" ::"r"(old)); }
#else
INLINE uint64_t begin_flush(void) { return 0; }
INLINE void end_flush(uint64_t old) { (void)old; }
#endif

/* ---- one call of a program ---------------------------------------------------------------- */
typedef struct {
    int64_t n;             /* samples */
    const int64_t *index;  /* of the samples in the columns; null: the first n rows */
    void **columns;
    void **tensors;        /* parameters, then constants */
    const float *numbers;  /* coefficients */
    float *sums;           /* [lanes][SUMS]: the gradient, then other sums over samples */
    char *uniform;         /* values that do not depend on the sample */
    char *scratch;         /* [threads][SCRATCH]: values of one block of samples */
    char *kept;            /* values of all samples that a later pass reads */
    float *out;            /* outputs that are numbers */
    void **row_out;        /* outputs with one row per sample */
    int64_t threads;
    int64_t again;         /* the constants are those of the call before: they are packed already */
} Call;

#define STRETCH 16384 /* elements of a part of a long vector: the same for any number of threads */
INLINE long stretches(long n) { return (n + STRETCH - 1) / STRETCH; }
INLINE long stretch_end(long part, long n) { return (part + 1) * STRETCH < n ? (part + 1) * STRETCH : n; }

/* ---- sums over the samples of a block ---------------------------------------------------- */
#if defined(__AVX512F__)
#define VECTOR 16
#elif defined(__AVX__)
#define VECTOR 8
#else
#define VECTOR 4
#endif
typedef float wide __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

INLINE void add_sums(long n, const float *from, float *sums, int first) {
    if (first) memcpy(sums, from, 4 * n);
    else { SIMD for (long j = 0; j < n; j++) sums[j] += from[j]; }
}

/* The sums of N vectors of columns at a time, in registers. */
#define SUM_COLUMNS(V, N)                                                                          \
    for (const long lanes = sizeof(V) / 4; j + N * lanes <= n; j += N * lanes) {                   \
        V total[N] = {0};                                                                          \
        for (long i = 0; i < rows; i++)                                                            \
            UNROLL for (int q = 0; q < N; q++)                                                     \
                total[q] += *(const V *)(from + i * row + j + q * lanes);                          \
        add_sums(N * lanes, (float *)total, sums + j, first);                                      \
    }

/* The sum of each of n columns. */
static void column_sums(long rows, long n, const float *from, long row, float *sums, int first) {
    long j = 0;
    SUM_COLUMNS(wide, 64 / VECTOR)
    SUM_COLUMNS(v4, 1)
    SUM_COLUMNS(float, 1)
}

/* ---- between the objects of a program ----------------------------------------------------- */
#define HIDDEN __attribute__((visibility("hidden")))

/* The generated text: all passes over the samples. */
HIDDEN void run_flushed(Call *c);
/* In pool.c: work(with, part, thread) for each part. */
HIDDEN void in_parts(void (*work)(void *, long, long), void *with, long parts, long threads);
#define BEGIN_WORKER() begin_flush()
/* In lanes.c: the sum of a range over lanes, in the order of the lanes, into the first. */
HIDDEN void sum_lanes(const Call *c, long lanes, long stride, long start, long size);
