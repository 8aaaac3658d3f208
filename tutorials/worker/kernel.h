/* kernel.h -- the process of a student's kernels: it gets numbers, runs one call, and says what came out and what the
 * judge of kernels has seen.  calls.cu of a lesson includes it.
 *
 * argv: the call's number, numbers of the result, then whole numbers for the call.  Standard input: fp32 numbers, all
 * that there are.  Standard output: the count of reports, a line each; a line with the most accesses of a thread; then
 * the result, fp32.  Where no thread can go on there are only reports.  No function returns an error code.
 */
#ifndef ORRERY_WORKER_KERNEL_H
#define ORRERY_WORKER_KERNEL_H

#include "cage.h"
#include "emulated_devices/device/cuda/kernels/launch.cuh"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
int judge_reports(void);
const char *judge_report(int);
void judge_print(bool now);
long judge_most_accesses(void);
extern void (*judge_gives_up)(void);
bool judge_lines_apart(void);
}

/* Memory, and what is open already; a launch of nothing before that lets the judge read what it reads once. */
static __global__ void nothing() {}

static inline bool lock_in()
{
    static const int calls[] = { CAGE_KERNEL_CALLS };
    LAUNCH(nothing, dim3(1), dim3(1), 0);
    return judge_lines_apart() && cage_lock(calls, sizeof calls / sizeof *calls) == 0;
}

/* y, x: the device's memory.  y holds what nobody has written. */
struct kernel_call { int which; float *y; int m; const float *x; int n; const int *number; };

static inline std::vector<float> numbers_of_input()
{
    std::vector<float> x;
    float part[1024];
    for (size_t got; (got = fread(part, sizeof *part, 1024, stdin)) > 0;) x.insert(x.end(), part, part + got);
    return x;
}

static inline void print_reports()
{
    const cudaError_t e = cudaGetLastError();
    printf("%d\n", judge_reports() + (e != cudaSuccess));
    for (int i = 0; i < judge_reports(); i++) printf("%s\n", judge_report(i));
    if (e != cudaSuccess) printf("a launch fails: %s\n", cudaGetErrorString(e));
}

static inline int kernel_main(int argc, char **argv, void (*call)(const kernel_call &))
{
    const std::vector<float> x = numbers_of_input();
    std::vector<int> number;
    for (int i = 3; i < argc; i++) number.push_back(atoi(argv[i]));
    const int m = atoi(argv[2]);
    std::vector<float> y((size_t)m);
    float *dx = nullptr, *dy = nullptr;
    judge_print(false);
    cudaMalloc((void **)&dx, x.size() * sizeof(float)), cudaMalloc((void **)&dy, (size_t)m * sizeof(float));
    cudaMemcpy(dx, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
    if (m > 0) memset(dy, 0xff, (size_t)m * sizeof(float));     /* NaN; not by a call, which would count as written */
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (!lock_in()) _Exit(4);
    judge_gives_up = print_reports;
    call({ atoi(argv[1]), dy, m, dx, (int)x.size(), number.data() });
    cudaMemcpy(y.data(), dy, (size_t)m * sizeof(float), cudaMemcpyDeviceToHost);
    print_reports();
    printf("%ld\n", judge_most_accesses());
    fwrite(y.data(), sizeof(float), (size_t)m, stdout);
    fflush(stdout);
    _Exit(0);
}

#endif
