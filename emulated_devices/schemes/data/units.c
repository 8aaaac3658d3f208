#include "emulated_devices/schemes/data/units.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "ref/model/config.h"

enum { BLOCK_MATRICES = 4 };

/* Matrices are numbered in the order of the model's list. */
static int matrix_number(const struct model_config *c, const struct param_spec *s)
{
    static const int in_block[] = { [ROLE_QKV] = 0, [ROLE_ATTENTION_OUT] = 1, [ROLE_UP] = 2, [ROLE_DOWN] = 3 };
    if (s->role == ROLE_TOKENS) return 0;
    return 1 + BLOCK_MATRICES * (s->role == ROLE_HEAD ? (int)c->L : s->layer) +
           (s->role == ROLE_HEAD ? 0 : in_block[s->role]);
}

/* The first unit of experts that only some devices have, or that alone are on the slow tier. */
static int first_apart(const struct model_config *c, const struct data_request *q)
{
    return unit_count(c) * (data_quantises(q) ? 2 : 1);
}

int data_unit_count(const struct model_config *c, const struct data_request *q)
{
    const int matrices = 1 + BLOCK_MATRICES * (int)c->L + !c->tied;
    if (c->mlp == MLP_MIXTURE) return first_apart(c, q) + unit_count(c);
    return first_apart(c, q) + (uses_tiles(q) ? matrices * q->tiles : 0);
}

bool data_unit_is_of_experts(const struct model_config *c, const struct data_request *q, int unit)
{
    return c->mlp == MLP_MIXTURE && unit >= first_apart(c, q);
}

int data_unit_of(const struct model_config *c, const struct data_request *q, const struct parameter *p)
{
    if (tiles_of(q, &p->spec) > 1) return unit_count(c) + matrix_number(c, &p->spec) * q->tiles + p->tile;
    if (p->apart || (q->offload_experts && p->spec.expert >= 0)) return first_apart(c, q) + unit_of(&p->spec);
    return unit_of(&p->spec) + (data_quantises(q) && p->copied ? unit_count(c) : 0);
}

static int untiled_unit(int part) { return part == 0 ? UNIT_POSITIONS : UNIT_BLOCKS + part - 1; }

/* With tiled matrices: the units of the untiled parameters. */
int data_units_of_part(const struct model_config *c, const struct data_request *q, int part, int unit[PART_UNITS])
{
    if (uses_tiles(q)) {
        unit[0] = untiled_unit(part);
        return 1;
    }
    int n = data_units_of(c, part, unit);
    for (int k = 0, of_part = n; k < of_part && data_quantises(q); k++) unit[n++] = unit[k] + unit_count(c);
    if (c->mlp == MLP_MIXTURE && part > 0 && part <= c->L) unit[n++] = first_apart(c, q) + untiled_unit(part);
    return n;
}
