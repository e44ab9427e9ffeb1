/* Jansson's private configuration for wasm32. */
#define HAVE_STDINT_H 1
#define HAVE_UNISTD_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_GETTIMEOFDAY 1 /* seeds its hash tables */
