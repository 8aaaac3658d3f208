#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include <stdio.h>
#include <stdlib.h>

/* What stays from operation to operation: room between two kernels, and for an operation's small operands, which would
 * else wait for an allocation each time. */
struct kept { void *data; size_t bytes; };
static struct kept room, small[OPERANDS_MOST];
enum { SMALL = 1 << 20 };

static bool is_kept(size_t bytes) { return bytes <= SMALL && gpu_keeps_memory(); }

static void *keep(struct kept *k, size_t bytes, const char *what)
{
    if (bytes <= k->bytes) return k->data;
    memory_give(k->data, k->bytes);
    *k = (struct kept){ .data = memory_take(bytes), .bytes = bytes };
    if (k->data == NULL) must(cudaErrorMemoryAllocation, what);
    return k->data;
}

void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "orrery: GPU %d, %s: %s: %s\n", gpu.number, gpu.name, what, cudaGetErrorString(e));
    abort();
}

static void *there(struct operands *s, struct tensor X, bool back)
{
    const size_t bytes = tensor_present(X) ? tensor_bytes(X) : 0;
    void *p = NULL;
    if (bytes == 0) return NULL;
    if (on_gpu(X.data)) return X.data;
    if (is_kept(bytes)) p = keep(&small[s->count], bytes, "memory for an operand of the host");
    else if ((p = memory_take(bytes)) == NULL) must(cudaErrorMemoryAllocation, "memory for an operand of the host");
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
        if (!is_kept(s->of[i].bytes)) memory_give(s->of[i].device, s->of[i].bytes);
    }
}

void *scratch(size_t bytes) { return keep(&room, bytes, "memory between two kernels"); }

void operands_end(void)
{
    for (int i = 0; i < OPERANDS_MOST; i++) memory_give(small[i].data, small[i].bytes), small[i] = (struct kept){ 0 };
    memory_give(room.data, room.bytes);
    room = (struct kept){ 0 };
}
