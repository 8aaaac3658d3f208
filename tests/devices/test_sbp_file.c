/* Graphs of signatures as text: what is read, what is refused, pins that are written and read back, and graphs carried
 * out with real numbers beside one device.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */
#include "emulated_devices/schemes/sbp/graph_file.h"
#include "emulated_devices/schemes/sbp/panels.h"
#include "emulated_devices/schemes/sbp/trial.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sbp_mesh line = { .axes = 1, .size = { 3, 1 } }, rectangle = { .axes = 2, .size = { 2, 3 } };
static struct sbp_graph g;
static struct error err;

static enum error_code parse(const struct sbp_mesh *m, const char *text)
{
    char copy[2048];
    assert_true(snprintf(copy, sizeof copy, "%s", text) < (int)sizeof copy);
    g = (struct sbp_graph){ 0 };
    return graph_parse(&g, m, copy, "f", &err);
}

/* Every operation, with sizes that nothing divides. */
static const char whole[] =
    "# forward and backward\n"
    "tensor x 7*5 21\ntensor w 2 21\ntensor up 2 26 21\ntensor b 2 26 # a bias\ntensor down 21 26\n"
    "tensor dy 7*5 21\n"
    "n = norm x w\np = linear n up\nq = add_bias p b\na = swiglu q\no = linear a down\ny = add x o\n"
    "ddown = linear_dw dy a\nda = linear_dx dy down\ndq = swiglu_dx da q\ndb = bias_dw dq\ndup = linear_dw dq n\n"
    "dn = linear_dx dq up\ndw = norm_dw dn x w\ndi = norm_dx dn x w\nc = copy dy\ndx = add c di\n"
    "like y x\nlike dy x\nlike dx x\nlike ddown down\nlike dup up\nlike db b\nlike dw w\n";

static void test_a_graph(void **state)
{
    (void)state;
    assert_int_equal(parse(&line, whole), OK);
    assert_true(g.tensors == 22 && g.ops == 16 && g.model.norm == NORM_LAYER);
    const struct sbp_tensor *q = &g.tensor[graph_find(&g, "q")], *dup = &g.tensor[graph_find(&g, "dup")];
    assert_true(q->shape.ndim == 3 && q->shape.dim[0] == 35 && q->shape.dim[1] == 2 && q->shape.dim[2] == 26);
    assert_true(q->shape.granule == 5 && dup->shape.granule == 1 && dup->like == graph_find(&g, "up"));
    assert_string_equal(g.op[1].letters, "nd,fgd->nfg");
    assert_string_equal(g.op[5].letters, "nf,nf->nf");
}

/* As devices of this process carry it out, on a line and on a rectangle: one device's numbers, the bytes counted. */
static void test_a_trial(void **state)
{
    const struct sbp_mesh *const meshes[] = { &line, &rectangle };
    struct cluster c;
    (void)state;
    assert_int_equal(cluster_find(&c, "h100-node", &err), OK);
    for (int i = 0; i < 2; i++)
        for (int64_t kept = 0; kept <= 7000; kept += 7000) {
            static struct assignment a;
            struct sbp_trial t;
            assert_int_equal(parse(meshes[i], whole), OK);
            const enum error_code e = kept ? sbp_assign_within(&g, meshes[i], kept, 1 << 24, &a, &err)
                                           : sbp_assign(&g, meshes[i], 0, 1 << 24, &a, &err);
            if (e) print_error("%s\n", err.text);
            assert_int_equal(e, OK);
            assert_true(a.exact && (kept == 0 || a.kept <= kept));
            assert_int_equal(sbp_trial(&g, &a, &c, &t, &err), OK);
            if (!(t.off <= 1e-13)) print_error("%s is off by %g\n", g.tensor[t.farthest].name, t.off);
            assert_true(t.off <= 1e-13);
            assert_true(t.compared >= 14 && t.time > 0 && t.peak > 0);
            assert_int_equal(t.bytes, a.elements * 8);
        }
}

/* Products on two axes whose factors are gathered along one each: panel by panel the same numbers and bytes, as many
 * messages as the formula says, and less memory. */
static void test_panels(void **state)
{
    static const struct sbp_mesh meshes[] = { { .axes = 2, .size = { 2, 2 } }, { .axes = 2, .size = { 2, 3 } },
                                              { .axes = 2, .size = { 3, 2 } } };
    static const char *const products[] = {
        "tensor a 24*4 60\ntensor b 90 60\nc = linear a b\npin a (S(0), S(1))\npin b (S(1), S(0))\n",
        "tensor a 24*4 20\ntensor b 20 60\nc = linear_dx a b\npin a (S(0), S(1))\npin b (S(0), S(1))\n",
        "tensor a 20 90\ntensor b 20 60\nc = linear_dw a b\npin a (S(1), S(0))\npin b (S(0), S(1))\n",
        "tensor a 7*5 11\ntensor b 13 11\nc = linear a b\npin a (S(0), S(1))\npin b (S(1), S(0))\n",
    };
    struct cluster c;
    (void)state;
    assert_int_equal(cluster_find(&c, "h100-node", &err), OK);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            static struct assignment a;
            struct sbp_trial whole_rows, panels;
            char text[256];
            const int64_t p = meshes[i].size[0], q = meshes[i].size[1];
            snprintf(text, sizeof text, "%spin c (S(0), S(1))\n", products[k]);
            assert_int_equal(parse(&meshes[i], text), OK);
            assert_int_equal(sbp_assign(&g, &meshes[i], 0, 1 << 24, &a, &err), OK);
            assert_int_equal(sbp_trial(&g, &a, &c, &whole_rows, &err), OK);
            a.panels = true;
            assert_int_equal(sbp_trial(&g, &a, &c, &panels, &err), OK);
            if (!(panels.off <= 1e-13)) print_error("%lldx%lld, product %d: off by %g\n", (long long)p, (long long)q, k,
                                                    panels.off);
            assert_true(panels.off <= 1e-13 && panels.compared == 1);
            assert_int_equal(panels.bytes, a.elements * 8);
            assert_int_equal(panels.bytes, whole_rows.bytes);
            assert_int_equal(panels.messages, panels_messages(&g, &a, 0));
            assert_int_equal(panels_of(&g, &a, 0).count, p == q ? p : p + q - 1);
            assert_int_equal(panels.messages, (p == q ? p : p + q - 1) * (2 * p * q - p - q));
            assert_true(k == 3 || panels.peak < whole_rows.peak);
        }
    assert_int_equal(parse(&line, "tensor a 24 60\ntensor b 90 60\nc = linear a b\npin c S(0)\n"), OK);
    static struct assignment one;
    assert_int_equal(sbp_assign(&g, &line, 0, 1 << 24, &one, &err), OK);
    assert_int_equal(panels_of(&g, &one, 0).count, 0);
}

