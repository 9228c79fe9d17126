/* Optimiser steps as in fast/optimizer.py, on one flat vector, in parts of a fixed size that threads
 * share. After runtime.c, before the generated text. */
enum { ADAM, ADAMW, SGD, RMSPROP, RMSPROP_TF };

typedef struct {
    float *weights, *mean, *square;
    float *target; /* moves towards the weights after each step: target += tau * (w - target) */
    int64_t size, kind, n_steps, threads;
    double lr, beta1, beta2, eps, weight_decay, momentum, tau;
    double max_norm, max_value; /* 0: no clipping */
} Optimizer;

typedef struct {
    const Optimizer *o;
    float *g, clip;
    double *squares; /* by part; of step_stretch: null if they are known */
} Step;

static void square_stretch(void *with, long part, long thread) {
    const Step *s = with;
    const long stop = stretch_end(part, s->o->size);
    const float *g = s->g;
    double total = 0.0;
    for (long from = part * STRETCH; from < stop; from += 1024) {
        const long to = from + 1024 < stop ? from + 1024 : stop;
        float x = 0.0f;
        _Pragma("omp simd reduction(+ : x)") for (long i = from; i < to; i++) x += g[i] * g[i];
        total += x;
    }
    s->squares[part] = total;
}

/* The norm, in a pass that computes squares beside what else it does. */
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

static void step_stretch(void *with, long part, long thread) {
    const Step *s = with;
    const Optimizer *o = s->o;
    const long start = part * STRETCH, stop = stretch_end(part, o->size);
    float *w = o->weights, *mean = o->mean, *square = o->square, *target = o->target;
    const float *g = s->g;
    if (s->squares) square_stretch(with, part, thread);
    const float clip = s->clip, lr = (float)o->lr, eps = (float)o->eps;
    const float keeps = o->kind == ADAMW ? (float)(1.0 - o->lr * o->weight_decay) : 1.0f;
    const float decay = o->kind == ADAMW ? 0.0f : (float)o->weight_decay;
    if (o->kind == ADAM || o->kind == ADAMW) {
        /* m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps), with one division instead of two */
        const double root = sqrt(1.0 - pow(o->beta2, (double)o->n_steps));
        const float step = (float)(o->lr * root / (1.0 - pow(o->beta1, (double)o->n_steps)));
        const float small = (float)(o->eps * root);
        const float b1 = (float)(1.0 - o->beta1), b2 = (float)o->beta2, c2 = (float)(1.0 - o->beta2);
        SIMD for (long i = start; i < stop; i++) {
            float old = w[i] * keeps, x = g[i] * clip + decay * old;
            float m = mean[i] + b1 * (x - mean[i]), v = b2 * square[i] + c2 * x * x;
            mean[i] = m;
            square[i] = v;
            w[i] = old - step * m / (sqrtf(v) + small);
        }
    } else if (o->kind == SGD) {
        const float momentum = (float)o->momentum;
        SIMD for (long i = start; i < stop; i++) {
            float x = g[i] * clip + decay * w[i];
            if (momentum != 0.0f) x = mean[i] = momentum * mean[i] + x;
            w[i] -= lr * x;
        }
    } else {
        const float kept = 0.99f, is_tf = o->kind == RMSPROP_TF;
        SIMD for (long i = start; i < stop; i++) {
            float x = g[i] * clip + decay * w[i], v = kept * square[i] + (1.0f - kept) * x * x;
            square[i] = v;
            w[i] -= lr * x / (is_tf ? sqrtf(v + eps) : sqrtf(v) + eps);
        }
    }
    if (target) {
        const float tau = (float)o->tau;
        SIMD for (long i = start; i < stop; i++) target[i] += tau * (w[i] - target[i]);
    }
}

static double descend_flushed(Optimizer *o, float *g) {
    Step s = {o, g, 1.0f};
    const long parts = stretches(o->size);
    if (o->max_value <= 0 && o->max_norm <= 0) { /* the step does not depend on the norm */
        o->n_steps++;
        return norm_by(step_stretch, &s);
    }
    double norm = norm_by(square_stretch, &s), left = norm;
    if (o->max_value > 0) {
        in_parts(clamp_stretch, &s, parts, o->threads);
        left = norm_by(square_stretch, &s);
    }
    if (o->max_norm > 0 && left > o->max_norm) s.clip = (float)(o->max_norm / (left + 1e-6));
    o->n_steps++;
    in_parts(step_stretch, &s, parts, o->threads);
    return norm;
}
