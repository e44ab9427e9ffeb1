/* Looking through one adapter file for everything that is wrong with it, in place and without staging. */
#ifndef LAM_COMPOSE_CHECK_ADAPTER_H
#define LAM_COMPOSE_CHECK_ADAPTER_H

#include "adapter/adapter.h"
#include "lamina/manifest.h"

/* What an adapter does to a target. */
enum { LAM_TOUCH = 1, LAM_TOUCH_WEIGHT = 2, LAM_TOUCH_BIAS = 4, LAM_TOUCH_DORA = 8 };

/* touches[base->n_items] is filled in, digest too ("" if it cannot be had). label names the adapter in faults, entry is what the
 * manifest says of it. Whatever lam_adapter_open would stop at is found here, with the same code or, for LAM_E_SHAPE, a more precise one. */
void lam_check_adapter(const char *path, const char *label, const struct lam_base_targets *base, const lam_manifest_adapter *entry, uint8_t *touches,
                       char digest[LAM_DIGEST_TEXT], lam_fault_list *faults);
/* The same without a base: only the digest, and the parts that entry states. */
void lam_identify_adapter(const char *path, const char *label, const lam_manifest_adapter *entry, char digest[LAM_DIGEST_TEXT],
                          lam_fault_list *faults);

#endif
