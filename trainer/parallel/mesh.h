#pragma once

namespace atl::parallel {

// The ranks of a run as a grid of five dimensions: how many ways each divides the work. One rank has one place in it.
// Neighbouring ranks differ in `tensor` first, as its ranks exchange the most and are to be on one machine, then in
// `context`, `shards`, `replicas` and `pipeline`: Megatron-LM's order (Narayanan et al., arXiv:2104.04473, 4).
struct Mesh {
    int replicas = 1;  // copies of the weights, each with rows of its own
    int shards = 1;    // ranks that keep one copy together, each with rows of its own
    int context = 1;   // ranks with the same rows, each with a part of every sequence
    int tensor = 1;    // ranks that each compute a part of every layer's matrices
    int pipeline = 1;  // ranks that each have some of the blocks

    // Where a rank is in each dimension.
    struct Place {
        int replica = 0;
        int shard = 0;
        int context = 0;
        int tensor = 0;
        int stage = 0;
        bool operator==(const Place&) const = default;
    };

    int ranks() const { return sharing_ranks() * model_parts(); }
    // Ranks that have the same part of the model, so that they exchange its weights and gradients.
    int sharing_ranks() const { return replicas * shards * context; }
    // Ranks that see different rows.
    int data_ranks() const { return replicas * shards; }
    int model_parts() const { return tensor * pipeline; }

    Place place_of(int rank) const;
    int rank_of(const Place& place) const;
    bool operator==(const Mesh&) const = default;
};

}  // namespace atl::parallel
