/* protocol.h -- what a student's process asks of its device, and how.
 *
 * The process (worker.c) holds the student's code and data.  Whatever it does beside computing it asks for, over one
 * socket: the other side (emulated_devices/course/serve.c) has the device, does it, and counts it.  So code that takes
 * over this process can ask for other things, but it cannot change what has been counted, nor see what is expected.
 * worker.c asks, and emulated_devices/course/serve.c answers.
 */
#ifndef COURSE_PROTOCOL_H
#define COURSE_PROTOCOL_H

#include <stdint.h>

/* The words that the program is started with: its name; the first of the sockets, one for each device; how many; and 1
 * if behind them there are as many pipes, for what sanitizers say.  Its first bytes on each socket are the number of
 * that device's process, an int32_t. */
enum { WORKER_WORDS = 4 };

enum { WORKER_SOCKET = 3, WORKER_POOL = 48 << 20, WORKER_NAME = 64, WORKER_BUFFERS = 12, WORKER_NUMBERS = 12,
       WORKER_GROUPS = 8, WORKER_MOST_DEVICES = 64, WORKER_MESSAGES = 1024 };

enum request_kind {
    ASK_SEND = 1,       /* group, peer, number: the message's; payload */
    ASK_RECEIVE,        /* group, peer, number, bytes; a: whether exchange_both asks */
    ASK_WAIT,           /* number; answer: payload of a received message */
    ASK_ALLOCATE,       /* number: the block's, bytes */
    ASK_RELEASE,        /* number */
    ASK_ADD,            /* a: elements */
    ASK_WORK,           /* real[0]: operations, real[1]: bytes */
    ASK_TIME,           /* answer: value */
    ASK_GROUP,          /* payload: int32_t ranks; answer: value: the group's number */
    ASK_COLLECTIVE,     /* number: which, peer: root, group, a: count; payload; answer: payload */
    ASK_STREAM,         /* number: 0 begin, 1 end, 2 join */
    ASK_SAY,            /* payload: text */
    ASK_MISUSE,         /* payload: what is wrong, in one line.  The last request */
    ASK_DONE,           /* a: result, real[0]: real; payload: the buffers that come back.  The last request */
};

/* number of ASK_COLLECTIVE.  An all-to-all's payload begins with the counts that it gives and takes, as int64_t. */
enum collective_kind { DO_ALL_REDUCE, DO_REDUCE_SCATTER, DO_ALL_GATHER, DO_BROADCAST, DO_ALL_TO_ALL };

struct request {
    uint32_t kind;
    int32_t group, peer, number;
    uint64_t bytes;                             /* of the message or block */
    uint64_t payload;                           /* bytes that follow */
    int64_t a;
    double real[2];
};

struct answer { int64_t value; uint64_t payload; };

enum buffer_way { BUFFER_IN = 1, BUFFER_OUT = 2, BUFFER_BOTH = 3 };

/* What a worker gets first.  The bytes of its buffers follow, those that go in. */
struct start {
    char function[WORKER_NAME];
    int32_t rank, size, groups;                 /* among all devices */
    int32_t group_rank[WORKER_GROUPS], group_size[WORKER_GROUPS];
    uint64_t bytes[WORKER_BUFFERS];
    uint32_t way[WORKER_BUFFERS];               /* 0: no such buffer */
    uint32_t skew[WORKER_BUFFERS];              /* bytes from an aligned address */
    int64_t number[WORKER_NUMBERS];
    double given[WORKER_NUMBERS];
    uint32_t milliseconds;                      /* of the processor, which the function may take */
    int32_t caged;                              /* whether the system is out of reach: not under sanitizers */
};

#endif
