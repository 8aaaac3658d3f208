/* show.c -- `orrery show TOPIC`: draws a scheme, schedule, collective or plan as text, without training.
 *
 * A topic is the word behind `show`; the table below has each topic's word, help and function.  cli/main.c calls
 * command_show, through the list of cli/commands.h.  Topics draw to the standard output; some also write a file that
 * an option such as --svg names.
 * An unknown topic is ERR_USAGE, and the message has the nearest word.  Without a topic the list of topics is printed,
 * and *status is 2.  All other errors are those of the topic's function.
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/schedule.h"

static enum error_code show_schedule_topic(int argc, char **argv, int *status, struct error *err)
{
    (void)status;
    return show_schedule(argc - 3, argv + 3, stdout, err);
}

static const struct command topics[] = {
    { "schedule", "a pipeline schedule as a timeline, with its bubble, memory and messages", show_schedule_topic },
    { "allreduce", "step by step: the sum of all devices' vectors, on every device", show_collective },
    { "reduce", "the same sum, on one device", show_collective },
    { "reduce-scatter", "the same sum, one block on each device", show_collective },
    { "broadcast", "one device's vector, sent to all", show_collective },
    { "scatter", "one device's blocks, one for each device", show_collective },
    { "gather", "the blocks of all devices, on one device", show_collective },
    { "allgather", "the blocks of all devices, on every device", show_collective },
    { "alltoall", "a block from every device for every device", show_collective },
    { "scan", "prefix sums: of a device and all before it", show_collective },
    { "sparse-allgather", "blocks from their owners to their targets, here to all", show_collective },
    { "sparse-reduce-scatter", "the sums of blocks at their owners, here from all", show_collective },
    { "barrier", "every device waits for all others", show_collective },
    { "tensor", "a linear layer under a tensor scheme: blocks of each device, sends, products, sums", show_tensor },
    { "attention", "a sequence cut over devices: who has which tokens, and computes which queries and keys when",
      show_attention },
    { "plan", "which device of a mesh has which layers, heads, sequences, tokens, experts", show_plan },
    { "data", "a data scheme: who holds and sends which weights and gradients, pass by pass", show_data },
    { "memory", "what a device of a plan holds, pass by pass", show_memory },
    { "dispatch", "tokens on their way to experts on several devices, hop by hop", show_dispatch },
    { "cluster", "how long messages take on a described machine; also as a platform of SimGrid", show_cluster },
    { "elastic", "replicas for tasks with batches of different sizes, as a file for train --batches", show_elastic },
    { "actors", "operations as actors with registers: who waits for whom, by how many registers there are",
      show_actors },
    { "sbp", "split, broadcast and partial-sum signatures of a layer, and transfers between them", show_sbp },
    { 0 }
};

enum error_code command_show(int argc, char **argv, int *status, struct error *err)
{
    return run_topic("Draw what something does, without training.", topics, false, argc, argv, status, err);
}
