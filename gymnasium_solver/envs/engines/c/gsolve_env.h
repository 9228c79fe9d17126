/* Write an environment as one C file:
 *
 *     #include "gsolve_env.h"
 *
 *     #define OBS_SHAPE 2               // numbers of an observation; 3, 10, 10 for planes
 *     #define N_ACTIONS 3               // actions are 0, 1, 2
 *     #define MAX_STEPS 200             // longer episodes are truncated
 *
 *     typedef struct { float position, speed; } State;
 *
 *     void reset(State *s, Rng *rng);                                   // begin an episode
 *     bool step(State *s, int action, float *reward, Rng *rng);         // true: it has terminated
 *     void observe(const State *s, float *obs);                         // what the agent sees
 *
 * and train it: gsolve train my_env.c. The engine calls `reset` with a state of zeros, `observe`
 * after each `reset` and `step`, and `step` with a reward of 0. It counts steps, truncates at
 * MAX_STEPS and resets after the end of an episode.
 *
 * A State is saved and restored byte by byte, so it must hold its numbers itself: no pointers, no
 * file handles, no static variables that change. Random numbers come from `rng` alone, one stream
 * for each environment: then a seed repeats a run, on any number of threads (env_kwargs: threads).
 *
 * What a file may define besides (all in docs/c_environments.md):
 *
 *     OBS_TYPE uint8_t                  float if not given
 *     OBS_LOW, OBS_HIGH                 bounds, one number or one for each: #define OBS_LOW -1, -5
 *     OBS_PARTS {"board", 9}, {"me", 2} observations are a dict of these, which stand one after
 *                                       another in obs
 *     ACTION_SIZE 2                     in place of N_ACTIONS: real numbers, `const float *action`
 *     ACTION_LOW, ACTION_HIGH           their bounds, which the engine clips to; -1 and 1
 *     ACTION_NAMES "left", "right"      for people; OBS_NAMES likewise
 *     REWARD_LOW, REWARD_HIGH           what a step pays at least and at most
 *     SOLVED 475                        mean return at which the task counts as solved
 *     FRAME_WIDTH, FRAME_HEIGHT         with `void render(const State *s, Canvas *canvas)`
 *     FPS 30                            frames a second of videos
 *     HAS_MASK                          with `void mask(const State *s, bool *legal)`, which gets
 *                                       N_ACTIONS values, all true, and clears those of illegal
 *                                       actions
 */
#ifndef GSOLVE_ENV_H
#define GSOLVE_ENV_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* -- random numbers: splitmix64 (Steele, Lea and Flood 2014) -------------------------------------- */

typedef struct {
    uint64_t state;
} Rng;

/* 64 random bits. */
static inline uint64_t rng_bits(Rng *rng) {
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A real number from low (included) to high (not included). */
static inline double rng_uniform(Rng *rng, double low, double high) {
    return low + (high - low) * ((rng_bits(rng) >> 11) * 0x1p-53);
}

/* A whole number from 0 to n - 1. */
static inline int rng_below(Rng *rng, int n) {
    return (int)(((rng_bits(rng) >> 32) * (uint64_t)n) >> 32);
}

/* A normal number with mean 0 and standard deviation 1. */
static inline double rng_normal(Rng *rng) {
    const double u = 1.0 - rng_uniform(rng, 0.0, 1.0), v = rng_uniform(rng, 0.0, 1.0);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* -- drawing: colours are 0xRRGGBB, x goes right and y goes down; what is outside is left out ------ */

typedef struct {
    uint8_t *rgb; /* [height][width][3] */
    int width, height;
} Canvas;

static inline void draw_box(Canvas *c, int x, int y, int width, int height, uint32_t colour) {
    for (int row = y < 0 ? 0 : y; row < y + height && row < c->height; row++)
        for (int column = x < 0 ? 0 : x; column < x + width && column < c->width; column++) {
            uint8_t *pixel = c->rgb + 3 * (row * c->width + column);
            pixel[0] = colour >> 16, pixel[1] = colour >> 8 & 255, pixel[2] = colour & 255;
        }
}

static inline void draw_background(Canvas *c, uint32_t colour) {
    draw_box(c, 0, 0, c->width, c->height, colour);
}

static inline void draw_disc(Canvas *c, double x, double y, double radius, uint32_t colour) {
    for (int row = (int)floor(y - radius); row <= y + radius; row++) {
        const double square = radius * radius - (row + 0.5 - y) * (row + 0.5 - y);
        if (square <= 0.0) continue;
        const int first = (int)lround(x - sqrt(square)), last = (int)lround(x + sqrt(square));
        draw_box(c, first, row, last - first, 1, colour);
    }
}

static inline void draw_line(Canvas *c, double x0, double y0, double x1, double y1, double width,
                             uint32_t colour) {
    const int n = 1 + (int)fmax(fabs(x1 - x0), fabs(y1 - y0));
    const double radius = fmax(width / 2, 0.8);
    for (int i = 0; i <= n; i++)
        draw_disc(c, x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n, radius, colour);
}

/* A whole number >= 0 in digits of 3 x 5 boxes of `size` pixels, from the left; returns its width. */
static inline int draw_number(Canvas *c, int x, int y, int size, long number, uint32_t colour) {
    static const uint16_t digits[] = {075557, 026227, 071747, 071717, 055711,
                                      074717, 074757, 071244, 075757, 075717};
    const int start = x;
    long unit = 1;
    while (number / unit >= 10) unit *= 10;
    for (; unit; unit /= 10, x += 4 * size) {
        const uint16_t bits = digits[number / unit % 10];
        for (int i = 0; i < 15; i++)
            if (bits >> (14 - i) & 1)
                draw_box(c, x + i % 3 * size, y + i / 3 * size, size, size, colour);
    }
    return x - size - start;
}

#endif
