/* How Python calls a program: run, optimiser steps, or both for each minibatch. Optimiser steps are as
 * in fast/optimizer.py, on one flat vector, in parts of a fixed size that threads share. After
 * pool.c; compiled once per machine. */
enum { ADAM, ADAMW, LAPROP, SGD, RMSPROP, RMSPROP_TF };

/* What a group of parameters declares; see Group in fast/optimizer.py. */
typedef struct {
    int64_t start, stop, kind, ema_every;
    float *target;          /* of this group alone: moves towards the weights; null: none */
    const int64_t *tensors; /* where each tensor starts, for adaptive clipping; ends with `stop` */
    int64_t n_tensors;
    const int64_t *rows; /* of each weight that is scaled to a length: start, repeat, outer,
                            length, inner, square of the length */
    int64_t n_rows;
    double lr_scale, beta1, beta2, eps, weight_decay, momentum, tau;
    double agc, low, high; /* agc 0: no adaptive clipping; low > high: no bounds */
} Group;

typedef struct {
    float *weights, *mean, *square;
    const Group *groups;
    int64_t n_groups, size, n_steps, threads, has_targets;
    double lr, max_norm, max_value; /* 0: no clipping */
} Optimizer;

typedef struct {
    const Optimizer *o;
    float *g, clip;
    double *squares; /* by part; of step_stretch: null if they are known */
} Step;

INLINE int moves_target(const Optimizer *o, const Group *p) {
    return p->target && o->n_steps % p->ema_every == 0;
}
INLINE int projects(const Group *p) { return p->n_rows || p->low <= p->high; }

static void square_stretch(void *with, long part, long thread) {
    const Step *s = with;
    const long stop = stretch_end(part, s->o->size);
    const float *g = s->g;
    double total = 0.0;
    for (long from = part * STRETCH; from < stop; from += 1024) {
        const long to = from + 1024 < stop ? from + 1024 : stop;
        float x = 0.0f;
        SUMS_SIMD(x) for (long i = from; i < to; i++) x += g[i] * g[i];
        total += x;
    }
    s->squares[part] = total;
}

/* The norm, in a pass that also computes squares. */
static double norm_by(void (*pass)(void *, long, long), Step *s) {
    const long parts = stretches(s->o->size);
    double squares[parts], total = 0.0;
    s->squares = squares;
    in_parts(pass, s, parts, s->o->threads);
    s->squares = 0;
    for (long part = 0; part < parts; part++) total += squares[part];
    return sqrt(total);
}

static void clamp_stretch(void *with, long part, long thread) {
    const Step *s = with;
    const float most = (float)s->o->max_value;
    const long start = part * STRETCH, stop = stretch_end(part, s->o->size);
    float *g = s->g;
    SIMD for (long i = start; i < stop; i++) {
        float x = g[i] > most ? most : g[i];
        g[i] = x < -most ? -most : x;
    }
}

static void move_to(const Optimizer *o, const Group *p, long start, long stop) {
    const float tau = (float)p->tau, *w = o->weights;
    float *target = p->target - p->start;
    if (tau == 1.0f)
        memcpy(target + start, w + start, sizeof(float) * (stop - start));
    else
        SIMD for (long i = start; i < stop; i++) target[i] += tau * (w[i] - target[i]);
}

/* The rule of a group on elements start .. stop - 1. */
static void step_group(const Step *s, const Group *p, long start, long stop) {
    const Optimizer *o = s->o;
    float *w = o->weights, *mean = o->mean, *square = o->square;
    const float *g = s->g;
    const double rate = o->lr * p->lr_scale;
    const float clip = s->clip, lr = (float)rate, eps = (float)p->eps;
    const float keeps = p->kind == ADAMW ? (float)(1.0 - rate * p->weight_decay) : 1.0f;
    const float decay = p->kind == ADAMW ? 0.0f : (float)p->weight_decay;
    const double left1 = 1.0 - pow(p->beta1, (double)o->n_steps);
    const double left2 = 1.0 - pow(p->beta2, (double)o->n_steps);
    const float b1 = (float)(1.0 - p->beta1), b2 = (float)p->beta2, c2 = (float)(1.0 - p->beta2);
    if (p->kind == ADAM || p->kind == ADAMW) {
        /* m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps), with one division instead of two */
        const double root = sqrt(left2);
        const float step = (float)(rate * root / left1), small = (float)(p->eps * root);
        SIMD for (long i = start; i < stop; i++) {
            float old = w[i] * keeps, x = g[i] * clip + decay * old;
            float m = mean[i] + b1 * (x - mean[i]), v = b2 * square[i] + c2 * x * x;
            mean[i] = m;
            square[i] = v;
            w[i] = old - step * m / (sqrtf(v) + small);
        }
    } else if (p->kind == LAPROP) {
        const float step = (float)(rate / left1), scale = (float)(1.0 / left2);
        SIMD for (long i = start; i < stop; i++) {
            float x = g[i] * clip + decay * w[i], v = b2 * square[i] + c2 * x * x;
            float m = mean[i] + b1 * (x / (sqrtf(v * scale) + eps) - mean[i]);
            mean[i] = m;
            square[i] = v;
            w[i] -= step * m;
        }
    } else if (p->kind == SGD) {
        const float momentum = (float)p->momentum;
        SIMD for (long i = start; i < stop; i++) {
            float x = g[i] * clip + decay * w[i];
            if (momentum != 0.0f) x = mean[i] = momentum * mean[i] + x;
            w[i] -= lr * x;
        }
    } else {
        const float kept = 0.99f, is_tf = p->kind == RMSPROP_TF;
        SIMD for (long i = start; i < stop; i++) {
            float x = g[i] * clip + decay * w[i], v = kept * square[i] + (1.0f - kept) * x * x;
            square[i] = v;
            w[i] -= lr * x / (is_tf ? sqrtf(v + eps) : sqrtf(v) + eps);
        }
    }
}

