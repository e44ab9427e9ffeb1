#include "compose/signature.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

bool lam_ed25519_present(void) { return true; }

/* An encrypted key is refused: nobody is asked for a password. */
static int no_password(char *buffer, int size, int writing, void *context)
{
    (void)buffer, (void)size, (void)writing, (void)context;
    return -1;
}

/* The key of pem[len]; NULL if it is none or no Ed25519 key. */
static EVP_PKEY *read_pem(const char *pem, size_t len, bool private)
{
    BIO *bio = len <= INT_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    EVP_PKEY *key = NULL;
    if (bio) key = private ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    BIO_free(bio);
    if (key && EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    ERR_clear_error(); /* the queue is the caller's */
    return key;
}

static bool raw_public(const EVP_PKEY *key, uint8_t out[LAM_ED25519_KEY])
{
    size_t n = LAM_ED25519_KEY;
    return EVP_PKEY_get_raw_public_key(key, out, &n) == 1 && n == LAM_ED25519_KEY;
}

/* Whether any label of pem[len] is that of a private key: encrypted, of another kind or damaged, too. */
static bool names_private(const char *pem, size_t len)
{
    static const char label[] = "PRIVATE KEY-----";
    size_t n = sizeof label - 1;
    for (size_t i = 0; i + n <= len; i++)
        if (memcmp(pem + i, label, n) == 0) return true;
    return false;
}

lam_code lam_ed25519_public(const char *pem, size_t len, uint8_t out[LAM_ED25519_KEY], lam_error *err)
{
    if (names_private(pem, len)) return LAM_RAISE(err, LAM_E_PRIVATE_KEY, "is a private key, and its owner's alone: the public one belongs here");
    EVP_PKEY *key = read_pem(pem, len, false);
    bool ok = key && raw_public(key, out);
    EVP_PKEY_free(key);
    if (ok && lam_ed25519_low_order(out)) return LAM_RAISE(err, LAM_E_WEAK_KEY, "is a point of small order, for which anybody can sign");
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_FORMAT, "no Ed25519 public key in PEM");
}

lam_code lam_ed25519_sign(const char *pem, size_t len, const void *message, size_t message_len, uint8_t public_key[LAM_ED25519_KEY],
                          uint8_t signature[LAM_ED25519_SIGNATURE], lam_error *err)
{
    EVP_PKEY *key = read_pem(pem, len, true);
    if (!key) return LAM_RAISE(err, LAM_E_FORMAT, "no Ed25519 private key in PEM without a password");
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    size_t n = LAM_ED25519_SIGNATURE;
    bool ok = context && raw_public(key, public_key) && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestSign(context, signature, &n, message, message_len) == 1 && n == LAM_ED25519_SIGNATURE;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the signature could not be made");
}

lam_code lam_ed25519_verify(const uint8_t public_key[LAM_ED25519_KEY], const void *message, size_t message_len,
                            const uint8_t signature[LAM_ED25519_SIGNATURE], bool *good, lam_error *err)
{
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, LAM_ED25519_KEY);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ready = key && context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1;
    *good = ready && EVP_DigestVerify(context, signature, LAM_ED25519_SIGNATURE, message, message_len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return ready ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "the signature could not be checked");
}

static bool put_pem(EVP_PKEY *key, bool private, struct lam_str *out)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    bool ok = bio && (private ? PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) : PEM_write_bio_PUBKEY(bio, key)) == 1;
    long len = ok ? BIO_get_mem_data(bio, &text) : 0;
    ok = ok && len > 0 && lam_str_append(out, text, (size_t)len);
    BIO_free(bio);
    return ok;
}

lam_code lam_ed25519_generate(struct lam_str *private_pem, struct lam_str *public_pem, lam_error *err)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    EVP_PKEY *key = NULL;
    bool ok = context && EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_keygen(context, &key) == 1 && put_pem(key, true, private_pem) &&
              put_pem(key, false, public_pem);
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "a key could not be made");
}
