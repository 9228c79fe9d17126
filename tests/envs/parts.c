/* Observations are a dict. The reward is 1 for the action that `goal` showed before the step; masks
 * leave two actions. */
#include "gsolve_env.h"

#define OBS_SHAPE 7
#define OBS_PARTS {"seen", 3}, {"clock", 1}, {"goal", 3}
#define OBS_LOW 0
#define OBS_HIGH 1, 1, 1, 20, 1, 1, 1
#define N_ACTIONS 3
#define MAX_STEPS 20
#define HAS_MASK

typedef struct {
    int goal, at, steps;
} State;

void reset(State *s, Rng *rng) {
    s->goal = rng_below(rng, 3);
    s->at = rng_below(rng, 3);
}

bool step(State *s, int action, float *reward, Rng *rng) {
    s->steps++;
    s->at = action;
    *reward = action == s->goal;
    s->goal = rng_below(rng, 3);
    return rng_below(rng, 10) == 0;
}

void observe(const State *s, float *obs) {
    for (int k = 0; k < 3; k++) obs[k] = s->at == k, obs[4 + k] = s->goal == k;
    obs[3] = s->steps;
}

void mask(const State *s, bool *legal) { legal[(s->goal + 1) % 3] = false; }
