/* threads.h -- how many threads operations use. */
#ifndef ORRERY_THREADS_H
#define ORRERY_THREADS_H

/** Set the threads of OpenMP and OpenBLAS to cores / processes, at least 1, for `processes` processes on this machine.
 *  @return the number of threads. */
int use_cores(int processes);

/** Set the threads of OpenMP and OpenBLAS. */
void use_threads(int threads);

/** Set the threads of OpenBLAS alone.  @return how many it had. */
int blas_threads(int threads);

#endif
