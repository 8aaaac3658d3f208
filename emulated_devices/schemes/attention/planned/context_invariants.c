/* context_invariants.c -- every function of the lists at the end gets a finished plan and its load.  *checked
 * counts what was compared.  verify/reference/adaptation.c and verify/cases/drawn.c call them; a broken promise is
 * ERR_CHECK.  Without memory the code is ERR_MEMORY. */
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/comm/mesh.h"
#include "emulated_devices/schemes/attention/planned/remap.h"
#include <math.h>
#include <stdlib.h>

typedef long long wide;

static int64_t divided_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
static int64_t at_least_0(int64_t n) { return n > 0 ? n : 0; }
static bool is_planned(const struct context_seen *seen) { return seen->plan->tokens > 0 && seen->plan->devices > 1; }

/* ---- what is moved ----------------------------------------------------------------------------------------------- */

/* Whether a device computes with a block that it does not have. */
static bool needs(const struct context_plan *plan, enum context_data data, int block, int device)
{
    for (int w = 0; w < plan->works; w++)
        if (plan->work[w].device == device && (data == CONTEXT_KEYS ? plan->work[w].key : plan->work[w].query) == block)
            return plan->block[block].home != device;
    return false;
}

/* Count the plan's moves of a block's queries or keys to a device.  A device that needs them gets them once. */
static int times_moved(const struct context_plan *plan, enum context_data data, int block, int device)
{
    int times = 0;
    for (int i = 0; i < plan->moves; i++)
        times += plan->move[i].data == data && plan->move[i].block == block && plan->move[i].to == device;
    return times;
}

/* The first token after a token's sample. */
static int64_t end_of_sample(const struct context_load *load, int64_t token)
{
    int64_t end = 0;
    for (int i = 0; i < load->samples && end <= token; i++) end += load->length[i];
    return end;
}

/* A device with one token of a sample may see nothing of those whose keys pass it on a ring. */
static bool has_one_token(const struct context_seen *seen, int block, int device)
{
    const int64_t end = end_of_sample(seen->load, seen->plan->block[block].tokens[0].first);
    for (int b = 0; b < seen->plan->blocks; b++)
        if (seen->plan->block[b].home == device && context_block_tokens(&seen->plan->block[b]) == 1 &&
            end_of_sample(seen->load, seen->plan->block[b].tokens[0].first) == end)
            return true;
    return false;
}

/* Every block goes once to each device that computes with it, and to no other device. */
static enum error_code moves_are_needed(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_plan *const p = ((const struct context_seen *)seen)->plan;
    for (int b = 0; b < p->blocks && is_planned(seen) && p->groups == 0; b++)
        for (int d = 0; d < p->devices; d++)
            for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) {
                /* More is allowed where a ring passes keys on through a device that sees none of them. */
                const int moved = times_moved(p, data, b, d), wanted = needs(p, data, b, d);
                if (moved != wanted && !(moved > wanted && has_one_token(seen, b, d)))
                    return fail(err, ERR_CHECK, "the %s of block %d go %d times to device %d, which needs them %d "
                                "times", data == CONTEXT_KEYS ? "keys" : "queries", b, moved, d, wanted);
                *checked += wanted;
            }
    return OK;
}

/* Tokens of a device that are in its blocks and in its rows outside attention: they do not move. */
static int64_t tokens_that_stay(const struct context_plan *plan, int device)
{
    int64_t stay = 0;
    for (int r = 0; r < plan->rows; r++)
        for (int b = 0; b < plan->blocks; b++)
            for (int i = 0; i < 2; i++)
                if (plan->row[r].device == device && plan->block[b].home == device)
                    stay += interval_meet(plan->row[r].tokens, plan->block[b].tokens[i]).count;
    return stay;
}

/* Tokens of a device in attention, and outside it. */
struct tokens_of_device { int64_t attended, outside, stay; };

/* Count for each device the tokens in attention, those outside attention, and those in both, which do not move. */
static void count_tokens(const struct context_plan *plan, struct tokens_of_device of[])
{
    for (int d = 0; d < plan->devices; d++) of[d] = (struct tokens_of_device){ 0 };
    for (int b = 0; b < plan->blocks; b++) of[plan->block[b].home].attended += context_block_tokens(&plan->block[b]);
    for (int r = 0; r < plan->rows; r++) of[plan->row[r].device].outside += plan->row[r].tokens.count;
    for (int d = 0; d < plan->devices; d++) {
        /* A plan without rows leaves every token where attention has it. */
        if (plan->rows == 0) of[d].outside = of[d].stay = of[d].attended;
        else of[d].stay = tokens_that_stay(plan, d);
    }
}

