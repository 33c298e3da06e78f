#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "shared/aggregate/strategy.h"

// How much of each update's change counts, by how far it goes: what one lying site of several can do to a model is
// bounded, whatever it hands in, and an honest one counts whole. Pure functions. Internal to this module.
namespace atl::aggregate {

// An update as it was measured.
struct Change {
    double norm = 0;     // ‖update - base‖
    double effort = 1;   // that was assigned
    double reach = 0;    // the most that its optimizer can move it; 0: not known
    double claimed = 1;  // how many times the effort it would be by what its site says
};

// The longest change that a training with this assignment makes to a model of so many elements; 0: not known. An
// element moves as far as its optimizer can, decays, and is rounded to its type (a half's 8 bits at worst).
double find_reach(const Assignment& assigned, double elements, double base_norm);
// The same of what adapters add, scale B A, where their matrices, of that norm together, go as far as `reach`: a bound
// for whatever they hold, and far above what trainings come to. 0: not known.
double find_reach_of_product(double reach, double base_norm, double scale);

// The part of each change that counts, from 0 to 1.
//
// A change is compared with what is usual for one of its effort. Where three changes or more are not zero that is the
// lower median of theirs, its own among them: half of the sites or more would have to lie together. Of one or two
// neither may say what is usual for the other, as it could shrink it by hardly moving. There an update's usual norm is
// the larger of two upper medians, of the round with the rounds before and of what its own site had counted before; it
// has none as long as one of them is missing. A change of another effort says at most what it would be if the norm grew
// with the effort's root (random walk) or in proportion to it (all steps in one direction), whichever is longer: so no
// honest site is cut for having trained longer or shorter than others.
//
// What is longer than `clip` times the usual norm, or than its reach, is shortened to that. What is longer than `drop`
// times the shorter of both is none that a training makes, and counts as no change. A site that has more data than
// others, as it says, and so made more steps, may be longer by that before it counts as none, but not before it is
// shortened.
std::vector<double> parts_that_count(std::span<const Change> changes, std::span<const EarlierNorm> earlier,
                                     const StrategySpec& strategy);

// How much of the control variates counts, each part from 0 to 1.
struct VariateParts {
    std::vector<double> updates;  // of each update's
    double base = 1;              // of the base's own mean
    // Fewer than two updates' count, so that none does and there is no mean: it would tell everybody who reads the
    // model what that one site alone knows.
    bool are_too_few = false;
};

// Usual is the lower median of the norms of this round's: of two the shorter one's. One longer than `clip` times that
// is shortened to it, the base's own mean too (`base_norm`; 0: it has none), so that nothing that a site once sent
// stays longer than what is usual now. One longer than `drop` times counts as zero, as does that of an update that
// counts for nothing (`counted`, one an update: 0).
VariateParts parts_of_variates(std::span<const double> norms, std::span<const double> counted, double base_norm,
                               const StrategySpec& strategy);

}  // namespace atl::aggregate
