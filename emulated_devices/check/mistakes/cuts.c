/* cuts.c -- lists how a batch may have been cut into the parts of ranks and microbatches.
 * report/singles.c and mistakes/sequences.c make the list once; loss.c and whose.c go through it. */
#include "emulated_devices/check/mistakes/cuts.h"
#include "emulated_devices/check/recompute/turns.h"
#include <string.h>

enum { NOT_CUT = -1, GUESSED_PARTS = 8 };

/* Other known cuts, of microbatches, have other names. */
static const char DP_RANK[] = "dp rank";

const struct batch_cut *cuts_of_ranks(const struct batch_cuts *cuts)
{
    return cuts->count > 0 && strcmp(cuts->all[0].of, DP_RANK) == 0 ? &cuts->all[0] : NULL;
}

int cut_size(const struct batch_cuts *cuts, const struct batch_cut *cut, int part)
{
    int n = 0;
    for (int s = 0; s < cuts->B; s++) n += cut->part[s] == part;
    return n;
}

int cut_member(const struct batch_cuts *cuts, const struct batch_cut *cut, int part, int i)
{
    const int size = cut_size(cuts, cut, part);
    int left = size > 0 ? i % size : 0;
    for (int s = 0; s < cuts->B; s++)
        if (cut->part[s] == part && left-- == 0) return s;
    return 0;
}

/* The parts lie one after another in this order; the place of a sequence counts those before it. */
static int cut_place(const struct batch_cuts *cuts, const struct batch_cut *cut, int sequence)
{
    int place = 0;
    for (int s = 0; s < cuts->B; s++)
        place += cut->part[s] < cut->part[sequence] || (cut->part[s] == cut->part[sequence] && s < sequence);
    return place;
}

static int cut_at_place(const struct batch_cuts *cuts, const struct batch_cut *cut, int place)
{
    for (int s = 0; s < cuts->B; s++)
        if (cut_place(cuts, cut, s) == place) return s;
    return 0;
}

int cut_turned(const struct batch_cuts *cuts, const struct batch_cut *cut, int by, int sequence)
{
    const int own = cut->part[sequence], other = ((own + by) % cut->parts + cut->parts) % cut->parts;
    const int first_own = cut_place(cuts, cut, cut_member(cuts, cut, own, 0)),
              first_other = cut_place(cuts, cut, cut_member(cuts, cut, other, 0));
    return cut_at_place(cuts, cut, (first_other + cut_place(cuts, cut, sequence) - first_own) % cuts->B);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Add a cut, unless an earlier one has the same parts, or a part of it is empty. */
static void cuts_add(struct batch_cuts *cuts, const struct batch_cut *cut)
{
    if (cuts->count == CUTS_MOST || cut->parts < 2) return;
    for (int k = 0; k < cut->parts; k++)
        if (cut_size(cuts, cut, k) == 0) return;
    for (int i = 0; i < cuts->count; i++) {
        bool same = cuts->all[i].parts == cut->parts;
        for (int s = 0; s < cuts->B && same; s++) same = cuts->all[i].part[s] == cut->part[s];
        if (same) return;
    }
    cuts->all[cuts->count++] = *cut;
}

/* A key of an owner: its copy, its microbatch, or both. */
enum cut_key { BY_COPY, BY_MICRO, BY_BOTH };

static int cut_key_of(const struct single_owner *owner, enum cut_key key)
{
    enum { MICROS = 1 << 16 };
    return key == BY_COPY ? owner->copy : key == BY_MICRO ? owner->micro : owner->copy * MICROS + owner->micro + 1;
}

/* Number the keys in their order.  @return how many smaller ones there are. */
static int cut_number(const struct single_owner owner[], int parts, int key, enum cut_key by)
{
    int smaller = 0;
    for (int i = 0; i < parts; i++) {
        const int other = cut_key_of(&owner[i], by);
        bool first = other < key;
        for (int j = 0; j < i && first; j++) first = cut_key_of(&owner[j], by) != other;
        smaller += first;
    }
    return smaller;
}

/* Add what the layout states.  @return its place in the list; -1: it is none, or parts share a sequence. */
static int cuts_add_stated(struct batch_cuts *cuts, int64_t S, const int32_t *part, const struct single_owner owner[],
                           int parts, enum cut_key by, const char *of, int within)
{
    struct batch_cut cut = { .of = of, .known = true, .within = within };
    for (int s = 0; s < cuts->B; s++) {
        const int key = cut_key_of(&owner[part[s * S]], by);
        cut.part[s] = cut_number(owner, parts, key, by);
        for (int64_t i = 0; i < S; i++)
            if (cut_key_of(&owner[part[s * S + i]], by) != key) return NOT_CUT;
        if (cut.part[s] >= cut.parts) cut.parts = cut.part[s] + 1;
    }
    const int before = cuts->count;
    cuts_add(cuts, &cut);
    return cuts->count > before ? before : NOT_CUT;
}

/* Add runs of sequences, and sequences in turn. */
static void cuts_add_usual(struct batch_cuts *cuts, int parts, const char *of, bool known)
{
    struct batch_cut run = { .of = of, .known = known, .parts = parts, .within = NOT_CUT }, in_turn = run;
    if (parts < 2 || parts > cuts->B) return;
    for (int s = 0; s < cuts->B; s++) run.part[s] = part_with(cuts->B, parts, s), in_turn.part[s] = s % parts;
    cuts_add(cuts, &run), cuts_add(cuts, &in_turn);
}

struct batch_cuts cuts_of(int64_t B, int64_t S, const int32_t *part, const struct single_owner *owner, int parts,
                          int dp)
{
    struct batch_cuts cuts = { .B = B <= CUT_SEQUENCES ? (int)B : 0 };
    if (cuts.B == 0) return cuts;
    if (part && owner) {
        const int ranks = cuts_add_stated(&cuts, S, part, owner, parts, BY_COPY, DP_RANK, NOT_CUT);
        cuts_add_stated(&cuts, S, part, owner, parts, BY_MICRO, "microbatch", NOT_CUT);
        cuts_add_stated(&cuts, S, part, owner, parts, BY_BOTH, "dp rank's microbatch", ranks);
    } else cuts_add_usual(&cuts, dp, DP_RANK, true);
    for (int n = 2; n <= GUESSED_PARTS; n++) cuts_add_usual(&cuts, n, "part of the batch", false);
    return cuts;
}
