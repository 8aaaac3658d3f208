#include "ref/ops/threads.h"
#include <omp.h>
#include <unistd.h>

void openblas_set_num_threads(int);
int openblas_get_num_threads(void);

void use_threads(int threads)
{
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    openblas_set_num_threads(threads);
}

int use_cores(int processes)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int threads = cores > processes ? (int)(cores / processes) : 1;
    use_threads(threads);
    return threads;
}

int blas_threads(int threads)
{
    const int before = openblas_get_num_threads();
    openblas_set_num_threads(threads);
    return before;
}
