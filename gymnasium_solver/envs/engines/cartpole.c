/* A step of Gymnasium's CartPoleVectorEnv, with its operations in its order: the same bits. Compiled
 * without fused multiplication and addition. Sine and cosine come from NumPy, whose own differ from
 * the C library's in the last bit (compiled_cartpole.py). */
#include <stdint.h>

typedef struct {
    int64_t n, max_steps;
    int64_t semi_implicit, sutton_barto;
    int64_t n_done;        /* envs that begin an episode at the next step */
    double force_mag, polemass_length, total_mass, gravity, length, masspole, tau;
    double x_threshold, theta_threshold;
    const int64_t *actions;
    const double *sine, *cosine;
    const double *fresh;   /* [4][rows that are reset]: states of new episodes */
    double *state;         /* [4][n]: x, x_dot, theta, theta_dot */
    int32_t *steps;
    uint8_t *prev_done, *terminated, *truncated;
    float *obs, *reward;   /* [n][4], [n] */
} Poles;

/* Returns how many envs are done. */
int64_t step_poles(Poles *p) {
    const int64_t n = p->n;
    double *xs = p->state, *x_dots = xs + n, *thetas = x_dots + n, *theta_dots = thetas + n;
    int64_t n_fresh = 0, at = 0, n_done = 0;
    for (int64_t i = 0; i < n; i++) n_fresh += p->prev_done[i];
    for (int64_t i = 0; i < n; i++) {
        double x = xs[i], x_dot = x_dots[i], theta = thetas[i], theta_dot = theta_dots[i];
        const double sine = p->sine[i], cosine = p->cosine[i];
        const double given = (double)p->actions[i] - 0.5;
        const double force = (given > 0.0 ? 1.0 : -1.0) * p->force_mag;
        const double temp =
            (force + p->polemass_length * (theta_dot * theta_dot) * sine) / p->total_mass;
        const double thetaacc =
            (p->gravity * sine - cosine * temp) /
            (p->length * (4.0 / 3.0 - p->masspole * (cosine * cosine) / p->total_mass));
        const double xacc = temp - p->polemass_length * thetaacc * cosine / p->total_mass;
        if (p->semi_implicit) {
            x_dot = x_dot + p->tau * xacc;
            x = x + p->tau * x_dot;
            theta_dot = theta_dot + p->tau * thetaacc;
            theta = theta + p->tau * theta_dot;
        } else {
            x = x + p->tau * x_dot;
            x_dot = x_dot + p->tau * xacc;
            theta = theta + p->tau * theta_dot;
            theta_dot = theta_dot + p->tau * thetaacc;
        }
        uint8_t terminated = x < -p->x_threshold || x > p->x_threshold ||
                             theta < -p->theta_threshold || theta > p->theta_threshold;
        uint8_t truncated = ++p->steps[i] >= p->max_steps;
        float reward = p->sutton_barto ? -(float)terminated : 1.0f;
        if (p->prev_done[i]) { /* a new episode begins */
            x = p->fresh[at];
            x_dot = p->fresh[n_fresh + at];
            theta = p->fresh[2 * n_fresh + at];
            theta_dot = p->fresh[3 * n_fresh + at];
            at++;
            p->steps[i] = 0;
            reward = 0.0f;
            terminated = truncated = 0;
        }
        xs[i] = x, x_dots[i] = x_dot, thetas[i] = theta, theta_dots[i] = theta_dot;
        float *obs = p->obs + 4 * i;
        obs[0] = (float)x, obs[1] = (float)x_dot, obs[2] = (float)theta, obs[3] = (float)theta_dot;
        p->reward[i] = reward;
        p->terminated[i] = terminated;
        p->truncated[i] = truncated;
        n_done += p->prev_done[i] = terminated | truncated;
    }
    return p->n_done = n_done;
}
