/* registry.c -- lists every scheme of every kind, and finds one by its name.  A new scheme needs one line here.  The
 * first of each kind is the default.
 *
 * The command line, plan/, search/ and verify/ look up schemes here.  The list is filled before a plan is made, and
 * only scheme_add changes the list.  Every device must add the same schemes in the same order.  scheme_add reports
 * ERR_FORMAT for an entry that lacks something, ERR_MEMORY if the list is full.
 */
#include "emulated_devices/schemes/attention/attention.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/experts/experts.h"
#include "emulated_devices/schemes/pipeline/schedule.h"
#include "emulated_devices/schemes/spatial/spatial.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "ref/io/options.h"
#include <string.h>

#define SCHEMES(X)                                     \
    X(tensor_scheme, tensor_scheme_1d)                 \
    X(tensor_scheme, tensor_scheme_1d_sp)              \
    X(tensor_scheme, tensor_scheme_1d_sp_keep)         \
    X(tensor_scheme, tensor_scheme_1d_sp_overlap)      \
    X(tensor_scheme, tensor_scheme_2d)                 \
    X(tensor_scheme, tensor_scheme_2_5d)               \
    X(tensor_scheme, tensor_scheme_3d)                 \
    X(attention_scheme, attention_scheme_whole)        \
    X(attention_scheme, attention_scheme_ulysses)      \
    X(attention_scheme, attention_scheme_rsa)          \
    X(attention_scheme, attention_scheme_ring)         \
    X(attention_scheme, attention_scheme_ring_striped) \
    X(attention_scheme, attention_scheme_ring_zigzag)  \
    X(attention_scheme, attention_scheme_ring_ptrr)    \
    X(attention_scheme, attention_scheme_allgather_kv) \
    X(attention_scheme, attention_scheme_tokenring)    \
    X(attention_scheme, attention_scheme_tokenring_narrow)  \
    X(attention_scheme, attention_scheme_usp)          \
    X(attention_scheme, attention_scheme_loongtrain)   \
    X(attention_scheme, attention_scheme_hdp)          \
    X(attention_scheme, attention_scheme_zeppelin)     \
    X(attention_scheme, attention_scheme_flexsp)       \
    X(attention_scheme, attention_scheme_dcp)          \
    X(attention_scheme, attention_scheme_streams)      \
    X(expert_scheme, expert_scheme_here)               \
    X(expert_scheme, expert_scheme_alltoall)           \
    X(expert_scheme, expert_scheme_allgather)          \
    X(expert_scheme, expert_scheme_alltoall_2dh)       \
    X(expert_scheme, expert_scheme_two_step)           \
    X(expert_scheme, expert_scheme_tutel)              \
    X(expert_scheme, expert_scheme_speculative)        \
    X(expert_scheme, expert_scheme_fssdp)              \
    X(data_scheme, data_scheme_ddp)                    \
    X(data_scheme, data_scheme_zero1)                  \
    X(data_scheme, data_scheme_zero1_overlap)          \
    X(data_scheme, data_scheme_zero2)                  \
    X(data_scheme, data_scheme_zero3)                  \
    X(data_scheme, data_scheme_fsdp)                   \
    X(data_scheme, data_scheme_fsdp_once)              \
    X(data_scheme, data_scheme_hsdp)                   \
    X(data_scheme, data_scheme_mics)                   \
    X(data_scheme, data_scheme_hpz)                    \
    X(data_scheme, data_scheme_chain)                  \
    X(data_scheme, data_scheme_buff)                   \
    X(data_scheme, data_scheme_local_sgd)              \
    X(data_scheme, data_scheme_diloco)                 \
    X(data_scheme, data_scheme_slowmo)                 \
    X(schedule_generator, schedule_1f1b)               \
    X(schedule_generator, schedule_gpipe)              \
    X(schedule_generator, schedule_interleaved)        \
    X(schedule_generator, schedule_bfs)                \
    X(schedule_generator, schedule_zb_h1)              \
    X(schedule_generator, schedule_zb_h2)              \
    X(schedule_generator, schedule_zb_1p)              \
    X(schedule_generator, schedule_zb_2p)              \
    X(schedule_generator, schedule_zb_v)               \
    X(schedule_generator, schedule_v_half)             \
    X(schedule_generator, schedule_v_min)              \
    X(schedule_generator, schedule_chimera)            \
    X(schedule_generator, schedule_dualpipe)           \
    X(schedule_generator, schedule_dualpipev)          \
    X(schedule_generator, schedule_pipedream_2bw)      \
    X(schedule_generator, schedule_skippipe)           \
    X(spatial_scheme, spatial_scheme_transforms)       \
    X(spatial_scheme, spatial_scheme_scattered)        \
    X(spatial_scheme, spatial_scheme_halo)             \
    X(spatial_scheme, spatial_scheme_score)

