/* Snake: eat, grow, and bite neither the wall nor yourself. A meal pays 1, death -1. Without a meal
 * for HUNGER steps the snake starves. The snake sees along eight rays from its head: how near wall,
 * body and food are. */
#include "gsolve_env.h"

#define SIZE 10
#define CELLS (SIZE * SIZE)
#define HUNGER 100
#define CELL 20 /* pixels */

#define OBS_SHAPE 30
#define OBS_LOW -1
#define OBS_HIGH 1
#define N_ACTIONS 4
#define ACTION_NAMES "up", "right", "down", "left"
#define REWARD_LOW -1
#define REWARD_HIGH 1
#define MAX_STEPS 2000
#define SOLVED 20
#define FRAME_WIDTH (SIZE * CELL)
#define FRAME_HEIGHT (SIZE * CELL)
#define FPS 10

typedef struct {
    uint8_t body[CELLS]; /* a ring of cells, the tail first */
    bool is_body[CELLS];
    int tail, length;
    int head, heading, food, hunger;
} State;

static const int RAY_X[] = {0, 1, 0, -1, 1, 1, -1, -1}, RAY_Y[] = {-1, 0, 1, 0, -1, 1, 1, -1};

static bool is_outside(int x, int y) { return x < 0 || y < 0 || x >= SIZE || y >= SIZE; }

static void grow(State *s, int cell) {
    s->body[(s->tail + s->length++) % CELLS] = cell;
    s->is_body[cell] = true;
    s->head = cell;
}

static void place_food(State *s, Rng *rng) {
    int free = rng_below(rng, CELLS - s->length), cell = 0;
    while (s->is_body[cell] || free-- > 0) cell++;
    s->food = cell;
}

void reset(State *s, Rng *rng) {
    const int row = SIZE / 2;
    for (int x = 2; x <= 4; x++) grow(s, row * SIZE + x);
    s->heading = 1;
    place_food(s, rng);
}

bool step(State *s, int action, float *reward, Rng *rng) {
    if (action != (s->heading + 2) % 4) s->heading = action; /* no turn on the spot */
    const int x = s->head % SIZE + RAY_X[s->heading], y = s->head / SIZE + RAY_Y[s->heading];
    const int cell = y * SIZE + x;
    const bool eats = !is_outside(x, y) && cell == s->food;
    if (!eats) { /* the tail moves on before the head does */
        s->is_body[s->body[s->tail]] = false;
        s->tail = (s->tail + 1) % CELLS;
        s->length--;
    }
    if (is_outside(x, y) || s->is_body[cell] || ++s->hunger > HUNGER) {
        *reward = -1;
        return true;
    }
    grow(s, cell);
    if (!eats) return false;
    *reward = 1;
    s->hunger = 0;
    if (s->length == CELLS) return true;
    place_food(s, rng);
    return false;
}

void observe(const State *s, float *obs) {
    const int x = s->head % SIZE, y = s->head / SIZE;
    for (int ray = 0; ray < 8; ray++) {
        float wall = 0, body = 0, food = 0;
        for (int far = 1; far <= SIZE; far++) {
            const int column = x + far * RAY_X[ray], row = y + far * RAY_Y[ray];
            if (is_outside(column, row)) {
                wall = 1.0f / far;
                break;
            }
            if (s->is_body[row * SIZE + column] && !body) body = 1.0f / far;
            if (row * SIZE + column == s->food) food = 1;
        }
        obs[3 * ray] = wall, obs[3 * ray + 1] = body, obs[3 * ray + 2] = food;
    }
    obs[24] = (s->food % SIZE - x) / (float)SIZE, obs[25] = (s->food / SIZE - y) / (float)SIZE;
    for (int i = 0; i < 4; i++) obs[26 + i] = s->heading == i;
}

void render(const State *s, Canvas *canvas) {
    draw_background(canvas, 0x14213d);
    draw_disc(canvas, (s->food % SIZE + 0.5) * CELL, (s->food / SIZE + 0.5) * CELL, 7, 0xe63946);
    for (int i = 0; i < s->length; i++) {
        const int cell = s->body[(s->tail + i) % CELLS];
        draw_box(canvas, cell % SIZE * CELL + 1, cell / SIZE * CELL + 1, CELL - 2, CELL - 2,
                 cell == s->head ? 0xa7e163 : 0x52b788);
    }
}
