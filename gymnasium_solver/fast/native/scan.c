/* y[t] = x[t] + carry[t] * y[t + 1] in each of n columns, from the last row to the first. Compiled
 * without fused multiplication and addition, so that the bits are NumPy's (native/scan.py). */
void sum_back(long rows, long n, const double *x, const double *carry, double *y) {
    for (long t = rows - 1; t >= 0; t--) {
        const double *own = x + t * n, *share = carry + t * n;
        double *to = y + t * n;
        if (t == rows - 1) {
            for (long i = 0; i < n; i++) to[i] = own[i] + share[i] * 0.0;
        } else {
            for (long i = 0; i < n; i++) to[i] = own[i] + share[i] * to[i + n];
        }
    }
}
