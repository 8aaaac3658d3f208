/* options_schemes.c -- options of `orrery train` that say how devices share the work. */
#include "emulated_devices/cli/train/options/words.h"

static const char *const placements[] = { "even", "speed", NULL };
static const char *const encoder_places[] = { "everywhere", "apart", NULL };

void scheme_options(struct option_list *to, struct train_options *o, struct train_words *w)
{
    const struct option own[] = {
        { .kind = OPTION_HEADING, .help = "Mesh: how many devices along each axis" },
        { "--dp", "N", OPTION_INT, &w->size[DP], .min = 1, .max = MESH_MOST_DEVICES,
          .help = "copies of the model, each with its part of the batch" },
        { "--tp", "N", OPTION_INT, &w->size[TP], .min = 1, .max = MESH_MOST_DEVICES, .help = "parts of each layer" },
        { "--pp", "N", OPTION_INT, &w->size[PP], .min = 1, .max = MESH_MOST_DEVICES, .help = "pipeline stages" },
        { "--cp", "N", OPTION_INT, &w->size[CP], .min = 1, .max = MESH_MOST_DEVICES, .help = "parts of each sequence" },
        { "--ep", "N", OPTION_INT, &o->plan.ep, .min = 1, .max = MESH_MOST_DEVICES,
          .help = "parts of each layer's experts, over the devices of a stage, whatever they are along dp, cp and tp; "
                  "if it does not divide their number, dp is taken so many times" },
        { "--etp", "N", OPTION_INT, &o->plan.etp, .min = 1, .max = MESH_MOST_DEVICES,
          .help = "parts of each expert, over the devices of a stage, as with --ep" },
        { .kind = OPTION_HEADING, .help = "Schemes, by their names in `orrery list`" },
        { "--tensor", "NAME|sbp:FILE", OPTION_STRING, &o->plan.tensor,
          .help = "how layers are split over tp: registered, or by signatures in a text of your own" },
        { "--attention", "NAME", OPTION_STRING, &w->attention,
          .help = "how sequences are split over cp; default: whole, with --cp ring-zigzag" },
        CONTEXT_SPLIT_OPTIONS(o->plan.split),
        { "--dispatch", "NAME", OPTION_STRING, &w->dispatch,
          .help = "how experts are split over ep and etp; default: here, with --ep or --etp alltoall" },
        { "--degree", "R", OPTION_INT, &o->plan.degree, .min = 0, .max = 4096,
          .help = "for tutel: 0: weights move, not rows; R, a divisor of etp: each row is computed by R devices; "
                  "default: what sends least" },
        { "--copies", "M", OPTION_INT, &o->plan.copying.slots, .min = 1, .max = 4096,
          .help = "for fssdp: copies of other devices' experts that a device has room for in each layer; default: 1" },
        { "--copies-to-all", "T", OPTION_INT, &o->plan.copying.top, .min = 1, .max = 4096,
          .help = "for fssdp: if T is at most M, the T experts with the most load go to all devices; default: each of "
                  "the M in proportion to load" },
        { "--copy-again", NULL, OPTION_SWITCH, &o->plan.copying.again,
          .help = "for fssdp: drop copies after the forward pass, and send them again for the backward pass" },
        { "--experts-wait", NULL, OPTION_SWITCH, &o->plan.experts_wait,
          .help = "for a mixture on a shortcut: wait for rows at once, not while the blocks beside it compute" },
        { "--owners", "FILE", OPTION_STRING, &w->owners,
          .help = "for fssdp: which device owns which expert of each layer, as --owners-out writes it; default: the "
                  "nth device has the nth range of each layer" },
        { "--affinity", "FILE", OPTION_STRING, &w->affinity,
          .help = "for speculative: where the experts of each token are likely to be, as `orrery affinity` writes it" },
        { "--load", "LOAD", OPTION_STRING, &o->load_word,
          .help = "of a mixture: even, zipf:S, uniform for S = 0, or a FILE of --save-load: which experts tokens go to, "
                  "whatever the router's scores, which still weigh them; default: the router decides, and in a plan, "
                  "where it cannot, even" },
        { "--recompute", "WHAT", OPTION_STRING, &o->plan.recompute,
          .help = "activations to recompute in backward: none, selective, selective++ (all but attention), full, or "
                  "a list of layers to recompute in full, such as 0,2-5" },
        { "--schedule", "NAME|FILE", OPTION_STRING, &o->plan.schedule,
          .help = "order of microbatches in the pipeline: registered, or your own" },
        { "--chunks", "N", OPTION_INT, &o->plan.chunks, .min = 1, .max = 64, .given = &w->chunks_given,
          .help = "stages on each device of the pipeline" },
        { "--placement", "NAME", OPTION_CHOICE, &w->placement, .choices = placements,
          .help = "layers over stages: evenly, or in proportion to the speed of the cluster's devices" },
        { "--skip", "N", OPTION_INT, &o->plan.skip, .min = 0, .max = 4096,
          .help = "stages that a skippipe microbatch skips; 0: a third of the middle ones" },
        { "--update-every", "N", OPTION_INT, &o->plan.update_every, .min = 0, .max = 1e6,
          .help = "microbatches of a pipedream-2bw batch; 0: pp" },
        { "--receives-ahead", "N", OPTION_INT, &o->plan.receives_ahead, .min = 0, .max = 4096,
          .help = "receives of the pipeline that a device has posted before it comes to them; default: 0, each is "
                  "posted where it is waited for" },
        { "--pairs", NULL, OPTION_SWITCH, &o->plan.pairs,
          .help = "for dualpipe and dualpipev: a forward and a backward side by side: one computes while the other "
                  "waits for messages" },
        { "--comm-streams", "N", OPTION_INT, &o->plan.comm_streams, .min = 1, .max = MOST_COMM_STREAMS,
          .help = "communication streams of a device, for virtual time; 1: one for all collectives; 2: rows of a "
                  "mixture on a shortcut have their own, and what a device waits for at once is not in line; 3: "
                  "reduced gradients have their own, too; 4: sums of 1d-sp-overlap, too" },
        { "--allreduce", "NAME", OPTION_STRING, &o->plan.allreduce,
          .help = "algorithm of all all-reduces, but of losses and norms; those that add in the order of ranks, such "
                  "as the default, keep copies and schemes bitwise equal; auto: the least time (orrery list "
                  "collectives)" },
        { .kind = OPTION_HEADING, .help = "Inputs that are not text" },
        { "--modalities", "N", OPTION_INT, &o->plan.encoders.kinds, .min = 0, .max = MODALITIES,
          .help = "drawn images; and audio; and video; each with an encoder" },
        { "--encoders", "WHERE", OPTION_CHOICE, &w->encoders, .choices = encoder_places,
          .help = "devices with an encoder, all by default, or some for each modality" },
        { "--bridge-chunks", "N", OPTION_INT, &o->plan.encoders.chunks, .min = 1, .max = 4096,
          .help = "in which embeddings travel to the language model, and their gradients back; default: 1" },
        { "--encoder-slack", "PCT", OPTION_INT, &o->plan.encoders.slack, .min = 0, .max = 1000,
          .help = "a clip is encoded where its embeddings are needed, unless that device has so many percent of the "
                  "longest clip more to do than the least loaded; default: 0" },
    };
    option_list_add(to, own, sizeof own / sizeof *own);
}
