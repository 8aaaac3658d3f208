/* rates_file.h -- reads the learning rate of each step from a text.
 *
 * cli/golden/make_rates.c calls rates_read.
 */
#ifndef ORRERY_RATES_FILE_H
#define ORRERY_RATES_FILE_H

#include "ref/golden/golden.h"

/**
 * Read a rate from each line, as a scheduler prints them: that of step 1 first.
 * @param[out] rate   [count]
 * @param[out] count  1 to GOLDEN_MOST_STEPS.
 * @return OK; ERR_FILE; ERR_FORMAT, naming the line that is no number from 0 on, or too many lines; ERR_MEMORY.
 */
enum error_code rates_read(const char *path, double rate[GOLDEN_MOST_STEPS], int *count, struct error *);

#endif
