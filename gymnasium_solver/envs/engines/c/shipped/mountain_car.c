/* MountainCar-v0: a car too weak for a hill must swing up. As Gymnasium's MountainCarEnv, in double
 * precision (Moore 1990). */
#include "gsolve_env.h"

#define OBS_SHAPE 2
#define OBS_NAMES "position", "velocity"
#define OBS_LOW LEFT_END, -MAX_SPEED
#define OBS_HIGH RIGHT_END, MAX_SPEED
#define N_ACTIONS 3
#define ACTION_NAMES "left", "none", "right"
#define REWARD_LOW -1
#define REWARD_HIGH -1
#define MAX_STEPS 200
#define SOLVED -110
#define FRAME_WIDTH 300
#define FRAME_HEIGHT 200

#define LEFT_END -1.2
#define RIGHT_END 0.6
#define MAX_SPEED 0.07
#define GOAL 0.5
#define FORCE 0.001
#define GRAVITY 0.0025

typedef struct {
    double position, velocity;
} State;

void reset(State *s, Rng *rng) { s->position = rng_uniform(rng, -0.6, -0.4); }

bool step(State *s, int action, float *reward, Rng *rng) {
    s->velocity += (action - 1) * FORCE + cos(3 * s->position) * -GRAVITY;
    s->velocity = fmin(fmax(s->velocity, -MAX_SPEED), MAX_SPEED);
    s->position = fmin(fmax(s->position + s->velocity, LEFT_END), RIGHT_END);
    if (s->position == LEFT_END && s->velocity < 0) s->velocity = 0;
    *reward = -1.0f;
    return s->position >= GOAL && s->velocity >= 0;
}

void observe(const State *s, float *obs) {
    obs[0] = (float)s->position, obs[1] = (float)s->velocity;
}

static double x_of(double position) {
    return (position - LEFT_END) / (RIGHT_END - LEFT_END) * FRAME_WIDTH;
}

static double y_of(double position) {
    return FRAME_HEIGHT - (sin(3 * position) * 0.45 + 0.55) * FRAME_WIDTH / (RIGHT_END - LEFT_END);
}

void render(const State *s, Canvas *canvas) {
    draw_background(canvas, 0xffffff);
    for (double p = LEFT_END; p < RIGHT_END; p += 0.02)
        draw_line(canvas, x_of(p), y_of(p), x_of(p + 0.02), y_of(p + 0.02), 1, 0x000000);
    draw_line(canvas, x_of(GOAL), y_of(GOAL), x_of(GOAL), y_of(GOAL) - 25, 1, 0x000000);
    draw_box(canvas, (int)x_of(GOAL), (int)y_of(GOAL) - 25, 12, 8, 0xcccc00);
    draw_disc(canvas, x_of(s->position), y_of(s->position) - 8, 8, 0x202020);
}
