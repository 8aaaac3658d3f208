/* formula.h -- computes a formula over named numbers, such as "2 * (W - 1) * n / W".
 *
 * A formula has numbers, names, `x[i]`, + - * / % ^, comparisons, && || !, `a ? b : c`, and functions: mod, min, max,
 * floor, ceil, fabs, sqrt, exp, log, log2, pow, xor, bf16, fp16, fp32, block_of(n, parts, i).count or .start, and
 * sum(k, first, last, formula).  As in C, conditions are 1 or 0.  `^` is a power: 2^-7.
 *
 * like_c: the formula is also a line of C, and has the value that C gives: whole numbers are divided without a rest,
 * and `^` is the exclusive or.
 * Warm-ups (warmup.h) and answers of students are formulas.  Every error is ERR_FORMAT and names the place.
 */
#ifndef ORRERY_COURSE_FORMULA_H
#define ORRERY_COURSE_FORMULA_H

#include "ref/error.h"
#include <stdbool.h>

enum { FORMULA_NAMES = 40, FORMULA_ARRAYS = 4, FORMULA_ELEMENTS = 16, FORMULA_NAME = 24 };

struct formula_number { double value; bool whole; };    /* whole: an int in C, else a float */

/* These are the names that a formula may have. */
struct formula_scope {
    struct { char name[FORMULA_NAME]; struct formula_number is; } number[FORMULA_NAMES];
    struct { char name[FORMULA_NAME]; double element[FORMULA_ELEMENTS]; int count; } array[FORMULA_ARRAYS];
    int numbers, arrays;
    bool like_c;                                        /**< Formula has the value of a line of C. */
};

/** Give a name its number; a name that is there gets a new one.  @return OK, or ERR_FORMAT: there are too many. */
enum error_code formula_set(struct formula_scope *, const char *name, double value, bool whole, struct error *);

/** Compute a formula, of which nothing may be left over.  @return OK or ERR_FORMAT; *number is then unchanged. */
enum error_code formula_compute(const struct formula_scope *, const char *text, struct formula_number *number,
                                struct error *);

#endif
