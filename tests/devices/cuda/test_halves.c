/* The emulator's half and bfloat16 against NVIDIA's headers, where this machine has them: all 65,536 encodings, in both
 * directions, and in arithmetic with partners of every kind.  NaN is NaN: its bits are the processor's choice.
 *
 * Narrowing is tried where roundings change: at each encoding's number, at the middle between it and the next, and one
 * place beside both.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>
#include "ref/numeric/float16.h"
#include "tests/devices/cuda/halves.h"
#include <math.h>

enum { ENCODINGS = 1 << 16, SHOWN = 5 };

static bool there_are_headers(void)
{
    if (nvidia_halves[0].name != NULL) return true;
    print_message("skipped: this machine has no cuda_fp16.h and cuda_bf16.h of NVIDIA\n");
    return false;
}

static bool is_nan(int format, uint16_t x) { return (x & 0x7fff) > (format == 0 ? 0x7c00 : 0x7f80); }

static int differences;

/* The number of an encoding, by the definition of the format. */
static double number_of(int f, unsigned x)
{
    const int places = f == 0 ? 10 : 7, bias = f == 0 ? 15 : 127, exponent = (int)(x & 0x7fff) >> places;
    const double fraction = x & ((1u << places) - 1), sign = x >> 15 ? -1 : 1;
    return sign * ldexp(fraction + (exponent > 0 ? 1 << places : 0), (exponent > 0 ? exponent : 1) - bias - places);
}

/* Also where there are no headers. */
static void test_each_encoding_by_definition(void **state)
{
    (void)state;
    for (int f = 0; f < HALVES; f++)
        for (unsigned x = 0; x < ENCODINGS; x++) {
            const uint32_t infinite = f == 0 ? 0x7c00 : 0x7f80;
            const double number = (x & 0x7fff) < infinite ? number_of(f, x) : x >> 15 ? -INFINITY : INFINITY;
            if (is_nan(f, (uint16_t)x)) continue;
            const double ours = float_of_bits(emulated_halves[f].to_float((uint16_t)x));
            if (!(ours == number && signbit(ours) == signbit(number)))
                fail_msg("%s 0x%04x: %g, must be %g", emulated_halves[f].name, x, ours, number);
            for (int k = 0; k < NARROW; k++)
                assert_int_equal(emulated_halves[f].narrow[k](double_bits(number)), x);
        }
}

/* Count a difference, and show the first ones. */
static void differs(int format, const char *what, uint64_t a, uint64_t b, uint32_t ours, uint32_t theirs)
{
    if (differences++ >= SHOWN) return;
    print_message("%s %s of 0x%llx 0x%llx: 0x%x, NVIDIA's headers 0x%x\n", emulated_halves[format].name, what,
                  (unsigned long long)a, (unsigned long long)b, ours, theirs);
}

static void test_widening(void **state)
{
    (void)state;
    if (!there_are_headers()) skip();
    differences = 0;
    for (int f = 0; f < HALVES; f++)
        for (unsigned x = 0; x < ENCODINGS; x++) {
            const uint32_t ours = emulated_halves[f].to_float((uint16_t)x), nan = 0x7f800000;
            const uint32_t theirs = nvidia_halves[f].to_float((uint16_t)x);
            const bool both = (ours & 0x7fffffff) > nan && (theirs & 0x7fffffff) > nan;
            if (ours != theirs && !both) differs(f, "to float", x, 0, ours, theirs);
        }
    assert_int_equal(differences, 0);
}

static void narrow(int f, double number)
{
    static const char *const names[] = NARROW_NAMES;
    const uint64_t x = double_bits(number);
    for (int k = 0; k < NARROW; k++) {
        const uint16_t ours = emulated_halves[f].narrow[k](x), theirs = nvidia_halves[f].narrow[k](x);
        if (ours != theirs && !(is_nan(f, ours) && is_nan(f, theirs))) differs(f, names[k], x, 0, ours, theirs);
    }
}

/* A number, and its neighbours in fp32 and in fp64. */
static void narrow_around(int f, double number)
{
    narrow(f, number);
    for (int by = -1; by <= 1; by += 2) {
        narrow(f, float_of_bits(float_bits((float)number) + (uint32_t)by));
        narrow(f, double_of_bits(double_bits(number) + (uint64_t)(int64_t)by));
    }
}

static void test_narrowing(void **state)
{
    (void)state;
    if (!there_are_headers()) skip();
    differences = 0;
    for (int f = 0; f < HALVES; f++)
        for (unsigned x = 0; x < ENCODINGS; x++) {
            const double here = float_of_bits(nvidia_halves[f].to_float((uint16_t)x));
            const double next = float_of_bits(nvidia_halves[f].to_float((uint16_t)(x + 1)));
            narrow_around(f, here);
            if (next - next == 0 && here - here == 0) narrow_around(f, (here + next) / 2);
        }
    narrow_around(0, 65520), narrow_around(1, 0x1.ffp127), narrow(0, 1e300), narrow(1, -1e300), narrow(1, 1e-300);
    assert_int_equal(differences, 0);
}

/* Zeros, the smallest, subnormals, one, the largest, infinity and NaN of a format, with both signs; and others. */
static int partners_of(int f, uint16_t *partner)
{
    static const uint16_t special[HALVES][10] = {
        { 0, 1, 0x03ff, 0x0400, 0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x7e00, 0x4248 },
        { 0, 1, 0x007f, 0x0080, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7fc0, 0x4049 },
    };
    int n = 0;
    for (int i = 0; i < 10; i++) partner[n++] = special[f][i], partner[n++] = special[f][i] | 0x8000;
    for (uint32_t i = 0; i < 40; i++) partner[n++] = (uint16_t)((i * 2654435761u) >> 16);
    return n;
}

static void test_arithmetic(void **state)
{
    static const char *const names[] = BINARY_NAMES;
    uint16_t partner[64];
    (void)state;
    if (!there_are_headers()) skip();
    differences = 0;
    for (int f = 0; f < HALVES; f++)
        for (int k = 0, n = partners_of(f, partner); k < BINARY; k++)
            for (int p = 0; p < n; p++)
                for (unsigned x = 0; x < ENCODINGS; x++) {
                    const uint16_t ours = emulated_halves[f].binary[k]((uint16_t)x, partner[p]);
                    const uint16_t theirs = nvidia_halves[f].binary[k]((uint16_t)x, partner[p]);
                    if (ours != theirs && !(is_nan(f, ours) && is_nan(f, theirs)))
                        differs(f, names[k], x, partner[p], ours, theirs);
                }
    assert_int_equal(differences, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_encoding_by_definition), cmocka_unit_test(test_widening),
        cmocka_unit_test(test_narrowing), cmocka_unit_test(test_arithmetic),
    };
    return cmocka_run_group_tests_name("halves", tests, NULL, NULL) != 0;
}