/* Each scheme is defined in a file of its own, as a constant of its kind's type. */
#define X(type, symbol) extern const struct type symbol;
SCHEMES(X)
#undef X

/* The rest of the list is NULL: room for schemes of texts and plug-ins. */
static const struct scheme *schemes[SCHEMES_MOST] = {
#define X(type, symbol) &symbol.head,
    SCHEMES(X)
#undef X
};

/* Each kind has its name in commands, its flag, and its family of cases; only tensor makes schemes from texts. */
static const struct scheme_kind_info kinds[SCHEME_KINDS] = {
    [TENSOR_SCHEME]    = { "tensor", "Tensor parallelism, over tp (--tensor)", "--tensor", "tensor",
                           "sbp:", sbp_scheme_make },
    [ATTENTION_SCHEME] = { "attention", "Context parallelism, over cp (--attention)", "--attention", "attention" },
    [EXPERT_SCHEME]    = { "dispatch", "Expert parallelism, over ep (--dispatch)", "--dispatch", "dispatch" },
    [DATA_SCHEME]      = { "data", "Data parallelism, over dp (--data-parallel)", "--data-parallel", "data" },
    [PIPELINE_SCHEME]  = { "schedules", "Pipeline schedules, over pp (--schedule)", "--schedule", "pipeline" },
    [SPATIAL_SCHEME]   = { "spatial", "Fields on the sphere, in tiles (orrery verify spatial)", NULL, "spatial" },
};

const struct scheme_kind_info *scheme_kind_info(enum scheme_kind kind) { return &kinds[kind]; }

/* The place counts only schemes of this kind. */
const struct scheme *scheme_at(enum scheme_kind kind, int place)
{
    for (int i = 0; schemes[i] != NULL; i++)
        if (schemes[i]->kind == kind && place-- == 0) return schemes[i];
    return NULL;
}

/* Names are unique within a kind, not over all kinds. */
static const struct scheme *listed(enum scheme_kind kind, const char *name)
{
    for (int i = 0; schemes[i] != NULL; i++)
        if (schemes[i]->kind == kind && strcmp(schemes[i]->name, name) == 0) return schemes[i];
    return NULL;
}

/* The message names the most similar scheme of the same kind.  The result is ERR_USAGE. */
static enum error_code fail_unknown_scheme(enum scheme_kind kind, const char *name, struct error *err)
{
    const char *names[SCHEMES_MOST];
    size_t n = 0;
    for (const struct scheme *s; (s = scheme_at(kind, (int)n)) != NULL; n++) names[n] = s->name;
    return fail_unknown_name(err, kinds[kind].flag, name, names, n);
}

/* The name is looked up first, so a shipped name never makes a second scheme. */
enum error_code scheme_find(const struct scheme **found, enum scheme_kind kind, const char *name, struct error *err)
{
    const struct scheme *s = listed(kind, name);
    const char *prefix = kinds[kind].prefix;
    if (s != NULL) {
        *found = s;
        return OK;
    }
    if (prefix == NULL || strncmp(name, prefix, strlen(prefix)) != 0) return fail_unknown_scheme(kind, name, err);
    /* A scheme made of a text joins the list, so the second look-up finds the same scheme. */
    const enum error_code e = kinds[kind].make(found, name, err);
    return e ? e : scheme_add(*found, err);
}

/* The head is checked here, because the list and the command line print its texts without a test. */
enum error_code scheme_add(const struct scheme *scheme, struct error *err)
{
    int count = 0;
    if (scheme->kind >= SCHEME_KINDS || !scheme->name || !scheme->name[0] || !scheme->description || !scheme->source)
        return fail(err, ERR_FORMAT, "a scheme %s: needs a kind, a name, a description and a source",
                    scheme->name ? scheme->name : "");
    if (listed(scheme->kind, scheme->name))
        return fail(err, ERR_FORMAT, "%s: there is a scheme of this name (orrery list %s)", scheme->name,
                    kinds[scheme->kind].name);
    while (schemes[count]) count++;
    /* The last place must stay NULL, because NULL ends the list. */
    if (count + 1 >= SCHEMES_MOST)
        return fail(err, ERR_MEMORY, "%s: there are %d schemes, the most that there can be", scheme->name, count);
    schemes[count] = scheme;
    return OK;
}

const char *equality_meaning(enum equality e)
{
    static const char *const meaning[] = {
        [PERMUTES] = "one device, bit for bit: data only moves",
        [REASSOCIATES] = "one device but for rounding: sums are made in another order",
        [DIFFERS] = "another function by design, which the one-device run computes too",
    };
    return meaning[e];
}
