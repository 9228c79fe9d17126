/* Pendulum-v1: swing a pendulum up and hold it there. As Gymnasium's PendulumEnv, in double precision
 * with the torque in single precision. */
#include "gsolve_env.h"

#define OBS_SHAPE 3
#define OBS_NAMES "cos", "sin", "velocity"
#define OBS_LOW -1, -1, -MAX_SPEED
#define OBS_HIGH 1, 1, MAX_SPEED
#define ACTION_SIZE 1
#define ACTION_NAMES "torque"
#define ACTION_LOW -2
#define ACTION_HIGH 2
#define REWARD_LOW -16.2736044
#define REWARD_HIGH 0
#define MAX_STEPS 200
#define FRAME_WIDTH 250
#define FRAME_HEIGHT 250

#define MAX_SPEED 8.0
#define GRAVITY 10.0
#define SECONDS 0.05

typedef struct {
    double angle, velocity; /* 0: upright */
} State;

void reset(State *s, Rng *rng) {
    s->angle = rng_uniform(rng, -M_PI, M_PI);
    s->velocity = rng_uniform(rng, -1.0, 1.0);
}

static double wrapped(double angle) {
    const double turned = fmod(angle + M_PI, 2 * M_PI);
    return (turned < 0 ? turned + 2 * M_PI : turned) - M_PI;
}

bool step(State *s, const float *action, float *reward, Rng *rng) {
    const float torque = action[0];
    const double away = wrapped(s->angle);
    const double cost =
        away * away + 0.1 * (s->velocity * s->velocity) + 0.001f * (torque * torque);
    s->velocity += (3 * GRAVITY / 2 * sin(s->angle) + 3.0f * torque) * SECONDS;
    s->velocity = fmin(fmax(s->velocity, -MAX_SPEED), MAX_SPEED);
    s->angle += s->velocity * SECONDS;
    *reward = (float)-cost;
    return false;
}

void observe(const State *s, float *obs) {
    obs[0] = (float)cos(s->angle), obs[1] = (float)sin(s->angle), obs[2] = (float)s->velocity;
}

void render(const State *s, Canvas *canvas) {
    const double middle = FRAME_WIDTH / 2.0, length = FRAME_WIDTH / 2.2 * 0.9;
    draw_background(canvas, 0xffffff);
    draw_line(canvas, middle, middle, middle - length * sin(s->angle),
              middle - length * cos(s->angle), 18, 0xcc4d4d);
    draw_disc(canvas, middle, middle, 4, 0x000000);
}
