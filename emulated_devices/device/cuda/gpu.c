/* gpu.c -- the GPU of this process: which one, whether kernels run on it, and its library of products.
 *
 * backend.c calls gpu_start for the first device of the process, and gpu_end for the last.  Errors are ERR_DEVICE
 * and name the cause: driver, number, architecture or memory.
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu gpu;

/* The program that starts a process tells it its number among those of this machine, and how many they are, in
 * variables. */
static const char *const local_rank[] = { "MPI" "_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", NULL };
static const char *const local_size[] = { "MPI" "_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE",
                                          NULL };

/* The first of the variables that is set, as a number. */
static int told(const char *const *variable, int otherwise)
{
    for (; *variable != NULL; variable++)
        if (getenv(*variable) != NULL) return atoi(getenv(*variable));
    return otherwise;
}

static bool gpu_is_named(void) { return getenv("ORRERY_GPU") != NULL && *getenv("ORRERY_GPU") != '\0'; }

/* The GPU of this process is the one named, or the one with its number on this machine; -1: no number is named. */
static int chosen_gpu(int count)
{
    const char *named = getenv("ORRERY_GPU");
    if (!gpu_is_named()) return told(local_rank, 0) % count;
    return strlen(named) < 5 && strspn(named, "0123456789") == strlen(named) ? atoi(named) : -1;
}

/* The processes of a machine share a GPU if they are more than its GPUs, or all name one. */
static bool others_may_have_it(int count) { return told(local_size, 1) > (gpu_is_named() ? 1 : count); }

bool gpu_is_shared(void) { return gpu.shared; }

/* The steps are: count GPUs, choose one, run an empty kernel, start cuBLAS.  The first that fails says why. */
enum error_code gpu_start(struct error *err)
{
    struct cudaDeviceProp p;
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver)
        return fail(err, ERR_DEVICE, "--backend " NAME ": the GPU's driver is missing, or older than this program's "
                                     "CUDA");
    if (e != cudaSuccess || count == 0)
        return fail(err, ERR_DEVICE, "--backend " NAME ": there is no GPU on this machine; --backend cpu needs none");
    const int chosen = chosen_gpu(count);
    if (chosen < 0 || chosen >= count)
        return fail(err, ERR_DEVICE, "ORRERY_GPU=%s: this machine has %d GPU%s, numbered from 0", getenv("ORRERY_GPU"),
                    count, count == 1 ? "" : "s");
    if ((e = cudaSetDevice(chosen)) != cudaSuccess || (e = cudaGetDeviceProperties(&p, chosen)) != cudaSuccess)
        return fail(err, ERR_DEVICE, "--backend " NAME ": GPU %d cannot be used: %s", chosen, cudaGetErrorString(e));
    gpu.number = chosen;
    gpu.shared = others_may_have_it(count);
    snprintf(gpu.name, sizeof gpu.name, "%s", p.name);
    /* An empty kernel shows whether there is code for this GPU. */
    cuda_probe();
    e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e == cudaErrorNoKernelImageForDevice)
        return fail(err, ERR_DEVICE, "--backend " NAME ": the kernels were not built for %s (compute_%d%d): "
                                  "make CUDA=1 CUDA_ARCH=%d%d", p.name, p.major, p.minor, p.major, p.minor);
    if (e != cudaSuccess)
        return fail(err, ERR_DEVICE, "--backend " NAME ": no kernel runs on %s: %s", p.name, cudaGetErrorString(e));
    if (cublasCreate(&gpu.blas) != CUBLAS_STATUS_SUCCESS)
        return fail(err, ERR_DEVICE, "--backend " NAME ": cuBLAS cannot start on %s: is its memory full?", p.name);
    return OK;
}

/* Memory that operands keep is given back before idle memory is freed. */
void gpu_end(void)
{
    cublasDestroy(gpu.blas);
    operands_end();
    memory_end();
}
