/* kernels.c -- the fastest OpenBLAS kernels for this processor.
 *
 * OpenBLAS chooses its kernels by the processor's model number.  For a processor newer than the library it uses those
 * of 2004 (Prescott), although newer kernels would run: `orrery bench step` shows the difference.  OPENBLAS_CORETYPE is
 * read once, when the library is loaded, so it must be set before.  process.c calls better_kernels().  No function
 * returns an error code.
 */
#include "emulated_devices/launch/launch.h"
#include "ref/machine/blas.h"
#include <string.h>

static const char *kernels_of_instructions(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
    return NULL;
}

const char *better_kernels(void)
{
    return strcmp(blas_kernel(), "Prescott") == 0 ? kernels_of_instructions() : NULL;
}
