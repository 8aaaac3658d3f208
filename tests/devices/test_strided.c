/* Strided bytes: packed as MPI_Pack packs nested datatypes, byte for byte and in the order of the typemap; equal bytes
 * in an equal order have one form, however they are described; boxes; and the choice of how they are sent.
 * ranks: 1
 */
#include "emulated_devices/comm/datatype.h"
#include "emulated_devices/device/strided_way.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t drawn = 12345;
static int draw(int from, int to)
{
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return from + (int)((drawn >> 33) % (uint64_t)(to - from + 1));
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static MPI_Aint extent_of(MPI_Datatype t)
{
    MPI_Aint first, extent;
    MPI_Type_get_extent(t, &first, &extent);                            /* never waits */
    return extent;
}

/* A type of types: most strides leave gaps, some overlap or go on evenly, as vectors of columns do. */
static MPI_Datatype random_type(int depth)
{
    static const MPI_Datatype named[] = { MPI_BYTE, MPI_SHORT, MPI_FLOAT, MPI_DOUBLE };
    if (depth == 0) return named[draw(0, 3)];
    MPI_Datatype inner = random_type(depth - 1), made = MPI_DATATYPE_NULL;
    const int ndim = draw(1, 3);
    int order, size[3], part[3], start[3];
    MPI_Aint stride;
    switch (draw(0, 4)) {
    case 0: MPI_Type_contiguous(draw(1, 4), inner, &made); break;       /* never waits */
    case 1: MPI_Type_vector(draw(1, 4), draw(1, 3), draw(1, 6), inner, &made); break;               /* never waits */
    case 2: stride = draw(0, 3) * extent_of(inner) + draw(0, 1) * 8;
            MPI_Type_create_hvector(draw(1, 4), draw(1, 3), stride, inner, &made); break;           /* never waits */
    case 3: MPI_Type_create_resized(inner, 0, extent_of(inner) * draw(1, 2), &made); break;         /* never waits */
    default:
        for (int d = 0; d < ndim; d++)
            size[d] = draw(1, 4), part[d] = draw(1, size[d]), start[d] = draw(0, size[d] - part[d]);
        order = draw(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        MPI_Type_create_subarray(ndim, size, part, start, order, inner, &made);         /* never waits */
    }
    if (depth > 1) MPI_Type_free(&inner);                               /* never waits */
    return made;
}

enum { MEMORY = 1 << 20, TYPES = 1000 };
static unsigned char memory[MEMORY], by_mpi[MEMORY], by_us[MEMORY], back[MEMORY], again[MEMORY];

/* The last byte that a form touches. */
static int64_t reach_of(const struct strided *s)
{
    int64_t end = s->offset + s->run;
    for (int d = 0; d < s->ndim; d++) end += (s->dim[d].count - 1) * s->dim[d].stride;
    return end;
}

static void test_as_mpi_packs(void **state)
{
    int tried = 0, most = 0, apart = 0;
    (void)state;
    for (int i = 0; i < MEMORY; i++) memory[i] = (unsigned char)draw(0, 255);
    while (tried < TYPES) {
        struct strided s;
        MPI_Datatype t = random_type(draw(1, 4));
        const int count = draw(1, 3);
        int size, at = 0;
        MPI_Type_commit(&t);                                            /* never waits */
        assert_true(datatype_strided(&s, t, count));
        MPI_Type_size(t, &size);                                        /* never waits */
        assert_int_equal(strided_bytes(&s), (int64_t)size * count);
        if (size > 0 && reach_of(&s) <= MEMORY && size * count <= MEMORY) {
            MPI_Pack(memory, count, t, by_mpi, MEMORY, &at, MPI_COMM_SELF);         /* never waits */
            strided_pack(by_us, memory, &s);
            if (memcmp(by_mpi, by_us, (size_t)at) != 0)
                fail_msg("type %d of %d bytes in %lld runs is packed in another way than by MPI_Pack", tried, at,
                         (long long)strided_runs(&s));
            /* Unpacked, every byte that belongs to the type is at its place, and no other is touched. */
            memset(back, 0x5a, sizeof back), memset(again, 0x5a, sizeof again);
            at = 0;
            MPI_Unpack(by_mpi, size * count, &at, back, count, t, MPI_COMM_SELF);   /* never waits */
            strided_unpack(again, &s, by_us);
            assert_memory_equal(back, again, MEMORY);
            tried++, most = s.ndim > most ? s.ndim : most, apart += s.ndim > 0;
        }
        MPI_Type_free(&t);                                              /* never waits */
    }
    printf("%d types, %d of several runs, up to %d dimensions\n", tried, apart, most);
    assert_true(most >= 3 && apart > TYPES / 4);
}

/* The typemap's order, not the order of addresses: hvector(3, 1, 4, vector(2, 1, 3)) of floats is 0 3 1 4 2 5. */
static void test_order_of_the_typemap(void **state)
{
    MPI_Datatype column, all;
    struct strided s;
    float from[6] = { 0, 1, 2, 3, 4, 5 }, to[6];
    (void)state;
    MPI_Type_vector(2, 1, 3, MPI_FLOAT, &column);                       /* never waits */
    MPI_Type_create_hvector(3, 1, sizeof(float), column, &all);         /* never waits */
    assert_true(datatype_strided(&s, all, 1));
    strided_pack(to, from, &s);
    const float expected[6] = { 0, 3, 1, 4, 2, 5 };
    assert_memory_equal(to, expected, sizeof expected);
    MPI_Type_free(&column), MPI_Type_free(&all);                        /* never waits */
}

/* ---- one form ---------------------------------------------------------------------------------------------------- */

/* The addresses of all bytes, in order. */
static int64_t addresses(const struct strided *s, int64_t *list, int64_t most)
{
    int64_t n = 0, index[STRIDED_DIMS] = { 0 };
    for (int64_t r = 0; r < strided_runs(s); r++) {
        int64_t at = s->offset;
        for (int d = 0; d < s->ndim; d++) at += index[d] * s->dim[d].stride;
        for (int64_t b = 0; b < s->run && n < most; b++) list[n++] = at + b;
        for (int d = s->ndim - 1; d >= 0 && ++index[d] == s->dim[d].count; d--) index[d] = 0;
    }
    return n;
}

/* Every form of few bytes, in pairs: the same addresses in the same order if and only if the same form. */
static void test_one_form(void **state)
{
    enum { FORMS = 300, MOST = 64 };
    static struct strided form[FORMS];
    static int64_t at[FORMS][MOST], bytes[FORMS];
    int same = 0;
    (void)state;
    for (int i = 0; i < FORMS;) {
        form[i] = strided_run(draw(1, 2));
        for (int d = draw(0, 3); d > 0; d--) assert_true(strided_repeat(&form[i], draw(1, 3), draw(0, 8)));
        bytes[i] = strided_bytes(&form[i]);
        if (bytes[i] <= MOST) addresses(&form[i], at[i], MOST), i++;
    }
    for (int i = 0; i < FORMS; i++)
        for (int j = 0; j < i; j++) {
            const bool equal = bytes[i] == bytes[j] && memcmp(at[i], at[j], (size_t)bytes[i] * sizeof **at) == 0;
            if (equal != strided_equal(&form[i], &form[j]))
                fail_msg("forms %d and %d of %lld bytes %s, but their forms %s", i, j, (long long)bytes[i],
                         equal ? "are the same bytes" : "differ", equal ? "differ" : "are the same");
            same += equal;
        }
    assert_true(same > 50);
}

/* Constructors that mean the same: rows of a matrix as vector, hvector, subarray, and contiguous types of a vector. */
static void test_equivalent_types(void **state)
{
    const int size[2] = { 6, 10 }, part[2] = { 6, 4 }, start[2] = { 0, 0 };
    MPI_Datatype t[5], row;
    struct strided s[5];
    (void)state;
    MPI_Type_vector(6, 4, 10, MPI_FLOAT, &t[0]);                        /* never waits */
    MPI_Type_create_hvector(6, 4, 40, MPI_FLOAT, &t[1]);                /* never waits */
    MPI_Type_create_subarray(2, size, part, start, MPI_ORDER_C, MPI_FLOAT, &t[2]);      /* never waits */
    MPI_Type_contiguous(4, MPI_FLOAT, &row);                            /* never waits */
    MPI_Type_create_hvector(6, 1, 40, row, &t[3]);                      /* never waits */
    MPI_Type_free(&row);                                                /* never waits */
    MPI_Type_create_hvector(1, 4, 16, MPI_FLOAT, &row);                 /* never waits */
    MPI_Datatype wide;
    MPI_Type_create_resized(row, 0, 40, &wide);                         /* never waits */
    MPI_Type_contiguous(6, wide, &t[4]);                                /* never waits */
    for (int i = 0; i < 5; i++) {
        assert_true(datatype_strided(&s[i], t[i], 1));
        if (!strided_equal(&s[0], &s[i])) fail_msg("constructor %d has a form of its own", i);
        MPI_Type_free(&t[i]);                                           /* never waits */
    }
    assert_true(s[0].run == 16 && s[0].ndim == 1 && s[0].dim[0].count == 6 && s[0].dim[0].stride == 40);
    MPI_Type_free(&row), MPI_Type_free(&wide);                          /* never waits */
}

/* ---- boxes, and moving between two forms ------------------------------------------------------------------------- */

static void test_boxes(void **state)
{
    (void)state;
    for (int n = 0; n < 300; n++) {
        int64_t dim[4], start[4], extent[4], count = 1, other[4], place[4];
        const int ndim = draw(1, 4), bytes = draw(1, 8);
        for (int d = 0; d < ndim; d++) {
            dim[d] = draw(1, 5), extent[d] = draw(0, (int)dim[d]), start[d] = draw(0, (int)(dim[d] - extent[d]));
            other[d] = extent[d] + draw(0, 2), place[d] = draw(0, (int)(other[d] - extent[d]));
            count *= extent[d];
        }
        const struct strided box = strided_box(ndim, dim, start, extent, bytes),
                             there = strided_box(ndim, other, place, extent, bytes);
        assert_int_equal(strided_bytes(&box), count * bytes);
        strided_pack(by_us, memory, &box);
        /* The elements one by one. */
        int64_t index[4] = { 0 };
        for (int64_t e = 0; e < count; e++) {
            int64_t at = 0;
            for (int d = 0; d < ndim; d++) at = at * dim[d] + start[d] + index[d];
            if (memcmp(by_us + e * bytes, memory + at * bytes, (size_t)bytes) != 0)
                fail_msg("box %d, element %d", n, (int)e);
            for (int d = ndim - 1; d >= 0 && ++index[d] == extent[d]; d--) index[d] = 0;
        }
        memset(back, 1, sizeof back), memset(again, 1, sizeof again);
        strided_move(back, &there, memory, &box);
        strided_unpack(again, &there, by_us);
        assert_memory_equal(back, again, MEMORY);
    }
}

/* ---- how they are sent ------------------------------------------------------------------------------------------- */

/* By hand: one level without latency, kernels that take their bytes alone, and messages of a gap. */
static struct cluster machine(picoseconds gap, picoseconds launch, int64_t memory_rate)
{
    return (struct cluster){ .memory_rate = memory_rate, .kernels.launch = launch, .levels = 1,
                             .link[0] = { .gap = gap, .rate = 1000, .latency = 5000000, .eager = ALWAYS_EAGER } };
}

static struct strided_choice chosen(const struct cluster *cluster, const struct strided *from, const struct strided *to)
{
    const struct strided_road road = { cluster, F32, 0 };
    const struct strided_pair pair = { *from, *to };
    const struct strided_size size = strided_size_of(&pair, 1);
    return strided_choose(&road, &pair, 1, &size);
}

static void test_ways(void **state)
{
    (void)state;
    const struct strided whole = strided_run(64 * 4096);
    struct strided apart = strided_run(4096);
    strided_repeat(&apart, 64, 8192);
    /* A byte of the link takes 1000 ps, one of the memory 100: packing reads and writes, which is 52,428,800 ps. */
    struct cluster c = machine(1000000, 0, 10000);
    struct strided_choice way = chosen(&c, &apart, &whole);
    assert_int_equal(way.way, STAGED);
    /* Segments: the first one is packed, then the link is busy to the end; n gaps against an n-th of the packing. */
    assert_int_equal(way.messages, 8);
    assert_int_equal(way.time, 52428800 / 8 + 8 * 1000000 + 262144000 + 5000000);
    /* Dear messages: all in one. */
    c = machine(100000000, 0, 10000), way = chosen(&c, &apart, &whole);
    assert_int_equal(way.way, ONE_SHOT);
    assert_int_equal(way.time, 52428800 + 100000000 + 262144000 + 5000000);
    /* Cheap messages and dear kernels: each piece as it lies. */
    c = machine(1000, 50000000, 10000), way = chosen(&c, &apart, &whole);
    assert_int_equal(way.way, DIRECT);
    assert_int_equal(way.messages, 64);
    assert_int_equal(way.time, 64 * 1000 + 262144000 + 5000000);
    /* Runs of both sides cut each other; more pieces than a device has messages are packed; one piece has one way. */
    struct strided shorter = strided_run(4096), longer = strided_run(6144), many = strided_run(4);
    strided_repeat(&shorter, 63, 8192), strided_repeat(&longer, 42, 10000);
    strided_repeat(&many, STRIDED_MESSAGES + 1, 8);
    const struct strided_pair both = { shorter, longer };
    assert_int_equal(strided_size_of(&both, 1).pieces, 62 + 41 - 20 + 1);
    const struct strided line = strided_run(strided_bytes(&many));
    assert_int_not_equal(chosen(&c, &many, &line).way, DIRECT);
    assert_int_equal(chosen(&c, &whole, &whole).way, ONE_SHOT);
    assert_int_equal(chosen(&c, &whole, &whole).messages, 1);
    assert_int_equal(chosen(&c, &whole, &whole).time, 1000 + 262144000 + 5000000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_mpi_packs),
                                        cmocka_unit_test(test_order_of_the_typemap), cmocka_unit_test(test_one_form),
                                        cmocka_unit_test(test_equivalent_types),
                                        cmocka_unit_test(test_boxes), cmocka_unit_test(test_ways) };
    MPI_Init(&argc, &argv);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
