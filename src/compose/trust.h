/* The trust list: public keys by name. */
#ifndef LAM_COMPOSE_TRUST_H
#define LAM_COMPOSE_TRUST_H

#include "compose/signature.h"
#include "lamina/receipt.h"

/* The name of a key in the list (NULL: empty); NULL if it is not there. */
const char *lam_trust_find(const lam_trust *trust, const uint8_t key[LAM_ED25519_KEY]);

#endif
