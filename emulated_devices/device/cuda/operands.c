/* operands.c -- operands of a GPU's operation: those in the host's memory are copied there and back.
 *
 * operations.c calls input, out and done for each operation; others of this folder call must and scratch.  An error
 * of CUDA ends the program with one line, since operations cannot fail.
 */
#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include <stdio.h>
#include <stdlib.h>

/* These stay from operation to operation: room between two kernels, and room for small operands of the host.
 * Otherwise each operation would wait for an allocation. */
struct kept { void *data; size_t bytes; };
static struct kept room, small[OPERANDS_MOST];
enum { SMALL = 1 << 20 };

static bool operands_is_kept(size_t bytes) { return bytes <= SMALL && gpu_keeps_memory(); }

/* Kept memory only grows; a larger request gives the old block back first. */
static void *operands_keep(struct kept *kept, size_t bytes, const char *what)
{
    if (bytes <= kept->bytes) return kept->data;
    memory_give(kept->data, kept->bytes);
    *kept = (struct kept){ .data = memory_take(bytes), .bytes = bytes };
    if (kept->data == NULL) must(cudaErrorMemoryAllocation, what);
    return kept->data;
}

void must(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    fprintf(stderr, "orrery: GPU %d, %s: %s: %s\n", gpu.number, gpu.name, what, cudaGetErrorString(e));
    abort();
}

/* An operand on the GPU is used where it is.  An operand of the host is copied there; done copies a result back. */
static void *there(struct operands *operands, struct tensor X, bool back)
{
    const size_t bytes = tensor_present(X) ? tensor_bytes(X) : 0;
    void *p = NULL;
    if (bytes == 0) return NULL;
    if (on_gpu(X.data)) return X.data;
    if (operands_is_kept(bytes)) p = operands_keep(&small[operands->count], bytes, "memory for an operand of the host");
    else if ((p = memory_take(bytes)) == NULL) must(cudaErrorMemoryAllocation, "memory for an operand of the host");
    must(cudaMemcpy(p, X.data, bytes, cudaMemcpyHostToDevice), "an operand of the host");
    operands->of[operands->count].host = X.data, operands->of[operands->count].device = p;
    operands->of[operands->count].bytes = bytes, operands->of[operands->count].back = back;
    operands->count++;
    return p;
}

void *input(struct operands *operands, struct tensor X) { return there(operands, X, false); }

void *out(struct operands *operands, struct tensor Y) { return there(operands, Y, true); }

/* Results of the host come back in the reverse order; the copy waits for the kernel. */
void done(struct operands *operands, const char *operation)
{
    must(cudaGetLastError(), operation);
    for (; operands->count > 0; operands->count--) {
        const int i = operands->count - 1;
        if (operands->of[i].back)
            must(cudaMemcpy(operands->of[i].host, operands->of[i].device, operands->of[i].bytes,
                            cudaMemcpyDeviceToHost), operation);
        if (!operands_is_kept(operands->of[i].bytes)) memory_give(operands->of[i].device, operands->of[i].bytes);
    }
}

/* The room is the same for all operations, which follow each other in one stream. */
void *scratch(size_t bytes) { return operands_keep(&room, bytes, "memory between two kernels"); }

/* The last device of the process calls this (gpu_end), before memory_end. */
void operands_end(void)
{
    for (int i = 0; i < OPERANDS_MOST; i++) memory_give(small[i].data, small[i].bytes), small[i] = (struct kept){ 0 };
    memory_give(room.data, room.bytes);
    room = (struct kept){ 0 };
}
