/* names.c -- what a golden file says of its names, for programs that hook other programs: each parameter's tensors in
 * files of transformers, and which operation writes each activation.
 *
 * make.c calls golden_names_text for the metadata "names"; golden/frameworks/orrery_dump/of_golden.py reads that.
 * Errors are ERR_MEMORY.
 */
#include "ref/golden/make.h"
#include "ref/io/json.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"
#include "ref/model/naming.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <string.h>

/* The operations by which a hook finds a module.  Others have no module of their own. */
static const char *const operation_name[OP_COUNT] = {
    [OP_NORM] = "norm", [OP_LATENT_NORM] = "norm", [OP_MATRIX] = "matrix", [OP_HEAD_NORM] = "head norm",
    [OP_ROTARY] = "rotary", [OP_ROUTE] = "route", [OP_MIXTURE] = "mixture",
    [OP_GATE] = "gate",
};

/* Add a parameter: its shape, and its parts in files, in order of its rows. */
static void names_add_param(cJSON *parameters, const struct param_spec *spec)
{
    cJSON *row = json_add(json_row(parameters), "name %s layer %d expert %d role %s rows %g columns %g transposed %hhd",
                          spec->name, spec->layer, spec->expert,
                          spec->role == ROLE_UP ? "up" : spec->role == ROLE_DOWN ? "down" : "", (double)spec->dim[0],
                          spec->ndim == 2 ? (double)spec->dim[1] : 1, spec->file_transposed);
    cJSON *parts = cJSON_AddArrayToObject(row, "parts");
    for (int p = 0; p < spec->parts; p++) {
        const struct param_part *part = &spec->part[p];
        json_add(json_row(parts), "name %s rows %g apart %d first %d together %g items %g item %g", part->name,
                 (double)part->rows, part->rows_apart > 0 ? part->rows_apart : 1, part->first,
                 (double)part_group(part), (double)part->items, (double)part->item);
    }
}

/* Whether a model has a node: the option, or the factor, that the node stands for. */
static bool names_have(const struct model_config *config, const struct node *node)
{
    return model_has(config, node->when) && (node->op != OP_SCALE || model_has_factor(config, node->factor));
}

struct part_slots { const struct model_config *config; const struct node *nodes; int layer; char before[32]; };

/* The activation that is in a slot.  A node that the model has not passes its first input on. */
static void slot_name(const struct part_slots *part, const char *slot, char *name, size_t size)
{
    for (const struct node *n = part->nodes; n->op != OP_END; n++)
        if (n->out && strcmp(n->out, slot) == 0 && !names_have(part->config, n))
            return slot_name(part, n->in[0], name, size);
    if (strcmp(slot, "in") == 0) snprintf(name, size, "%s", part->before);
    else if (part->layer < 0) snprintf(name, size, "%s", slot);
    else snprintf(name, size, "h.%d.%s", part->layer, slot);
}

/* Add a node: what it reads and writes, and its weight. */
static void names_add_node(cJSON *rows, const struct part_slots *part, const struct node *node)
{
    char name[80];
    const int p = param_of_model(part->config, part->layer, node->param);
    slot_name(part, node->out, name, sizeof name);
    cJSON *row = json_add(json_row(rows), "out %s by %s layer %d kept %hhd", name,
                          operation_name[node->op] ? operation_name[node->op] : "", part->layer, !node->unseen);
    if (p >= 0) json_add(row, "parameter %s", model_param(part->config, p).name);
    cJSON *in = cJSON_AddArrayToObject(row, "in");
    for (int i = 0; i < NODE_INPUTS && node->in[i]; i++) {
        slot_name(part, node->in[i], name, sizeof name);
        cJSON_AddItemToArray(in, cJSON_CreateString(name));
    }
}

static void names_add_part(cJSON *rows, const struct part_slots *part)
{
    for (const struct node *n = part->nodes; n->op != OP_END; n++)
        if (n->out && names_have(part->config, n)) names_add_node(rows, part, n);
}

/* Add all parts in order; the last slot of each is the next one's "in". */
static void names_add_nodes(cJSON *rows, const struct model_config *config)
{
    const struct program *program = model_program(config);
    struct part_slots part = { .config = config, .nodes = program->embedding, .layer = -1 };
    names_add_part(rows, &part);
    snprintf(part.before, sizeof part.before, "embedding");
    for (part.layer = 0; part.layer < config->L; part.layer++) {
        part.nodes = layer_mlp(config, part.layer) == config->mlp ? program->block : program->dense_block;
        names_add_part(rows, &part);
        snprintf(part.before, sizeof part.before, "h.%d.out", part.layer);
    }
    part.layer = -1, part.nodes = program->loss;
    names_add_part(rows, &part);
}

enum error_code golden_names_text(const struct model_config *config, char **text, struct error *err)
{
    const struct naming *naming = naming_of(config);
    char layer[80], number[96];
    cJSON *root = json_add(cJSON_CreateObject(), "query_heads %g key_heads %g head_width %g latent %hhd",
                           (double)config->H, (double)config->K, (double)config->A, LATENT(config));
    cJSON *layers = cJSON_AddArrayToObject(root, "layers"), *parameters = cJSON_AddArrayToObject(root, "parameters");
    snprintf(layer, sizeof layer, "%s%s", naming->in_files, naming->block);
    const size_t prefix = strcspn(layer, "%");
    for (int l = 0; l < config->L; l++) {
        snprintf(number, sizeof number, "%.*s%d", (int)prefix, layer, l);
        cJSON_AddItemToArray(layers, cJSON_CreateString(number));
    }
    for (int i = 0; i < model_param_count(config); i++) {
        const struct param_spec spec = model_param(config, i);
        names_add_param(parameters, &spec);
    }
    names_add_nodes(cJSON_AddArrayToObject(root, "nodes"), config);
    *text = json_text(root, false);
    cJSON_Delete(root);
    return *text ? OK : fail(err, ERR_MEMORY, "no memory for the names of %s", config->name);
}
