// SPDX-License-Identifier: Apache-2.0
#include "lab/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvguard::lab {
namespace {

std::vector<float> Weights(Random* random, size_t rows, size_t columns) {
  // Uniform with the variance of 1 / columns.
  const auto scale = 2.0 * std::sqrt(3.0 / static_cast<double>(columns));
  std::vector<float> weights(rows * columns);
  for (float& weight : weights) {
    const double unit = static_cast<double>(random->Next() >> 11) * 0x1p-53;
    weight = static_cast<float>((unit - 0.5) * scale);
  }
  return weights;
}

// out = matrix * in. Sums run in the order of the elements, wherever this is compiled into.
template <size_t kRows, size_t kColumns>
std::array<float, kRows> Times(const std::vector<float>& matrix, const float* in) {
  std::array<float, kRows> out;
  for (size_t i = 0; i < kRows; ++i) {
    float sum = 0;
    for (size_t j = 0; j < kColumns; ++j) sum += matrix[i * kColumns + j] * in[j];
    out[i] = sum;
  }
  return out;
}

template <size_t kSize>
std::array<float, kSize> Normal(const std::array<float, kSize>& in) {
  float squares = 0;
  for (const float x : in) squares += x * x;
  const float scale = 1 / std::sqrt(squares / static_cast<float>(kSize) + 1e-5F);
  std::array<float, kSize> out;
  for (size_t i = 0; i < kSize; ++i) out[i] = in[i] * scale;
  return out;
}

// Turns each pair of a head by an angle that grows with the position.
void Rope(int32_t position, int head_dim, std::span<float> vector) {
  for (size_t i = 0; i + 1 < vector.size(); i += 2) {
    const auto pair = static_cast<float>(i % Ix(head_dim)) / static_cast<float>(head_dim);
    const float angle = static_cast<float>(position) * std::pow(100.0F, -pair);
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    const float a = vector[i];
    const float b = vector[i + 1];
    vector[i] = a * cosine - b * sine;
    vector[i + 1] = a * sine + b * cosine;
  }
}

}  // namespace

int32_t TransformerModel::NumLayers(const EngineConfig& config) {
  return std::max(2, static_cast<int32_t>(config.groups.size()));
}

size_t TransformerModel::PageBytes(const EngineConfig& config) {
  size_t most = 0;
  const size_t num_groups = config.groups.size();
  for (size_t g = 0; g < num_groups; ++g) {
    const size_t layers = (Ix(NumLayers(config)) + num_groups - 1 - g) / num_groups;
    const GroupConfig& group = config.groups[g];
    const size_t floats = group.kind == GroupKind::kState ? kWidth
                          : group.kind == GroupKind::kMla ? kLatent
                                                          : 2 * kWidth;
    const size_t places = group.kind == GroupKind::kState ? 1 : Ix(group.block_size);
    most = std::max(most, places * layers * floats * sizeof(float));
  }
  return most;
}

bool TransformerModel::IsMla(int32_t layer) const {
  return config_.groups[GroupOf(layer)].kind == GroupKind::kMla;
}

bool TransformerModel::IsCross(int32_t layer) const {
  return config_.groups[GroupOf(layer)].kind == GroupKind::kCross;
}

// What an encoder would have made of its input.
TransformerModel::Vector TransformerModel::EmbedEncoder(const Domain& domain,
                                                        int32_t position) const {
  const uint64_t hash = Mix(domain.encoder, static_cast<uint64_t>(position));
  Vector x;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(Mix(hash, i) % 256) / 128.0F - 1;
  }
  return x;
}

bool TransformerModel::IsState(int32_t layer) const {
  return config_.groups[GroupOf(layer)].kind == GroupKind::kState;
}

TransformerModel::TransformerModel(const EngineConfig& config) : config_(config) {
  Random random(0x74726e);
  embedding_ = Weights(&random, Ix(config.vocabulary), kWidth);
  for (int32_t l = 0; l < NumLayers(config); ++l) {
    Layer& layer = layers_.emplace_back();
    for (auto* weights : {&layer.query, &layer.key, &layer.value, &layer.out}) {
      *weights = Weights(&random, kWidth, kWidth);
    }
    layer.down = Weights(&random, kLatent, kWidth);
    layer.up_key = Weights(&random, kWidth, kLatent);
    layer.up_value = Weights(&random, kWidth, kLatent);
    layer.in = Weights(&random, kHidden, kWidth);
    layer.back = Weights(&random, kWidth, kHidden);
  }
}

// Through slots and tables, in device memory.
class TransformerModel::PagedCache {
 public:
  PagedCache(const TransformerModel& model, const Batch& batch, std::vector<int32_t> row_of)
      : model_(model), batch_(batch), row_of_(std::move(row_of)) {}

