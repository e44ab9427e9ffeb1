/* What a pull and a push have in common: the network, where it goes, and what is told meanwhile. */
#ifndef LAM_STORE_EXCHANGE_H
#define LAM_STORE_EXCHANGE_H

#include "lamina/pull.h"
#include "store/remote.h"

struct lam_exchange {
    struct lam_store *store;            /* NULL where nothing is stored */
    const lam_transfer_options *o;      /* never NULL */
    struct lam_reference reference;
    struct lam_http *http;
    struct lam_remote remote;
    struct lam_sources *sources;        /* owned; made anew for each file */
};

/* Reads the reference and gets the network ready. options may be NULL. lam_exchange_close is due in any case. */
lam_code lam_exchange_open(struct lam_exchange *t, struct lam_store *store, const char *reference,
                           const lam_transfer_options *options, lam_error *err);
void lam_exchange_close(struct lam_exchange *t);
void lam_exchange_say(const struct lam_exchange *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* t->sources for one file, with url alone; authorization is the remote's. */
lam_code lam_exchange_sources(struct lam_exchange *t, const char *url, lam_error *err);

#endif
