#include "services/dispatch/domain/host_key.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

// With the fingerprints that ssh-keygen shows of them.
const std::string kEd25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJiQ/swRvuGsw1MFv0Ry5qRll8WwiEUr2gGFZl+NMCSo";
const std::string kEcdsa =
    "ecdsa-sha2-nistp256 "
    "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBPumZ+"
    "xbIXmwNMGo8ZxUBni6enihmy7XHHMK9y8HIcR9Jho6hqgkXbPc3wtZfKWKcjE26yLddYCp9f0vUGs6gzg=";

TEST(HostKeyTest, KeysAreKeptWithoutTheirComments) {
    EXPECT_EQ(parse_host_key(kEd25519 + " root@login01\n\n@cert-authority " + kEcdsa + " ca\n", "f").value(),
              kEd25519 + "\n@cert-authority " + kEcdsa);
    EXPECT_EQ(parse_host_key("", "f").value(), "");
}

TEST(HostKeyTest, WhatIsNoKeyIsRefusedByName) {
    for (const std::string& text :
         {std::string("SHA256:abc"), std::string("ssh-ed25519"), "ssh-rsa " + kEd25519.substr(12),
          kEd25519 + "\nlogin01 " + kEd25519, "ssh-ed25519 " + kEd25519.substr(13)})
        EXPECT_EQ(parse_host_key(text, "transport.host_key").error().field, "transport.host_key") << text;
}

TEST(HostKeyTest, FingerprintsAreThoseThatSshShows) {
    EXPECT_EQ(fingerprints(kEd25519 + "\n@cert-authority " + kEcdsa),
              (std::vector<std::string>{
                  "ssh-ed25519 SHA256:zqHTSY+h4adymyqK93yRQeC18UQMKTcHsSJ/4/y9iiE",
                  "@cert-authority ecdsa-sha2-nistp256 SHA256:uN+nYnK851zeaWTx5VPmsmvK5mA2Az9JbBkA/psJRWg"}));
}

}  // namespace
}  // namespace atl::dispatch
