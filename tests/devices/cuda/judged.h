/* judged.h -- kernels with one mistake each, and right ones that look wrong: for test_judge.c. */
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
extern const struct judged faulty_kernels[], tricky_kernels[];  /* end with a name of NULL */
#ifdef __cplusplus
}
#endif

#endif
