/* MountainCar-v0: a car too weak for a hill must swing up. As Gymnasium's MountainCarEnv, in double
 * precision (Moore 1990). */
#include "gsolve_env.h"

#define N_ACTIONS 3
#define ACTION_NAMES "left", "none", "right"
#define REWARD_LOW -1
#define REWARD_HIGH -1
#define MAX_STEPS 200
#define SOLVED -110

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

#include "mountain.h" /* observe and render */
