/* MountainCarContinuous-v0: a car too weak for a hill must swing up, and force costs. As Gymnasium's
 * Continuous_MountainCarEnv, which keeps its state in single precision. */
#include "gsolve_env.h"

#define OBS_SHAPE 2
#define OBS_NAMES "position", "velocity"
#define OBS_LOW LEFT_END, -MAX_SPEED
#define OBS_HIGH RIGHT_END, MAX_SPEED
#define ACTION_SIZE 1
#define ACTION_NAMES "force"
#define REWARD_LOW -0.1
#define REWARD_HIGH 100
#define MAX_STEPS 999
#define SOLVED 90
#define FRAME_WIDTH 300
#define FRAME_HEIGHT 200

#define LEFT_END -1.2f
#define RIGHT_END 0.6f
#define MAX_SPEED 0.07f
#define GOAL 0.45f
#define POWER 0.0015f

typedef struct {
    float position, velocity;
} State;

void reset(State *s, Rng *rng) { s->position = (float)rng_uniform(rng, -0.6, -0.4); }

bool step(State *s, const float *action, float *reward, Rng *rng) {
    const double slope = cos((double)(3 * s->position));
    s->velocity += action[0] * POWER - (float)(0.0025 * slope);
    s->velocity = fminf(fmaxf(s->velocity, -MAX_SPEED), MAX_SPEED);
    s->position = fminf(fmaxf(s->position + s->velocity, LEFT_END), RIGHT_END);
    if (s->position == LEFT_END && s->velocity < 0) s->velocity = 0;
    const bool is_there = s->position >= GOAL && s->velocity >= 0;
    *reward = (float)((is_there ? 100.0 : 0.0) - (double)action[0] * action[0] * 0.1);
    return is_there;
}

void observe(const State *s, float *obs) { obs[0] = s->position, obs[1] = s->velocity; }

static double x_of(double position) {
    return (position - LEFT_END) / (RIGHT_END - LEFT_END) * FRAME_WIDTH;
}

static double y_of(double position) {
    return FRAME_HEIGHT - (sin(3 * position) * 0.45 + 0.55) * FRAME_WIDTH / (RIGHT_END - LEFT_END);
}

void render(const State *s, Canvas *canvas) {
    draw_background(canvas, 0xffffff);
    for (double p = LEFT_END; p < RIGHT_END; p += 0.02)
        draw_line(canvas, x_of(p), y_of(p), x_of(p + 0.02), y_of(p + 0.02), 1, 0x000000);
    draw_line(canvas, x_of(GOAL), y_of(GOAL), x_of(GOAL), y_of(GOAL) - 25, 1, 0x000000);
    draw_box(canvas, (int)x_of(GOAL), (int)y_of(GOAL) - 25, 12, 8, 0xcccc00);
    draw_disc(canvas, x_of(s->position), y_of(s->position) - 8, 8, 0x202020);
}
