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

static const struct judged *const lists[] = { faulty_kernels, right_kernels, tricky_kernels, model_kernels,
                                              memory_kernels, host_kernels, NULL };

/* The n-th kernel that is right, or wrong; NULL: there are not so many. */
static const struct judged *kernel_at(bool right, int n)
{
    for (int l = 0; lists[l] != NULL; l++)
        for (const struct judged *k = lists[l]; k->name != NULL; k++)
            if ((k->says == NULL) == right && n-- == 0) return k;
    return NULL;
}

static int count_of(bool right)
{
    int n = 0;
    while (kernel_at(right, n) != NULL) n++;
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        int n = 0, wrong = 0;
        for (const struct judged *k; (k = kernel_at(true, n)) != NULL; n++)
            if (k->run()) printf("%s: its numbers are wrong\n", k->name), wrong++;
        printf("%d right kernels, %d with wrong numbers\n", n, wrong);
        return wrong != 0;
    }
    const bool name = argc > 2 && strcmp(argv[1], "NAME") == 0;
    const int count = count_of(false), n = atoi(argv[name ? 2 : 1]);
    if (strcmp(argv[1], "COUNT") == 0) return printf("%d\n", count) < 0;
    if (n < 0 || n >= count) return fprintf(stderr, "on_gpu: 0 to %d\n", count - 1), 2;
    const struct judged *k = kernel_at(false, n);
    if (name) return printf("%s\t%s\n", k->name, k->says) < 0;
    return k->run() != 0;
}
