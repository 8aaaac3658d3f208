/* schemes.c -- schemes by their heads, and options that schemes take, for `orrery list`.  list.c has a row for each
 * kind.  Nothing here fails: without memory layouts of --tensor are missing. */
#include "emulated_devices/cli/list/list.h"
#include "emulated_devices/schemes/pipeline/schedule.h"
#include "emulated_devices/schemes/scheme.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"

/* List a kind's schemes by their heads; more: prints fields of the kind's own type. */
static void list_schemes(enum scheme_kind kind, const char *memory, void (*more)(const struct scheme *))
{
    const struct scheme *s;
    for (int i = 0; (s = scheme_at(kind, i)) != NULL; i++) {
        list_entry(s->name, s->description);
        if (s->needs) list_field("needs %s", s->needs);
        if (s->volume) list_field("sends %s", s->volume);
        if (more) more(s);
        if (s->memory) list_field("%s %s", memory, s->memory);
        list_field("equals %s", equality_meaning(s->equality));
        for (const struct invariant *v = s->invariants; v && v->name; v++) list_field("holds %s", v->sentence);
        list_field("from %s", s->source);
    }
}

void list_attention(void) { list_schemes(ATTENTION_SCHEME, "memory", NULL); }
void list_experts(void) { list_schemes(EXPERT_SCHEME, "memory", NULL); }
void list_spatial(void) { list_schemes(SPATIAL_SCHEME, "memory", NULL); }
void list_tensor(void)
{
    (void)sbp_schemes_add(NULL);                                /* without memory they are missing */
    list_schemes(TENSOR_SCHEME, "memory", NULL);
}

/* Options of every scheme that shards something. */
static void list_quantising(void)
{
    list_entry("--quantize-weights",
          "int8 or int4: weights are gathered as codes, with one scale per --quantize-block elements; all devices, the "
          "owner included, compute with the dequantised values");
    list_field("sends bits/8 + 4/block bytes an element instead of the format's size");
    list_field("memory a master copy beside the optimizer's state, if weights are gathered after the step");
    list_field("from ZeRO++ (qwZ), arXiv:2306.10209; codes and scales are those of DeepSpeed 0.19.8");
    list_entry("--quantize-gradients", "int8 or int4: gradients are reduced by all-to-alls of codes, inside nodes "
               "and then "
                                  "between them; sums of fp16 are made in fp16, all others in fp32 or fp64");
    list_field("sends bits/8 + 4/block bytes an element; n/q of n elements leave a node of q devices");
    list_field("memory two buffers of codes of the unit that is being reduced");
    list_field("from ZeRO++ (qgZ), arXiv:2306.10209; codes and scales are those of DeepSpeed 0.19.8");
}

/* Options of every scheme. */
static void list_offload(void)
{
    list_entry("--offload WHAT", "optimizer state, gradients, weights or activations on a slow tier: the host's "
               "memory, or "
                            "one file per device (--offload-to)");
    list_field("moves weights: a read for each gather, a write a step, and without masters a read for the step; "
               "gradients: "
          "a write and a "
          "read a step, both once more for each further backward pass; optimizer state: a read and a write a step. n/P "
          "of each, on each device's own link");
    list_field("memory weights: two parts and the shards of two; gradients: one part and a shard; optimizer state: "
               "three "
          "slices (--offload-slice)");
    list_field("activations: what layers keep, but for the last two of a stage, leaves after forward and comes back "
               "before "
          "backward; moves each byte once each way a microbatch; memory two layers, and those that stay");
    list_field("experts: only a mixture's experts leave; the rest stays as its data scheme shards it, and is "
               "gathered over "
          "the network while experts come over the link to the host");
    list_field("--chosen-experts, in orrery infer: a read for each expert that a router has chosen, and for no other; "
          "memory the experts of a layer");
    list_field("--offload-stride K: the device steps every Kth slice, the host the others at the same time");
    list_field("from ZeRO-Infinity, arXiv:2104.07857; ZeRO-Offload, arXiv:2101.06840; Deep Optimizer States, "
          "arXiv:2410.21316; activations: ByteScale, arXiv:2502.21231; experts: MoESys, arXiv:2205.10034");
}

/* Options of schemes that gather weights before use. */
static void list_tiles(void)
{
    list_entry("--tiles T", "each matrix as T ranges of outputs, which are gathered, used, reduced and stepped one "
               "after "
                       "the other; for schemes that "
                       "gather weights before use, and for --offload weights; with tp of each device's piece");
    list_field("sends what the scheme sends, and gathers the output matrix and the matrices of recomputed layers "
               "once more");
    list_field("memory weights: two tiles, and the norms and biases of a layer or two; gradients: a tile, and the "
               "norms and "
          "biases of its layer");
    list_field("from ZeRO-Infinity, arXiv:2104.07857, section 5.1.3");
}

void list_data(void)
{
    list_schemes(DATA_SCHEME, "memory", NULL);
    list_quantising();
    list_offload();
    list_tiles();
}

static void bubble(const struct scheme *scheme)
{
    list_field("bubble %s", ((const struct schedule_generator *)scheme)->bubble);
}

void list_schedules(void) { list_schemes(PIPELINE_SCHEME, "holds", bubble); }