  float* Writable(int32_t layer, size_t item) const {
    const size_t group = model_.GroupOf(layer);
    return Place(layer, group, batch_.SlotOf(group, static_cast<int32_t>(item)));
  }
  const float* Readable(int32_t layer, size_t item, int32_t position) const {
    const size_t group = model_.GroupOf(layer);
    const int32_t unit = model_.config_.groups[group].kernel_block_size;
    const int32_t width = batch_.table_width[group];
    if (position / unit >= width) return nullptr;
    const int32_t entry = batch_.tables[group][Ix(row_of_[item]) * Ix(width) + Ix(position / unit)];
    return Place(layer, group, static_cast<int64_t>(entry) * unit + position % unit);
  }

  int32_t EncoderTokens(size_t item) const { return batch_.cross_lens[row_of_[item]]; }
  int32_t EncoderTokensToWrite(size_t item) const {
    return batch_.cross_start[row_of_[item] + 1] - batch_.cross_start[row_of_[item]];
  }
  float* EncoderWritable(int32_t layer, size_t item, int32_t position) const {
    const size_t group = model_.GroupOf(layer);
    return Place(layer, group, batch_.SlotOf(group, batch_.cross_start[row_of_[item]] + position));
  }
  Vector StateBefore(int32_t layer, size_t item) const {
    const size_t group = model_.GroupOf(layer);
    const int32_t row = row_of_[item];
    Vector state{};
    const float* from =
        batch_.state_init[row] != 0 ? nullptr : StatePlace(layer, batch_.state_in[group][row]);
    if (from != nullptr) std::copy_n(from, kWidth, state.begin());
    return state;
  }
  void LeaveState(int32_t layer, size_t item, const Vector& state) const {
    const size_t group = model_.GroupOf(layer);
    const int32_t row = row_of_[item];
    const int32_t begin = batch_.query_start[row];
    const Batch::StatePlace to = batch_.StatePlaceOf(model_.config_.groups[group], group, row,
                                                     static_cast<int32_t>(item) - begin,
                                                     batch_.query_start[row + 1] - begin);
    float* at = to.column < 0 ? nullptr : StatePlace(layer, to.block);
    if (at != nullptr) std::copy(state.begin(), state.end(), at);
  }

 private:
  float* StatePlace(int32_t layer, int32_t block) const {
    if (block <= kNullBlock || block >= model_.config_.num_blocks) return nullptr;
    return reinterpret_cast<float*>(batch_.memory + Ix(block) * batch_.page_bytes) +
           Ix(layer) / model_.config_.groups.size() * kWidth;
  }
  float* Place(int32_t layer, size_t group, int64_t slot) const {
    const GroupConfig& g = model_.config_.groups[group];
    if (slot < 0 || slot >= int64_t{model_.config_.num_blocks} * g.block_size) return nullptr;
    const size_t floats = g.kind == GroupKind::kMla ? kLatent : 2 * kWidth;
    const size_t layer_in_group = Ix(layer) / model_.config_.groups.size();
    const size_t place = (layer_in_group * Ix(g.block_size) + Ix(slot % g.block_size)) * floats;
    return reinterpret_cast<float*>(batch_.memory + Ix(slot / g.block_size) * batch_.page_bytes) +
           place;
  }

  const TransformerModel& model_;
  const Batch& batch_;
  std::vector<int32_t> row_of_;
};

// One sequence from its first token on, by position.
class TransformerModel::PlainCache {
 public:
  // An encoder's tokens of a layer stand where its own would.
  PlainCache(size_t num_layers, size_t num_tokens, int32_t num_encoder_tokens)
      : num_tokens_(std::max(num_tokens, Ix(num_encoder_tokens))),
        num_encoder_tokens_(num_encoder_tokens),
        values_(num_layers * num_tokens_ * 2 * kWidth) {}
  int32_t EncoderTokens(size_t) const { return num_encoder_tokens_; }
  int32_t EncoderTokensToWrite(size_t) const { return num_encoder_tokens_; }
  float* EncoderWritable(int32_t layer, size_t, int32_t position) {
    return At(layer, Ix(position));
  }
  float* Writable(int32_t layer, size_t item) { return At(layer, item); }
  const float* Readable(int32_t layer, size_t, int32_t position) { return At(layer, Ix(position)); }

  Vector StateBefore(int32_t, size_t) const { return {}; }
  void LeaveState(int32_t, size_t, const Vector&) const {}

 private:
  float* At(int32_t layer, size_t position) {
    return values_.data() + (Ix(layer) * num_tokens_ + position) * 2 * kWidth;
  }
  size_t num_tokens_;
  int32_t num_encoder_tokens_;
  std::vector<float> values_;
};

