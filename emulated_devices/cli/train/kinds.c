/* kinds.c -- which options of `orrery train` do not belong to `orrery infer`, `plan`, and topics of `show`. */
#include "emulated_devices/cli/train/choose.h"
#include "emulated_devices/cli/train/rl.h"
#include "emulated_devices/cli/train/serve.h"
#include "emulated_devices/rl/task.h"
#include "emulated_devices/weather/learner.h"

/* Options of training that a run without steps does not have. */
#define OF_TRAINING                                                                                 \
    "--recompute", "--update-every", "--local-steps", "--outer-lr", "--outer-momentum",             \
    "--reshard-after-forward", "--bucket", "--reduce-scatter", "--quantize-gradients",              \
    "--offload-slice", "--offload-stride", "--grad-dtype", "--loss-scale", "--dropout",             \
    "--router-speed", "--optimizer", "--mezo-eps", "--perturb", "--lr", "--min-lr", "--warmup",     \
    "--lr-steps", "--lr-schedule", "--lr-decay", "--clip", "--weight-decay", "--beta1", "--beta2",  \
    "--eps", "--as", "--train-only", "--rank", "--refresh", "--galore-scale", "--history", "--damping",             \
    "--timeline", "--dump", "--dump-passes", "--dump-steps", "--isolate", "--paranoid", "--save",   \
    "--record", "--disturb", "--sharded", "--save-async", "--lose", "--raise", "--elastic",        \
    "--survive", "--save-every",                                                                    \
    "--keep", "--eval-every", "--owners-out",                                                       \
    "--resume", "--override", "--sample", "--modalities", "--clips-of", "--encoders", "--bridge-chunks",          \
    "--encoder-slack", "--pack", "--unfolded", "--dry-run", "--tokens", OF_FAILURES,                \
    "--memory-of", "--from", WEATHER_OPTIONS

static const char *const of_training[] = { OF_TRAINING, NULL };

const struct run_kind run_infer = {
    .command = "infer", .without = of_training, .steps = 100, .infers = true,
    .what = "Run the forward passes of a model on a mesh of emulated devices, on held-out text.\n"
            "Its weights do not change; --model DIR says which they are.",
};

/* Files that a run reads and writes, and pictures of its steps. */
#define OF_FILES                                                                                    \
    "--timeline", "--dump", "--dump-passes", "--dump-steps", "--isolate", "--paranoid", "--save",   \
    "--record", "--disturb", "--sharded", "--save-async", "--lose", "--elastic", "--save-every",    \
    "--keep", "--eval-every", "--owners-out", "--resume", "--override", "--sample", "--unfolded",   \
    "--dry-run", "--tokens", "--trace", "--trace-format", "--trace-steps", "--page",                \
    "--page-steps", "--film", "--live", "--log", "--tensorboard", "--log-every", "--save-load", "--json"

/* Serving has no batches of text, no files of training, and only some schemes. */
static const char *const of_batches[] = {
    OF_TRAINING,
    "--plan", "--attention", "--head-parallel", "--ring-window", "--context-first", "--attention-without",
    "--degree", "--row-parts", "--copies", "--copies-to-all", "--copy-again", "--experts-wait",
    "--owners", "--load", "--schedule", "--stage-layers", "--skip", "--receives-ahead", "--pairs", "--shard-group",
    "--shards", "--prefetch", "--tiles", "--allgather", "--quantize-weights", "--quantize-block",
    "--chosen-experts", "--data", "--eval-data", "--steps", "--batch", "--batches", "--mask", "--micro",
    "--micro-tokens", "--balance-over", "--z-loss", "--trace", "--trace-format", "--trace-steps", "--page",
    "--page-steps", "--film", "--live", "--check", "--log", "--tensorboard", "--log-every", "--save-load",
    "--json", "--config", "--print-config", "--etp", "--comm-streams", "--chunks", "--zero", "--streams", "--prefix",
    NULL
};

const struct run_kind run_serve = {
    .command = "serve", .without = of_batches, .steps = 1, .more = serve_options, .infers = true, .serves = true,
    .what = "Answer requests on a mesh of emulated devices: continuous batching, chunked prompts, keys and values\n"
            "in blocks, prefixes shared. Each of dp replicas has tp x pp devices. Numbers are real; times are those\n"
            "of the cluster. --check ref holds every token to the request alone on one device\n"
            "(docs/using/serving.md).",
};

