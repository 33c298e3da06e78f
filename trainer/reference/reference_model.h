#pragma once

#include <map>
#include <string>

#include "trainer/model/lora.h"
#include "trainer/model/model.h"
#include "trainer/reference/tape.h"

namespace atl::reference {

// A whole model in fp64: its loss and the gradient of each of its parameters, from a Tape. Parameters have their names
// in a checkpoint; adapters those in an adapter's file.
class ReferenceModel {
  public:
    // What a control gets wrong.
    struct Mistakes {
        bool interleaved_rotation = false;
        bool unscaled_scores = false;
        bool labels_shifted_twice = false;
        bool broken_norm_derivative = false;
        bool plain_heads = false;  // no norms of heads
        int logit_bits = 0;        // significant ones, that logits are rounded to; 0: they are not
        int probability_bits = 0;  // of attention, likewise
    };
    ReferenceModel(const model::ModelConfig& config, std::map<std::string, Matrix> parameters);
    // `lora_scale` is alpha / rank.
    ReferenceModel(const model::ModelConfig& config, std::map<std::string, Matrix> parameters, double lora_scale,
                   const Mistakes& mistakes);

    const std::map<std::string, Matrix>& parameters() const { return parameters_; }
    Matrix& parameter(const std::string& name) { return parameters_.at(name); }

    // The mean loss of a batch, with gradients() by name.
    double loss_and_gradients(const model::HostBatch& rows);
    const std::map<std::string, Matrix>& gradients() const { return gradients_; }
    // The loss near where those gradients were taken: each ReLU stays on the side where it was then, so that a
    // difference of losses does not meet its kink.
    double loss_nearby(const model::HostBatch& rows);

  private:
    struct Positions;  // of each row: in its document, where that begins, what it shall predict
    using Node = Tape::Node;

    double loss(const model::HostBatch& rows, bool with_gradients);
    Node of(const std::string& name) const { return leaves_.at(name); }
    Node linear(Tape& tape, Node x, const std::string& module) const;
    Node norm(Tape& tape, Node x, const std::string& name) const;
    Node norm_heads(Tape& tape, Node x, const std::string& name) const;
    Node logits(Tape& tape, Node x, const std::string& embedding) const;
    Node attend(Tape& tape, Node query, Node key, Node value, const Positions& positions) const;
    // Llama, and Mistral, Qwen2 and Qwen3, which have a few parameters more.
    Node llama(Tape& tape, const model::HostBatch& rows, const Positions& positions) const;
    Node opt(Tape& tape, const model::HostBatch& rows, const Positions& positions);

    model::ModelConfig config_;
    std::map<std::string, Matrix> parameters_;
    double lora_scale_;
    Mistakes mistakes_;
    std::map<std::string, Node> leaves_;
    std::map<std::string, Matrix> gradients_;
    std::vector<Matrix> sides_;  // of each layer's ReLU: its input when the gradients were taken
};

}  // namespace atl::reference
