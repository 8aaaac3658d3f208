/* likes.c -- which of the registered schemes training frameworks have: one row for each framework.
 *
 * cli/train/search.c limits a search with the rows (--like), and adds schemes that plan if there are lengths;
 * cli/list/ prints the rows.  ERR_USAGE names a framework that is not here.  Schemes that need a table or a size of
 * their own (hsdp, mics, hpz) are left out: a search has none.
 */
#include "emulated_devices/search/likes.h"
#include "emulated_devices/schemes/attention/attention.h"
#include "ref/io/options.h"
#include <string.h>

static const struct like likes[] = {
    { .name = "megatron",
      .source = "Megatron-Core: arguments.py (tp-comm-overlap, cp-comm-type, moe-token-dispatcher-type, "
                "use-distributed-optimizer, num-layers-per-virtual-pipeline-stage, recompute-granularity)",
      .only = { [BY_TENSOR] = "1d,1d-sp,1d-sp-overlap", [BY_ATTENTION] = "ring-zigzag,allgather-kv,ulysses,usp",
                [BY_EXPERTS] = "alltoall,allgather", [BY_DATA] = "ddp,zero1,zero1-overlap,zero3",
                [BY_SCHEDULE] = "1f1b,interleaved",
                [BY_RECOMPUTE] = "none,selective,full" } },
    { .name = "torchtitan",
      .source = "torchtitan: job_config.py (async tensor parallel, context_parallel_rotate_method, "
                "expert_parallel_degree, fsdp_reshard_after_forward, pipeline_parallel_schedule, "
                "activation_checkpoint)",
      .only = { [BY_TENSOR] = "1d-sp,1d-sp-overlap", [BY_ATTENTION] = "ring-zigzag,allgather-kv",
                [BY_EXPERTS] = "alltoall", [BY_DATA] = "ddp,zero2,fsdp,fsdp-once",
                [BY_SCHEDULE] = "1f1b,gpipe,interleaved,bfs,zb-v,dualpipev", [BY_RECOMPUTE] = "none,selective,full" } },
    { .name = "deepspeed",
      .source = "DeepSpeed: runtime/config.py (tensor_parallel, sequence_parallel_size, zero_optimization.stage), "
                "runtime/pipe/schedule.py",
      .only = { [BY_TENSOR] = "1d", [BY_ATTENTION] = "ulysses", [BY_EXPERTS] = "alltoall",
                [BY_DATA] = "ddp,zero1,zero2,zero3", [BY_SCHEDULE] = "1f1b", [BY_RECOMPUTE] = "none,full" } },
};
enum { LIKES = sizeof likes / sizeof *likes };

const struct like *like_at(int place) { return place < LIKES ? &likes[place] : NULL; }

/* The length of a list's first word. */
static size_t word_length(const char *list) { return strcspn(list, ","); }

static bool like_has(const char *list, const char *word, size_t length)
{
    for (const char *at = list; *at; at += word_length(at), at += *at == ',')
        if (word_length(at) == length && strncmp(at, word, length) == 0) return true;
    return false;
}

/* Add the words of a list that a text does not have yet.  LIKES_TEXT has room for all schemes of a kind. */
static void like_join(char *text, const char *list)
{
    for (const char *at = list; *at; at += word_length(at), at += *at == ',') {
        const size_t used = strlen(text), n = word_length(at);
        if (like_has(text, at, n) || used + n + 2 > LIKES_TEXT) continue;
        if (used > 0) strcat(text, ",");
        strncat(text, at, n);
    }
}

enum error_code likes_limit(struct plan_space *space, struct likes *joined, const char *names, struct error *err)
{
    const char *known[LIKES + 1];
    *joined = (struct likes){ { "" } };
    for (int i = 0; i < LIKES; i++) known[i] = likes[i].name;
    known[LIKES] = LIKES_ALL;
    if (strcmp(names, LIKES_ALL) == 0) return OK;
    for (const char *at = names; ; at++) {
        const size_t n = word_length(at);
        char word[64];
        int i = 0;
        while (i < LIKES && (strlen(likes[i].name) != n || strncmp(likes[i].name, at, n) != 0)) i++;
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        if (i == LIKES && strcmp(word, LIKES_ALL) == 0)
            return fail(err, ERR_USAGE, "--like %.80s: " LIKES_ALL " stands alone: it takes every scheme", names);
        /* Beside other frameworks LIKES_ALL is no choice. */
        if (i == LIKES) return fail_unknown_name(err, "--like", word, known, strchr(names, ',') ? LIKES : LIKES + 1);
        for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++)
            if (likes[i].only[d]) like_join(joined->text[d], likes[i].only[d]);
        at += n;
        if (*at == '\0') break;
    }
    /* A list that is given is not changed: who names a scheme wants that scheme. */
    for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++)
        if (space->only[d] == NULL && joined->text[d][0]) space->only[d] = joined->text[d];
    return OK;
}

void likes_add_planning(struct plan_space *space, struct likes *joined)
{
    char *const text = joined->text[BY_ATTENTION];
    /* A list of the command line, or none, was not joined from rows. */
    if (space->only[BY_ATTENTION] != text) return;
    for (int i = 0; attention_scheme_at(i); i++)
        if (attention_scheme_at(i)->plan) like_join(text, attention_scheme_at(i)->head.name);
}
