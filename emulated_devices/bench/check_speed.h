/* check_speed.h -- measures `orrery check` on a golden file and a dump that are made for it and removed.
 * cli/bench/check.c calls these functions. */
#ifndef ORRERY_BENCH_CHECK_SPEED_H
#define ORRERY_BENCH_CHECK_SPEED_H

#include "ref/error.h"

enum { CHECK_SPEED_MOST_RANKS = 64 };

/** This holds what is checked: a dump of some ranks, in fp32, of a batch that has its sequences `repeat` times.
 *  wrong: a tensor of the golden file of which one number is off, NULL: none. */
struct check_speed { const char *model, *wrong; int sequences, repeat, tokens, ranks; };

/** This is what a run of `orrery check` has taken: seconds, seconds of all processors, and MB, 10^6 bytes. */
struct check_speed_run { double seconds, processor, memory; };

/** Files are in MB.  right: the same dump without the wrong number, if there is one; else zeros. */
struct check_speed_found { double dump, golden; struct check_speed_run run, right; };

/** Make the files, and run `orrery check` as a process of its own, whose time and memory the system counts.
 *  @return OK; ERR_USAGE naming --model, --tokens, --repeat or --wrong; ERR_FILE, ERR_MEMORY; ERR_CHECK: the
 *  dump was not found right, or the wrong one was. */
enum error_code check_speed_measure(const struct check_speed *, struct check_speed_found *, struct error *);

#endif