static void step_stretch(void *with, long part, long thread) {
    const Step *s = with;
    const Optimizer *o = s->o;
    const long first = part * STRETCH, last = stretch_end(part, o->size);
    if (s->squares) square_stretch(with, part, thread);
    for (const Group *p = o->groups; p < o->groups + o->n_groups; p++) {
        const long start = first > p->start ? first : p->start;
        const long stop = last < p->stop ? last : p->stop;
        if (start >= stop) continue;
        step_group(s, p, start, stop);
        /* In the same pass over memory, unless a projection comes between. */
        if (moves_target(o, p) && !projects(p)) move_to(o, p, start, stop);
    }
}

static double length_of(const float *x, long n) {
    double total = 0.0;
    for (long i = 0; i < n; i++) total += (double)x[i] * x[i];
    return sqrt(total);
}

static void clip_by_weights(const Optimizer *o, const Group *p, float *g) {
    for (long t = 0; t < p->n_tensors; t++) {
        const long start = p->tensors[t], n = p->tensors[t + 1] - start;
        const double own = length_of(o->weights + start, n), length = length_of(g + start, n);
        const double most = p->agc * (own > 1e-3 ? own : 1e-3);
        if (length <= most) continue;
        const float scale = (float)(most / length);
        SIMD for (long i = start; i < start + n; i++) g[i] *= scale;
    }
}

static void project(const Optimizer *o, const Group *p) {
    for (const int64_t *r = p->rows; r < p->rows + 6 * p->n_rows; r += 6) {
        const long repeat = r[1], outer = r[2], length = r[3], inner = r[4];
        const long apart = outer * length * inner;
        for (long j = 0; j < outer; j++)
            for (long k = 0; k < inner; k++) {
                float *x = o->weights + r[0] + j * length * inner + k;
                double total = 0.0;
                for (long a = 0; a < repeat; a++)
                    for (long i = 0; i < length; i++) {
                        const double w = x[a * apart + i * inner];
                        total += w * w;
                    }
                const double size = sqrt(total);
                const float by = (float)(sqrt((double)r[5]) / (size > 1e-8 ? size : 1e-8));
                for (long a = 0; a < repeat; a++)
                    for (long i = 0; i < length; i++) x[a * apart + i * inner] *= by;
            }
    }
    if (p->low > p->high) return;
    float *w = o->weights, low = (float)p->low, high = (float)p->high;
    for (long i = p->start; i < p->stop; i++) {
        const float x = w[i] < low ? low : w[i];
        w[i] = x > high ? high : x;
    }
}

/* A step along g; returns its norm before clipping. */
static double descend_flushed(Optimizer *o, float *g) {
    Step s = {o, g, 1.0f};
    const long parts = stretches(o->size);
    const Group *end = o->groups + o->n_groups;
    int is_clipped = o->max_value > 0 || o->max_norm > 0;
    for (const Group *p = o->groups; p < end; p++) is_clipped |= p->agc > 0;
    double norm;
    o->n_steps++;
    if (!is_clipped) { /* the step does not depend on the norm */
        norm = norm_by(step_stretch, &s);
    } else {
        double left = norm = norm_by(square_stretch, &s);
        for (const Group *p = o->groups; p < end; p++) {
            if (p->agc <= 0) continue;
            clip_by_weights(o, p, g);
            left = norm_by(square_stretch, &s);
        }
        if (o->max_value > 0) {
            in_parts(clamp_stretch, &s, parts, o->threads);
            left = norm_by(square_stretch, &s);
        }
        if (o->max_norm > 0 && left > o->max_norm) s.clip = (float)(o->max_norm / (left + 1e-6));
        in_parts(step_stretch, &s, parts, o->threads);
    }
    for (const Group *p = o->groups; p < end; p++) {
        if (!projects(p)) continue;
        project(o, p);
        if (moves_target(o, p)) move_to(o, p, p->start, p->stop);
    }
    return norm;
}

void run(Call *c) {
    uint64_t mode = begin_flush();
    run_flushed(c);
    end_flush(mode);
}

double descend(Optimizer *o, float *g) {
    uint64_t mode = begin_flush();
    double norm = descend_flushed(o, g);
    end_flush(mode);
    return norm;
}

/* A gradient and an optimiser step for each part of a batch: samples index[starts[i] ..
 * starts[i + 1] - 1], or all n without an index. Stops before the step of a part whose output
 * `watched` exceeds `limit` (-1: never). `outs` [parts][n_outs] gets the outputs of each part (null:
 * not wanted). Returns the number of steps. */
int64_t update(Call *c, Optimizer *o, int64_t parts, const int64_t *starts, const int64_t *index,
               float *norms, int64_t watched, double limit, float *outs, int64_t n_outs) {
    uint64_t mode = begin_flush();
    int64_t done = 0;
    for (; done < parts; done++) {
        c->index = index ? index + starts[done] : 0;
        c->n = starts[done + 1] - starts[done];
        /* A target network that moves is a constant of the gradient that changes. */
        c->again = done > 0 && !o->has_targets;
        run_flushed(c);
        if (outs) memcpy(outs + done * n_outs, c->out, 4 * n_outs);
        if (watched >= 0 && c->out[watched] > limit) break;
        norms[done] = (float)descend_flushed(o, c->sums);
    }
    c->index = 0;
    c->again = 0;
    end_flush(mode);
    return done;
}
