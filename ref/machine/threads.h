/* threads.h -- how many threads operations use, and what else of this process their bits may depend on.
 *
 * The order of every sum is fixed but for those inside matrix products: there the BLAS chooses it, by its kernel for
 * this processor and by its number of threads.  Who compares bits has to compare these two.
 *
 * Commands set the number at their start; ref/optim/galore.c changes the number of the BLAS for a while, checkpoints
 * note what is in use.  No function returns an error code.
 */
#ifndef ORRERY_THREADS_H
#define ORRERY_THREADS_H

enum { THREADS_MOST = 1024 };

/* The option --threads of every command that computes; 0: not given. */
extern int threads_asked;

/**
 * Set the threads of OpenMP and the BLAS: those of --threads, else the first number of OMP_NUM_THREADS, else as many as
 * this process has cores.
 * @param cores  that it has for itself; less than 1 counts as 1.
 * @return the number of threads.
 */
int threads_use(int cores);

/** Set the threads of OpenMP and the BLAS. */
void threads_set(int threads);

/** Set the threads of the BLAS alone.  @return how many it had. */
int threads_set_blas(int threads);

/** From now on processes that this one starts have the threads of --threads, unless their own words say otherwise. */
void threads_pass_on(void);

/* The bits of a result depend on these, and on the program and its input. */
struct arithmetic {
    int threads;                        /* of OpenMP and of BLAS, which cut sums differently for another number */
    char kernel[32];                    /* the BLAS's for this processor, such as Haswell */
    char blas[160];                     /* the BLAS's name and version, and how it was built */
};

/** The arithmetic of this process as it is now. */
struct arithmetic arithmetic_now(void);

#endif
