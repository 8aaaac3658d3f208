/* units.c -- numbers of units: which unit a parameter belongs to, and which units a part needs.
 *
 * open.c and stages/ number units with these functions, model/link/uses.c and model/collect.c, too.  All are pure:
 * every device gets the same numbers, whatever pieces the device has.  No function returns an error code.
 */
#include "emulated_devices/schemes/data/units.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/model/trained.h"

enum { BLOCK_MATRICES = 4 };

const struct model_config model_of_one_part = { .mlp = MLP_GELU };

/* Matrices are numbered in the order of the model's list. */
static int matrix_number(const struct model_config *config, const struct param_spec *spec)
{
    static const int in_block[] = { [ROLE_QKV] = 0, [ROLE_ATTENTION_OUT] = 1, [ROLE_UP] = 2, [ROLE_DOWN] = 3 };
    if (spec->role == ROLE_TOKENS) return 0;
    return 1 + BLOCK_MATRICES * (spec->role == ROLE_HEAD ? (int)config->L : spec->layer) +
           (spec->role == ROLE_HEAD ? 0 : in_block[spec->role]);
}

/* The first unit of experts that only some devices have, or that alone are on the slow tier. */
static int first_apart(const struct model_config *config, const struct data_request *request)
{
    return unit_count(config) * (data_quantises(request) ? 2 : 1);
}

enum unit_kind data_unit_kind(const struct model_config *config, const struct param_spec *spec)
{
    if (spec->role == ROLE_LOW_IN || spec->role == ROLE_LOW_OUT) return UNITS_OF_ADAPTERS;
    return param_trains(config, spec) ? UNITS_TRAINED : UNITS_FROZEN;
}

/* The kinds of units that a model can have. */
static int kinds_of(const struct model_config *config)
{
    return config->trains == 0 ? 1 : config->adapters.rank > 0 ? UNIT_KINDS : UNITS_FROZEN + 1;
}

/* Units of one kind. */
static int count_of_kind(const struct model_config *config, const struct data_request *request)
{
    /* The count has the embedding, four matrices for each block, and an output matrix that is not tied. */
    const int matrices = 1 + BLOCK_MATRICES * (int)config->L + !config->tied;
    if (config->mlp == MLP_MIXTURE) return first_apart(config, request) + unit_count(config);
    return first_apart(config, request) + (uses_tiles(request) ? matrices * request->tiles : 0);
}

int data_unit_count(const struct model_config *config, const struct data_request *request)
{
    return kinds_of(config) * count_of_kind(config, request);
}

bool data_unit_is_of_experts(const struct model_config *config, const struct data_request *request, int unit)
{
    return config->mlp == MLP_MIXTURE && unit % count_of_kind(config, request) >= first_apart(config, request);
}

static int unit_among_its_kind(const struct model_config *config, const struct data_request *request,
                               const struct parameter *parameter)
{
    /* Tiles come after the units by part, matrix after matrix. */
    if (tiles_of(request, &parameter->spec) > 1)
        return unit_count(config) + matrix_number(config, &parameter->spec) * request->tiles + parameter->tile;
    if (parameter->apart || (request->offload_experts && parameter->spec.expert >= 0))
        return first_apart(config, request) + unit_of(&parameter->spec);
    return unit_of(&parameter->spec) + (data_quantises(request) && parameter->copied ? unit_count(config) : 0);
}

int data_unit_of(const struct model_config *config, const struct data_request *request,
                 const struct parameter *parameter)
{
    return (int)data_unit_kind(config, &parameter->spec) * count_of_kind(config, request) +
           unit_among_its_kind(config, request, parameter);
}

static int untiled_unit(int part) { return part == 0 ? UNIT_POSITIONS : UNIT_BLOCKS + part - 1; }

/* With tiled matrices: the units of the untiled parameters. */
int data_units_of_part(const struct model_config *config, const struct data_request *request, int part,
                       int unit[PART_UNITS])
{
    if (uses_tiles(request)) {
        unit[0] = untiled_unit(part);
        return 1;
    }
    int n = data_units_of(config, part, unit);
    for (int k = 0, of_part = n; k < of_part && data_quantises(request); k++) unit[n++] = unit[k] + unit_count(config);
    if (config->mlp == MLP_MIXTURE && part > 0 && part <= config->L)
        unit[n++] = first_apart(config, request) + untiled_unit(part);
    for (int kind = 1, of_kind = n; kind < kinds_of(config); kind++)
        for (int k = 0; k < of_kind; k++) unit[n++] = unit[k] + kind * count_of_kind(config, request);
    return n;
}
