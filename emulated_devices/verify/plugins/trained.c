/* trained.c -- the laws of tensor schemes and of expert schemes: their meshes, and training with them.
 *
 * kinds.c lists law_kind_tensor and law_kind_experts.  Errors are ERR_MEMORY.
 */
#include "emulated_devices/verify/plugins/laws.h"
#include <stdio.h>
#include <string.h>

enum { MESH, TENSOR_REPEATS, TENSOR_TRAINS };
static const struct law tensor_laws[] = {
    [MESH] = { "mesh", "the axes of its mesh multiply to P" },
    [TENSOR_REPEATS] = { "repeats", "equal arguments give the same mesh and the same cuts" },
    [TENSOR_TRAINS] = { "trains", "training on 2, 3 and 4 devices is that of one device; messages and memory are as "
                        "stated" },
    { NULL, NULL }
};

enum { EXPERTS_TRAINS };
static const struct law experts_laws[] = {
    [EXPERTS_TRAINS] = { "trains", "training a mixture on 2 devices is that of one device; messages and memory are as "
                         "stated" },
    { NULL, NULL }
};

enum { MOST_DEVICES = 16 };

/* @return whether this many devices form a mesh. */
static bool judge_mesh(struct book *book, const struct tensor_scheme *scheme, int P)
{
    int size[TENSOR_AXES] = { 1, 1, 1 }, again[TENSOR_AXES] = { 1, 1, 1 };
    int64_t product = 1;
    law_now(book, ".mesh of %d devices", P);
    const char *const refused = scheme->mesh(P, size), *const twice = scheme->mesh(P, again);
    law_judge(book, TENSOR_REPEATS, !refused == !twice && (refused || memcmp(size, again, sizeof size) == 0),
              "%d devices: another mesh the second time", P);
    for (int i = 0; i < TENSOR_AXES && !refused; i++) product *= size[i];
    law_judge(book, MESH, refused ? refused[0] != '\0' : product == P && size[0] > 0 && size[1] > 0 && size[2] > 0,
              "%d devices: a mesh of %d x %d x %d", P, size[0], size[1], size[2]);
    return !refused;
}

static enum error_code judge_tensor(struct book *book, const struct plugin_item *item, struct error *err)
{
    static const char *const counts[] = { "0", "1", "2", "3", "4" };
    const struct tensor_scheme *const scheme = (const struct tensor_scheme *)item->scheme;
    const char *words[] = { "--model", "tiny", "--tensor", scheme->head.name, "--tp", NULL, "--batch", "2", NULL };
    bool has[MOST_DEVICES + 1] = { false };
    enum error_code e = OK;
    for (int P = 1; P <= MOST_DEVICES; P++) has[P] = judge_mesh(book, scheme, P);
    for (int P = 2; P <= 4 && !e; P++) {
        words[5] = counts[P];
        if (has[P]) e = law_trains(book, TENSOR_TRAINS, words, err);
    }
    if (!has[2] && !has[3] && !has[4]) law_leave_out(book, TENSOR_TRAINS);
    return e;
}

static enum error_code judge_experts(struct book *book, const struct plugin_item *item, struct error *err)
{
    const char *const words[] = { "--model", "mixtral-tiny", "--dispatch", item->scheme->name, "--dp", "2", "--ep", "2",
                                  "--batch", "2", NULL };
    return law_trains(book, EXPERTS_TRAINS, words, err);
}

static bool is_tensor(const struct plugin_item *item) { return item->scheme && item->scheme->kind == TENSOR_SCHEME; }
static bool is_experts(const struct plugin_item *item) { return item->scheme && item->scheme->kind == EXPERT_SCHEME; }

static void name_trained(const struct plugin_item *item, char name[LAW_NAME])
{
    snprintf(name, LAW_NAME, "%s", item->scheme->name ? item->scheme->name : "without a name");
}

static bool built_in_tensor(int place, struct plugin_item *item)
{
    *item = (struct plugin_item){ .scheme = scheme_at(TENSOR_SCHEME, place) };
    return item->scheme != NULL;
}

/* The first expert scheme is for models on one device; schemes that predict need a file of affinities. */
static bool built_in_experts(int place, struct plugin_item *item)
{
    const struct expert_scheme *s;
    for (int i = 1; (s = expert_scheme_at(i)) != NULL; i++)
        if (!s->predicts && place-- == 0) return *item = (struct plugin_item){ .scheme = &s->head }, true;
    return false;
}

const struct law_kind law_kind_tensor = {
    .name = "tensor", .laws = tensor_laws, .is = is_tensor, .names = name_trained, .built_in = built_in_tensor,
    .judge = judge_tensor,
};
const struct law_kind law_kind_experts = {
    .name = "experts", .laws = experts_laws, .is = is_experts, .names = name_trained, .built_in = built_in_experts,
    .judge = judge_experts,
};
