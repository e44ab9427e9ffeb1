/* Errors are values. Every fallible function returns a lam_code and, through its last
 * parameter, a message that names the offending thing and its numbers.
 * The numbers of the codes are stable: they never change meaning, new ones are appended to a block. */
#ifndef LAMINA_ERROR_H
#define LAMINA_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#define LAM_API __attribute__((visibility("default")))

typedef enum lam_code {
    LAM_OK = 0,              /* done, all of it */

    /* the call and the machine */
    LAM_E_ARGUMENT = 1,      /* a parameter or option is not acceptable */
    LAM_E_NO_MEMORY = 2,     /* an allocation failed */
    LAM_E_IO = 3,            /* the operating system refused a read, write, map or rename */
    LAM_E_NOT_FOUND = 4,     /* no such file, adapter or name */
    LAM_E_NO_SPACE = 5,      /* the disk lacks the bytes that the work needs */
    LAM_E_LIMIT = 6,         /* a stated bound would be passed (size, count, context, cache) */
    LAM_E_CANCELLED = 7,     /* the caller's callback asked to stop */
    LAM_E_ISA = 8,           /* the forced instruction set is unknown or not on this CPU */
    LAM_E_CONFLICT = 9,      /* the thing is in use, or two requests exclude each other */

    /* bytes of any file */
    LAM_E_MAGIC = 20,        /* not a file of this kind */
    LAM_E_VERSION = 21,      /* right kind, a version we do not read */
    LAM_E_BYTE_ORDER = 22,   /* written for the other byte order */
    LAM_E_TRUNCATED = 23,    /* ends before a thing that it declares */
    LAM_E_OVERFLOW = 24,     /* a declared size does not fit the arithmetic or the file */
    LAM_E_OVERLAP = 25,      /* two sections or tensors share bytes */
    LAM_E_GAP = 26,          /* bytes that belong to nothing */
    LAM_E_DUPLICATE = 27,    /* a name, key or module occurs twice */
    LAM_E_FORMAT = 28,       /* malformed in another way */
    LAM_E_CHECKSUM = 29,     /* header checksum differs */
    LAM_E_DIGEST = 30,       /* piece or root hash differs */
    LAM_E_LEGACY = 31,       /* an obsolete format, named in the message */
    LAM_E_UNKNOWN_FIELD = 32,/* a field that may change results and that we do not know */
    LAM_E_CHANGED = 33,      /* the file was truncated, replaced or written since it was opened */
    LAM_E_ALIGNMENT = 34,    /* an offset or alignment that the format forbids */

    /* models */
    LAM_E_ARCHITECTURE = 40, /* a model architecture that we do not run */
    LAM_E_UNSUPPORTED = 41,  /* a feature that we do not implement, named */
    LAM_E_MISSING_TENSOR = 42, /* a tensor that the architecture needs is not in the file */
    LAM_E_EXTRA_TENSOR = 43, /* a tensor that the architecture has no use for */
    LAM_E_SHAPE = 44,        /* a tensor's dimensions are not those that its place needs */
    LAM_E_DTYPE = 45,        /* an element or block type that we do not read, or not in this place */
    LAM_E_NON_FINITE = 46,   /* NaN or infinity in a weight or scale */
    LAM_E_ACTIVATION = 47,   /* an activation left the finite range: the request ends */

    /* adapters and compositions */
    LAM_E_METHOD = 60,       /* adapter method (or a variant of it) not supported, named */
    LAM_E_WRONG_BASE = 61,   /* bound to another base */
    LAM_E_UNBOUND = 62,      /* bound to no base, and no waiver was given */
    LAM_E_UNMATCHED = 63,    /* tensors or modules that the base does not have */
    LAM_E_MISSING_PAIR = 64, /* A without B, or B without A */
    LAM_E_TRANSPOSED = 65,   /* factors lie the other way round */
    LAM_E_AMBIGUOUS = 66,    /* a square factor pair whose orientation nothing tells */
    LAM_E_RANK = 67,         /* rank 0, or ranks that disagree */
    LAM_E_TOKENIZER = 68,    /* the adapter brings tokens or a tokenizer of its own */

    /* text */
    LAM_E_UTF8 = 80,         /* a text that must be UTF-8 is not */
    LAM_E_TOKEN = 81,        /* a token id outside the vocabulary */
    LAM_E_TEMPLATE = 82,     /* chat template missing, unknown or failing */
    LAM_E_PRETOKENIZER = 83, /* a pre-tokenizer that we do not know */

    /* sessions */
    LAM_E_CONTEXT = 100      /* the context is full */
} lam_code;

typedef struct lam_error {
    lam_code code;
    char message[512];       /* UTF-8, one line, zero-terminated */
    const char *file;        /* where in the source it was raised; static storage */
    int line;
} lam_error;

/* The stable name of a code, such as "LAM_E_SHAPE". Never NULL. */
LAM_API const char *lam_code_name(lam_code code);

#ifdef __cplusplus
}
#endif

#endif