/* Every device gets T/P tokens, and T mod P of them one more.  Each one more at a device with more than T/P tokens
 * saves one that would move. */
static int64_t fewest_that_move(const struct tokens_of_device of[], int P)
{
    int64_t total = 0, over = 0, above = 0;
    for (int d = 0; d < P; d++) total += of[d].attended;
    for (int d = 0; d < P; d++)
        over += at_least_0(of[d].attended - total / P), above += of[d].attended > total / P;
    return over - (above < total % P ? above : total % P);
}

/* Outside attention the rows of devices differ by one at most, and no plan could move fewer. */
static enum error_code fewest_rows_move(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_plan *const p = ((const struct context_seen *)seen)->plan;
    struct tokens_of_device of[MESH_MOST_LISTED];
    int64_t moved = 0, least = INT64_MAX, most = 0;
    if (!is_planned(seen) || ((const struct context_seen *)seen)->load->without & 1u << REMAP) return OK;
    count_tokens(p, of);
    for (int d = 0; d < p->devices; d++) {
        moved += of[d].attended - of[d].stay;
        if (of[d].outside < least) least = of[d].outside;
        if (of[d].outside > most) most = of[d].outside;
    }
    /* moved counts what the plan moves; fewest is the least by formula, from attention's tokens alone. */
    const int64_t fewest = fewest_that_move(of, p->devices);
    *checked += 1;
    if (most - least > 1)
        return fail(err, ERR_CHECK, "outside attention devices have %lld to %lld rows", (wide)least, (wide)most);
    return moved == fewest ? OK : fail(err, ERR_CHECK, "%lld rows move between attention and other layers; %lld would "
                                       "do", (wide)moved, (wide)fewest);
}

/* Rows that cross nodes between attention and other layers are as few as the tokens of nodes allow. */
static enum error_code fewest_rows_cross(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    const struct context_plan *const p = s->plan;
    const int node = s->load->node;
    struct tokens_of_device of[MESH_MOST_LISTED];
    int64_t crossed = 0, fewest = 0;
    if (!is_planned(seen) || node < 1 || node >= p->devices || p->rows == 0) return OK;
    count_tokens(p, of);
    /* A node with more tokens in attention than rows outside must send the difference to other nodes. */
    for (int first = 0; first < p->devices; first += node) {
        int64_t over = 0;
        for (int d = first; d < first + node && d < p->devices; d++) over += of[d].attended - of[d].outside;
        fewest += at_least_0(over);
    }
    for (int r = 0; r < p->rows; r++)
        for (int b = 0; b < p->blocks; b++)
            for (int i = 0; i < 2; i++)
                if (p->row[r].device / node != p->block[b].home / node)
                    crossed += interval_meet(p->row[r].tokens, p->block[b].tokens[i]).count;
    *checked += 1;
    return crossed == fewest ? OK : fail(err, ERR_CHECK, "%lld rows cross nodes between attention and other layers; "
                                         "%lld would do", (wide)crossed, (wide)fewest);
}

/* ---- who has a sample -------------------------------------------------------------------------------------------- */

/* The devices of a sample, and the pairs of tokens that each computes if queries stay where they are. */
struct sample_share { int devices; double least, most; };

/* Count the devices that have queries of a sample, and find the fewest and most pairs of these devices. */
static struct sample_share context_invariants_share_of(const struct context_plan *plan, struct interval sample)
{
    struct sample_share share = { 0 };
    for (int d = 0; d < plan->devices; d++) {
        double pairs = 0;
        for (int b = 0; b < plan->blocks; b++)
            for (int i = 0; i < 2 && plan->block[b].home == d; i++) {
                /* A query at place s of its sample sees s + 1 keys.  The n queries from `first` on see n first +
                 * n(n+1)/2 keys together. */
                const struct interval own = interval_meet(plan->block[b].tokens[i], sample);
                const double first = (double)(own.first - sample.first), n = (double)own.count;
                pairs += n > 0 ? n * first + n * (n + 1) / 2 : 0;
            }
        if (pairs <= 0) continue;
        if (share.devices == 0 || pairs < share.least) share.least = pairs;
        if (pairs > share.most) share.most = pairs;
        share.devices++;
    }
    return share;
}

/* ---- what leaves for the slow tier ------------------------------------------------------------------------------- */

/* With offloading a long sample needs fewer devices than its length says; offload_is_least compares these. */
static bool leaves_for_tier(const struct context_load *load) { return load->per_kept > 0 && load->layers > 2; }

