// SPDX-License-Identifier: Apache-2.0
#include "lab/workload.h"

#include <algorithm>

namespace kvguard::lab {
namespace {
constexpr size_t kPromptsKept = 32;
}

Workload::Workload(const WorkloadConfig& config, const EngineConfig& engine, uint64_t seed)
    : config_(config),
      vocabulary_(engine.vocabulary),
      max_model_len_(engine.max_model_len),
      max_encoder_(engine.has_cross() ? engine.max_encoder : 0),
      random_(Mix(seed, 0x776f)) {
  if (config.trace == TraceKind::kMooncake) trace_ = ReadMooncake(MooncakeConversation());
  if (config.trace == TraceKind::kAzure) trace_ = ReadAzure(AzureConversation());
}

void Workload::MakePrompt() {
  domain_ = {};
  if (config_.repeat_one_in > 0 && !before_.empty() && random_.OneIn(config_.repeat_one_in)) {
    prompt_ = before_[random_.Below(static_cast<uint32_t>(before_.size()))];
  } else {
    prompt_.clear();
    const int32_t size = random_.Between(config_.min_prompt, config_.max_prompt);
    if (config_.num_prefixes > 0) {
      const uint64_t prefix = random_.Below(static_cast<uint32_t>(config_.num_prefixes));
      const int32_t shared = std::min(size, random_.Between(0, config_.max_prefix));
      for (int32_t j = 0; j < shared; ++j) {
        prompt_.push_back(static_cast<int32_t>(Mix(prefix + 1, static_cast<uint64_t>(j)) %
                                               static_cast<uint64_t>(vocabulary_)));
      }
    }
    while (static_cast<int32_t>(prompt_.size()) < size) {
      prompt_.push_back(random_.Between(0, vocabulary_ - 1));
    }
    if (before_.size() < kPromptsKept) {
      before_.push_back(prompt_);
    } else {
      before_[random_.Below(kPromptsKept)] = prompt_;
    }
  }
  if (config_.domain_one_in > 0 && random_.OneIn(config_.domain_one_in)) {
    switch (random_.Below(3)) {
      case 0:
        domain_.lora = 1 + random_.Below(2);
        break;
      case 1:
        domain_.salt = 1 + random_.Below(2);
        break;
      default:
        domain_.image = 1 + random_.Below(2);
        domain_.image_first = random_.Between(0, static_cast<int32_t>(prompt_.size()) - 1);
        domain_.image_count = random_.Between(1, 40);
    }
  }
}

void Workload::SubmitOne(Engine* engine) {
  MakePrompt();
  if (max_encoder_ > 0) {
    domain_.encoder = 1 + random_.Below(20);
    domain_.encoder_count = 1 + static_cast<int32_t>(Mix(domain_.encoder, 0x656e) %
                                                     static_cast<uint64_t>(max_encoder_));
  }
  const int32_t room = max_model_len_ - static_cast<int32_t>(prompt_.size());
  int32_t siblings = 1;
  if (config_.sibling_one_in > 0 && random_.OneIn(config_.sibling_one_in)) {
    siblings = random_.Between(2, 3);
  }
  for (int32_t i = 0; i < siblings; ++i) {
    Submission submission;
    submission.prompt = prompt_;
    submission.domain = domain_;
    submission.max_output =
        std::clamp(random_.Between(config_.min_output, config_.max_output), 1, room);
    if (config_.stop_one_in > 0 && random_.OneIn(config_.stop_one_in)) {
      submission.stop_at = random_.Between(1, submission.max_output);
    }
    live_.push_back(engine->Submit(submission));
    ++submitted_;
  }
}

void Workload::Replay(Engine* engine) {
  now_ += config_.milliseconds_a_step;
  for (; trace_[next_].milliseconds <= now_; ++next_) {
    const TraceRequest& request = trace_[next_];
    const bool is_last = next_ + 1 == trace_.size();
    const int32_t output = std::min(request.output, max_model_len_ / 2);
    const int32_t size = std::min(request.prompt, max_model_len_ - output);
    prompt_.clear();
    for (int32_t p = 0; p < size; ++p) {
      const auto page = Ix(p / kTracePage);
      // Behind the last whole page, and where nothing is told of sharing, tokens are its own.
      const bool shared =
          page < request.pages.size() && (Ix(p) / kTracePage + 1) * kTracePage <= Ix(size);
      const uint64_t identity = shared ? static_cast<uint64_t>(request.pages[page]) + 1
                                       : Mix(submitted_ + 1, page) | (uint64_t{1} << 63);
      prompt_.push_back(static_cast<int32_t>(Mix(identity, static_cast<uint64_t>(p % kTracePage)) %
                                             static_cast<uint64_t>(vocabulary_)));
    }
    Submission submission;
    submission.prompt = prompt_;
    submission.max_output = output;
    live_.push_back(engine->Submit(submission));
    ++submitted_;
    if (is_last) {
      next_ = 0;
      now_ = 0;
      break;
    }
  }
}

void Workload::Fork(Engine* engine) {
  const RequestName parent = live_[random_.Below(static_cast<uint32_t>(live_.size()))];
  const Request& request = engine->scheduler().Of(parent);
  const int32_t room = max_model_len_ - request.num_tokens() - 1;
  if (room < 1) return;
  prompt_ = request.tokens;
  if (random_.OneIn(3)) prompt_.push_back(random_.Between(0, vocabulary_ - 1));
  Submission submission;
  submission.prompt = prompt_;
  submission.domain = request.domain;
  submission.parent = parent;
  submission.max_output = std::min(room, random_.Between(config_.min_output, config_.max_output));
  live_.push_back(engine->Submit(submission));
  ++submitted_;
}

void Workload::Before(Engine* engine) {
  if (!trace_.empty()) {
    Replay(engine);
    return;
  }
  if (idle_) {
    idle_ = !live_.empty() || !random_.OneIn(4);
  } else if (config_.idle_one_in > 0 && random_.OneIn(config_.idle_one_in)) {
    idle_ = true;
  }
  if (config_.abort_one_in > 0 && !live_.empty() && random_.OneIn(config_.abort_one_in)) {
    const size_t i = random_.Below(static_cast<uint32_t>(live_.size()));
    engine->Abort(live_[i]);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (config_.fork_one_in > 0 && !idle_ && !live_.empty() && random_.OneIn(config_.fork_one_in)) {
    Fork(engine);
  }
  while (!idle_ && static_cast<int32_t>(live_.size()) < config_.live) SubmitOne(engine);
}

void Workload::After(const Engine& engine) {
  for (const RequestName name : engine.ended()) {
    const auto it = std::find_if(live_.begin(), live_.end(),
                                 [&](RequestName other) { return other.serial == name.serial; });
    if (it != live_.end()) live_.erase(it);
  }
}

}  // namespace kvguard::lab
