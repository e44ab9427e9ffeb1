/* PCRE2 for wasm32: 8-bit units, Unicode, no JIT; limits as in Debian's library. */
#define HAVE_MEMMOVE 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_STRERROR 1
#define HAVE_BUILTIN_MUL_OVERFLOW 1
#define SUPPORT_PCRE2_8 1
#define SUPPORT_UNICODE 1
#define HEAP_LIMIT 20000000
#define LINK_SIZE 2
#define MATCH_LIMIT 10000000
#define MATCH_LIMIT_DEPTH MATCH_LIMIT
#define MAX_NAME_COUNT 10000
#define MAX_NAME_SIZE 32
#define NEWLINE_DEFAULT 2 /* LF */
#define PARENS_NEST_LIMIT 250
