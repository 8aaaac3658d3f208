/* Golden cases of collectives from anybody: what is accepted has vectors as long as such a call's, on every member. */
#include "tests/golden_cases.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_MEMBERS = 10 };

static void read_case(const struct golden_cases *g, int i, int rank)
{
    struct golden_case c;
    struct error err = { 0 };
    if (golden_case_read(&c, g, i, rank, &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    must(rank < c.P && c.args.root < c.P && c.args.root >= 0, "member %d or root %d of %d", rank, c.args.root, c.P);
    must((c.in_length == 0 || c.in != NULL) && (c.want != NULL || c.out_length == 0), "elements of nothing");
    const size_t each = dtype_size(c.args.dtype);
    volatile unsigned char last = 0;
    if (c.in_length > 0) last = ((unsigned char *)c.in)[each * (size_t)c.in_length - 1];
    if (c.out_length > 0) last = ((unsigned char *)c.want)[each * (size_t)c.out_length - 1];
    (void)last;
    golden_case_free(&c);
}

static void try(const uint8_t *data, size_t size)
{
    struct golden_cases g;
    struct error err = { 0 };
    if (golden_cases_open(&g, as_file(data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    for (int i = 0; golden_cases_name(&g, i) != NULL; i++) {
        int P = 0;
        if (golden_case_size(&g, i, &P, &err) != OK) must(err.text[0] != '\0', "refused without a word");
        for (int rank = -1; rank <= P && rank < MOST_MEMBERS; rank++) read_case(&g, i, rank);
    }
    golden_cases_close(&g);
}

FUZZ_TARGET("golden_cases")
