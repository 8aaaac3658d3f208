/* begins.h -- judges the weights and states with which a resumed program begins.
 *
 * Serial.  A dump may begin after step K, with what the program has read from its checkpoint.  All that follows is
 * recomputed from these numbers, so they are inputs, as starting weights are.  They need not be the golden file's: the
 * program's own steps before may have been rounded.  But the golden file knows mistakes of a resume when it sees them:
 * the numbers of another step, zeros, and masters that were made from 16-bit weights.
 * emulated_devices/cli/check_judged.c calls begins_judge before passes are judged.
 */
#ifndef ORRERY_BEGINS_H
#define ORRERY_BEGINS_H

#include "emulated_devices/check/report/checker.h"

/**
 * Find, in place, each tensor that the dump begins with GIVEN if it is not the golden file's, or RESUMED if it shows a
 * mistake.  If one of them is, golden numbers of later steps are of another run: what differs becomes ALONE.
 * Where the dump does not say where it begins, but might, the first tensor that differs says how to say it.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY: the result is as before, or partly judged again.
 */
enum error_code begins_judge(const struct golden *, const struct actual *, struct check_result *, struct error *);

#endif
