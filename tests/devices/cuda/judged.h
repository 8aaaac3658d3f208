/* judged.h -- kernels with one mistake each, and right ones that look wrong: for test_judge.c and on_gpu.c.
 * test_judge.c and on_gpu.c include this file. */
#ifndef ORRERY_TESTS_JUDGED_H
#define ORRERY_TESTS_JUDGED_H

struct judged {
    const char *name;                   /* the kernel and its mistake */
    const char *says;                   /* what a report says; "wrong": nothing, but numbers are; NULL: it is right */
    int (*run)(void);                   /* whether the numbers are wrong */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Each ends with a name of NULL. */
extern const struct judged faulty_kernels[], right_kernels[], tricky_kernels[];
extern const struct judged model_kernels[], memory_kernels[], host_kernels[];       /* wrong ones and right ones */
#ifdef __cplusplus
}
#endif

#endif
