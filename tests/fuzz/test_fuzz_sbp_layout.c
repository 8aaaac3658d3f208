/* A layout of tensor parallelism from anybody: refused in a line, or one that a scheme can be made of.
 * tier: check
 */
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    struct sbp_layout l;
    struct error err = { 0 };
    enum sbp_role role;
    char *text = as_text(data, size);
    const enum error_code e = sbp_layout_parse(&l, text, "fuzz", &err);
    free(text);
    if (e != OK) {
        must(err.text[0] != '\0' && strpbrk(err.text, "\n\r\033") == NULL, "refused with: %s", err.text);
        return;
    }
    const char *why = sbp_layout_refuses(&l, &role);
    must(why == NULL, "read, and yet refused: %s", why);
    const struct sbp_scheme s = sbp_scheme_of(&l, "sbp:fuzz");
    must(s.scheme.weight(&s.scheme, ROLE_QKV).sub == 0, "a weight cut twice");
}

FUZZ_TARGET("sbp_layout")
