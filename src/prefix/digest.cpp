#include "prefix/digest.hpp"

#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "kvpool/foundation/contract.hpp"

namespace kvpool {
namespace {

// OpenSSL looks an algorithm up by name whenever a context is set up from scratch, which costs more than
// hashing a unit. Each thread keeps a context that only has to be started again.
class Sha256Context {
 public:
  Sha256Context() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) fail("cannot set up SHA-256");
  }

  void digest(std::span<const std::uint8_t> data, std::uint8_t* out) {
    unsigned int length = 0;
    if (EVP_DigestInit_ex(context_.get(), nullptr, nullptr) != 1 ||
        EVP_DigestUpdate(context_.get(), data.data(), data.size()) != 1 ||
        EVP_DigestFinal_ex(context_.get(), out, &length) != 1) {
      fail("SHA-256 failed");
    }
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
  };

  // A wrong hash would let requests read foreign blocks, so there is nothing to go on with.
  [[noreturn]] static void fail(const char* what) { fail_contract({ContractBreach::corrupted_state, what}); }

  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

BlockHash sha256(std::span<const std::uint8_t> data) {
  thread_local Sha256Context context;
  BlockHash hash;
  hash.size = 32;
  context.digest(data, hash.bytes.data());
  return hash;
}

BlockHash xxh3_128(std::span<const std::uint8_t> data) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
  BlockHash hash;
  hash.size = sizeof canonical.digest;
  std::copy_n(canonical.digest, sizeof canonical.digest, hash.bytes.begin());
  return hash;
}

}  // namespace kvpool
