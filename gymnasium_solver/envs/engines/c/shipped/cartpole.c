/* CartPole-v1: keep a pole upright on a cart. As Gymnasium's CartPoleEnv, operation by operation, in
 * double precision (Barto, Sutton and Anderson 1983). */
#include "gsolve_env.h"

#define OBS_SHAPE 4
#define OBS_NAMES "position", "velocity", "angle", "angular velocity"
#define OBS_LOW -4.8, -INFINITY, -2 * MAX_ANGLE, -INFINITY
#define OBS_HIGH 4.8, INFINITY, 2 * MAX_ANGLE, INFINITY
#define N_ACTIONS 2
#define ACTION_NAMES "left", "right"
#define REWARD_LOW 1
#define REWARD_HIGH 1
#define MAX_STEPS 500
#define SOLVED 475
#define FRAME_WIDTH 300
#define FRAME_HEIGHT 200
#define FPS 50

#define MAX_POSITION 2.4
#define MAX_ANGLE (12 * 2 * M_PI / 360)
#define GRAVITY 9.8
#define POLE_MASS 0.1
#define TOTAL_MASS (POLE_MASS + 1.0)
#define LENGTH 0.5 /* half of the pole's */
#define FORCE 10.0
#define SECONDS 0.02 /* of a step */

typedef struct {
    double x, x_dot, theta, theta_dot;
} State;

void reset(State *s, Rng *rng) {
    s->x = rng_uniform(rng, -0.05, 0.05);
    s->x_dot = rng_uniform(rng, -0.05, 0.05);
    s->theta = rng_uniform(rng, -0.05, 0.05);
    s->theta_dot = rng_uniform(rng, -0.05, 0.05);
}

bool step(State *s, int action, float *reward, Rng *rng) {
    const double force = action == 1 ? FORCE : -FORCE;
    const double sine = sin(s->theta), cosine = cos(s->theta);
    const double temp =
        (force + POLE_MASS * LENGTH * (s->theta_dot * s->theta_dot) * sine) / TOTAL_MASS;
    const double theta_acc =
        (GRAVITY * sine - cosine * temp) /
        (LENGTH * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) / TOTAL_MASS));
    const double x_acc = temp - POLE_MASS * LENGTH * theta_acc * cosine / TOTAL_MASS;
    s->x = s->x + SECONDS * s->x_dot;
    s->x_dot = s->x_dot + SECONDS * x_acc;
    s->theta = s->theta + SECONDS * s->theta_dot;
    s->theta_dot = s->theta_dot + SECONDS * theta_acc;
    *reward = 1.0f;
    return s->x < -MAX_POSITION || s->x > MAX_POSITION || s->theta < -MAX_ANGLE ||
           s->theta > MAX_ANGLE;
}

void observe(const State *s, float *obs) {
    obs[0] = (float)s->x, obs[1] = (float)s->x_dot;
    obs[2] = (float)s->theta, obs[3] = (float)s->theta_dot;
}

void render(const State *s, Canvas *canvas) {
    const double scale = FRAME_WIDTH / (2 * MAX_POSITION), floor_y = FRAME_HEIGHT - 50;
    const double x = FRAME_WIDTH / 2.0 + s->x * scale;
    draw_background(canvas, 0xffffff);
    draw_line(canvas, 0, floor_y, FRAME_WIDTH, floor_y, 1, 0x000000);
    draw_box(canvas, (int)(x - 20), (int)(floor_y - 12), 40, 24, 0x202020);
    draw_line(canvas, x, floor_y - 8, x + 2 * LENGTH * scale * sin(s->theta),
              floor_y - 8 - 2 * LENGTH * scale * cos(s->theta), 8, 0xca9865);
    draw_disc(canvas, x, floor_y - 8, 4, 0x8184cb);
}
