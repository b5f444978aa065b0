#include "tools/launch/driver/ordered_digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <new>

namespace kvpool::launch {

struct OrderedDigest::Sha {
  Sha() : context(EVP_MD_CTX_new()) {
    if (context == nullptr || EVP_DigestInit_ex(context, EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  }
  ~Sha() { EVP_MD_CTX_free(context); }
  Sha(const Sha&) = delete;
  Sha& operator=(const Sha&) = delete;
  EVP_MD_CTX* context;
};

OrderedDigest::OrderedDigest(std::int64_t num_items) : sha_(std::make_unique<Sha>()), num_items_(num_items) {}
OrderedDigest::~OrderedDigest() = default;

void OrderedDigest::add(std::int64_t item, std::span<const std::byte> piece) {
  if (item == first_open_) {
    EVP_DigestUpdate(sha_->context, piece.data(), piece.size());
    return;
  }
  Item& later = later_[item];
  later.bytes.insert(later.bytes.end(), piece.begin(), piece.end());
  buffered_ += piece.size();
}

void OrderedDigest::close(std::int64_t item) {
  if (item != first_open_) {
    later_[item].closed = true;
    return;
  }
  advance();
}

void OrderedDigest::advance() {
  bool closed = true;
  while (closed && first_open_ < num_items_) {
    ++first_open_;
    closed = false;
    const auto next = later_.find(first_open_);
    if (next == later_.end()) continue;
    EVP_DigestUpdate(sha_->context, next->second.bytes.data(), next->second.bytes.size());
    buffered_ -= next->second.bytes.size();
    closed = next->second.closed;
    later_.erase(next);
  }
}

std::string OrderedDigest::finish() {
  while (first_open_ < num_items_) advance();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(sha_->context, digest.data(), &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace kvpool::launch
