// SPDX-License-Identifier: Apache-2.0
// main() of a fuzz target where libFuzzer is not available: the corpus (files or folders given as
// arguments) and, from a fixed seed, bytes and mutations of the corpus. It keeps every fuzz target
// compiled and its corpus passing in the ordinary build; finding new inputs is libFuzzer's work.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

void Mutate(Bytes& bytes, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const size_t at = random() % bytes.size();
  switch (random() % 4) {
    case 0:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 1:
      bytes[at] ^= static_cast<uint8_t>(1u << (random() % 8));
      break;
    case 2:
      bytes.resize(at);
      break;
    default:
      bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(random()));
      break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr uint64_t kSeed = 20250101;
  constexpr int kRandomInputs = 2000;
  constexpr int kMutationsOfEach = 200;
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path path(argv[i]);
    if (!std::filesystem::is_directory(path)) {
      paths.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::mt19937_64 random(kSeed);
  size_t runs = 0;
  for (const auto& path : paths) {
    const Bytes original = ReadFile(path);
    LLVMFuzzerTestOneInput(original.data(), original.size());
    ++runs;
    for (int i = 0; i < kMutationsOfEach; ++i, ++runs) {
      Bytes mutant = original;
      for (uint64_t n = 1 + random() % 4; n > 0; --n) Mutate(mutant, random);
      LLVMFuzzerTestOneInput(mutant.data(), mutant.size());
    }
  }
  for (int i = 0; i < kRandomInputs; ++i, ++runs) {
    Bytes bytes(random() % 512);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu inputs, %zu of them files\n", runs, paths.size());
  return 0;
}
