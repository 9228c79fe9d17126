/* What the engine (engine.py) compiles after an environment's file: N copies stepped in one call,
 * with NEXT_STEP autoreset, and the facts of the file as data. */
#ifndef OBS_SHAPE
#error "define OBS_SHAPE, the numbers of an observation: #define OBS_SHAPE 4"
#endif
#if defined(N_ACTIONS) == defined(ACTION_SIZE)
#error "define either N_ACTIONS (a choice: 0, 1, ...) or ACTION_SIZE (real numbers)"
#endif
#ifndef MAX_STEPS
#error "define MAX_STEPS, after which an episode is truncated: #define MAX_STEPS 500"
#endif
#if defined(FRAME_WIDTH) != defined(FRAME_HEIGHT)
#error "define both FRAME_WIDTH and FRAME_HEIGHT, or neither"
#endif
#if defined(HAS_MASK) && !defined(N_ACTIONS)
#error "HAS_MASK needs N_ACTIONS: real numbers have no masks"
#endif
#ifndef OBS_TYPE
#define OBS_TYPE float
#endif
#ifndef OBS_LOW
#define OBS_LOW (sizeof(OBS_TYPE) == 1 ? 0.0 : -INFINITY)
#endif
#ifndef OBS_HIGH
#define OBS_HIGH (sizeof(OBS_TYPE) == 1 ? 255.0 : INFINITY)
#endif
#ifndef ACTION_LOW
#define ACTION_LOW -1.0
#endif
#ifndef ACTION_HIGH
#define ACTION_HIGH 1.0
#endif
#ifndef REWARD_LOW
#define REWARD_LOW -INFINITY
#endif
#ifndef REWARD_HIGH
#define REWARD_HIGH INFINITY
#endif
#ifndef SOLVED
#define SOLVED NAN
#endif
#ifndef FPS
#define FPS 30
#endif
#ifndef ACTION_NAMES
#define ACTION_NAMES 0
#endif
#ifndef OBS_NAMES
#define OBS_NAMES 0
#endif
#ifndef OBS_PARTS
#define OBS_PARTS {0, 0}
#endif
#ifndef FRAME_WIDTH
#define FRAME_WIDTH 0
#define FRAME_HEIGHT 0
#define render(state, canvas) ((void)(canvas))
#endif
#ifdef HAS_MASK
#define GSOLVE_MASK 1
#else
#define GSOLVE_MASK 0
#define mask(state, legal) ((void)(legal))
#endif
#ifdef N_ACTIONS
#define ACTION_SIZE 0
typedef int64_t gsolve_action;
#else
#define N_ACTIONS 0
typedef float gsolve_action;
#endif

_Static_assert(_Generic((OBS_TYPE)0, float: 1, uint8_t: 1, default: 0),
               "OBS_TYPE must be float or uint8_t");

typedef OBS_TYPE gsolve_obs;
static const int64_t gsolve_shape[] = {OBS_SHAPE};
static const double gsolve_obs_low[] = {OBS_LOW}, gsolve_obs_high[] = {OBS_HIGH};
static const double gsolve_low[] = {ACTION_LOW}, gsolve_high[] = {ACTION_HIGH};
static const char *const gsolve_action_names[] = {ACTION_NAMES};
static const char *const gsolve_obs_names[] = {OBS_NAMES};

/* A part of an observation: its name, and how many numbers it has. */
typedef struct {
    const char *name;
    int64_t size;
} gsolve_obs_part;

static const gsolve_obs_part gsolve_obs_parts[] = {OBS_PARTS};
#define GSOLVE_N_PARTS (sizeof(gsolve_obs_parts) / sizeof(gsolve_obs_parts[0]))
#define GSOLVE_MOST_PARTS 16
_Static_assert(GSOLVE_N_PARTS <= GSOLVE_MOST_PARTS, "OBS_PARTS has more than 16 parts");

/* A list of numbers or texts. */
typedef struct {
    int64_t n;
    const void *items;
} gsolve_list;

#define GSOLVE_LIST(array) {sizeof(array) / sizeof((array)[0]), (array)}

typedef struct {
    int64_t is_bytes, n_actions, action_size, max_steps, frame_width, frame_height, fps, has_mask;
    int64_t state_bytes;
    double reward_low, reward_high, solved;
    gsolve_list shape, obs_low, obs_high, low, high, action_names, obs_names, obs_parts;
} gsolve_facts;

struct gsolve_envs;

/* Only this is seen from outside: `step` of an environment is not that of the C library. */
#pragma GCC visibility push(default)
const gsolve_facts gsolve_about = {
    sizeof(OBS_TYPE) == 1, N_ACTIONS, ACTION_SIZE, MAX_STEPS, FRAME_WIDTH, FRAME_HEIGHT, FPS,
    GSOLVE_MASK, sizeof(State), REWARD_LOW, REWARD_HIGH, SOLVED,
    GSOLVE_LIST(gsolve_shape), GSOLVE_LIST(gsolve_obs_low), GSOLVE_LIST(gsolve_obs_high),
    GSOLVE_LIST(gsolve_low), GSOLVE_LIST(gsolve_high), GSOLVE_LIST(gsolve_action_names),
    GSOLVE_LIST(gsolve_obs_names), GSOLVE_LIST(gsolve_obs_parts),
};
int64_t gsolve_step(struct gsolve_envs *);
void gsolve_reset(struct gsolve_envs *, const uint64_t *), gsolve_observe(struct gsolve_envs *);
void gsolve_render(struct gsolve_envs *, int64_t, uint8_t *);
#pragma GCC visibility pop

