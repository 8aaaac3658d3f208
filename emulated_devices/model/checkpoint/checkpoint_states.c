#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include <stdio.h>

static int put(struct state_tensor *list, int at, enum tensor_kind kind, int replica, const char *whose,
               const char *dot, const char *what)
{
    if (list == NULL) return at + 1;
    list[at] = (struct state_tensor){ .kind = kind, .replica = replica };
    snprintf(list[at].suffix, sizeof list[at].suffix, "%s%s%s", whose, dot, what);
    return at + 1;
}

static int put_states(const struct optimizer *o, struct state_tensor *list, int at, int replica, const char *whose)
{
    for (int s = 0; s < o->states; s++)
        at = put(list, at, KIND_STATE + (enum tensor_kind)s, replica, whose, ".", o->state_name[s]);
    return at;
}

struct state_tensor checkpoint_weights(const struct trainer *t)
{
    return (struct state_tensor){ .kind = t->data.shards.apart ? KIND_ANCHOR : KIND_MASTER };
}

int checkpoint_states(const struct trainer *t, int replicas, struct state_tensor *list)
{
    int n = 0;
    if (replicas == 0) return put_states(t->plan.optimizer, list, n, 0, "");
    if (outer_has_momentum(&t->data.outer)) n = put(list, n, KIND_MOMENTUM, 0, "", ".", "outer_momentum");
    for (int r = 0; r < replicas; r++) {
        char whose[24];
        snprintf(whose, sizeof whose, ".replica%d", r);
        n = put(list, n, KIND_MASTER, r, whose, "", "");
        n = put_states(t->plan.optimizer, list, n, r, whose);
    }
    return n;
}
