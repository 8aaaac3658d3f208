/* blas.h -- the library that computes matrix products: its name, its kernel for this processor, its threads.
 *
 * The Makefile links one BLAS (`make BLAS=..`).  Functions that only one library has are weak symbols here: they are
 * NULL with another library.  So the sources are the same for OpenBLAS, BLIS, MKL and others.
 *
 * threads.c, cli/main.c and launch/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_BLAS_H
#define ORRERY_BLAS_H

#include <stddef.h>

/** Set the number of threads of the BLAS.  A library without such a function goes by OpenMP's, or has one thread. */
void blas_set_threads(int threads);

/** The number of threads of the BLAS; OpenMP's number if the library does not say. */
int blas_threads(void);

/** The kernel that the BLAS has chosen for this processor, such as Haswell; "unknown" if the library does not say. */
const char *blas_kernel(void);

/** The name and version of the BLAS, and how it was built if it says so.  @return text. */
const char *blas_name(char *text, size_t size);

#endif
