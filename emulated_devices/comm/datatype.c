/* datatype.c -- decodes MPI datatypes into strided bytes.  None of its calls of MPI waits for another device.
 * tests/devices/test_strided.c calls.  A type that cannot be decoded is not an error here: the result is false. */
#include "emulated_devices/comm/datatype.h"

/* The arguments of a constructor have room for so many; types with more are not decoded. */
enum { ARGUMENTS = 64 };

struct contents { int number[ARGUMENTS]; MPI_Aint address[ARGUMENTS]; MPI_Datatype type[1]; int combiner; };

/* @return whether the type is made by a constructor of one type. */
static bool contents_get(struct contents *contents, MPI_Datatype type)
{
    int numbers, addresses, types;
    MPI_Type_get_envelope(type, &numbers, &addresses, &types, &contents->combiner);         /* never waits */
    if (contents->combiner == MPI_COMBINER_NAMED) return true;
    if (numbers > ARGUMENTS || addresses > ARGUMENTS || types != 1) return false;
    int *const number = contents->number;
    MPI_Aint *const address = contents->address;
    MPI_Type_get_contents(type, numbers, addresses, types, number, address, contents->type);        /* never waits */
    return true;
}

static int64_t extent_of(MPI_Datatype type)
{
    MPI_Aint first, extent;
    MPI_Type_get_extent(type, &first, &extent);                                             /* never waits */
    return extent;
}

/* The type that MPI_Type_get_contents hands out is the caller's to free, unless it is named. */
static void release(MPI_Datatype *type)
{
    int numbers, addresses, types, combiner;
    MPI_Type_get_envelope(*type, &numbers, &addresses, &types, &combiner);                  /* never waits */
    if (combiner != MPI_COMBINER_NAMED) MPI_Type_free(type);                                /* never waits */
}

static bool datatype_decode(struct strided *s, MPI_Datatype type);

/* Dimensions from the last one in memory outwards; each repeats what lies inside. */
static bool decode_subarray(struct strided *s, const int *number, int64_t extent)
{
    const int ndim = number[0], *const size = number + 1, *const part = size + ndim, *const start = part + ndim;
    const bool last_first = start[ndim] == MPI_ORDER_C;
    int64_t stride = extent;
    for (int i = 0; i < ndim; i++) {
        const int d = last_first ? ndim - 1 - i : i;
        if (!strided_repeat(s, part[d], stride)) return false;
        if (s->run > 0) s->offset += start[d] * stride;
        stride *= size[d];
    }
    return true;
}

static bool decode_with(struct strided *s, const struct contents *c)
{
    const MPI_Datatype inner = c->type[0];
    const int64_t extent = extent_of(inner);
    if (!datatype_decode(s, inner)) return false;
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
        return true;
    case MPI_COMBINER_CONTIGUOUS:
        return strided_repeat(s, c->number[0], extent);
    case MPI_COMBINER_VECTOR:
        return strided_repeat(s, c->number[1], extent) && strided_repeat(s, c->number[0], c->number[2] * extent);
    case MPI_COMBINER_HVECTOR:
        return strided_repeat(s, c->number[1], extent) && strided_repeat(s, c->number[0], c->address[0]);
    case MPI_COMBINER_SUBARRAY:
        return decode_subarray(s, c->number, extent);
    default:
        return false;
    }
}

static bool datatype_decode(struct strided *s, MPI_Datatype type)
{
    struct contents c;
    int bytes;
    if (!contents_get(&c, type)) return false;
    if (c.combiner == MPI_COMBINER_NAMED) {
        MPI_Type_size(type, &bytes);                                                        /* never waits */
        *s = strided_run(bytes);
        return bytes == extent_of(type);
    }
    const bool decoded = decode_with(s, &c);
    release(&c.type[0]);
    return decoded;
}

bool datatype_strided(struct strided *s, MPI_Datatype type, int count)
{
    return datatype_decode(s, type) && strided_repeat(s, count, extent_of(type));
}
