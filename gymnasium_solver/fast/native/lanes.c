/* ---- sums of lanes ------------------------------------------------------------------------ */
typedef struct { float *sums; long lanes, stride, size; } LaneSums;

static void sum_stretch(void *with, long part, long thread) {
    const LaneSums *s = with;
    const long start = part * STRETCH, stop = stretch_end(part, s->size);
    enum { WIDTH = 64, N = WIDTH / VECTOR }; /* floats that stay in registers while the lanes are added */
    float *to = s->sums;
    long i = start;
    for (; i + WIDTH <= stop; i += WIDTH) {
        wide total[N];
        memcpy(total, to + i, sizeof(total));
        for (long lane = 1; lane < s->lanes; lane++) {
            const wide *from = (const wide *)(to + lane * s->stride + i);
            UNROLL for (int j = 0; j < N; j++) total[j] += from[j];
        }
        memcpy(to + i, total, sizeof(total));
    }
    for (; i < stop; i++)
        for (long lane = 1; lane < s->lanes; lane++) to[i] += to[lane * s->stride + i];
}

void sum_lanes(const Call *c, long lanes, long stride, long start, long size) {
    LaneSums s = {c->sums + start, lanes, stride, size};
    if (lanes > 1) in_parts(sum_stretch, &s, stretches(size), c->threads);
}
