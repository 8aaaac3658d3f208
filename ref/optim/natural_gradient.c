/* Natural GaLore: applies the inverse of the gradients' empirical Fisher matrix to the newest gradient.
 *
 * Source   A. Das, arXiv:2410.16029
 * Keeps    H, the last s projected gradients, one per row: that of step t replaces that of step t-s
 * Step     (lambda I + H^T H)^-1 R = H^T y,   (lambda I + H H^T) y = e, the unit vector of R's row:
 *          since R = H^T e, and H^T (lambda I + H H^T) = (lambda I + H^T H) H^T.  So s equations are solved instead of
 *          b r, and, unlike with Woodbury's identity, there is no cancellation with R.  Solved by Cholesky's method:
 *          the matrix is symmetric and positive definite.  Sums in double.  Unused rows are 0 and change nothing.  The
 *          result is not linear in R: reduce R over the devices first.
 * Called   galore_step.c calls natural_gradient().  No function returns an error code.
 */
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/optim/table.h"
#include <string.h>

static double FN(dot_in_double)(const real *restrict x, const real *restrict y, int64_t n)
{
    double lane[LANES] = { 0 }, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * y[i + l];
    for (; i < n; i++) sum += (double)x[i] * y[i];
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

/* Solve K x = z for a positive definite K, given by its lower half.  L (L L^T = K) overwrites K, x overwrites z. */
static void FN(solve)(int n, double K[][LOW_RANK_MOST_HISTORY], double z[])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            /* Cholesky: L[i,j] = (K[i,j] - sum over k < j of L[i,k] L[j,k]) / L[j,j], row by row. */
            double sum = K[i][j];
            for (int k = 0; k < j; k++) sum -= K[i][k] * K[j][k];
            K[i][j] = i == j ? sqrt(sum) : sum / K[j][j];
        }
    for (int i = 0; i < n; i++) {
        /* Forward: L y = z. */
        for (int k = 0; k < i; k++) z[i] -= K[i][k] * z[k];
        z[i] /= K[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        /* Back: L^T x = y. */
        for (int k = i + 1; k < n; k++) z[i] -= K[k][i] * z[k];
        z[i] /= K[i][i];
    }
}

void FN(natural_gradient)(struct tensor R, struct tensor history, int64_t t, double damping)
{
    const int s = (int)history.dim[0], newest = (int)((t - 1) % s);
    const int64_t n = tensor_count(R);
    double K[LOW_RANK_MOST_HISTORY][LOW_RANK_MOST_HISTORY], y[LOW_RANK_MOST_HISTORY];
    real *H = DATA(history), *g = DATA(R);
    /* H [s,n] is a ring of the last s projected gradients: this one replaces the oldest. */
    memcpy(H + newest * n, g, (size_t)n * sizeof *g);
    for (int i = 0; i < s; i++) {
        y[i] = i == newest;
        /* K [s,s] = H H^T + damping I, lower half. */
        for (int j = 0; j <= i; j++) K[i][j] = (i == j) * damping + FN(dot_in_double)(H + i * n, H + j * n, n);
    }
    FN(solve)(s, K, y);
    /* g [n] = H^T y with K y = e_newest. */
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < s; k++) sum += H[k * n + i] * y[k];
        g[i] = (real)sum;
    }
}
