// SPDX-License-Identifier: Apache-2.0
// The model *transformer*: a real one, tiny and with random weights. It writes keys and values (of
// MLA groups: latent vectors) through the slots and reads them through the tables; what a token
// computes does not depend on who else is in the batch, so that tokens compare across batches.
#ifndef KVGUARD_LAB_TRANSFORMER_H_
#define KVGUARD_LAB_TRANSFORMER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lab/batch.h"
#include "lab/config.h"

namespace kvguard::lab {

class TransformerModel {
 public:
  // The weights are drawn from nothing but `layers` and the vocabulary: every engine has the same.
  explicit TransformerModel(const EngineConfig& config);

  static size_t PageBytes(const EngineConfig& config);
  static int32_t NumLayers(const EngineConfig& config);
  void Forward(const Batch& batch);

  // The first position >= prompt_len whose token is not what one pass over all the tokens before
  // it, without a cache, gives; -1 where there is none.
  int32_t FirstWrong(const Domain& domain, std::span<const int32_t> tokens, int32_t prompt_len);

 private:
  static constexpr int kWidth = 32;
  static constexpr int kHeads = 2;
  static constexpr int kHeadDim = kWidth / kHeads;
  static constexpr int kHidden = 64;
  static constexpr int kLatent = 16;
  using Vector = std::array<float, kWidth>;

  struct Layer {
    std::vector<float> query, key, value, out;  // [kWidth, kWidth]
    std::vector<float> down;                    // [kLatent, kWidth]: MLA
    std::vector<float> up_key, up_value;        // [kWidth, kLatent]
    std::vector<float> in, back;                // [kHidden, kWidth], [kWidth, kHidden]
  };
  // A token of a pass.
  struct Item {
    int32_t token = 0;
    int32_t position = 0;
    int32_t last = 0;  // the position that attention takes it for
    const Domain* domain = nullptr;
    bool first_of_row = false;
  };

  bool IsMla(int32_t layer) const;
  bool IsState(int32_t layer) const;
  bool IsCross(int32_t layer) const;
  Vector EmbedEncoder(const Domain& domain, int32_t position) const;
  size_t GroupOf(int32_t layer) const { return Ix(layer) % config_.groups.size(); }
  // Keeps what a layer's token leaves behind; gives it back by position, or nullptr.
  class PagedCache;
  class PlainCache;
  template <typename Cache>
  void Pass(Cache* cache);
  template <typename Cache>
  void Attend(Cache* cache, int32_t layer, size_t item, const Vector& query, Vector* x);
  template <typename Cache>
  void Recur(Cache* cache, int32_t layer, size_t item, const Vector& in, Vector* x);
  Vector Embed(const Item& item) const;
  int32_t NextToken(const Vector& x) const;

  const EngineConfig& config_;
  std::vector<float> embedding_;  // [vocabulary, kWidth]
  std::vector<Layer> layers_;
  std::vector<Item> items_;
  std::vector<Vector> states_;
  std::vector<Vector> queries_;
  Vector state_{};  // of the row under way
};

}  // namespace kvguard::lab

#endif  // KVGUARD_LAB_TRANSFORMER_H_
