/* cmocka's users include setjmp.h; WASI has none, and the stand-in beside this file needs none. */