/* A sample of s tokens is on ceil(s / room) devices, or on all of them. */
static enum error_code as_many_devices_as_needed(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    const struct context_load *const l = s->load;
    /* The room of a device in a microbatch is the mean over all devices and microbatches. */
    const int64_t room = divided_up(l->tokens, (int64_t)l->devices * (l->micros > 1 ? l->micros : 1));
    if (!is_planned(seen) || leaves_for_tier(l)) return OK;
    for (int64_t i = 0, first = 0; i < l->samples; first += l->length[i++]) {
        const int has = context_invariants_share_of(s->plan, (struct interval){ first, l->length[i] }).devices;
        const int64_t needed = divided_up(l->length[i], room), want = needed < l->devices ? needed : l->devices;
        /* A sample on no device lies in another microbatch of the step. */
        if (has == 0 && l->micros > 1) continue;                /* in another microbatch */
        if (has != want)
            return fail(err, ERR_CHECK, "a sample of %lld tokens is on %d devices; with room for %lld tokens each it "
                        "needs %lld", (wide)l->length[i], has, (wide)room, (wide)want);
        *checked += 1;
    }
    return OK;
}

/* The devices that a sample of s tokens needs if `away` of the `may` layers leave, of which the device has two more. */
static int64_t needed_with(int64_t s, int away, int may, int64_t room)
{
    return divided_up(divided_up(s * (2 + may - away), 2 + may), room);
}

/* So many of the layers that may leave are copied while others compute: by the operations of a forward pass. */
static int hidden_layers(const struct context_load *load, int64_t s)
{
    const double layer = load->per_pair * (double)(s + 1) / 2 + load->per_token;
    return (int)floor(fmin(1, layer / load->per_kept) * (load->layers - 2));
}

/* The first device that has tokens of a sample; -1: none does. */
static int first_device_of(const struct context_plan *plan, int64_t first)
{
    for (int b = 0; b < plan->blocks; b++)
        if (plan->block[b].tokens[0].first == first) return plan->block[b].home;
    return -1;
}

/* Each sample is on as few devices as hidden copies allow, and no more leaves than that takes. */
static enum error_code offload_is_least(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const x = seen;
    const struct context_load *const l = x->load;
    const int64_t room = divided_up(l->tokens, (int64_t)l->devices * (l->micros > 1 ? l->micros : 1));
    const int may = l->layers - 2;
    int must[MESH_MOST_LISTED] = { 0 };
    if (!is_planned(seen) || !leaves_for_tier(l)) return OK;
    for (int64_t i = 0, first = 0; i < l->samples; first += l->length[i++]) {
        const int64_t s = l->length[i];
        const int D = context_invariants_share_of(x->plan, (struct interval){ first, s }).devices;
        const int hidden = s > room ? hidden_layers(l, s) : 0;
        const int64_t fewest = needed_with(s, hidden, may, room), want = fewest < l->devices ? fewest : l->devices;
        int least = 0;
        while (least < hidden && (fewest > l->devices || needed_with(s, least, may, room) > fewest)) least++;
        if (D == 0) continue;                                   /* in another microbatch */
        if (D != want)
            return fail(err, ERR_CHECK, "a sample of %lld tokens is on %d devices; with %d of %d layers away it needs "
                        "%lld", (wide)s, D, hidden, may, (wide)want);
        for (int d = first_device_of(x->plan, first), k = 0; k < D; k++)
            if (must[d + k] < least) must[d + k] = least;
        *checked += 1;
    }
    for (int d = 0; d < l->devices; d++)
        if (fabs(x->plan->away[d] * may - must[d]) > 1e-6)
            return fail(err, ERR_CHECK, "of device %d %.0f of %d layers leave; %d would do", d, x->plan->away[d] * may,
                        may, must[d]);
    return OK;
}

/* The 2D parts of a sample differ by a token at most, so a device has at most two tokens more, each with at most s
 * pairs, and its parts begin together at most 2D tokens later, which is s pairs at most. */