/* Reinforcement learning has samples of its own in place of text, and keeps nothing on disks. */
static const char *const of_texts[] = {
    OF_FILES, OF_FAILURES, WEATHER_OPTIONS, "--memory-of", "--from", "--plan", "--seq", "--data", "--eval-data",
    "--tokenizer", "--batches", "--mask", "--pack", "--load", "--affinity", "--owners", "--perturb", "--mezo-eps",
    "--dropout", "--modalities", "--clips-of", "--encoders", "--bridge-chunks", "--encoder-slack", "--micro-tokens",
    "--chosen-experts", "--local-steps", "--outer-lr", "--outer-momentum", NULL
};

const struct run_kind run_rl = {
    .command = "rl", .without = of_texts, .steps = 20, .more = rl_options, .batch = 64,
    .vocabulary = TASK_VOCABULARY, .model = "tiny",
    .what = "Train a model by rewards of its own answers on a mesh of emulated devices: answers are drawn, scored\n"
            "and rewarded, and the policy is trained on them, by the conventions of released programs. The task is\n"
            "the addition of two numbers. --check ref holds every token, loss, gradient and weight to one device\n"
            "(docs/using/reinforcement.md).",
};

/* Options of a run that has numbers, text and processes. */
#define OF_NUMBERS                                                                                  \
    "--eval-data", "--sample", "--check", "--dump", "--dump-passes", "--dump-steps",                \
    "--isolate", "--paranoid", "--record", "--disturb",                                             \
    "--backend", "--direct", "--wait-limit", "--threads", "--save", "--sharded", "--save-async",    \
    "--lose", "--raise", "--elastic", "--survive",                                                  \
    "--save-every", "--keep",                                                                       \
    "--log", "--log-every", "--tensorboard", "--eval-every", "--owners-out", "--save-load",         \
    "--resume", "--override",                                                                       \
    "--lr", "--min-lr", "--warmup", "--lr-steps", "--lr-schedule", "--lr-decay",                    \
    "--weight-decay", "--beta1", "--beta2", "--eps", "--trace", "--trace-steps",          \
    "--trace-format", "--live", "--dry-run"

static const char *const of_numbers[] = { OF_NUMBERS, NULL };

/* A plan has the samples of --pack, whose number and order are those of a run with this text and seed; a drawing has
 * not. */
#define OF_SAMPLES "--data", "--pack", "--seed"

/* A drawing is no report of a run: its JSON is that of every command. */
static const char *const of_reports[] = { OF_NUMBERS, OF_SAMPLES, WEATHER_OPTIONS, "--json", "--film",
                                          "--page", "--modalities", "--clips-of", "--encoders",
                                          "--bridge-chunks", "--encoder-slack",
                                          "--page-steps", "--tokens", OF_FAILURES, "--memory-of", "--from", NULL };

const struct run_kind run_plan = {
    .command = "plan", .without = of_numbers, .steps = 1, .more = plan_options,
    .what = "What a training step would take on a mesh of up to 1048576 devices, without running it: memory,\n"
            "messages and virtual time of every device, and whether it fits.\n"
            "Takes the options of `orrery train` that say what is trained where. The numbers are those of a run,\n"
            "to the byte and the picosecond. Tokens of a mixture go to the experts that --load says, by default to\n"
            "all evenly; a run with the same --load sends them there, too. With --pack it is the step of a run with\n"
            "the same lengths, --data and --seed.\n"
            "The exit status is 3 if a device needs more memory than --memory, or else its cluster's, allows.",
};

/* `orrery show data`, `memory` and `plan`: a plan that is drawn. */
#define SHOWS(topic, about)                                                                         \
    { .command = "show " topic, .without = of_reports, .steps = 1,                                      \
      .what = about "\nTakes the options of `orrery plan`, --svg FILE to draw to a file, and --page FILE for a page " \
                    "that\nshows it moving.  Without any of a mesh it is --dp 4, without a model tiny." }

const struct run_kind run_show_data = SHOWS("data", "Draw who holds and sends what of weights, gradients and optimizer "
                                                    "state, pass by pass.\nA first word NAME is short for "
                                                    "--data-parallel NAME.");
const struct run_kind run_show_memory = SHOWS("memory", "Draw what the fullest device holds, pass by pass.");
const struct run_kind run_show_plan = SHOWS("plan", "Draw which device has which layers, heads, sequences, tokens and "
                                                    "experts.");
