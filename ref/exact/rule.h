/* rule.h -- the arithmetics of `--arithmetic`: how sums round, and into how many slices operands of exact sums are cut.
 *
 * fp64 adds products of 53 bits without rounding.  So an operand of many bits is cut into slices, and each slice is
 * multiplied by the whole other operand: a product of two slices is two BLAS products.  A new rule is a name here, a
 * line of bits in grid.h, and a format in ref/ops/real.h and in the Makefile.
 *
 * products.c and attention.c are compiled for each rule.  Files of plan/, model/, cli/ and others ask for names.  No
 * function can fail.
 */
#ifndef ORRERY_EXACT_RULE_H
#define ORRERY_EXACT_RULE_H

/* In ordinary arithmetic each addition rounds.  The others have the number of slices of an operand. */
enum exact_rule { SUMS_ROUND, SUMS_EXACT, SUMS_EXACT2, EXACT_RULES };

/* Their names, and NULL behind. */
extern const char *const exact_rule_names[EXACT_RULES + 1];

/** The arithmetic of a name; SUMS_ROUND of NULL, and of a name that there is not. */
enum exact_rule exact_rule_named(const char *name);

#endif
