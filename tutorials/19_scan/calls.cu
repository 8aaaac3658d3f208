/* Lesson 19: the calls of a student's kernels. */
#include "kernel.h"
#include "scan.h"

static void call(const kernel_call &c)
{
    float *room = nullptr;
    if (c.which == 1) return scan_block(c.y, c.x, c.n);
    cudaMalloc((void **)&room, THREADS * sizeof(float));
    memset(room, 0xff, THREADS * sizeof(float));        /* NaN, not written by a call: the same in every run */
    scan_all(c.y, c.x, c.n, room);
    cudaFree(room);
}

int main(int argc, char **argv) { return kernel_main(argc, argv, call); }
