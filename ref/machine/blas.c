/* blas.c -- asks the BLAS that is linked for its name, kernel and threads.
 *
 * threads.c, cli/main.c and launch/kernels.c call these functions.  This file does not include <cblas.h>: the headers
 * of OpenBLAS and BLIS declare some of these functions, but not as weak symbols.  No function returns an error code.
 */
#include "ref/machine/blas.h"
#include <stdint.h>
#include <stdio.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#define WEAK __attribute__((weak))

/* OpenBLAS. */
WEAK void openblas_set_num_threads(int threads);
WEAK int openblas_get_num_threads(void);
WEAK char *openblas_get_corename(void);
WEAK char *openblas_get_config(void);

/* BLIS, with dim_t as it is by default on 64-bit machines. */
WEAK void bli_thread_set_num_threads(int64_t threads);
WEAK int64_t bli_thread_get_num_threads(void);
WEAK const char *bli_info_get_version_str(void);
WEAK int bli_arch_query_id(void);
WEAK const char *bli_arch_string(int arch);

/* MKL, and what speaks as MKL does. */
WEAK void MKL_Set_Num_Threads(int threads);
WEAK int MKL_Get_Max_Threads(void);
WEAK void MKL_Get_Version_String(char *text, int size);

/* A BLIS program may have OpenBLAS in it, too, as the BLAS of its LAPACK: so BLIS is asked first. */
void blas_set_threads(int threads)
{
    if (bli_thread_set_num_threads) bli_thread_set_num_threads(threads);
    if (openblas_set_num_threads) openblas_set_num_threads(threads);
    if (MKL_Set_Num_Threads) MKL_Set_Num_Threads(threads);
}

int blas_threads(void)
{
    /* BLIS answers -1 until a number is set. */
    const int64_t blis = bli_thread_get_num_threads ? bli_thread_get_num_threads() : 0;
    if (bli_thread_get_num_threads) return blis > 0 ? (int)blis : 1;
    if (openblas_get_num_threads) return openblas_get_num_threads();
    if (MKL_Get_Max_Threads) return MKL_Get_Max_Threads();
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
}

const char *blas_kernel(void)
{
    if (bli_arch_query_id && bli_arch_string) return bli_arch_string(bli_arch_query_id());
    return openblas_get_corename ? openblas_get_corename() : "unknown";
}

const char *blas_name(char *text, size_t size)
{
    if (bli_info_get_version_str) snprintf(text, size, "BLIS %s", bli_info_get_version_str());
    else if (openblas_get_config) snprintf(text, size, "%s", openblas_get_config());
    else if (MKL_Get_Version_String) MKL_Get_Version_String(text, (int)size);
    else snprintf(text, size, "a BLAS that does not say its name");
    return text;
}
