/* calls.c -- what is known of calls: those of lessons (tutorials/course.h), of plug-ins (comm/comm.h,
 * collectives/collective.h), of MPI and of C (runner.h).
 *
 * communicate.c asks for the rule of a name.  A new call is one line.  Errors: none.
 */
#include "emulated_devices/course/lint/runner.h"
#include <string.h>

/* Arguments of MPI's calls that several of them share. */
#define OF_MESSAGE .data = 1, .count = 2, .type = 3, .peer = 4, .tag = 5, .group = 6, .is_mpi = true
#define TWO_VECTORS .data = 1, .out = 2, .count = 3, .type = 4
#define TWO_TYPES .data = 1, .count = 2, .type = 3, .out = 4
#define CALL(text, number, what) .name = text, .arguments = number, .action = what
#define COLLECTIVE(text) .name = text, .action = ACTION_COLLECTIVE

static const struct call_rule rules[] = {
    /* lessons and plug-ins: the first arguments are alike */
    { CALL("message_send", 0, ACTION_SEND), .group = 1, .peer = 2, .data = 3, .count = 4 },
    { CALL("message_receive", 0, ACTION_RECEIVE), .group = 1, .peer = 2, .data = 3, .count = 4 },
    { CALL("message_receive_to_look", 0, ACTION_RECEIVE), .group = 1, .peer = 2, .data = 3, .count = 4 },
    { CALL("message_wait", 0, ACTION_WAIT) },
    { CALL("exchange_both", 0, ACTION_BOTH), .group = 1, .peer = 2, .data = 3, .count = 4, .in_peer = 5, .in = 6,
      .in_count = 7 },
    { CALL("exchange_reduce", 0, ACTION_BOTH), .group = 1, .peer = 2, .data = 3, .count = 4, .in_peer = 5, .in = 6 },
    { CALL("group_of", 2, ACTION_GROUP), .data = 1, .count = 2 },
    { CALL("group_of", 7, ACTION_GROUP), .out = 1, .data = 3, .count = 4 },
    { CALL("group_world", 3, ACTION_GROUP), .out = 1 },
    /* lessons */
    { COLLECTIVE("all_reduce"), .group = 1, .out = 2, .count = 3, .spreads = true },
    { COLLECTIVE("reduce_scatter"), .group = 1, .data = 2, .out = 3, .count = 4 },
    { COLLECTIVE("all_gather"), .group = 1, .data = 2, .out = 3, .count = 4, .spreads = true },
    { COLLECTIVE("broadcast"), .arguments = 4, .group = 1, .root = 2, .out = 3, .count = 4, .spreads = true },
    { COLLECTIVE("all_to_all"), .group = 1, .data = 2, .out = 4 },
    /* plug-ins */
    { COLLECTIVE("broadcast"), .arguments = 7, .group = 1, .out = 2, .count = 3, .type = 4, .root = 5,
      .spreads = true },
    { COLLECTIVE("allreduce"), .group = 1, .out = 2, .count = 3, .type = 4, .reduction = 5, .spreads = true },
    { COLLECTIVE("collective_run"), .group = 1, .reduction = 2 },
    { COLLECTIVE("scratch_agreed"), .group = 1 },
    { COLLECTIVE("group_agree"), .group = 1 },
    { COLLECTIVE("group_same"), .group = 1 },
    { COLLECTIVE("comm_agree"), .group = 1 },
    { COLLECTIVE("comm_barrier"), .group = 1 },
    { CALL("exchange_begin", 0, ACTION_BEGIN), .group = 1 },
    { CALL("exchange_named", 0, ACTION_BEGIN), .group = 1 },
    { CALL("part_length", 3, ACTION_LENGTH) }, { CALL("block_start", 3, ACTION_START) },
    { CALL("bytes_of", 2, ACTION_BYTES) },
    { CALL("imod", 2, ACTION_MOD) }, { CALL("element", 0, ACTION_NOTHING) }, { CALL("reduce_local", 0, ACTION_OK) },
    { CALL("reduce_finish", 0, ACTION_OK) }, { CALL("exchange_scratch", 0, ACTION_ALLOCATE) },
    { CALL("exchange_release", 0, ACTION_OK) }, { CALL("messages_meet", 0, ACTION_OK) },
    { CALL("message_look", 0, ACTION_NOTHING) },
    { CALL("messages_can_be_looked_at", 0, ACTION_NOTHING) }, { CALL("fail", 0, ACTION_NOTHING) },
    { CALL("group_close", 0, ACTION_OK) }, { CALL("copy_elements", 0, ACTION_OK) }, { CALL("comb_pack", 0, ACTION_OK) },
    { CALL("comb_unpack", 0, ACTION_OK) }, { CALL("keep_own", 0, ACTION_OK) },
    { CALL("mod", 2, ACTION_MOD) }, { CALL("block_of", 3, ACTION_BLOCK) }, { CALL("allocate", 1, ACTION_ALLOCATE) },
    { CALL("release", 0, ACTION_OK) }, { CALL("add_into", 0, ACTION_OK) }, { CALL("matrix_product", 0, ACTION_OK) },
    { CALL("work", 0, ACTION_OK) }, { CALL("stream_begin", 0, ACTION_OK) }, { CALL("stream_end", 0, ACTION_OK) },
    { CALL("stream_join", 0, ACTION_OK) }, { CALL("say", 0, ACTION_OK) }, { CALL("time_now", 0, ACTION_NOTHING) },
    /* MPI: messages */
    { CALL("MPI_Send", 6, ACTION_SEND), OF_MESSAGE, .waits = true },
    { CALL("MPI_Ssend", 6, ACTION_SEND), OF_MESSAGE, .waits = true },
    { CALL("MPI_Rsend", 6, ACTION_SEND), OF_MESSAGE, .waits = true },
    { CALL("MPI_Isend", 7, ACTION_SEND), OF_MESSAGE, .handle = 7 },
    { CALL("MPI_Issend", 7, ACTION_SEND), OF_MESSAGE, .handle = 7 },
    { CALL("MPI_Recv", 7, ACTION_RECEIVE), OF_MESSAGE, .waits = true },
    { CALL("MPI_Irecv", 7, ACTION_RECEIVE), OF_MESSAGE, .handle = 7 },
    { CALL("MPI_Sendrecv", 12, ACTION_BOTH), .data = 1, .count = 2, .type = 3, .peer = 4, .tag = 5, .in = 6,
      .in_count = 7, .in_type = 8, .in_peer = 9, .in_tag = 10, .group = 11, .is_mpi = true },
    { CALL("MPI_Wait", 2, ACTION_WAIT), .handle = 1 },
    { CALL("MPI_Waitall", 3, ACTION_WAIT_ALL), .count = 1, .handle = 2 },
    /* MPI: collectives */
    { COLLECTIVE("MPI_Barrier"), .group = 1 },
    { COLLECTIVE("MPI_Bcast"), .out = 1, .count = 2, .type = 3, .root = 4, .group = 5, .spreads = true },
    { COLLECTIVE("MPI_Reduce"), TWO_VECTORS, .reduction = 5, .root = 6, .group = 7 },
    { COLLECTIVE("MPI_Allreduce"), TWO_VECTORS, .reduction = 5, .group = 6, .spreads = true },
    { COLLECTIVE("MPI_Scan"), TWO_VECTORS, .reduction = 5, .group = 6 },
    { COLLECTIVE("MPI_Exscan"), TWO_VECTORS, .reduction = 5, .group = 6 },
    { COLLECTIVE("MPI_Reduce_scatter_block"), TWO_VECTORS, .reduction = 5, .group = 6 },
    { COLLECTIVE("MPI_Reduce_scatter"), .data = 1, .out = 2, .type = 4, .reduction = 5, .group = 6 },
    { COLLECTIVE("MPI_Gather"), TWO_TYPES, .root = 7, .group = 8 },
    { COLLECTIVE("MPI_Scatter"), TWO_TYPES, .root = 7, .group = 8 },
    { COLLECTIVE("MPI_Gatherv"), .data = 1, .out = 4, .root = 8, .group = 9 },
    { COLLECTIVE("MPI_Scatterv"), .data = 1, .out = 5, .root = 8, .group = 9 },
    { COLLECTIVE("MPI_Allgather"), TWO_TYPES, .group = 7, .spreads = true },
    { COLLECTIVE("MPI_Alltoall"), TWO_TYPES, .group = 7 },
    { COLLECTIVE("MPI_Allgatherv"), .data = 1, .out = 4, .group = 8, .spreads = true },
    { COLLECTIVE("MPI_Alltoallv"), .data = 1, .out = 5, .group = 9 },
    { COLLECTIVE("MPI_Ibarrier"), .group = 1, .handle = 2 },
    { COLLECTIVE("MPI_Ibcast"), .out = 1, .count = 2, .type = 3, .root = 4, .group = 5, .handle = 6, .spreads = true },
    { COLLECTIVE("MPI_Ireduce"), TWO_VECTORS, .reduction = 5, .root = 6, .group = 7, .handle = 8 },
    { COLLECTIVE("MPI_Iallreduce"), TWO_VECTORS, .reduction = 5, .group = 6, .handle = 7, .spreads = true },
    { COLLECTIVE("MPI_Iallgather"), TWO_TYPES, .group = 7, .handle = 8, .spreads = true },
    { COLLECTIVE("MPI_Ialltoall"), TWO_TYPES, .group = 7, .handle = 8 },
    { COLLECTIVE("MPI_Igather"), TWO_TYPES, .root = 7, .group = 8, .handle = 9 },
    { COLLECTIVE("MPI_Iscatter"), TWO_TYPES, .root = 7, .group = 8, .handle = 9 },
    { COLLECTIVE("MPI_Finalize") },
    { CALL("MPI_Comm_split", 4, ACTION_SPLIT), .group = 1, .count = 2, .tag = 3, .out = 4 },
    { CALL("MPI_Comm_dup", 2, ACTION_COPY_GROUP), .group = 1, .out = 2 },
    { CALL("MPI_Comm_rank", 2, ACTION_RANK), .group = 1, .out = 2 },
    { CALL("MPI_Comm_size", 2, ACTION_SIZE), .group = 1, .out = 2 },
    { CALL("MPI_Init", 0, ACTION_OK) }, { CALL("MPI_Init_thread", 0, ACTION_OK) },
    { CALL("MPI_Comm_free", 0, ACTION_OK) },
    { CALL("MPI_Wtime", 0, ACTION_NOTHING) }, { CALL("MPI_Abort", 0, ACTION_END) },
    /* C */
    { CALL("malloc", 0, ACTION_ALLOCATE) }, { CALL("calloc", 0, ACTION_ZEROS) },
    { CALL("realloc", 0, ACTION_ALLOCATE) },
    { CALL("free", 0, ACTION_OK) }, { CALL("memset", 3, ACTION_FILL), .out = 1, .count = 2 },
    { CALL("memcpy", 3, ACTION_COPY), .out = 1 }, { CALL("memmove", 3, ACTION_COPY), .out = 1 },
    { CALL("printf", 0, ACTION_OK) },
    { CALL("fprintf", 0, ACTION_OK) }, { CALL("puts", 0, ACTION_OK) }, { CALL("fflush", 0, ACTION_OK) },
    { CALL("exit", 0, ACTION_END) },
    { CALL("abort", 0, ACTION_END) }, { CALL("_Exit", 0, ACTION_END) }, { CALL("abs", 1, ACTION_ABSOLUTE) },
    { CALL("assert", 0, ACTION_OK) },
};

