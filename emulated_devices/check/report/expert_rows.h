/* expert_rows.h -- which activations have the rows that a mixture's experts compute.
 *
 * A program that computes all experts at once has no such rows, and shows none; our own devices do not, either.
 * checker_names.c asks which golden tensors may be missing together.
 */
#ifndef ORRERY_EXPERT_ROWS_H
#define ORRERY_EXPERT_ROWS_H

#include <stdbool.h>

/** Whether an activation or its gradient has rows of experts, if its model is a mixture: "act/h.3.mlp.up". */
bool expert_rows_has(const char *name);

#endif
