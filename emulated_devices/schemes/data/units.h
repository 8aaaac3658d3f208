/* units.h -- which parameters make a unit (unit.h), and which units a part of the model needs.
 *
 * Numbers  by part of the model (UNIT_TOKENS, ..); then the tiles of matrices, matrix after matrix (tiles.h); or, where
 *          numbers travel as codes, for each unit by part one for its parameters that devices along tp have copies of.
 * Copies   A block of codes has one scale.  In one row with what tp cuts, copies of a norm would share blocks with
 *          other numbers on each device, and lie in other places where tp cuts unevenly: they would drift apart.  In a
 *          row of their own they have the same blocks on each device, and so the same codes.
 */
#ifndef ORRERY_UNITS_H
#define ORRERY_UNITS_H

#include "emulated_devices/schemes/data/data.h"

/** How many units a model has.  Some may be empty. */
int data_unit_count(const struct model_config *, const struct data_request *);

/** The unit that a parameter, or a tile of one, is in: by its spec, tile and `copied`. */
int data_unit_of(const struct model_config *, const struct data_request *, const struct parameter *);

/** The units that a part needs as long as it is used.  @return how many. */
int data_units_of_part(const struct model_config *, const struct data_request *, int part, int unit[PART_UNITS]);

#endif
