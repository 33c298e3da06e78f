#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "shared/run_settings/other_config.h"

// Inside shared/run_settings only.
namespace atl::run_settings {

// A translation as it is made, with the key of theirs that each setting comes from.
struct Translation {
    TranslatedConfig made;
    std::map<std::string, std::string> origins = {};
    bool fills_auto = false;  // "auto" stands for what the file itself says elsewhere, and is not noted

    void set(const std::string& key, const json::Json& value, const std::string& origin) {
        made.settings[key] = value;
        origins[key] = origin;
    }
};

// Reads one object of theirs and knows which keys were read.
class OtherReader {
  public:
    OtherReader(const json::Json& object, std::string path, Translation& into)
        : object_(object), path_(std::move(path)), into_(into) {}

    bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
    // The value, which counts as read; null: it is absent or null, or "auto", of which `ours`, what to set instead, is
    // told.
    json::Json take(const std::string& key, std::string_view ours = {});
    // Our setting takes their value as it is.
    void rename(const std::string& key, const std::string& ours);
    void set(const std::string& ours, const json::Json& value, const std::string& key) {
        into_.set(ours, value, path_ + key);
    }
    void note(const std::string& key, std::string text) { into_.made.notes.push_back({path_ + key, std::move(text)}); }
    // The value where it is an object; else null, which is noted where it is something else.
    json::Json take_object(const std::string& key, std::string_view ours = {});
    json::Json take_number(const std::string& key, std::string_view ours = {});  // likewise
    bool is_true(const std::string& key);
    void note_not_understood(const std::string& key) { note(key, "is not understood"); }
    // Keys that have no counterpart for a common reason; what says nothing (false, empty) counts as a default.
    void note_each(std::initializer_list<const char*> keys, const std::string& why);
    // What was not read: left out when it is one of the defaults, null, false or empty, else noted.
    void finish(const json::Json& defaults);

    const std::string& path() const { return path_; }
    Translation& into() { return into_; }

  private:
    const json::Json& object_;
    std::string path_;
    Translation& into_;
    std::set<std::string> taken_;
};

void translate_deepspeed(const json::Json& object, const std::string& path, Translation& into);
void translate_accelerate(const json::Json& object, Translation& into);
void translate_training_arguments(const json::Json& object, Translation& into);

// Our sharding for the stage of ZeRO that stands at `key`.
void set_zero_stage(OtherReader& reader, const char* key);
inline constexpr char kMovesData[] = "has no counterpart: it affects how data moves, not the result";

// Our sharding for a word of FSDP's: "FULL_SHARD", "full_shard", 1; null: none of theirs.
json::Json sharding_of_fsdp(const json::Json& strategy);

}  // namespace atl::run_settings
