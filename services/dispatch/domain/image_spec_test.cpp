#include "services/dispatch/domain/image_spec.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

Json valid_image() {
    return {{"path", "/images/trainer.sif"}};
}

TEST(ImageSpecTest, WhatWasParsedComesBackUnchanged) {
    EXPECT_EQ(parse_image_spec(Json(), "image").value(), std::nullopt);
    const ImageSpec image = parse_image_spec(valid_image(), "image").value().value();
    EXPECT_EQ(image, (ImageSpec{"/images/trainer.sif", "", "", "none", {}, {}}));
    Json value = valid_image();
    value.update({{"sha256", std::string(64, 'a')},
                  {"runtime", "apptainer"},
                  {"gpu", "rocm"},
                  {"binds", {"/project", "/data:/in:ro"}},
                  {"options", {"--unsquash"}}});
    const auto full = parse_image_spec(value, "image").value().value();
    EXPECT_EQ(to_json(full), value);
    EXPECT_EQ(parse_image_spec(to_json(image), "image").value(), image);
}

TEST(ImageSpecTest, EachWrongMemberIsNamed) {
    const std::vector<std::pair<std::string, Json>> patches = {
        {"image.path", {{"path", nullptr}}},
        {"image.path", {{"path", "trainer.sif"}}},
        {"image.path", {{"path", "/a\nb"}}},
        {"image.sha256", {{"sha256", "4f"}}},
        {"image.sha256", {{"sha256", std::string(64, 'A')}}},
        {"image.runtime", {{"runtime", "docker"}}},
        {"image.gpu", {{"gpu", "yes"}}},
        {"image.binds", {{"binds", {"project"}}}},
        {"image.binds", {{"binds", {"/a,/b"}}}},
        {"image.binds", {{"binds", {1}}}},
        {"image.options", {{"options", {""}}}},
        {"image.options", {{"options", {"--containall"}}}},
        {"image.options", {{"options", {"-C"}}}},
        {"image.colour", {{"colour", "blue"}}},
    };
    for (const auto& [field, patch] : patches) {
        Json value = valid_image();
        value.merge_patch(patch);
        const auto image = parse_image_spec(value, "image");
        EXPECT_EQ(image.ok() ? "nothing" : image.error().field, field) << value.dump();
    }
}

}  // namespace
}  // namespace atl::dispatch
