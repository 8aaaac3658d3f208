/* commands.h -- every subcommand, in the order of the help.  A new one needs one line here, and a file that defines
 * command_NAME.
 *
 * cli.h declares the functions, main.c makes the table.  HEADING stands above the commands that follow it.  No
 * function returns an error code.
 */
#ifndef ORRERY_CLI_COMMANDS_H
#define ORRERY_CLI_COMMANDS_H

#ifdef WITHOUT_TEACHER                  /* a student's program has no solutions, and nothing that makes them */
#define TEACHERS_COMMANDS(COMMAND)
#else
#define TEACHERS_COMMANDS(COMMAND) \
    COMMAND(course, "make the folders of a course, and prove its grader")
#endif

#define COMMANDS(HEADING, COMMAND)                                                                                    \
    HEADING("Train, and plan")                                                                                        \
    COMMAND(train, "train a model on a mesh of emulated devices, and compare it with one device")                     \
    COMMAND(sweep, "train once for each combination of settings; tabulate")                                           \
    COMMAND(infer, "run a model's forward passes on a mesh, and compare them with one device")                        \
    COMMAND(serve, "answer many requests on a mesh, and hold every token to one device")                              \
    COMMAND(rl, "train a model by rewards of its own answers, and hold every step to one device")                     \
    COMMAND(prune, "train groups of weights to zero, and save the model without them")                                \
    COMMAND(mixture, "join dense models, each trained alone, into a mixture of their feed-forwards")                  \
    COMMAND(plan, "what a training step would take on up to 1048576 devices, without running it")                      \
    COMMAND(search, "the best plans of a number of devices: all schemes, within a device's memory")                   \
    COMMAND(reshard, "cut a sharded checkpoint for another mesh, moving the fewest bytes there can be")               \
    COMMAND(cluster, "train many jobs on one cluster, in simulation: schedulers, energy, failures")                   \
    HEADING("Check")                                                                                                  \
    COMMAND(check, "compare another program's tensors with a golden file; name the first wrong one")                  \
    COMMAND(golden, "compare the one-device model with golden files; measure the bounds beside them")                 \
    COMMAND(dump, "write every tensor of the one-device model on one batch to a file")                                \
    COMMAND(verify, "run every registered scheme on every mesh that fits, and compare it with one device")            \
    COMMAND(diagnose, "who is slow in a run, and who hangs: the device or the link, with the evidence")               \
    COMMAND(lint, "which collectives and messages of a C file do not match, without running it")                      \
    COMMAND(kernel, "run a CUDA kernel without a GPU, and watch each of its accesses")                                \
    HEADING("Look, and measure")                                                                                      \
    COMMAND(list, "list everything registered: name, requirements, cost, source")                                     \
    COMMAND(show, "draw a pipeline schedule, a collective or a matrix product, without training")                     \
    COMMAND(bench, "measure steps, schedules, collectives, beside a limit, a published figure or MPI")                \
    COMMAND(sample, "let a model, or a checkpoint of training, go on with a text")                                    \
    COMMAND(calibrate, "measure this machine as a cluster file; hold the virtual clock against it")                   \
    COMMAND(doctor, "look whether this machine can run Orrery: cores, memory, MPI, BLAS, compilers")                  \
    COMMAND(tensors, "what a file of tensors has: names, shapes, how large its numbers are")                          \
    COMMAND(tokenize, "texts as tokens of a model's own tokenizer, and back")                                         \
    COMMAND(affinity, "group experts and tokens of a mixture, for speculative dispatch")                              \
    COMMAND(report, "draw runs side by side on a page: losses, timeline, memory, messages, verdicts")                 \
    COMMAND(page, "a page on which runs move: devices, messages and memory at each moment of virtual time")           \
    HEADING("Learn, and teach")                                                                                       \
    COMMAND(learn, "exercises on emulated devices: where you are, and what is wrong first")                           \
    COMMAND(grade, "points for exercises, for a person, Gradescope or JUnit")                                         \
    TEACHERS_COMMANDS(COMMAND)                                                                                        \
    COMMAND(manual, "the man page, and completion for bash, zsh and fish")

#endif
