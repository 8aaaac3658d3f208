/* options_schemes.c -- options of `orrery train` that say how devices share the work.  options.c calls
 * scheme_options().  No function returns an error code. */
#include "emulated_devices/cli/train/options/options.h"

static const char *const placements[] = { "even", "speed", NULL };
static const char *const encoder_places[] = { "everywhere", "apart", NULL };

void scheme_options(struct option_list *to, struct train_options *options, struct train_words *words)
{
    const struct option own[] = {
        { .kind = OPTION_HEADING, .help = "Mesh: how many devices along each axis" },
        { "--dp", "N", OPTION_INT, &words->size[DP], .min = 1, .max = MESH_MOST_DEVICES,
          .help = "copies of the model, each with its part of the batch" },
        { "--tp", "N", OPTION_INT, &words->size[TP], .min = 1, .max = MESH_MOST_LISTED,
         .help = "parts of each layer" },
        { "--pp", "N", OPTION_INT, &words->size[PP], .min = 1, .max = MESH_MOST_LISTED, .help = "pipeline stages" },
        { "--cp", "N", OPTION_INT, &words->size[CP], .min = 1, .max = MESH_MOST_LISTED,
         .help = "parts of each sequence" },
        { "--ep", "N", OPTION_INT, &options->plan.ep, .min = 1, .max = MESH_MOST_LISTED,
          .help = "the experts of each layer are split into N groups, over the devices of a stage, along dp, cp "
                  "and tp; if N does not divide their number, --dp is multiplied by N" },
        { "--etp", "N", OPTION_INT, &options->plan.etp, .min = 1, .max = MESH_MOST_LISTED,
          .help = "each expert is cut into N parts, over the devices of a stage, as with --ep" },
        { "--plan", "FILE", OPTION_STRING, &words->plan,
          .help = "instead of one mesh: runs of layers, each with devices, a mesh and schemes of its own, of a "
                  "file or as its text (docs/plans/sections.md)" },
        { "--slots", "AXES|LIST", OPTION_STRING, &words->slots,
          .help = "where devices are in the machine: axes, the one whose neighbours are nearest first, such as "
                  "dp,tp,pp; or the places of devices 0, 1, .., such as 4-7,0-3; default: tp,ep,cp,dp,pp, device n "
                  "at place n" },
        { .kind = OPTION_HEADING, .help = "Schemes, by their names in `orrery list`" },
        { "--tensor", "NAME|sbp:FILE", OPTION_STRING, &options->plan.tensor,
          .help = "how layers are split over tp: a registered scheme, or a text of signatures of your own" },
        { "--attention", "NAME", OPTION_STRING, &words->attention,
          .help = "how sequences are split over cp; default: whole, and ring-zigzag with --cp" },
        CONTEXT_SPLIT_OPTIONS(options->plan.split),
        { "--attention-without", "PARTS", OPTION_STRING, &options->plan.attention_without,
          .help = "leave out parts of a scheme that plans, as its paper's ablation does: balance of hdp; remap, "
                  "routing or nodes of zeppelin; divisions or nodes of dcp" },
        { "--dispatch", "NAME", OPTION_STRING, &words->dispatch,
          .help = "how experts are split over ep and etp; default: here, and alltoall with --ep or --etp" },
        { "--degree", "R", OPTION_INT, &options->plan.degree, .min = 0, .max = 4096,
          .help = "for tutel: 0 moves weights instead of rows; R, a divisor of etp, computes each row on R "
                  "devices; default: whichever sends least" },
        { "--row-parts", "N", OPTION_INT, &options->plan.row_parts, .min = 1, .max = 64,
          .help = "for tutel: rows travel in N parts, and each is computed while the next ones travel; default: "
                  "1, 2, 4 or 8, whichever takes the least virtual time, by each layer's choices" },
        { "--copies", "M", OPTION_INT, &options->plan.copying.slots, .min = 1, .max = 4096,
          .help = "for fssdp: a device has room for M copies of other devices' experts in each layer; default: 1" },
        { "--copies-to-all", "T", OPTION_INT, &options->plan.copying.top, .min = 1, .max = 4096,
          .help = "for fssdp: the T experts with the most load go to all devices, if T is at most M; default: "
                  "the M copies follow the load" },
        { "--copy-again", NULL, OPTION_SWITCH, &options->plan.copying.again,
          .help = "for fssdp: drop copies after the forward pass, and send them again for the backward pass" },
        { "--experts-wait", NULL, OPTION_SWITCH, &options->plan.experts_wait,
          .help = "for a mixture on a shortcut: devices wait for rows at once, not while the blocks beside it "
                  "compute" },
        { "--owners", "FILE", OPTION_STRING, &words->owners,
          .help = "for fssdp: a file of --owners-out says which device owns which expert of each layer; "
                  "default: device n owns the nth range of each layer" },
        { "--affinity", "FILE", OPTION_STRING, &words->affinity,
          .help = "for speculative: a file of `orrery affinity` says where the experts of each token are likely "
                  "to be" },
        { "--load", "LOAD", OPTION_STRING, &options->load_word,
          .help = "for mixtures: which experts tokens go to, instead of the router's choice: even, zipf:S (S = "
                  "0 is uniform), or a FILE of --save-load; scores of the router still weigh them; default: the "
                  "router decides, and in a plan even" },
        { "--recompute", "WHAT", OPTION_STRING, &options->plan.recompute,
          .help = "activations that the backward pass computes again: none, selective, selective++ (all but "
                  "attention), full, or a list of layers, such as 0,2-5" },
        { "--schedule", "NAME|FILE", OPTION_STRING, &options->plan.schedule,
          .help = "order of microbatches in the pipeline: a registered schedule, or a file of your own" },
        { "--chunks", "N", OPTION_INT, &options->plan.chunks, .min = 1, .max = 64, .given = &words->chunks_given,
          .help = "stages on each device of the pipeline" },
        { "--placement", "NAME", OPTION_CHOICE, &words->placement, .choices = placements,
          .help = "how layers are spread over stages: evenly, or in proportion to the speed of the cluster's devices" },
        { "--stage-layers", "LIST", OPTION_STRING, &options->plan.stage_layers,
          .help = "how many layers each stage has: 7,8,8,7 in the order of the model; 7,..,5, where the others share "
                  "the rest; embedding, loss or ends, which count as a layer; default: even" },
        { "--skip", "N", OPTION_INT, &options->plan.skip, .min = 0, .max = 4096,
          .help = "stages that each microbatch of skippipe skips; 0: a third of the middle stages" },
        { "--update-every", "N", OPTION_INT, &options->plan.update_every, .min = 0, .max = 1e6,
          .help = "microbatches of one optimizer step of pipedream-2bw; 0: as many as pp" },
        { "--receives-ahead", "N", OPTION_INT, &options->plan.receives_ahead, .min = 0, .max = 4096,
          .help = "a device posts N receives of the pipeline before their turn; default: 0, each receive is "
                  "posted where the device waits for it" },
        { "--pairs", NULL, OPTION_SWITCH, &options->plan.pairs,
          .help = "for dualpipe and dualpipev: a forward and a backward pass run side by side: one computes "
                  "while the other waits for messages" },
        { "--comm-streams", "N", OPTION_INT, &options->plan.comm_streams, .min = 1, .max = MOST_COMM_STREAMS,
          .help = "communication streams of a device, in virtual time. 1: one stream for all collectives. 2: "
                  "rows of a mixture on a shortcut have their own, and a collective that is waited for at once "
                  "starts at once. 3: reduced gradients have their own, too. 4: sums of 1d-sp-overlap, too" },
        { "--allreduce", "NAME", OPTION_STRING, &options->plan.allreduce,
          .help = "algorithm of all all-reduces except those of losses and norms. Algorithms that add in the "
                  "order of ranks keep copies and schemes bitwise equal; auto takes the least virtual time "
                  "(orrery list collectives)" },
        { .kind = OPTION_HEADING, .help = "Inputs that are not text" },
        { "--modalities", "N", OPTION_INT, &options->plan.encoders.kinds, .min = 0, .max = MODALITIES,
          .help = "number of drawn inputs beside text, each with an encoder: 1 images, 2 and audio, 3 and video" },
        { "--clips-of", "LIST", OPTION_STRING, &words->clips,
          .help = "clips of these modalities alone, by name with commas; default: of all that have an encoder" },
        { "--encoders", "WHERE", OPTION_CHOICE, &words->encoders, .choices = encoder_places,
          .help = "which devices have encoders: all of them, or some for each modality" },
        { "--bridge-chunks", "N", OPTION_INT, &options->plan.encoders.chunks, .min = 1, .max = 4096,
          .help = "embeddings travel to the language model, and their gradients back, in N chunks; default: 1" },
        { "--encoder-slack", "PCT", OPTION_INT, &options->plan.encoders.slack, .min = 0, .max = 1000,
          .help = "a clip is encoded where its embeddings are needed, unless that device has PCT percent of the "
                  "longest clip more to do than the least loaded device; default: 0" },
    };
    option_list_add(to, own, sizeof own / sizeof *own);
}
