#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "services/dispatch/sites/stream_site.h"
#include "services/dispatch/testing/file_store.h"

namespace atl::dispatch {

// A transport that counts what a site is sent and sends as data, and does as it is told when so much has gone.
class WatchedTransport : public Transport {
  public:
    explicit WatchedTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

    Result<CommandResult> run(const RemoteScript& script) override {
        RemoteScript watched = script;
        said_ += script.text + script.input;
        for (const auto& argument : script.arguments) said_ += "\n" + argument;
        if (script.source) watched.source = [&] { return is_cut_ ? std::string() : pass(script.source()); };
        if (script.sink)
            watched.sink = [&](std::string_view bytes) { return script.sink(pass(std::string(bytes))) && !is_cut_; };
        auto result = inner_->run(watched);
        const bool was_cut = std::exchange(is_cut_, false);
        return was_cut ? no_answer("the connection was cut") : alter ? alter(script, std::move(result)) : result;
    }

    // When so many bytes have gone in all: the connection breaks, or `on_mark` is called.
    std::vector<std::uint64_t> marks;
    std::function<void()> on_mark;
    // The site's answer as it comes to us.
    std::function<Result<CommandResult>(const RemoteScript&, Result<CommandResult>)> alter;
    std::function<std::string(std::string)> alter_data;
    std::uint64_t bytes() const { return bytes_; }
    const std::string& said() const { return said_; }  // all scripts, with their arguments and their input

  private:
    std::string pass(std::string bytes) {
        bytes_ += bytes.size();
        if (!marks.empty() && bytes_ >= marks.front()) {
            marks.erase(marks.begin());
            if (on_mark) on_mark();
            is_cut_ = !on_mark;
        }
        return alter_data ? alter_data(std::move(bytes)) : bytes;
    }

    std::shared_ptr<Transport> inner_;
    std::uint64_t bytes_ = 0;
    bool is_cut_ = false;
    std::string said_;
};

inline void write_random(const std::filesystem::path& path, std::uint64_t bytes, std::mt19937_64& random) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    std::vector<std::uint64_t> words((1 << 20) / sizeof(std::uint64_t));
    for (std::uint64_t left = bytes; left > 0;) {
        for (std::uint64_t& word : words) word = random();
        const auto count = std::min<std::uint64_t>(left, 1 << 20);
        file.write(reinterpret_cast<const char*>(words.data()), static_cast<std::streamsize>(count));
        left -= count;
    }
}

// Of several files and shards, some bytes more than `bytes`.
inline void make_shards(const std::filesystem::path& directory, std::uint64_t bytes, std::mt19937_64& random) {
    write_random(directory / "config.json", 700, random);
    write_random(directory / "empty", 0, random);
    write_random(directory / "model-00001-of-00002.safetensors", bytes / 3, random);
    write_random(directory / "model-00002-of-00002.safetensors", bytes - bytes / 3, random);
    write_random(directory / "with a 'quote' and $HOME/tokenizer.json", 12345, random);
}

}  // namespace atl::dispatch
