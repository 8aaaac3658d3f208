/* threads.h -- how many threads operations use. */
#ifndef ORRERY_THREADS_H
#define ORRERY_THREADS_H

/** From now on the threads of a process of which `processes` share the machine: cores / processes, at least 1; of
 *  OpenMP and OpenBLAS.
 *  @return how many that are. */
int use_cores(int processes);

#endif
