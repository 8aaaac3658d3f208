/* A graph of signatures from anybody: refused in a line, or one whose signatures can be searched.
 * tier: check
 */
#include "emulated_devices/schemes/sbp/graph_file.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    static const struct sbp_mesh meshes[] = { { .axes = 1, .size = { 3, 1 } }, { .axes = 2, .size = { 2, 2 } } };
    static struct sbp_graph g;
    static struct assignment a;
    struct error err = { 0 };
    char *text = as_text(data, size);
    g = (struct sbp_graph){ 0 };
    const struct sbp_mesh *m = &meshes[size % 2];
    const enum error_code e = graph_parse(&g, m, text, "fuzz", &err);
    free(text);
    if (e != OK) {
        must(err.text[0] != '\0' && strpbrk(err.text, "\n\r\033") == NULL, "refused with: %s", err.text);
        return;
    }
    must(!g.full && g.ops > 0, "a graph of %d operations", g.ops);
    if (sbp_assign(&g, m, 0, 1 << 12, &a, &err) == OK) must(a.elements >= 0 && a.kept > 0, "less than nothing is sent");
    else must(err.text[0] != '\0', "refused without a word");
}

FUZZ_TARGET("sbp")