TransformerModel::Vector TransformerModel::Embed(const Item& item) const {
  Vector x;
  std::copy_n(embedding_.data() + Ix(item.token) * kWidth, kWidth, x.begin());
  const Domain& domain = *item.domain;
  const bool image = domain.image != 0 && item.position >= domain.image_first &&
                     item.position < domain.image_first + domain.image_count;
  for (size_t i = 0; i < x.size() && (image || domain.lora != 0); ++i) {
    // An adapter bends every token a little, an image takes a placeholder's place.
    x[i] += static_cast<float>(Mix(domain.lora, i) % 64) * (domain.lora != 0 ? 0.004F : 0.0F);
    if (image) {
      const uint64_t patch =
          Mix(domain.image, static_cast<uint64_t>(item.position - domain.image_first));
      x[i] += static_cast<float>(Mix(patch, i) % 64) * 0.01F;
    }
  }
  return x;
}

template <typename Cache>
void TransformerModel::Attend(Cache* cache, int32_t layer, size_t item, const Vector& query,
                              Vector* x) {
  const Layer& weights = layers_[Ix(layer)];
  const bool mla = IsMla(layer);
  const bool cross = IsCross(layer);
  const int32_t last = cross ? cache->EncoderTokens(item) - 1 : items_[item].last;
  const int32_t first = cross ? 0 : EngineConfig::FirstRead(config_.groups[GroupOf(layer)], last);
  if (last < first) return;
  Vector sum{};
  std::array<float, kHeads> total{};
  std::array<float, kHeads> most;
  most.fill(-1e30F);
  const auto load = [&](int32_t position, Vector* key, Vector* value) {
    const float* at = cache->Readable(layer, item, position);
    if (at == nullptr) {  // outside the pool: nothing is there
      key->fill(0);
      value->fill(0);
    } else if (mla) {
      *key = Times<kWidth, kLatent>(weights.up_key, at);
      *value = Times<kWidth, kLatent>(weights.up_value, at);
      Rope(position, kHeadDim, *key);
    } else {
      std::copy_n(at, kWidth, key->begin());
      std::copy_n(at + kWidth, kWidth, value->begin());
    }
  };
  // Softmax in one pass: what was summed is scaled whenever a larger score comes.
  for (int32_t p = first; p <= last; ++p) {
    Vector key;
    Vector value;
    load(p, &key, &value);
    for (size_t h = 0; h < kHeads; ++h) {
      float score = 0;
      for (size_t i = h * kHeadDim; i < (h + 1) * kHeadDim; ++i) score += query[i] * key[i];
      score *= 0.25F * 3;  // 1 / sqrt(kHeadDim), and sharper, so that single tokens count
      if (score > most[h]) {
        const float scale = std::exp(most[h] - score);
        total[h] *= scale;
        for (size_t i = h * kHeadDim; i < (h + 1) * kHeadDim; ++i) sum[i] *= scale;
        most[h] = score;
      }
      const float weight = std::exp(score - most[h]);
      total[h] += weight;
      for (size_t i = h * kHeadDim; i < (h + 1) * kHeadDim; ++i) sum[i] += weight * value[i];
    }
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] /= total[i / kHeadDim];
  const Vector out = Times<kWidth, kWidth>(weights.out, sum.data());
  for (size_t i = 0; i < out.size(); ++i) (*x)[i] += out[i];
}

// A recurrent layer: what came before fades, each channel at its own pace.
template <typename Cache>
void TransformerModel::Recur(Cache* cache, int32_t layer, size_t item, const Vector& in,
                             Vector* x) {
  const Layer& weights = layers_[Ix(layer)];
  if (items_[item].first_of_row) state_ = cache->StateBefore(layer, item);
  const Vector key = Times<kWidth, kWidth>(weights.key, in.data());
  const Vector value = Times<kWidth, kWidth>(weights.value, in.data());
  Vector read = Times<kWidth, kWidth>(weights.query, in.data());
  for (size_t i = 0; i < state_.size(); ++i) {
    const float keeps = 1 - 1 / (2 + static_cast<float>(i));
    state_[i] = keeps * state_[i] + key[i] * value[i];
    read[i] *= state_[i];
  }
  cache->LeaveState(layer, item, state_);
  const Vector out = Times<kWidth, kWidth>(weights.out, read.data());
  for (size_t i = 0; i < out.size(); ++i) (*x)[i] += out[i];
}

