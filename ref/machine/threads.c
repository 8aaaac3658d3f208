/* threads.c -- the number of threads of OpenMP and of the BLAS in this process.
 *
 * cli/ sets the number at the start of a command; optim/galore.c changes the BLAS's for a while.  No function here
 * can fail.
 */
#include "ref/machine/threads.h"
#include "ref/machine/blas.h"
#include <stdio.h>
#include <stdlib.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

int threads_asked;

void threads_set(int threads)
{
#if defined(_OPENMP)
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
#endif
    blas_set_threads(threads);
}

/* OpenMP's variable may have a number for each level of nesting: "4,2". */
static int threads_told(void)
{
    const char *told = getenv("OMP_NUM_THREADS");
    char *end;
    const long threads = told != NULL ? strtol(told, &end, 10) : 0;
    return threads > 0 && threads <= THREADS_MOST ? (int)threads : 0;
}

/* The order of wishes is: --threads, OMP_NUM_THREADS, the cores. */
int threads_use(int cores)
{
    const int told = threads_asked > 0 ? threads_asked : threads_told();
    const int threads = told > 0 ? told : cores > 1 ? cores : 1;
    threads_set(threads);
    return threads;
}

/* Returns the number before, for setting it back. */
int threads_set_blas(int threads)
{
    const int before = blas_threads();
    blas_set_threads(threads);
    return before;
}

/* Processes that are started later read the number from the environment. */
void threads_pass_on(void)
{
    char text[16];
    if (threads_asked == 0) return;
    snprintf(text, sizeof text, "%d", threads_asked);
    setenv("OMP_NUM_THREADS", text, 1);
}

/* Bits of results depend on these, so reports name them. */
struct arithmetic arithmetic_now(void)
{
    struct arithmetic a = { .threads = blas_threads() };
    snprintf(a.kernel, sizeof a.kernel, "%s", blas_kernel());
    blas_name(a.blas, sizeof a.blas);
    return a;
}
