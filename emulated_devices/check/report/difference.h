/* difference.h -- compares a tensor of two dumps, each put together from the pieces of its own ranks.
 *
 * Serial.  pairs.c calls difference_make for each tensor that both dumps have.  Some rows are put together at a time,
 * so memory does not grow with the tensor.
 */
#ifndef ORRERY_DIFFERENCE_H
#define ORRERY_DIFFERENCE_H

#include "emulated_devices/check/dump/assembly.h"

/* The result of comparing one tensor.  Index 0 is the first dump, 1 the second. */
struct difference {
    char why[300];                      /* the tensor is not whole in one dump, or pieces do not fit; empty: it is */
    int lacking;                        /* the dump of which `why` speaks */
    int64_t elements, different;        /* in all; those that are not the same number to the last bit */
    double norm[2], apart;              /* of the numbers, and of their difference */
    bool copies[2];                     /* copies on several ranks differ within the dump */
    int64_t first;                      /* the first element that is different */
    double value[2];                    /* its numbers */
    char holder[2][400];                /* rank, piece and file that have it */
};

/** Whether all numbers are the same to the last bit, on all ranks of both dumps. */
bool difference_is_none(const struct difference *);

/** The norm of the difference over the larger norm of the two; NaN if a number is. */
double difference_distance(const struct difference *);

/**
 * Compare.
 * @param dim  rows and columns of the whole.
 * @return OK, whatever differs; ERR_FORMAT, ERR_FILE, ERR_MEMORY.
 */
enum error_code difference_make(struct difference *, const struct actual *const dump[2], const char *name,
                                const int64_t dim[2], struct error *);

#endif