static void test_pins(void **state)
{
    static struct assignment found, again;
    char file[4096];
    (void)state;
    snprintf(file, sizeof file, "%s/orrery-pins-XXXXXX", temporary_folder());
    const int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(parse(&rectangle, whole), OK);
    assert_int_equal(sbp_assign(&g, &rectangle, 0, 1 << 24, &found, &err), OK);
    assert_int_equal(graph_write_pins(&g, &found, file, &err), OK);
    assert_int_equal(graph_read(&g, &rectangle, file, &err), OK);
    for (int t = 0; t < g.tensors; t++)
        assert_true(g.tensor[t].pinned && signature_equal(g.tensor[t].pin, found.tensor[t]));
    assert_int_equal(sbp_assign(&g, &rectangle, 0, 1 << 24, &again, &err), OK);
    assert_int_equal(again.elements, found.elements);
    unlink(file);
}

static void test_refused(void **state)
{
    static const struct { const char *text, *says; } row[] = {
        { "", "f:1: there is no operation" },
        { "tensor x 4 4\n", "f:2: there is no operation" },
        { "nonsense", "f:1: nonsense: a line is: tensor NAME SIZES, NAME = OPERATION OPERANDS, pin or like" },
        { "tensor x\n", "f:1: a tensor has a name and 1 to 4 sizes, such as: tensor x 8*16 64" },
        { "tensor x 4 0\n", "f:1: 0: must be a size" },
        { "tensor x 4*0 2\n", "f:1: 4*0: must be a size, or like 8*16" },
        { "tensor x 2 4*2\n", "f:1: 4*2: must be a size" },
        { "tensor x 99999999999999999999 2\n", "f:1: 99999999999999999999: must be a size, or like 8*16" },
        { "tensor x 1000000 1000000\n", "f:1: x has more than 2^36 elements" },
        { "tensor 9x 4\n", "f:1: 9x: must be a name of letters, digits, . and _, shorter than 48" },
        { "tensor x 4 4\ntensor x 4 4\n", "f:2: x is there already" },
        { "tensor x 4 4\ny = gelo x\n", "f:2: gelo: is no operation; docs/parallelism/signatures.md has them" },
        { "tensor x 4 4\ny = gelu x x\n", "f:2: gelu has 1 operand, not 2" },
        { "tensor x 4 4\ny = gelu z\n", "f:2: z: there is no such tensor yet" },
        { "tensor x 4 5\ntensor w 3 4\ny = linear x w\n",
          "f:3: w has 4 in dimension 1, where another operand of linear has 5" },
        { "tensor x 4 5\ntensor w 5\ny = linear x w\n", "f:3: w of 1 dimensions cannot be operand 2 of linear" },
        { "tensor x 4 3 5\ny = swiglu x\n", "f:2: swiglu takes [rows, 2, columns], not 3" },
        { "tensor x 4 5\ntensor w 3 5\ny = norm x w\n",
          "f:3: norm takes parameters of [2, columns], w and b, or of [1, columns] for an rmsnorm" },
        { "tensor x 4 5\ntensor w 1 5\ntensor v 2 5\ny = norm x w\nz = norm y v\n",
          "f:5: all norms of a graph have b, or none has" },
        { "tensor x 4 5\ny = copy x\nlike y z\n", "f:3: z: there is no such tensor" },
        { "tensor x 4 5\ntensor w 5 4\ny = copy x\nlike y w\n", "f:4: y and w have different shapes" },
        { "tensor x 4 5\ny = copy x\nlike y x\nlike x y\n", "f:4: x is like itself" },
        { "tensor x 4 5\ny = copy x\npin y S(2)\n",
          "f:3: y cannot be S(2): a split has more parts than there are rows" },
        { "tensor x 4 5\ny = copy x\npin y (S(0), B)\n",
          "f:3: (S(0), B): must be a signature like S(0); each of S(dimension), B and P" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(parse(&line, row[i].text), ERR_FORMAT);
        assert_string_equal(err.text, row[i].says);
    }
    assert_int_equal(parse(&line, whole), OK);
    char more[] = "tensor z 4\n";
    assert_int_equal(graph_parse(&g, &line, more, "f", &err), ERR_FORMAT);
    assert_string_equal(err.text, "f:1: tensor: beside a graph only pin and like can stand");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_graph), cmocka_unit_test(test_a_trial), cmocka_unit_test(test_panels),
        cmocka_unit_test(test_pins), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("graphs of signatures as text", tests, NULL, NULL);
}
