/* Observations are (episode, step): a random number of the episode, and how many steps it has had.
 * Episodes have 3 to 6 steps. */
#include "gsolve_env.h"

#define OBS_SHAPE 2
#define OBS_LOW 0
#define N_ACTIONS 2
#define REWARD_LOW 1
#define REWARD_HIGH 1
#define MAX_STEPS 1000

typedef struct {
    int episode, steps, length;
} State;

void reset(State *s, Rng *rng) {
    s->episode = rng_below(rng, 1 << 20);
    s->length = 3 + rng_below(rng, 4);
}

bool step(State *s, int action, float *reward, Rng *rng) {
    *reward = 1;
    return ++s->steps >= s->length;
}

void observe(const State *s, float *obs) { obs[0] = s->episode, obs[1] = s->steps; }
