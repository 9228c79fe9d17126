/* What every compiled program starts with (native/build.py puts it before the generated text):
 * mathematical functions and a thread pool. Loops over elements are vectorised by
 * the compiler (omp simd).
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

/* ---- threads ------------------------------------------------------------------------------
 * Work is a number of parts. A thread takes the next one, so a thread that the system does not run
 * delays nothing. What a part computes does not depend on the thread that computes it. */
#define MAX_THREADS 16
#define SPINS 4000 /* about 50 us */
#define STALL_NS 50000
#define STACK_BYTES (4 << 20) /* products keep copies there; some systems give a thread 0.5 MB */

typedef struct {
    uint64_t job;
    long parts, threads, done;
    void (*work)(void *, long part, long thread);
    void *with;
} Job;

static struct {
    uint64_t ticket; /* job << 32 | next part */
    Job jobs[4];
    long workers, asleep;
    long alone, penalty; /* jobs to do without workers, and how many after the next stall */
    pid_t owner;
    pthread_mutex_t busy, lock;
    pthread_cond_t wake;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER};

INLINE void pause_briefly(void) {
#if defined(__SSE__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The next part. A thread that was stopped may come so late that its job is over and the slot has
 * another one: it copies what the slot says and looks again whether it is still its job. A job with
 * a part left to run keeps its slot. */
static int take_part(long thread) {
    uint64_t ticket = __atomic_fetch_add(&pool.ticket, 1, __ATOMIC_ACQ_REL), number = ticket >> 32;
    Job *job = &pool.jobs[number & 3];
    long part = (long)(ticket & 0xffffffff);
    if (__atomic_load_n(&job->job, __ATOMIC_ACQUIRE) != number) return 0;
    long parts = __atomic_load_n(&job->parts, __ATOMIC_RELAXED);
    void (*work)(void *, long, long) = __atomic_load_n(&job->work, __ATOMIC_RELAXED);
    void *with = __atomic_load_n(&job->with, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* with the one of in_parts: fields, then the number */
    if (__atomic_load_n(&job->job, __ATOMIC_RELAXED) != number || part >= parts) return 0;
    work(with, part, thread);
    __atomic_fetch_add(&job->done, 1, __ATOMIC_ACQ_REL);
    return 1;
}

static void *worker(void *number) {
    uint64_t seen = 0;
    begin_flush();
    for (;;) {
        uint64_t now = __atomic_load_n(&pool.ticket, __ATOMIC_ACQUIRE) >> 32;
        for (long i = 0; now == seen && i < SPINS; i++) {
            pause_briefly();
            now = __atomic_load_n(&pool.ticket, __ATOMIC_ACQUIRE) >> 32;
        }
        if (now == seen) {
            pthread_mutex_lock(&pool.lock);
            __atomic_fetch_add(&pool.asleep, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&pool.ticket, __ATOMIC_SEQ_CST) >> 32 == seen)
                pthread_cond_wait(&pool.wake, &pool.lock);
            __atomic_fetch_sub(&pool.asleep, 1, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&pool.lock);
            continue;
        }
        seen = now;
        if ((long)(intptr_t)number >= __atomic_load_n(&pool.jobs[now & 3].threads, __ATOMIC_ACQUIRE))
            continue; /* fewer threads than before */
        while (take_part((long)(intptr_t)number)) {}
    }
    return 0;
}

static void start_workers(long n) {
    if (pool.owner != getpid()) { /* threads do not survive a fork */
        pool.owner = getpid();
        pool.workers = pool.asleep = 0;
        pthread_mutex_init(&pool.lock, 0);
        pthread_cond_init(&pool.wake, 0);
    }
    while (pool.workers < n && pool.workers < MAX_THREADS - 1) {
        pthread_t thread;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attr, STACK_BYTES);
        int failed = pthread_create(&thread, &attr, worker, (void *)(intptr_t)(pool.workers + 1));
        pthread_attr_destroy(&attr);
        if (failed) return;
        pool.workers++;
    }
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The system stopped a worker in the middle of a part, because other programs want its core:
 * waiting for it costs more than it saves, so the next jobs are done alone. */
static void note_wait(int64_t wait_ns, int64_t part_ns) {
    if (wait_ns > STALL_NS && wait_ns > 2 * part_ns) {
        pool.penalty = pool.penalty < 32 ? 32 : pool.penalty < 2048 ? 2 * pool.penalty : 2048;
        pool.alone = pool.penalty;
    } else {
        pool.penalty -= pool.penalty >> 6;
    }
}

static void in_parts(void (*work)(void *, long, long), void *with, long parts, long threads) {
    /* Another thread of the process may be using the workers. */
    int is_alone = threads <= 1 || parts <= 1 || pthread_mutex_trylock(&pool.busy);
    if (!is_alone && pool.alone > 0) {
        pool.alone--;
        pthread_mutex_unlock(&pool.busy);
        is_alone = 1;
    }
    if (is_alone) {
        for (long part = 0; part < parts; part++) work(with, part, 0);
        return;
    }
    start_workers(threads - 1);
    uint64_t number = (__atomic_load_n(&pool.ticket, __ATOMIC_ACQUIRE) >> 32) + 1;
    Job *job = &pool.jobs[number & 3];
    __atomic_store_n(&job->job, 0, __ATOMIC_RELAXED); /* the slot is no job while it changes */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&job->parts, parts, __ATOMIC_RELAXED);
    __atomic_store_n(&job->threads, threads, __ATOMIC_RELAXED);
    __atomic_store_n(&job->done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&job->work, work, __ATOMIC_RELAXED);
    __atomic_store_n(&job->with, with, __ATOMIC_RELAXED);
    __atomic_store_n(&job->job, number, __ATOMIC_RELEASE);
    __atomic_store_n(&pool.ticket, number << 32, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool.asleep, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    const int64_t start = now_ns();
    long own = 0;
    while (take_part(0)) own++;
    const int64_t mine = now_ns();
    for (long i = 0; __atomic_load_n(&job->done, __ATOMIC_ACQUIRE) < parts; i++) {
        if (i < SPINS) pause_briefly();
        else sched_yield();
    }
    note_wait(now_ns() - mine, (mine - start) / (own ? own : 1));
    pthread_mutex_unlock(&pool.busy);
}

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
INLINE void add_sums(long n, const float *from, float *sums, int first) {
    if (first) memcpy(sums, from, 4 * n);
    else { SIMD for (long j = 0; j < n; j++) sums[j] += from[j]; }
}

INLINE void sum_columns(const long width, long rows, const float *from, long row, float *sums,
                        int first) {
    float total[64]; /* of a known width, at most 64: registers */
    SIMD for (long j = 0; j < width; j++) total[j] = 0.0f;
    for (long i = 0; i < rows; i++)
        SIMD for (long j = 0; j < width; j++) total[j] += from[i * row + j];
    add_sums(width, total, sums, first);
}

/* The sum of each of n columns. */
static void column_sums(long rows, long n, const float *from, long row, float *sums, int first) {
    long j = 0;
    for (; j + 64 <= n; j += 64) sum_columns(64, rows, from + j, row, sums + j, first);
    for (; j + 8 <= n; j += 8) sum_columns(8, rows, from + j, row, sums + j, first);
    for (; j < n; j++) sum_columns(1, rows, from + j, row, sums + j, first);
}

/* The sum of a range over lanes, in the order of the lanes, into the first. */
typedef struct { float *sums; long lanes, stride, size; } LaneSums;

static void sum_stretch(void *with, long part, long thread) {
    const LaneSums *s = with;
    const long start = part * STRETCH, stop = stretch_end(part, s->size);
    enum { WIDTH = 64 }; /* floats that stay in registers while the lanes are added */
    float *to = s->sums;
    long i = start;
    for (; i + WIDTH <= stop; i += WIDTH) {
        float total[WIDTH];
        SIMD for (int j = 0; j < WIDTH; j++) total[j] = to[i + j];
        for (long lane = 1; lane < s->lanes; lane++) {
            const float *from = to + lane * s->stride + i;
            SIMD for (int j = 0; j < WIDTH; j++) total[j] += from[j];
        }
        SIMD for (int j = 0; j < WIDTH; j++) to[i + j] = total[j];
    }
    for (; i < stop; i++)
        for (long lane = 1; lane < s->lanes; lane++) to[i] += to[lane * s->stride + i];
}

static void sum_lanes(const Call *c, long lanes, long stride, long start, long size) {
    LaneSums s = {c->sums + start, lanes, stride, size};
    if (lanes > 1) in_parts(sum_stretch, &s, stretches(size), c->threads);
}
