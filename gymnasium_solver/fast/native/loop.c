
/* After run.c, in programs with gradients: optimiser steps, alone or with gradients. */
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
