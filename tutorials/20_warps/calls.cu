/* Lesson 20: the calls of a student's kernels. */
#include "kernel.h"
#include "warps.h"

static void call(const kernel_call &c) { (c.which == 1 ? row_sums : softmax)(c.y, c.x, c.number[0], c.number[1]); }

int main(int argc, char **argv) { return kernel_main(argc, argv, call); }
