/* The judge's kernels on a GPU: what hardware and compute-sanitizer say of them.
 *
 *   on_gpu           runs the right ones; status 1 if the numbers of one are wrong
 *   on_gpu COUNT     how many have a mistake
 *   on_gpu NAME N    the name of the Nth of those, and what the judge says of it
 *   on_gpu N         runs it; status 1 if its numbers are wrong
 */
#include "tests/devices/cuda/judged.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct judged right_kernels[];

static int count_of(const struct judged *k)
{
    int n = 0;
    while (k[n].name != NULL) n++;
    return n;
}

static int wrong_of(const struct judged *k)
{
    int wrong = 0;
    for (; k->name != NULL; k++)
        if (k->run()) printf("%s: its numbers are wrong\n", k->name), wrong++;
    return wrong;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        const int wrong = wrong_of(right_kernels) + wrong_of(tricky_kernels);
        printf("%d right kernels, %d with wrong numbers\n", count_of(right_kernels) + count_of(tricky_kernels), wrong);
        return wrong != 0;
    }
    const bool name = argc > 2 && strcmp(argv[1], "NAME") == 0;
    const int count = count_of(faulty_kernels), n = atoi(argv[name ? 2 : 1]);
    if (strcmp(argv[1], "COUNT") == 0) return printf("%d\n", count) < 0;
    if (n < 0 || n >= count) return fprintf(stderr, "on_gpu: 0 to %d\n", count - 1), 2;
    if (name) return printf("%s\t%s\n", faulty_kernels[n].name, faulty_kernels[n].says) < 0;
    return faulty_kernels[n].run() != 0;
}
