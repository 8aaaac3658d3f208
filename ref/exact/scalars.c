/* scalars.c -- computes sine, cosine, power, exponential and logarithm in numbers of twice fp64's bits, rounded once.
 *
 * Source    twofold sums and products: T. J. Dekker, doi:10.1007/BF01397083; D. E. Knuth, "The Art of Computer
 *           Programming", volume 2, 4.2.2, theorem B
 * Rounding  every operation below rounds once in fp64; the Makefile lets no product be fused with a sum
 * Called    ref/model/, ref/optim/ and ref/io/ call the functions of scalars.h.  Nothing fails.
 */
#include "ref/exact/scalars.h"
#include "ref/exact/functions.h"

#define LN2_LEAST 0x1.cc01f97b57a08p-87         /* ln 2 - LN2_HIGH - LN2_LOW */

/* A number is high + low: low is at most half a unit of the last place of high. */
struct twofold { double high, low; };

/* ---- sums and products without rounding -------------------------------------------------------------------------- */

static struct twofold two_sum(double a, double b)
{
    const double sum = a + b, part = sum - a;
    return (struct twofold){ sum, (a - (sum - part)) + (b - part) };
}

/* The upper 26 bits of a number; the rest has 26 bits, too, with its sign. */
static double upper_half(double a)
{
    const double scaled = 0x1.0000002p27 * a;
    return scaled - (scaled - a);
}

static struct twofold two_product(double a, double b)
{
    const double product = a * b, a1 = upper_half(a), a2 = a - a1, b1 = upper_half(b), b2 = b - b1;
    return (struct twofold){ product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2 };
}

static struct twofold twofold_add(struct twofold x, struct twofold y)
{
    const struct twofold sum = two_sum(x.high, y.high);
    return two_sum(sum.high, sum.low + (x.low + y.low));
}

static struct twofold twofold_times(struct twofold x, struct twofold y)
{
    const struct twofold product = two_product(x.high, y.high);
    return two_sum(product.high, product.low + (x.high * y.low + x.low * y.high));
}

static struct twofold twofold_over(struct twofold x, double n)
{
    const double quotient = x.high / n;
    const struct twofold product = two_product(quotient, n);
    return two_sum(quotient, ((x.high - product.high) - product.low + x.low) / n);
}

/* ---- exponential and logarithm ----------------------------------------------------------------------------------- */

static double nearest_integer(double x)
{
    const double shift = 0x1.8p52;
    return (x + shift) - shift;
}

/* e^x = 2^power times the result, x = power ln 2 + r: the series of e^r, its first terms in twofold numbers. */
static struct twofold twofold_exp(struct twofold x, int *power)
{
    static const struct twofold one = { 1, 0 };
    enum { TWOFOLD_TERMS = 8, TERMS = 20 };     /* the first in twofold numbers, all others in fp64 */
    const double k = nearest_integer(x.high * 0x1.71547652b82fep+0);
    /* ln 2 in three parts: k times the first has no rounding. */
    struct twofold r = twofold_add(x, (struct twofold){ -k * LN2_HIGH, 0 });
    r = twofold_add(r, two_product(-k, LN2_LOW));
    r = twofold_add(r, (struct twofold){ -k * LN2_LEAST, 0 });
    double rest = 1;
    for (int n = TERMS; n > TWOFOLD_TERMS; n--) rest = 1 + r.high * rest / n;
    struct twofold sum = { rest, 0 };
    for (int n = TWOFOLD_TERMS; n > 0; n--) sum = twofold_add(one, twofold_over(twofold_times(r, sum), n));
    *power = (int)k;
    return sum;
}

/* The rounded exponential; outside of fp64's range infinity, or 0. */
static double rounded_exp(struct twofold x)
{
    int power;
    if (!(x.high < 709.8)) return x.high > 0 ? (double)INFINITY : x.high;
    if (x.high < -746) return 0;
    const struct twofold y = twofold_exp(x, &power);
    return ldexp(y.high + y.low, power);
}

/* y = log x within 2^-44; then log x = y + log(x / e^y), where the last is 2 (x - e^y)/(x + e^y): its cube is below
 * 2^-130.  x is positive and finite. */