const struct call_rule *call_rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, name) == 0) return &rules[i];
    return NULL;
}

const struct call_rule *call_rule_for(const struct call_rule *first, int arguments)
{
    const struct call_rule *const end = rules + sizeof rules / sizeof *rules;
    for (const struct call_rule *rule = first; rule < end && strcmp(rule->name, first->name) == 0; rule++)
        if (rule->arguments == 0 || rule->arguments == arguments) return rule;
    /* Another call of this name stands further down. */
    for (const struct call_rule *rule = first; rule < end; rule++)
        if (strcmp(rule->name, first->name) == 0 && rule->arguments == arguments) return rule;
    return NULL;
}

int64_t call_type_size(const char *name)
{
    static const struct { const char *name; int size; } sizes[] = {
        { "char", 1 }, { "bool", 1 }, { "_Bool", 1 }, { "int8_t", 1 }, { "uint8_t", 1 }, { "short", 2 },
        { "int16_t", 2 },
        { "uint16_t", 2 }, { "int", 4 }, { "unsigned", 4 }, { "int32_t", 4 }, { "uint32_t", 4 }, { "float", 4 },
        { "double", 8 }, { "long", 8 }, { "int64_t", 8 }, { "uint64_t", 8 }, { "size_t", 8 }, { "ptrdiff_t", 8 },
        { "MPI_CHAR", 1 }, { "MPI_BYTE", 1 }, { "MPI_INT8_T", 1 }, { "MPI_UINT8_T", 1 }, { "MPI_INT", 4 },
        { "MPI_UNSIGNED", 4 }, { "MPI_FLOAT", 4 }, { "MPI_INT32_T", 4 }, { "MPI_UINT32_T", 4 }, { "MPI_DOUBLE", 8 },
        { "MPI_LONG", 8 }, { "MPI_LONG_LONG", 8 }, { "MPI_INT64_T", 8 }, { "MPI_UINT64_T", 8 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].name, name) == 0) return sizes[i].size;
    return 0;
}
