/* offload.c -- the command line's flags of the slow tier. */
#include "emulated_devices/cli/train/train.h"
#include <string.h>

enum { EXPERTS = 31 };                          /* beside the classes: of these only the experts' */
static const struct { const char *name; int bit; } classes[] = {
    { "optimizer", OPTIMIZER }, { "gradients", GRADIENTS }, { "weights", PARAMETERS }, { "activations", ACTIVATIONS },
    { "experts", EXPERTS },
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* A list such as "optimizer,weights". */
static enum error_code take_classes(unsigned *offload, const char *list, struct error *err)
{
    const char *names[CLASSES];
    for (int i = 0; i < CLASSES; i++) names[i] = classes[i].name;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        char word[80] = "";
        int found = -1;
        memcpy(word, at, length < sizeof word ? length : sizeof word - 1);
        for (int i = 0; i < CLASSES; i++)
            if (strcmp(word, names[i]) == 0) found = i;
        if (found < 0 && length == 0)
            return fail(err, ERR_USAGE, "--offload %s: must be a list such as optimizer,gradients,weights",
                        printable(list).text);
        if (found < 0) return fail_unknown_name(err, "--offload", printable(word).text, names, CLASSES);
        *offload |= 1u << classes[found].bit;
        at += length;
        if (*at == '\0') return OK;
    }
}

enum error_code train_take_offload(struct plan *plan, const struct offload_flags *flags, struct error *err)
{
    struct data_request *q = &plan->data;
    unsigned what = 0;
    const char *const cache = flags->cache ? "--host-cache" : NULL;
    const char *alone = flags->to ? "--offload-to" : flags->slice ? "--offload-slice" : flags->stride
        ? "--offload-stride" : cache;
    if (flags->classes == NULL && alone)
        return fail(err, ERR_USAGE, "%s: there is nothing offloaded; --offload optimizer,gradients,weights says what",
                    alone);
    q->offload_to = flags->to && strcmp(flags->to, "host") != 0 ? flags->to : NULL;
    if (cache && q->offload_to == NULL)
        return fail(err, ERR_USAGE, "--host-cache: is for a drive; --offload-to DIR says where it is");
    q->host_cache = flags->cache;
    q->offload_slice = flags->slice ? flags->slice : OFFLOAD_SLICE;
    q->offload_stride = flags->stride;
    const enum error_code e = flags->classes ? take_classes(&what, flags->classes, err) : OK;
    const unsigned weights = 1u << PARAMETERS, state = weights | 1u << GRADIENTS | 1u << OPTIMIZER,
                   usual = plan->optimizer->infers ? weights : state;
    q->offload_experts = what >> EXPERTS & 1;
    q->offload = q->offload_experts && !(what & state) ? usual : what & state;
    plan->offload_activations = what >> ACTIVATIONS & 1;
    q->chosen = flags->chosen;
    if (!e && q->chosen && !(q->offload_experts && offloads(q, PARAMETERS)))
        return fail(err, ERR_USAGE, "--chosen-experts: is for their weights on the slow tier; --offload experts");
    return e;
}
