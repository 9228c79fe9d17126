/* Acrobot-v1: swing the tip of two links above a line, by a motor between the links. As Gymnasium's
 * AcrobotEnv, in double precision (Sutton 1996; the equations of Sutton and Barto's book). */
#include "gsolve_env.h"

#define OBS_SHAPE 6
#define OBS_NAMES "cos 1", "sin 1", "cos 2", "sin 2", "velocity 1", "velocity 2"
#define OBS_LOW -1, -1, -1, -1, -MAX_SPEED_1, -MAX_SPEED_2
#define OBS_HIGH 1, 1, 1, 1, MAX_SPEED_1, MAX_SPEED_2
#define N_ACTIONS 3
#define ACTION_NAMES "left", "none", "right"
#define REWARD_LOW -1
#define REWARD_HIGH 0
#define MAX_STEPS 500
#define SOLVED -100
#define FRAME_WIDTH 250
#define FRAME_HEIGHT 250
#define FPS 15

#define MAX_SPEED_1 (4 * M_PI)
#define MAX_SPEED_2 (9 * M_PI)
#define GRAVITY 9.8
#define CENTRE 0.5 /* of a link's mass; links have length, mass and inertia 1 */
#define SECONDS 0.2

typedef struct {
    double at[4]; /* angle of the first link, of the second to the first, and their velocities */
} State;

void reset(State *s, Rng *rng) {
    for (int i = 0; i < 4; i++) s->at[i] = (float)rng_uniform(rng, -0.1, 0.1);
}

static void derivatives(const double *at, double torque, double *change) {
    const double theta1 = at[0], theta2 = at[1], speed1 = at[2], speed2 = at[3];
    const double square = CENTRE * CENTRE;
    const double d1 = square + (1.0 + square + 2 * CENTRE * cos(theta2)) + 1.0 + 1.0;
    const double d2 = (square + CENTRE * cos(theta2)) + 1.0;
    const double phi2 = CENTRE * GRAVITY * cos(theta1 + theta2 - M_PI / 2.0);
    const double phi1 = -CENTRE * (speed2 * speed2) * sin(theta2) -
                        2 * CENTRE * speed2 * speed1 * sin(theta2) +
                        (CENTRE + 1.0) * GRAVITY * cos(theta1 - M_PI / 2) + phi2;
    change[0] = speed1;
    change[1] = speed2;
    change[3] = (torque + d2 / d1 * phi1 - CENTRE * (speed1 * speed1) * sin(theta2) - phi2) /
                (square + 1.0 - d2 * d2 / d1);
    change[2] = -(d2 * change[3] + phi1) / d1;
}

static double wrapped(double angle) {
    while (angle > M_PI) angle -= 2 * M_PI;
    while (angle < -M_PI) angle += 2 * M_PI;
    return angle;
}

bool step(State *s, int action, float *reward, Rng *rng) {
    const double torque = action - 1.0, half = SECONDS / 2;
    double k1[4], k2[4], k3[4], k4[4], between[4]; /* Runge-Kutta of the fourth order */
    derivatives(s->at, torque, k1);
    for (int i = 0; i < 4; i++) between[i] = s->at[i] + half * k1[i];
    derivatives(between, torque, k2);
    for (int i = 0; i < 4; i++) between[i] = s->at[i] + half * k2[i];
    derivatives(between, torque, k3);
    for (int i = 0; i < 4; i++) between[i] = s->at[i] + SECONDS * k3[i];
    derivatives(between, torque, k4);
    for (int i = 0; i < 4; i++)
        s->at[i] += SECONDS / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
    s->at[0] = wrapped(s->at[0]);
    s->at[1] = wrapped(s->at[1]);
    s->at[2] = fmin(fmax(s->at[2], -MAX_SPEED_1), MAX_SPEED_1);
    s->at[3] = fmin(fmax(s->at[3], -MAX_SPEED_2), MAX_SPEED_2);
    const bool is_high = -cos(s->at[0]) - cos(s->at[1] + s->at[0]) > 1.0;
    *reward = is_high ? 0.0f : -1.0f;
    return is_high;
}

void observe(const State *s, float *obs) {
    obs[0] = (float)cos(s->at[0]), obs[1] = (float)sin(s->at[0]);
    obs[2] = (float)cos(s->at[1]), obs[3] = (float)sin(s->at[1]);
    obs[4] = (float)s->at[2], obs[5] = (float)s->at[3];
}

void render(const State *s, Canvas *canvas) {
    const double scale = FRAME_WIDTH / 4.4, middle = FRAME_WIDTH / 2.0;
    const double x1 = middle + scale * sin(s->at[0]), y1 = middle + scale * cos(s->at[0]);
    const double x2 = x1 + scale * sin(s->at[0] + s->at[1]);
    const double y2 = y1 + scale * cos(s->at[0] + s->at[1]);
    draw_background(canvas, 0xffffff);
    draw_line(canvas, 0, middle - scale, FRAME_WIDTH, middle - scale, 1, 0x000000);
    draw_line(canvas, middle, middle, x1, y1, 10, 0x00cccc);
    draw_line(canvas, x1, y1, x2, y2, 10, 0x00cccc);
    draw_disc(canvas, middle, middle, 6, 0xcccc00);
    draw_disc(canvas, x1, y1, 6, 0xcccc00);
}