template <typename Cache>
void TransformerModel::Pass(Cache* cache) {
  states_.resize(items_.size());
  queries_.resize(items_.size());
  for (size_t t = 0; t < items_.size(); ++t) states_[t] = Embed(items_[t]);
  for (int32_t l = 0; l < NumLayers(config_); ++l) {
    const Layer& layer = layers_[Ix(l)];
    for (size_t t = 0; t < items_.size() && IsCross(l); ++t) {
      if (!items_[t].first_of_row) continue;
      for (int32_t p = 0; p < cache->EncoderTokensToWrite(t); ++p) {
        const Vector in = Normal(EmbedEncoder(*items_[t].domain, p));
        float* to = cache->EncoderWritable(l, t, p);
        if (to == nullptr) continue;
        const Vector key = Times<kWidth, kWidth>(layer.key, in.data());
        const Vector value = Times<kWidth, kWidth>(layer.value, in.data());
        std::copy(key.begin(), key.end(), to);
        std::copy(value.begin(), value.end(), to + kWidth);
      }
    }
    for (size_t t = 0; t < items_.size(); ++t) {
      const Vector x = Normal(states_[t]);
      if (IsCross(l)) {
        queries_[t] = Times<kWidth, kWidth>(layer.query, x.data());
        continue;
      }
      if (IsState(l)) {
        Recur(cache, l, t, x, &states_[t]);
        continue;
      }
      queries_[t] = Times<kWidth, kWidth>(layer.query, x.data());
      Rope(items_[t].position, kHeadDim, queries_[t]);
      float* to = cache->Writable(l, t);
      if (to == nullptr) continue;
      if (IsMla(l)) {
        const auto latent = Times<kLatent, kWidth>(layer.down, x.data());
        std::copy(latent.begin(), latent.end(), to);
        continue;
      }
      Vector key = Times<kWidth, kWidth>(layer.key, x.data());
      Rope(items_[t].position, kHeadDim, key);
      const Vector value = Times<kWidth, kWidth>(layer.value, x.data());
      std::copy(key.begin(), key.end(), to);
      std::copy(value.begin(), value.end(), to + kWidth);
    }
    for (size_t t = 0; t < items_.size(); ++t) {
      if (!IsState(l)) Attend(cache, l, t, queries_[t], &states_[t]);
      auto hidden = Times<kHidden, kWidth>(layer.in, Normal(states_[t]).data());
      for (float& h : hidden) h = std::max(h, 0.0F);
      const Vector back = Times<kWidth, kHidden>(layer.back, hidden.data());
      for (size_t i = 0; i < back.size(); ++i) states_[t][i] += back[i];
    }
  }
}

int32_t TransformerModel::NextToken(const Vector& state) const {
  const Vector x = Normal(state);
  int32_t best = 0;
  float most = -1e30F;
  for (int32_t token = 0; token < config_.vocabulary; ++token) {
    float score = 0;
    for (size_t i = 0; i < x.size(); ++i) score += embedding_[Ix(token) * kWidth + i] * x[i];
    if (score > most) {
      most = score;
      best = token;
    }
  }
  return best;
}

void TransformerModel::Forward(const Batch& batch) {
  items_.clear();
  std::vector<int32_t> row_of;
  for (int32_t row = 0; row < batch.num_rows; ++row) {
    const RowTruth& truth = (*batch.rows)[Ix(row)];
    const int32_t end = batch.query_start[row + 1];
    for (int32_t t = batch.query_start[row]; t < end; ++t) {
      Item& item = items_.emplace_back();
      item.token = std::clamp(batch.input_ids[t], 0, config_.vocabulary - 1);
      item.position = batch.positions[t];
      item.last = std::max(0, batch.seq_lens[row] - (end - t));
      item.domain = &truth.request->domain;
      item.first_of_row = t == batch.query_start[row];
      row_of.push_back(row);
    }
  }
  PagedCache cache(*this, batch, std::move(row_of));
  Pass(&cache);
  for (int32_t row = 0; row < batch.num_rows; ++row) {
    const RowTruth& truth = (*batch.rows)[Ix(row)];
    const int32_t end = batch.query_start[row + 1];
    const int32_t logits = std::min(truth.num_drafts + 1, end - batch.query_start[row]);
    for (int32_t i = 0; i < logits && truth.samples; ++i) {
      batch.next_tokens[row * (kMaxDrafts + 1) + i] = NextToken(states_[Ix(end - logits + i)]);
    }
  }
}

int32_t TransformerModel::FirstWrong(const Domain& domain, std::span<const int32_t> tokens,
                                     int32_t prompt_len) {
  items_.clear();
  for (size_t p = 0; p + 1 < tokens.size(); ++p) {
    const auto position = static_cast<int32_t>(p);
    items_.push_back({tokens[p], position, position, &domain, p == 0});
  }
  PlainCache cache(Ix(NumLayers(config_)), items_.size(), domain.encoder_count);
  Pass(&cache);
  for (size_t p = Ix(prompt_len) - 1; p + 1 < tokens.size(); ++p) {
    if (NextToken(states_[p]) != tokens[p + 1]) return static_cast<int32_t>(p) + 1;
  }
  return -1;
}

}  // namespace kvguard::lab