static struct twofold twofold_log(double x)
{
    static const double ROOT_HALF = 0x1.6a09e667f3bcdp-1;
    int own, power;
    double m = frexp(x, &own);
    if (m < ROOT_HALF) m *= 2, own--;
    const double y = exact_log(m);
    const struct twofold e = twofold_exp((struct twofold){ y, 0 }, &power);
    const double high = ldexp(e.high, power), off = (m - high) - ldexp(e.low, power), k = (double)own;
    struct twofold sum = two_sum(y, 2 * off / (m + high));
    sum = twofold_add((struct twofold){ k * LN2_HIGH, 0 }, sum);
    sum = twofold_add(sum, two_product(k, LN2_LOW));
    return twofold_add(sum, (struct twofold){ k * LN2_LEAST, 0 });
}

double scalar_exp(double x) { return rounded_exp((struct twofold){ x, 0 }); }

double scalar_log(double x)
{
    if (!(x > 0) || !(x < (double)INFINITY)) return exact_log(x);
    const struct twofold y = twofold_log(x);
    return y.high + y.low;
}

double scalar_power(double base, double exponent)
{
    if (exponent == 0) return 1;
    if (!(base >= 0)) return (double)NAN;
    if (base == 0) return exponent > 0 ? 0 : (double)INFINITY;
    const struct twofold e = twofold_times(twofold_log(base), (struct twofold){ exponent, 0 });
    return rounded_exp(e);
}

/* ---- sine and cosine --------------------------------------------------------------------------------------------- */

/* r = x - k pi/2, at most about pi/4 in size.  pi/2 is the sum of four numbers of 24 bits and one of 53: k times each
 * of the four has no rounding as long as k is below 2^29. */
static struct twofold less_quarters(double x, double k)
{
    static const double part[] = { 0x1.921fb4p+0, 0x1.4442dp-24, 0x1.846988p-48, 0x1.8cc516p-72,
                                   0x1.01b839a25204ap-96 };
    struct twofold r = { x, 0 };
    for (int i = 0; i < 5; i++) r = twofold_add(r, (struct twofold){ -k * part[i], 0 });
    return r;
}

/* sin r = r - r^3/3! + .. to r^17: with s = r^2, high + (high p + low (1 - s/2)). */
static double sine_of(struct twofold r)
{
    static const double over[] = { 1 / 355687428096000.0, 1 / 1307674368000.0, 1 / 6227020800.0, 1 / 39916800.0,
                                   1 / 362880.0, 1 / 5040.0, 1 / 120.0, 1 / 6.0 };
    const double s = r.high * r.high;
    double p = 0;
    /* p = -s/3! + s^2/5! - .. */
    for (int i = 0; i < 8; i++) p = s * ((i % 2 ? -over[i] : over[i]) + p);
    return r.high + (r.high * p + r.low * (1 - s / 2));
}

/* cos r = 1 - s/2 + q - high low, q = s^2/4! - s^3/6! + .. to r^18; 1 - s/2 is rounded, and what it loses is added. */
static double cosine_of(struct twofold r)
{
    static const double over[] = { 1 / 6402373705728000.0, 1 / 20922789888000.0, 1 / 87178291200.0, 1 / 479001600.0,
                                   1 / 3628800.0, 1 / 40320.0, 1 / 720.0, 1 / 24.0 };
    const double s = r.high * r.high, half = s / 2, rest = 1 - half;
    double q = 0;
    for (int i = 0; i < 8; i++) q = s * ((i % 2 ? over[i] : -over[i]) + q);
    return rest + (((1 - rest) - half) + (s * q - r.high * r.low));
}

void scalar_turn(double x, double *sine, double *cosine)
{
    const double k = nearest_integer(x * 0x1.45f306dc9c883p-1);
    const struct twofold r = less_quarters(x, k);
    const double s = sine_of(r), c = cosine_of(r), way = k - 4 * nearest_integer(k / 4);
    /* Quarters of a turn that k has beyond whole turns: -2 to 2. */
    *sine = way == 0 ? s : way == 1 ? c : way == -1 ? -c : -s;
    *cosine = way == 0 ? c : way == 1 ? -s : way == -1 ? s : -c;
}

double scalar_cosine(double x)
{
    double sine, cosine;
    scalar_turn(x, &sine, &cosine);
    return cosine;
}