static enum error_code devices_share_evenly(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    for (int64_t i = 0, first = 0; i < s->load->samples && is_planned(seen); first += s->load->length[i++]) {
        const struct sample_share h = context_invariants_share_of(s->plan,
                                                                  (struct interval){ first, s->load->length[i] });
        if (h.devices < 2) continue;
        if (h.most - h.least > 3 * (double)s->load->length[i])
            return fail(err, ERR_CHECK, "of a sample of %lld tokens its %d devices compute %.0f to %.0f pairs",
                        (wide)s->load->length[i], h.devices, h.least, h.most);
        *checked += 1;
    }
    return OK;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Count the microbatches of the step that have the token. */
static int context_invariants_times(const struct context_seen *seen, int micros, int64_t token)
{
    int times = 0;
    for (int m = 0; m < micros; m++)
        for (int b = 0; b < seen->step[m]->blocks; b++)
            for (int i = 0; i < 2; i++) {
                const struct interval own = seen->step[m]->block[b].tokens[i];
                times += token >= own.first && token < interval_end(own);
            }
    return times;
}

enum error_code context_samples_are_once(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    const int micros = s->load->micros > 1 ? s->load->micros : 1;
    if (s->step == NULL || !is_planned(seen)) return OK;
    for (int64_t i = 0, first = 0; i < s->load->samples; first += s->load->length[i++], *checked += 1) {
        const int times = context_invariants_times(s, micros, first);
        if (times != 1)
            return fail(err, ERR_CHECK, "the sample of %lld tokens from token %lld on is in %d of %d microbatches",
                        (wide)s->load->length[i], (wide)first, times, micros);
    }
    return OK;
}

/* ---- balance ----------------------------------------------------------------------------------------------------- */

enum { WORK, TOKENS };
static const char *const weights[] = { "pairs", "tokens" };

/* A twentieth more than a share, or the heaviest vertex more. */
static double context_invariants_allowed(double share, double heaviest) { return share + fmax(share / 20, heaviest); }

/* Add up pairs of works, or tokens of blocks, for each device; `heaviest` is the largest of a single vertex. */
static void weigh(const struct context_seen *seen, int kind, double of[], double *heaviest)
{
    const struct context_plan *const p = seen->plan;
    for (int i = 0; i < (kind == WORK ? p->works : p->blocks); i++) {
        const struct context_block *const b = &p->block[kind == WORK ? p->work[i].query : i];
        const double n = kind == TOKENS ? (double)context_block_tokens(b)
                                        : context_pairs(seen->load, b, &p->block[p->work[i].key]);
        of[kind == WORK ? p->work[i].device : b->home] += n;
        *heaviest = fmax(*heaviest, n);
    }
}

/* Nodes have their share of pairs and tokens, and devices that of their node, within the allowance. */
static enum error_code is_balanced(const void *seen, int64_t *checked, struct error *err)
{
    const struct context_seen *const s = seen;
    const int P = s->plan->devices, node = s->load->node > 0 && s->load->node < P ? s->load->node : P;
    for (int kind = WORK; kind <= TOKENS && is_planned(seen); kind++) {
        double of[MESH_MOST_LISTED] = { 0 }, heaviest = 0, all = 0;
        weigh(s, kind, of, &heaviest);
        for (int d = 0; d < P; d++) all += of[d];
        /* The last node may have fewer devices, so its share is smaller. */
        for (int first = 0; first < P; first += node) {
            const int here = first + node <= P ? node : P - first;
            double sum = 0;
            for (int d = first; d < first + here; d++) sum += of[d];
            if (sum > context_invariants_allowed(all * here / P, heaviest) + 1)
                return fail(err, ERR_CHECK, "a node has %.0f of %.0f %s", sum, all, weights[kind]);
            for (int d = first; d < first + here; d++, *checked += 1)
                if (of[d] > context_invariants_allowed(sum / here, heaviest) + 1)
                    return fail(err, ERR_CHECK, "device %d has %.0f of %.0f %s on %d devices", d, of[d], sum,
                                weights[kind], here);
        }
    }
    return OK;
}

/* ---- of each scheme ---------------------------------------------------------------------------------------------- */

#define NEEDED_MOVES { "moves", "a block is sent once to each device that computes with it, and only to these", \
                       moves_are_needed }
#define EVEN_SHARES  { "shares", "the devices of a sample compute equally many pairs, to 3 for each token", \
                       devices_share_evenly }

const struct invariant zeppelin_invariants[] = {
    { "remap", "outside attention rows are even to one, and the fewest move that will do", fewest_rows_move },
    { "remap nodes", "of these the fewest cross nodes", fewest_rows_cross },
    NEEDED_MOVES, EVEN_SHARES, { NULL },
};
const struct invariant hdp_invariants[] = {
    { "devices", "a sample of s tokens is on ceil(s/C) devices, if each has room for C", as_many_devices_as_needed },
    { "step", "each sample of a step is in one microbatch", context_samples_are_once },
    { "offload", "a long sample is on the fewest devices that hidden copies allow, and no more leaves",
      offload_is_least },
    NEEDED_MOVES, EVEN_SHARES, { NULL },
};
const struct invariant dcp_invariants[] = {
    { "balance", "pairs and tokens are even to a twentieth or one block", is_balanced },
    NEEDED_MOVES, { NULL },
};
