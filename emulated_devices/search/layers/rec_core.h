/* rec_core.h -- MindSpore's double recursive cuts: devices are halved, and in each round every product halves one of
 * its dimensions.
 *
 * rec_core.c of this folder calls the function, and so does tests/devices/test_planners.c.  The function is pure.
 */
#ifndef ORRERY_SEARCH_REC_CORE_H
#define ORRERY_SEARCH_REC_CORE_H

#include "emulated_devices/search/layers/table.h"

/* The dimensions of a product [rows, inner] x [inner, columns]; none: no dimension is even. */
enum cut_of_product { CUTS_ROWS, CUTS_COLUMNS, CUTS_INNER, CUTS_NOTHING };

enum { REC_ROUNDS = 10 };               /* the release goes up to 1024 devices */

/**
 * Cut the products of a layer, of which each reads the one before.
 * @param of       [count] dimensions.
 * @param rounds   halvings of the devices, at most REC_ROUNDS.
 * @param[out] cut  [count][rounds] what each product halves in each round.
 */
void rec_core_cut(const struct layer_product *of, int count, int rounds,
                  enum cut_of_product cut[LAYER_PRODUCTS_MOST][REC_ROUNDS]);

#endif
