/* 2048: slide all tiles to one side; two equal ones become one of twice the value, which is what the
 * move pays. After each move a 2 appears, or a 4 in one case of ten. The game is over when no move
 * changes the board. Moves that change nothing are illegal (masks). The agent sees for each cell
 * which tile is there, one-hot. */
#include "gsolve_env.h"

#define SIZE 4
#define CELLS (SIZE * SIZE)
#define KINDS 16 /* empty, 2, 4, ... 2^15 */
#define CELL 60  /* pixels */

#define OBS_SHAPE (CELLS * KINDS)
#define OBS_LOW 0
#define OBS_HIGH 1
#define N_ACTIONS 4
#define ACTION_NAMES "up", "right", "down", "left"
#define REWARD_LOW 0
#define MAX_STEPS 10000
#define HAS_MASK
#define FRAME_WIDTH (SIZE * CELL)
#define FRAME_HEIGHT (SIZE * CELL)
#define FPS 6

typedef struct {
    uint8_t board[CELLS]; /* 0: empty; k: a tile of 2^k */
} State;

/* Cell number i of a line, from the side that tiles slide to. */
static int cell_at(int action, int line, int i) {
    switch (action) {
        case 0: return i * SIZE + line;
        case 1: return line * SIZE + SIZE - 1 - i;
        case 2: return (SIZE - 1 - i) * SIZE + line;
        default: return line * SIZE + i;
    }
}

/* Slide all tiles; whether any has moved. */
static bool slide(State *s, int action, float *points) {
    bool has_moved = false;
    for (int line = 0; line < SIZE; line++) {
        uint8_t slid[SIZE] = {0};
        int n = 0;
        bool can_merge = false;
        for (int i = 0; i < SIZE; i++) {
            const uint8_t tile = s->board[cell_at(action, line, i)];
            if (!tile) continue;
            if (can_merge && slid[n - 1] == tile && tile < KINDS - 1) {
                *points += 1 << ++slid[n - 1];
                can_merge = false; /* a tile merges once in a move */
            } else {
                slid[n++] = tile;
                can_merge = true;
            }
        }
        for (int i = 0; i < SIZE; i++) {
            uint8_t *cell = &s->board[cell_at(action, line, i)];
            has_moved |= *cell != slid[i];
            *cell = slid[i];
        }
    }
    return has_moved;
}

static bool is_legal(const State *s, int action) {
    State copy = *s;
    float points = 0;
    return slide(&copy, action, &points);
}

static void add_tile(State *s, Rng *rng) {
    int n_free = 0;
    for (int i = 0; i < CELLS; i++) n_free += !s->board[i];
    int skip = rng_below(rng, n_free), cell = 0;
    while (s->board[cell] || skip-- > 0) cell++;
    s->board[cell] = rng_below(rng, 10) ? 1 : 2;
}

void reset(State *s, Rng *rng) {
    add_tile(s, rng);
    add_tile(s, rng);
}

bool step(State *s, int action, float *reward, Rng *rng) {
    if (slide(s, action, reward)) add_tile(s, rng);
    for (int i = 0; i < N_ACTIONS; i++)
        if (is_legal(s, i)) return false;
    return true;
}

void mask(const State *s, bool *legal) {
    for (int i = 0; i < N_ACTIONS; i++) legal[i] = is_legal(s, i);
}

void observe(const State *s, float *obs) {
    memset(obs, 0, OBS_SHAPE * sizeof(float));
    for (int i = 0; i < CELLS; i++) obs[i * KINDS + s->board[i]] = 1;
}

void render(const State *s, Canvas *canvas) {
    static const uint32_t colours[KINDS] = {0xcdc1b4, 0xeee4da, 0xede0c8, 0xf2b179,
                                            0xf59563, 0xf67c5f, 0xf65e3b, 0xedcf72,
                                            0xedcc61, 0xedc850, 0xedc53f, 0xedc22e};
    draw_background(canvas, 0xbbada0);
    for (int i = 0; i < CELLS; i++) {
        const int x = i % SIZE * CELL, y = i / SIZE * CELL, tile = s->board[i];
        draw_box(canvas, x + 3, y + 3, CELL - 6, CELL - 6, colours[tile]);
        if (!tile) continue;
        const int n_digits = 1 + (int)log10(1 << tile), size = n_digits > 3 ? 2 : 4;
        draw_number(canvas, x + (CELL - (4 * n_digits - 1) * size) / 2, y + (CELL - 5 * size) / 2,
                    size, 1 << tile, tile < 3 ? 0x776e65 : 0xf9f6f2);
    }
}
