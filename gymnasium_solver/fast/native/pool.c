/* A pool of threads. Work is a number of parts. A thread takes the next one, so a thread that the
 * system does not run delays nothing. What a part computes does not depend on the thread that
 * computes it. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#ifndef BEGIN_WORKER
#define BEGIN_WORKER()
#endif
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

static inline void pause_briefly(void) {
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
    BEGIN_WORKER();
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

void in_parts(void (*work)(void *, long, long), void *with, long parts, long threads) {
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