typedef struct gsolve_envs {
    int64_t n, max_steps, obs_size, threads;
    void (*in_parts)(void (*)(void *, long, long), void *, long, long); /* a pool of threads */
    State *state;                                                       /* of each copy */
    Rng *rng;
    int64_t *length; /* steps of the episode */
    uint8_t *done;   /* the episode is over: the next row opens another one */
    const double *low, *high, *centre, *scale; /* of actions; see gsolve_one */
    const State *fresh;                        /* of the episodes that begin next, if given */
    const gsolve_obs *fresh_obs;               /* and what is seen of them */
    const gsolve_action *actions;              /* from here on: a row of each */
    gsolve_obs *obs;
    float *reward;
    uint8_t *terminated, *truncated;
    bool *legal;
    gsolve_obs *parts[GSOLVE_MOST_PARTS]; /* where the parts of obs go too, if the first is given */
} gsolve_envs;

static inline void gsolve_begin(gsolve_envs *e, int64_t i) {
    if (e->fresh) {
        e->state[i] = *e->fresh++;
    } else {
        memset(&e->state[i], 0, sizeof(State));
        reset(&e->state[i], &e->rng[i]);
    }
    e->length[i] = 0;
    e->done[i] = 0;
}

/* At the end of an episode nothing needs to be legal: then all is, for the action of a reset row. */
static inline void gsolve_any_legal(bool *legal) {
    for (int k = 0; k < N_ACTIONS; k++)
        if (legal[k]) return;
    for (int k = 0; k < N_ACTIONS; k++) legal[k] = true;
}

static inline void gsolve_show(gsolve_envs *e, int64_t i) {
    gsolve_obs *obs = e->obs + i * e->obs_size;
    observe(&e->state[i], obs);
    for (size_t k = 0; e->parts[0] && k < GSOLVE_N_PARTS; obs += gsolve_obs_parts[k++].size) {
        const int64_t size = gsolve_obs_parts[k].size;
        memcpy(e->parts[k] + i * size, obs, size * sizeof(gsolve_obs));
    }
    if (GSOLVE_MASK) {
        bool *legal = e->legal + i * N_ACTIONS;
        for (int k = 0; k < N_ACTIONS; k++) legal[k] = true;
        mask(&e->state[i], legal);
        if (e->done[i]) gsolve_any_legal(legal);
    }
}

/* What the agent is shown of each copy. */
void gsolve_observe(gsolve_envs *e) {
    for (int64_t i = 0; i < e->n; i++) gsolve_show(e, i);
}

/* A new episode in each copy, with random numbers from these seeds. */
void gsolve_reset(gsolve_envs *e, const uint64_t *seeds) {
    for (int64_t i = 0; i < e->n; i++) {
        e->rng[i].state = seeds[i];
        gsolve_begin(e, i);
    }
    gsolve_observe(e);
}

/* A step of a copy; its action is an int or, with ACTION_SIZE, an array. Arrays are clipped to the
 * bounds, and before that brought from [-1, 1] to them if `scale` is given: a policy's own units. */
static inline bool gsolve_one(gsolve_envs *e, int64_t i, float *reward) {
#if ACTION_SIZE
    float given[ACTION_SIZE];
    for (int k = 0; k < ACTION_SIZE; k++) {
        float x = e->actions[i * ACTION_SIZE + k];
        if (e->scale) x = (float)e->centre[k] + (float)e->scale[k] * fminf(fmaxf(x, -1.0f), 1.0f);
        given[k] = fminf(fmaxf(x, (float)e->low[k]), (float)e->high[k]);
    }
    return step(&e->state[i], given, reward, &e->rng[i]);
#else
    return step(&e->state[i], (int)e->actions[i], reward, &e->rng[i]);
#endif
}

/* A step of some copies, those of a thread. Each has its own state and random numbers. */
static void gsolve_part(void *envs, long part, long thread) {
    gsolve_envs *e = envs;
    for (int64_t i = e->n * part / e->threads; i < e->n * (part + 1) / e->threads; i++) {
        float reward = 0.0f;
        bool terminated = false, truncated = false;
        const bool is_reset = e->done[i];
        if (is_reset) {
            gsolve_begin(e, i);
        } else {
            terminated = gsolve_one(e, i, &reward);
            truncated = ++e->length[i] >= e->max_steps;
        }
        e->reward[i] = reward;
        e->terminated[i] = terminated;
        e->truncated[i] = truncated;
        e->done[i] = terminated | truncated;
        gsolve_show(e, i);
        if (is_reset && e->fresh_obs) {
            memcpy(e->obs + i * e->obs_size, e->fresh_obs, e->obs_size * sizeof(gsolve_obs));
            e->fresh_obs += e->obs_size;
        }
    }
}

/* Returns how many copies are done. */
int64_t gsolve_step(gsolve_envs *e) {
    if (e->threads > 1) e->in_parts(gsolve_part, e, e->threads, e->threads);
    else gsolve_part(e, 0, 0);
    int64_t n_done = 0;
    for (int64_t i = 0; i < e->n; i++) n_done += e->done[i];
    return n_done;
}

void gsolve_render(gsolve_envs *e, int64_t i, uint8_t *rgb) {
    Canvas canvas = {rgb, FRAME_WIDTH, FRAME_HEIGHT};
    render(&e->state[i], &canvas);
}
