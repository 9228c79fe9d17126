/* Work on rollouts (native/rollout.py). Compiled without fused multiplication and addition, so that
 * the bits are NumPy's. */
#include <stdint.h>
#include <time.h>

/* y[t] = x[t] + carry[t] * y[t + 1] in each of n columns, from the last row to the first. */
void sum_back(long rows, long n, const double *x, const double *carry, double *y) {
    for (long t = rows - 1; t >= 0; t--) {
        const double *own = x + t * n, *share = carry + t * n;
        double *to = y + t * n;
        if (t == rows - 1) {
            for (long i = 0; i < n; i++) to[i] = own[i] + share[i] * 0.0;
        } else {
            for (long i = 0; i < n; i++) to[i] = own[i] + share[i] * to[i + n];
        }
    }
}

/* A row of a rollout whose policy and environments are both compiled: the policy acts, the
 * environments step, and both read and write the rows of the rollout. */

typedef struct {
    char **pointer; /* to the current row of an array */
    char *start;    /* its first row */
    int64_t bytes;  /* of a row */
} Moving;

typedef struct {
    int64_t n;                             /* environments */
    void (*act)(void *);                   /* `run` of a forward program */
    void *call;
    int64_t *again;                        /* of its call: the weights are packed */
    int64_t (*step)(void *);               /* of the environments; returns how many are done */
    void *envs;
    int64_t waits;                         /* the environments need Python before they reset */
    int64_t n_moving;
    const Moving *moving;                  /* what points to the next row after this one */
    int64_t act_ns;                        /* time spent acting */
    uint8_t *done;                         /* [n]: the episode is over, a reset row follows */
    const float *reward;                   /* from here on: the current row */
    const uint8_t *terminated, *truncated;
    uint8_t *is_first, *valid;
    double *episode_return;                /* this row is read, the next one written */
    int64_t *episode_length;
} Row;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void begin_rows(Row *r) {
    *r->again = 0;
    for (int64_t i = 0; i < r->n_moving; i++) *r->moving[i].pointer = r->moving[i].start;
}

static int64_t collect_row(Row *r) {
    const int64_t start = now_ns(), n = r->n;
    r->act(r->call);
    *r->again = 1;
    r->act_ns += now_ns() - start;
    const int64_t n_done = r->step(r->envs);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t is_reset = r->done[i];
        r->is_first[i] = is_reset;
        r->valid[i] = !is_reset;
        r->episode_return[n + i] = is_reset ? 0.0 : r->episode_return[i] + r->reward[i];
        r->episode_length[n + i] = is_reset ? 0 : r->episode_length[i] + 1;
        r->done[i] = r->terminated[i] | r->truncated[i];
    }
    for (int64_t i = 0; i < r->n_moving; i++) *r->moving[i].pointer += r->moving[i].bytes;
    return n_done;
}

/* n_done: how many environments are done after each row. Returns how many rows were collected. */
int64_t collect_rows(Row *r, int64_t n_rows, int64_t *n_done) {
    for (int64_t t = 0; t < n_rows; t++) {
        n_done[t] = collect_row(r);
        if (r->waits && n_done[t]) return t + 1;
    }
    return n_rows;
}
