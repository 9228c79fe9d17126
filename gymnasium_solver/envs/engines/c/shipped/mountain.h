/* What both MountainCars show: included after State, LEFT_END, RIGHT_END, MAX_SPEED and GOAL. */
#define OBS_SHAPE 2
#define OBS_NAMES "position", "velocity"
#define OBS_LOW LEFT_END, -MAX_SPEED
#define OBS_HIGH RIGHT_END, MAX_SPEED
#define FRAME_WIDTH 300
#define FRAME_HEIGHT 200

void observe(const State *s, float *obs) {
    obs[0] = (float)s->position, obs[1] = (float)s->velocity;
}

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
