#include "emulated_devices/device/cuda/operands.h"
#include <stdio.h>
#include <stdlib.h>

static struct { void *data; size_t bytes; } room;

void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "orrery: the GPU: %s: %s\n", what, cudaGetErrorString(e));
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
    must(cudaMalloc(&p, bytes), "memory for an operand of the host");
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
        must(cudaFree(s->of[i].device), "cudaFree");
    }
}

void *scratch(size_t bytes)
{
    if (bytes <= room.bytes) return room.data;
    operands_end();
    must(cudaMalloc(&room.data, bytes), "memory between two kernels");
    room.bytes = bytes;
    return room.data;
}

void operands_end(void)
{
    must(cudaFree(room.data), "cudaFree");
    room.data = NULL, room.bytes = 0;
}
