/* Keys: two rooms and a locked door between them. Walk to the key, through the door, to the treasure.
 * Key, door, treasure and start are somewhere else in each episode. Only the treasure pays: 1, and up
 * to 0.9 less the longer it took. */
#include "gsolve_env.h"

#define SIZE 8
#define CELL 28 /* pixels */

#define OBS_SHAPE 17
#define OBS_LOW -1
#define OBS_HIGH 1
#define N_ACTIONS 4
#define ACTION_NAMES "up", "right", "down", "left"
#define REWARD_LOW 0
#define REWARD_HIGH 1
#define MAX_STEPS 150
#define SOLVED 0.85
#define FRAME_WIDTH (SIZE * CELL)
#define FRAME_HEIGHT (SIZE * CELL)
#define FPS 8

typedef struct {
    int x, y;
} Place;

typedef struct {
    Place agent, key, door, treasure;
    int wall; /* the column between the rooms */
    int steps;
    bool has_key, is_open;
} State;

static const int MOVE_X[] = {0, 1, 0, -1}, MOVE_Y[] = {-1, 0, 1, 0};

static bool is_same(Place a, Place b) { return a.x == b.x && a.y == b.y; }

/* A random place between two columns, the last one included. */
static Place somewhere(Rng *rng, int first, int last) {
    return (Place){first + rng_below(rng, last - first + 1), rng_below(rng, SIZE)};
}

void reset(State *s, Rng *rng) {
    s->wall = 2 + rng_below(rng, SIZE - 4);
    s->door = (Place){s->wall, rng_below(rng, SIZE)};
    s->agent = somewhere(rng, 0, s->wall - 1);
    do s->key = somewhere(rng, 0, s->wall - 1);
    while (is_same(s->key, s->agent));
    s->treasure = somewhere(rng, s->wall + 1, SIZE - 1);
}

static bool is_blocked(const State *s, Place to) {
    if (to.x < 0 || to.y < 0 || to.x >= SIZE || to.y >= SIZE) return true;
    if (to.x != s->wall) return false;
    return !is_same(to, s->door) || !(s->is_open || s->has_key);
}

bool step(State *s, int action, float *reward, Rng *rng) {
    const Place to = {s->agent.x + MOVE_X[action], s->agent.y + MOVE_Y[action]};
    s->steps++;
    if (is_blocked(s, to)) return false;
    s->agent = to;
    if (is_same(to, s->key)) s->has_key = true;
    if (is_same(to, s->door)) s->is_open = true;
    if (!is_same(to, s->treasure)) return false;
    *reward = 1.0f - 0.9f * s->steps / MAX_STEPS;
    return true;
}

void observe(const State *s, float *obs) {
    const Place aims[] = {s->key, s->door, s->treasure};
    for (int i = 0; i < 3; i++) {
        obs[4 * i] = (aims[i].x - s->agent.x) / (float)SIZE;
        obs[4 * i + 1] = (aims[i].y - s->agent.y) / (float)SIZE;
        obs[4 * i + 2] = (aims[i].x > s->agent.x) - (aims[i].x < s->agent.x);
        obs[4 * i + 3] = (aims[i].y > s->agent.y) - (aims[i].y < s->agent.y);
    }
    obs[12] = s->has_key;
    for (int i = 0; i < 4; i++)
        obs[13 + i] = is_blocked(s, (Place){s->agent.x + MOVE_X[i], s->agent.y + MOVE_Y[i]});
}

void render(const State *s, Canvas *canvas) {
    draw_background(canvas, 0xe9edc9);
    for (int y = 0; y < SIZE; y++) draw_box(canvas, s->wall * CELL, y * CELL, CELL, CELL, 0x6c584c);
    draw_box(canvas, s->door.x * CELL, s->door.y * CELL, CELL, CELL, s->is_open ? 0xe9edc9 : 0xdda15e);
    draw_box(canvas, s->treasure.x * CELL + 4, s->treasure.y * CELL + 8, CELL - 8, CELL - 12, 0x9d4edd);
    draw_box(canvas, s->treasure.x * CELL + 4, s->treasure.y * CELL + 14, CELL - 8, 3, 0xffd166);
    if (!s->has_key) {
        const int x = s->key.x * CELL, y = s->key.y * CELL + CELL / 2;
        draw_disc(canvas, x + 9, y, 5, 0xe0a100);
        draw_box(canvas, x + 12, y - 1, 12, 3, 0xe0a100);
        draw_box(canvas, x + 20, y, 3, 6, 0xe0a100);
    }
    draw_disc(canvas, (s->agent.x + 0.5) * CELL, (s->agent.y + 0.5) * CELL, 10, 0x1d3557);
    if (s->has_key) draw_disc(canvas, (s->agent.x + 0.5) * CELL, (s->agent.y + 0.5) * CELL, 4, 0xe0a100);
}
