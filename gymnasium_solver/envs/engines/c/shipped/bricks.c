/* Bricks: move a paddle, keep the ball in the air, break the wall. A brick pays 1. The game is over
 * when the ball is lost or no brick is left. Where the ball meets the paddle decides where it goes. */
#include "gsolve_env.h"

#define ROWS 5
#define COLUMNS 8
#define BRICKS (ROWS * COLUMNS)
#define PADDLE 0.2 /* width; the field is 1 x 1, y goes down */
#define PADDLE_Y 0.94
#define WALL_TOP 0.1
#define BRICK_WIDTH (1.0 / COLUMNS)
#define BRICK_HEIGHT 0.05
#define SPEED 0.03
#define RADIUS 0.015

#define OBS_SHAPE (5 + BRICKS)
#define OBS_LOW -1
#define OBS_HIGH 1
#define N_ACTIONS 3
#define ACTION_NAMES "left", "stay", "right"
#define REWARD_LOW 0
#define REWARD_HIGH 1
#define MAX_STEPS 3000
#define SOLVED 35
#define FRAME_WIDTH 240
#define FRAME_HEIGHT 240
#define FPS 30

typedef struct {
    double x, y, x_speed, y_speed, paddle; /* paddle: its middle */
    bool is_there[BRICKS];
    int n_left;
} State;

static void send_off(State *s, double angle) {
    s->x_speed = SPEED * sin(angle);
    s->y_speed = -SPEED * cos(angle);
}

void reset(State *s, Rng *rng) {
    for (int i = 0; i < BRICKS; i++) s->is_there[i] = true;
    s->n_left = BRICKS;
    s->paddle = 0.5;
    s->x = rng_uniform(rng, 0.3, 0.7);
    s->y = 0.6;
    send_off(s, rng_uniform(rng, -0.8, 0.8));
}

/* The brick at a place, or -1. */
static int brick_at(const State *s, double x, double y) {
    const int row = (int)floor((y - WALL_TOP) / BRICK_HEIGHT), column = (int)(x / BRICK_WIDTH);
    if (row < 0 || row >= ROWS || column < 0 || column >= COLUMNS) return -1;
    return s->is_there[row * COLUMNS + column] ? row * COLUMNS + column : -1;
}

bool step(State *s, int action, float *reward, Rng *rng) {
    s->paddle = fmin(fmax(s->paddle + 0.04 * (action - 1), PADDLE / 2), 1 - PADDLE / 2);
    const double x = s->x, y = s->y;
    s->x += s->x_speed;
    s->y += s->y_speed;
    if (s->x < RADIUS || s->x > 1 - RADIUS) {
        s->x = s->x < RADIUS ? RADIUS : 1 - RADIUS;
        s->x_speed = -s->x_speed;
    }
    if (s->y < RADIUS) {
        s->y = RADIUS;
        s->y_speed = -s->y_speed;
    }
    const int brick = brick_at(s, s->x, s->y);
    if (brick >= 0) {
        s->is_there[brick] = false;
        s->n_left--;
        *reward = 1;
        const bool from_the_side = brick_at(s, x, s->y) < 0 && (int)(x / BRICK_WIDTH) != brick % COLUMNS;
        if (from_the_side) s->x_speed = -s->x_speed;
        else s->y_speed = -s->y_speed;
        s->x = x, s->y = y;
    }
    if (s->y_speed > 0 && y < PADDLE_Y && s->y >= PADDLE_Y &&
        fabs(s->x - s->paddle) <= PADDLE / 2 + RADIUS) {
        s->y = PADDLE_Y;
        send_off(s, (s->x - s->paddle) / (PADDLE / 2) + rng_uniform(rng, -0.05, 0.05));
    }
    return s->y > 1 || !s->n_left;
}

void observe(const State *s, float *obs) {
    obs[0] = (float)(2 * s->x - 1), obs[1] = (float)(2 * fmin(s->y, 1) - 1);
    obs[2] = (float)(s->x_speed / SPEED), obs[3] = (float)(s->y_speed / SPEED);
    obs[4] = (float)(2 * s->paddle - 1);
    for (int i = 0; i < BRICKS; i++) obs[5 + i] = s->is_there[i];
}

void render(const State *s, Canvas *canvas) {
    static const uint32_t colours[ROWS] = {0xe63946, 0xf4a261, 0xe9c46a, 0x2a9d8f, 0x457b9d};
    const double width = FRAME_WIDTH, height = FRAME_HEIGHT;
    draw_background(canvas, 0x101820);
    for (int i = 0; i < BRICKS; i++)
        if (s->is_there[i])
            draw_box(canvas, (int)(i % COLUMNS * BRICK_WIDTH * width) + 1,
                     (int)((WALL_TOP + i / COLUMNS * BRICK_HEIGHT) * height) + 1,
                     (int)(BRICK_WIDTH * width) - 2, (int)(BRICK_HEIGHT * height) - 2,
                     colours[i / COLUMNS]);
    draw_box(canvas, (int)((s->paddle - PADDLE / 2) * width), (int)(PADDLE_Y * height),
             (int)(PADDLE * width), 6, 0xf1faee);
    draw_disc(canvas, s->x * width, s->y * height, RADIUS * width, 0xffffff);
}
