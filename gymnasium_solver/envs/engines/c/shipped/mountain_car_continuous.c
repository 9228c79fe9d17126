/* MountainCarContinuous-v0: a car too weak for a hill must swing up, and force costs. As Gymnasium's
 * Continuous_MountainCarEnv, which keeps its state in single precision after the first step. */
#include "gsolve_env.h"

#define ACTION_SIZE 1
#define ACTION_NAMES "force"
#define REWARD_LOW -0.1
#define REWARD_HIGH 100
#define MAX_STEPS 999
#define SOLVED 90

#define LEFT_END -1.2f
#define RIGHT_END 0.6f
#define MAX_SPEED 0.07f
#define GOAL 0.45f
#define POWER 0.0015f

typedef struct {
    double position;
    float velocity;
    bool has_moved; /* then the position is in single precision too */
} State;

void reset(State *s, Rng *rng) { s->position = rng_uniform(rng, -0.6, -0.4); }

bool step(State *s, const float *action, float *reward, Rng *rng) {
    const double angle = 3 * s->position, slope = cos(s->has_moved ? (float)angle : angle);
    s->velocity += action[0] * POWER - (float)(0.0025 * slope);
    s->velocity = fminf(fmaxf(s->velocity, -MAX_SPEED), MAX_SPEED);
    s->position = fminf(fmaxf((float)(s->position + s->velocity), LEFT_END), RIGHT_END);
    s->has_moved = true;
    if (s->position == LEFT_END && s->velocity < 0) s->velocity = 0;
    const bool is_there = s->position >= GOAL && s->velocity >= 0;
    *reward = (float)((is_there ? 100.0 : 0.0) - (double)action[0] * action[0] * 0.1);
    return is_there;
}

#include "mountain.h" /* observe and render */
