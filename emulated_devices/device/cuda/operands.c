#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include <stdio.h>
#include <stdlib.h>

/* What stays from operation to operation: room between two kernels, and for an operation's small operands, which would
 * else wait for an allocation each time.  Where kernels are watched, each has memory of its own, so that what is read
 * behind it is seen. */
struct kept { void *data; size_t bytes; };
static struct kept room, small[OPERANDS_MOST];
#ifdef CUDA_EMULATED
enum { SMALL = 0 };
#else
enum { SMALL = 1 << 20 };
#endif

static void *keep(struct kept *k, size_t bytes, const char *what)
{
    if (bytes <= k->bytes) return k->data;
    must(cudaFree(k->data), "cudaFree");
    *k = (struct kept){ 0 };
    must(cudaMalloc(&k->data, bytes), what);
    k->bytes = bytes;
    return k->data;
}

void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "orrery: GPU %d, %s: %s: %s\n", gpu.number, gpu.name, what, cudaGetErrorString(e));
    abort();
}

bool on_gpu(const void *p)
{
    struct cudaPointerAttributes a;
    must(cudaPointerGetAttributes(&a, p), "cudaPointerGetAttributes");
    return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
}

static void *there(struct operands *s, struct tensor X, bool back)
{
    const size_t bytes = tensor_present(X) ? tensor_bytes(X) : 0;
    void *p = NULL;
    if (bytes == 0) return NULL;
    if (on_gpu(X.data)) return X.data;
    if (bytes <= SMALL) p = keep(&small[s->count], bytes, "memory for an operand of the host");
    else must(cudaMalloc(&p, bytes), "memory for an operand of the host");
    must(cudaMemcpy(p, X.data, bytes, cudaMemcpyHostToDevice), "an operand of the host");
    s->of[s->count].host = X.data, s->of[s->count].device = p;
    s->of[s->count].bytes = bytes, s->of[s->count].back = back;
    s->count++;
    return p;
}

void *input(struct operands *s, struct tensor X) { return there(s, X, false); }

void *out(struct operands *s, struct tensor Y) { return there(s, Y, true); }

void done(struct operands *s, const char *operation)
{
    must(cudaGetLastError(), operation);
    for (; s->count > 0; s->count--) {
        const int i = s->count - 1;
        if (s->of[i].back)
            must(cudaMemcpy(s->of[i].host, s->of[i].device, s->of[i].bytes, cudaMemcpyDeviceToHost), operation);
        if (s->of[i].bytes > SMALL) must(cudaFree(s->of[i].device), "cudaFree");
    }
}

void *scratch(size_t bytes) { return keep(&room, bytes, "memory between two kernels"); }

void operands_end(void)
{
    for (int i = 0; i < OPERANDS_MOST; i++) must(cudaFree(small[i].data), "cudaFree"), small[i] = (struct kept){ 0 };
    must(cudaFree(room.data), "cudaFree");
    room = (struct kept){ 0 };
}
