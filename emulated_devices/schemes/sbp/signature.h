/* signature.h -- how a tensor lies on a mesh: along each axis it is split, broadcast or a partial sum.
 *
 * S(d)  dimension d is cut into nearly equal parts, one for each place of the axis
 * B     every place has the same
 * P     the tensor is the sum over the places of what each has
 *
 * Axis 0 cuts first, axis 1 cuts what that left: so S(0), S(0) gives each device one part of one part.
 *
 * Source  J. Yuan et al., "OneFlow: redesign the distributed deep learning framework from scratch", arXiv:2110.15032,
 *         section 3
 *
 * Signatures are used by this room and by schemes/tensor/sbp_file.c, which reads them from a file.  All functions are
 * local; only signature_parse can fail.
 */
#ifndef ORRERY_SBP_SIGNATURE_H
#define ORRERY_SBP_SIGNATURE_H

#include "emulated_devices/device/layout.h"

enum { SBP_AXES = 2, SBP_TEXT = 24 };
enum sbp_kind { SBP_B, SBP_P, SBP_S };
struct sbp { enum sbp_kind kind; int dim; };            /* dim: of S, else 0 */
struct signature { struct sbp on[SBP_AXES]; };          /* B on axes that the mesh does not have */

/* A line or a rectangle of devices, row by row. */
struct cluster;
struct sbp_mesh {
    int axes, size[SBP_AXES];           /* of the mesh, and devices along each axis */
    const struct cluster *cluster;      /* on whose links journeys shall take the least time; NULL: send the least */
};

struct shape {
    int ndim;                     /* dimensions in use */
    int64_t dim[TENSOR_MAX_DIMS]; /* of the whole tensor */
    int64_t granule;              /* dimension 0 is cut at multiples of this only, so that sequences stay whole; 0: 1 */
};

int sbp_devices(const struct sbp_mesh *);
int sbp_place(const struct sbp_mesh *, int device, int axis);

bool sbp_equal(struct sbp, struct sbp);
bool signature_equal(struct signature, struct signature);
bool signature_has(struct signature, enum sbp_kind);

/** Whether every device gets something: no split has more parts than there are rows to give. */
bool signature_fits(const struct shape *, const struct sbp_mesh *, struct signature);

/** The part of the tensor that a device has. */
struct box signature_box(const struct shape *, const struct sbp_mesh *, struct signature, int device);

/** Every signature that fits.  @param[out] all  room for SBP_MOST_SIGNATURES.  @return how many. */
enum { SBP_KINDS = 2 + TENSOR_MAX_DIMS, SBP_MOST_SIGNATURES = SBP_KINDS * SBP_KINDS };
int signature_all(const struct shape *, const struct sbp_mesh *, struct signature all[]);

/** "S(0)", on two axes "(S(0), B)".  @return text. */
const char *signature_text(const struct sbp_mesh *, struct signature, char text[SBP_TEXT]);

/** Read such a text.  @return OK, or ERR_USAGE saying what it must look like. */
enum error_code signature_parse(const struct sbp_mesh *, const char *text, struct signature *, struct error *);

/* A signature on one axis, or on two. */
#define ON_B   { SBP_B, 0 }
#define ON_P   { SBP_P, 0 }
#define ON_S(d) { SBP_S, d }

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

int64_t box_count(struct box, int ndim);
struct box box_intersect(struct box, struct box, int ndim);

/** Copy a region between a piece that holds a box, row-major, and a packed row of numbers. */
void box_pack(int ndim, struct box held, struct box region, const void *piece, void *packed, size_t element_size);
void box_unpack(int ndim, struct box held, struct box region, void *piece, const void *packed, size_t element_size);

#endif
