/* options_output.c -- options of virtual time, checking and output.  options.c calls output_options().  No function
 * returns an error code. */
#include "emulated_devices/cli/train/options/options.h"
#include "emulated_devices/run/survive/snapshot_memory.h"

static const char *const trace_formats[] = { "chrome", "chakra", "goal", NULL };
static const char *const saves[] = { "sync", "async", NULL };
static const char *const whens[] = { "no", "yes", "auto", NULL };

void output_options(struct option_list *to, struct train_options *options, struct train_words *words)
{
    const struct option own[] = {
        { .kind = OPTION_HEADING, .help = "Virtual time: how long the run would take on the emulated cluster" },
        CLUSTER_OPTION(words->cluster, "the machine"),
        { "--kernels-of", "NAME", OPTION_STRING, &words->kernels,
          .help = "whose kernels run, on a cluster with a table of measured kernels: `orrery list kernels`; default: "
                  "as the cluster's file says" },
        { "--tokens", "T", OPTION_COUNT, &options->tokens, .min = 1, .max = 1e18,
          .help = "also say what a training on T tokens takes, such as 300B or 15T: steps, days, device hours, and, if "
                  "the cluster's file has \"costs\", energy and dollars; default: only of a step" },
        { "--mtbf", "HOURS", OPTION_DOUBLE, &options->failures.between, .min = 1e-3, .max = 1e9,
          .help = "also say what failures cost a training, and after how many steps checkpoints are best saved: hours "
                  "between failures of the whole job, on average (docs/plans/failures.md)" },
        { "--device-mtbf", "HOURS", OPTION_DOUBLE, &options->failures.device_between, .min = 1e-3, .max = 1e12,
          .help = "the same, as hours between failures of one device" },
        { "--restart", "SECONDS", OPTION_DOUBLE, &options->failures.restart, .min = 0, .max = 1e7,
          .help = "with --mtbf: from a failure until checkpoints are read again; default: 300" },
        { "--storage", "SIZE", OPTION_SIZE, &options->failures.storage, .min = 1, .max = 1e18,
          .help = "with --mtbf: bytes that all devices together write in a second, such as 2TB; default: what the "
                  "hosts' drives take" },
        { "--checkpoint", "HOW", OPTION_CHOICE, &options->failures.checkpoint, .choices = saves,
          .help = "with --mtbf: how checkpoints are saved, sync or async: while the next passes run; default: sync" },
        { "--checkpoint-every", "STEPS", OPTION_COUNT, &options->failures.every, .min = 1, .max = 1e9,
          .help = "with --mtbf: steps between checkpoints; default: as many as are best" },
        { "--trace", "FILE", OPTION_STRING, &options->trace,
          .help = "write what every device does when, as a Chrome trace for ui.perfetto.dev" },
        { "--trace-format", "NAME", OPTION_CHOICE, &options->trace_format, .choices = trace_formats,
          .help = "format of the trace; chakra, for ASTRA-sim, writes FILE.0.et, FILE.1.et and so on; goal is "
                  "for LogGOPSim" },
        { "--record", "DIR", OPTION_STRING, &options->record,
          .help = "keep what each device remembers of its last collectives and steps in files there, for `orrery "
                  "diagnose DIR`: who is slow, and who hangs (docs/using/diagnose.md)" },
        { "--disturb", "WORDS", OPTION_STRING, &words->disturb,
          .help = "make something slow in virtual time, or let a device never return: compute:3:4 for device 3 four "
                  "times as slow, link:2-5:4, out:6:4, in:6:4, hang:3, hang-inside:3, noise:10, each with @STEP or "
                  "@STEP- behind it; default: nothing" },
        { "--timeline", "FILE", OPTION_STRING, &options->timeline,
          .help = "draw the last step's pipeline, as SVG and for the terminal, with its bubble" },
        { "--trace-steps", "N", OPTION_INT, &options->trace_steps, .min = 1, .max = 1e9, .help = "steps in the trace" },
        { "--page", "FILE", OPTION_STRING, &options->page,
          .help = "write a page of HTML on which the run moves: what every device does when, messages, memory, losses, "
                  "checks (docs/using/page.md)" },
        { "--page-steps", "N", OPTION_INT, &options->page_steps, .min = 1, .max = 1000,
          .help = "steps on the page and in the film" },
        { "--film", NULL, OPTION_SWITCH, &options->film,
          .help = "with --json: also what the page shows, for `orrery page`" },
        { "--live", "PORT", OPTION_INT, &options->live, .min = 0, .max = 65535,
          .help = "show that page to a browser on this machine while the run goes on, at the address that is printed; "
                  "0: at a free port; default: to nobody" },
        { .kind = OPTION_HEADING, .help = "Checking and output" },
        { "--check", "ref|FILE", OPTION_STRING, &options->check,
          .help = "compare every activation, gradient and weight with the one-device model (ref), or with a "
                  "golden file, whose run is then trained; exit status 3 if they differ" },
        { "--dump", "FILE|DIR/", OPTION_STRING, &options->dump,
          .help = "with --check FILE: also write what the devices compute, as `orrery check` reads it: whole tensors "
                  "into a file, or what each device has into a folder (docs/checking/dumps.md)" },
        { "--dump-passes", NULL, OPTION_SWITCH, &options->dump_passes,
          .help = "with --dump: also the activations of every later step's pass, so that each of its operations can "
                  "be recomputed" },
        { "--dump-steps", NULL, OPTION_SWITCH, &options->dump_steps,
          .help = "with --dump DIR/: a file for each step, written when the step is done, as `orrery check --watch` "
                  "reads it" },
        { "--isolate", NULL, OPTION_SWITCH, &options->isolate,
          .help = "with --check: give every operation the reference's inputs, so that an error shows only where it is "
                  "made" },
        { "--paranoid", NULL, OPTION_SWITCH, &options->paranoid,
          .help = "before and after every optimizer step, compare all numbers that must be bitwise equal on "
                  "several devices, and watch the buffers of messages until they are waited for; exit status 3 "
                  "if either fails" },
        { "--backend", "NAME", OPTION_STRING, &words->backend,
          .help = "what executes operations and owns memory; `orrery list backends` shows them; default: cpu" },
        { "--direct", "WHEN", OPTION_CHOICE, &words->direct, .choices = whens,
          .help = "whether MPI gets addresses of the backend's memory, as a CUDA-aware MPI takes them; auto: if "
                  "MPI says that it does; default: no, messages are copied through the host's memory" },
        { "--memory", "SIZE", OPTION_SIZE, &options->memory,
          .help = "memory of a device, such as 64MiB or 80GB; K, M, G, T alone are KiB, MiB, GiB, TiB; 0: no "
                  "limit; default: 0, and in plan and search the cluster's" },
        { "--memory-of", "NAME", OPTION_STRING, &options->memory_of,
          .help = "also say the memory of a program of a framework, by its profile (orrery list memory), and whether "
                  "that fits: torch, megatron, deepspeed, nanotron; default: only the emulated devices' own count" },
        WAIT_LIMIT_OPTION(words->limit),
        THREADS_OPTION,
        { "--log", "FILE", OPTION_STRING, &options->log,
          .help = "write every step while the run goes on: FILE.jsonl has lines of JSON, FILE.csv a table "
                  "(docs/using/runs.md)" },
        { "--tensorboard", "DIR", OPTION_STRING, &options->tensorboard, .help = "write every step as a file of events "
                                                                          "in this folder" },
        { "--log-every", "N", OPTION_INT, &options->log_every, .min = 1, .max = 1e9,
          .help = "steps from one line to the next" },
        { "--eval-every", "N", OPTION_INT, &options->eval_every, .min = 1, .max = 1e9,
          .help = "steps from one loss on held-out text to the next; default: at the end" },
        { "--save", "DIR", OPTION_STRING, &options->save,
          .help = "write a checkpoint at the end, also if SIGINT or SIGTERM end the run after a step" },
        { "--elastic", "FILE", OPTION_STRING, &options->elastic_file,
          .help = "change the mesh between steps: lines of a step and the words of the mesh after it, such as "
                  "4 --dp 4; devices leave and join, and the state moves to them (docs/using/jobs.md); default: the "
                  "mesh stays" },
        { "--lose", "LIST", OPTION_STRING, &options->lose,
          .help = "lose devices in the middle of steps, STEP:DEVICE[:MOMENT] with commas between, such as "
                  "7:3:backward: the others finish the step without it, from snapshots on neighbours; moments: "
                  "forward, backward, reduction, update, gather, save; default: forward (docs/using/jobs.md)" },
        { "--raise", "PERCENT", OPTION_INT, &options->raise, .min = 1, .max = 100,
          .help = "with --lose: afterwards the devices with the most work compute at a higher clock rate, by at most "
                  "so many percent of their usual one; default: clock rates stay" },
        { "--survive", "KILLS", OPTION_INT, &options->survive, .min = 1, .max = KILLS_MOST,
          .help = "if a process of the run is killed, start all devices again, at most so many times, from snapshots "
                  "of every step in memory that survives them: nothing is lost but the step (docs/using/jobs.md)" },
        { "--sharded", NULL, OPTION_SWITCH, &options->sharded,
          .help = "with --save: every device writes its own part of the weights and states into a file of its own, "
                  "which any mesh can read (docs/using/jobs.md)" },
        { "--save-async", NULL, OPTION_SWITCH, &options->save_async,
          .help = "with --sharded and --save-every: copy the state while the next step's passes run, and write it "
                  "while training goes on; a checkpoint counts when all devices have written (docs/using/jobs.md)" },
        { "--save-every", "N", OPTION_INT, &options->save_every, .min = 1, .max = 1e9,
          .help = "write a checkpoint every N steps, too: DIR/step-00000050 and so on" },
        { "--keep", "K", OPTION_INT, &options->keep, .min = 1, .max = 1e9,
          .help = "with --save-every: remove all but the newest K checkpoints; default: none is removed" },
        { "--owners-out", "FILE", OPTION_STRING, &options->owners_out,
          .help = "for fssdp: write who should own which experts, by the loads of the last steps, for --owners" },
        { "--save-load", "FILE", OPTION_STRING, &options->save_load,
          .help = "for mixtures: write which experts every token went to in each step, for --load" },
        { "--resume", "DIR|auto", OPTION_STRING, &options->resume,
          .help = "continue from a checkpoint, or from the newest of --save-every; auto: from that of --save, "
                  "or begin if there is none. Text, model, training and formats are those of the checkpoint; "
                  "options that make another run are refused; the mesh may change. With --check FILE it is that "
                  "file's run, and --optimizer and --dtype are given again" },
        { "--override", NULL, OPTION_SWITCH, &options->override,
          .help = "with --resume: continue although options make another run" },
        { "--sample", "TOKENS", OPTION_INT, &options->sample, .min = 0, .max = 1e6,
          .help = "print so many tokens of text that the trained model writes; `orrery sample` has more" },
        { "--dry-run", NULL, OPTION_SWITCH, &options->dry_run,
          .help = "train nothing: what `orrery plan` says of a step with these options, such as its memory and time" },
        { "--unfolded", NULL, OPTION_SWITCH, &options->unfolded,
          .help = "run every device, also those that do the same as another" },
        { "--json", "FILE", OPTION_STRING, &options->json,
          .help = "write all results as JSON; -: to standard output, and the report for people to standard error" },
        { .kind = OPTION_HEADING, .help = "Settings in a file" },
        { "--from", "FILE", OPTION_STRING, &words->from,
          .help = "the configuration of another framework, said in options of this program: a script or arguments of "
                  "Megatron-LM, TOML of torchtitan, JSON of DeepSpeed, YAML of accelerate; NAME:FILE says whose it is; "
                  "flags of the command line override it (docs/plans/from.md)" },
        { "--config", "FILE", OPTION_STRING, &words->config,
          .help = "read flags from a file, as KEY: VALUE lines of YAML without dashes; flags of the command "
                  "line override them (docs/using/runs.md)" },
        { "--print-config", NULL, OPTION_SWITCH, &words->print_config,
          .help = "print such a file, with the other flags and all defaults as comments, and run nothing" },
    };
    option_list_add(to, own, sizeof own / sizeof *own);
}
