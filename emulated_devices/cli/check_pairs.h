/* check_pairs.h -- shared by the files that say what two dumps have in common.  Inside cli/ only.
 * check_against.c prints it, check_against_json.c writes it for programs. */
#ifndef ORRERY_CHECK_PAIRS_H
#define ORRERY_CHECK_PAIRS_H

#include "emulated_devices/check/report/pairs.h"
#include "emulated_devices/cli/check_against.h"
#include "emulated_devices/cli/check_verdict.h"

/** Say what one dump's tensor is, where the model is known: "is what its own inputs give". */
void pair_side_words(char *out, size_t size, const struct pair *, int k);

/** Whether the dumps are the same.  @param[out] lacks  a required kind of which nothing was judged; NULL: none. */
enum check_verdict pairs_verdict(const struct pairs *, unsigned required, const char **lacks);

/** Write all results.  @return as json_write, or what reading a tensor again gives. */
enum error_code check_pairs_json(const struct check_against *, const struct pairs *, const struct pair_dump[2],
                                 enum check_verdict, struct error *);

#endif
