/* Wrong attention schemes: ring attention whose tokens are dealt two at a time.  tests/cli/test_verify_plugin.sh
 * compiles the file with -DWRONG=N, and wants the law beside N to be broken.
 *
 *  1 complete     does not state what it sends
 *  2 complete     has no function refuses
 *  3 share        leaves a device empty
 *  4 ascends      lists tokens from the last to the first
 *  5 partition    gives the last token to two devices
 *  6 partition    leaves the first token out
 *  7 ascends      gives tokens behind the sequence
 *  8 repeats      deals otherwise the second time
 *  9 trains       states no slot for what it keeps
 * 10 trains       states that it sends nothing
 * 11 accepts      refuses with an empty text
 * 12 accepts      refuses everything
 * 13 ends         crashes for a sequence of one token
 * 14 trains       does not say that backward reads queries and keys
 */
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "emulated_devices/schemes/plugin.h"
#ifndef WRONG
#define WRONG 0
#endif

static void cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    static int asked;
    const int64_t S = cp->S, all = 2 * cp->devices;
    const int at = WRONG == 8 && ++asked % 2 ? (member + 1) % cp->devices : member;
    if (WRONG == 13 && S == 1) *(volatile int *)0 = 1;
    if (WRONG == 4) {
        for (int64_t first = (S - 1) / all * all + 2 * at; first >= 0; first -= all)
            if (first < S) intervals_add(tokens, (struct interval){ first, S - first < 2 ? 1 : 2 });
        return;
    }
    for (int64_t first = 2 * at; first < S; first += all) {
        const bool skips = WRONG == 6 && first == 0 && cp->devices > 1 && S > 2;
        intervals_add(tokens, (struct interval){ first + skips, S - first < 2 && WRONG != 7 ? 1 : 2 - skips });
    }
    if (WRONG == 5 && cp->devices > 1 && member == (S - 1) / 2 % cp->devices - 1)
        intervals_add(tokens, (struct interval){ S - 1, 1 });
}

static const char *refuses(const struct context_parallel *cp, const struct model_config *c)
{
    if (WRONG == 12) return "another sequence";
    if (cp->S > 2 * (cp->devices - 1) || WRONG == 3) return ring_attention_refuses(cp, c);
    return WRONG == 11 ? "" : "more than 2 (P-1) tokens";
}

static void no_cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    (void)f, (void)cp, (void)pass, (void)rows;
}

static const struct attention_scheme attention_scheme_mine = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "mine", .description = "as ring",
              .source = "own", RING_HEAD },
    .refuses = WRONG == 2 ? NULL : refuses, .cut = cut, .slots = WRONG == 9 ? 0 : 1, .kept = ring_attention_kept,
    .reads_input = WRONG != 14, .reads_output = true, .forward = ring_attention_forward,
    .backward_input = ring_attention_backward_input,
    .cost = WRONG == 1 ? NULL : WRONG == 10 ? no_cost : ring_attention_cost,
};

PLUGIN(PLUGIN_SCHEME(attention_scheme_mine));
