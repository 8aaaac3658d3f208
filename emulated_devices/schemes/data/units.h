/* units.h -- which parameters are in a unit (unit.h), and which units a part of the model needs.
 *
 * Numbers  units by part of the model (UNIT_TOKENS, ..); then the tiles of matrices, matrix by matrix (tiles.h); or, if
 *          numbers are sent as codes, for each unit by part one more with its parameters that are copied along tp;
 *          then, of a mixture, for each unit by part one more with the experts that only some devices have, or that
 *          alone are on the slow tier.  If only some parameters train, all these are there twice: with what trains,
 *          then with what does not; with adapters three times: theirs come last
 * Copies   A block of codes has one scale.  In one row with parameters that tp cuts, copies of a norm would be in
 *          blocks with different other numbers on each device, and at other places if tp cuts unevenly: they would
 *          drift apart.  In a row of their own they have the same blocks on each device, and so the same codes.
 *
 * Files of model/, schemes/, draw/ and verify/ call these functions.  No function returns an error code.
 */
#ifndef ORRERY_UNITS_H
#define ORRERY_UNITS_H

#include "emulated_devices/schemes/data/data.h"

/* A model without blocks: all that it has is in the unit of PART_ALONE.  For networks other than transformers. */
enum { PART_ALONE = 1 };
extern const struct model_config model_of_one_part;

/** The number of units of a model.  Some may be empty. */
int data_unit_count(const struct model_config *, const struct data_request *);

/* A parameter is in units of one of these kinds. */
enum unit_kind { UNITS_TRAINED, UNITS_FROZEN, UNITS_OF_ADAPTERS, UNIT_KINDS };
enum unit_kind data_unit_kind(const struct model_config *, const struct param_spec *);

/** Whether a unit is of a layer's experts alone, even if this device has none of them. */
bool data_unit_is_of_experts(const struct model_config *, const struct data_request *, int unit);

/** The unit of a parameter, or of a tile, from its spec, tile and `copied`. */
int data_unit_of(const struct model_config *, const struct data_request *, const struct parameter *);

/** The units that a part needs while it is used.  @return how many. */
int data_units_of_part(const struct model_config *, const struct data_request *, int part, int unit[PART_UNITS]);

#endif
