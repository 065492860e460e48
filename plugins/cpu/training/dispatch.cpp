// Uses the names, and therefore the choice, of the inference kernels.
#include "training/dispatch.h"

#include <stdexcept>

#include "kernels/dispatch.h"

namespace vcdeploy::training {
namespace {

const Tables& choose(const std::string& isa) {
    std::string name = choose_kernels(isa).name;
    if (name == "avx512vl") name = "avx512";  // here registers of 512 bits are never slower
    for (const Tables* each : {
#ifdef VCDEPLOY_X86
             &avx2::kTables, &avx512::kTables,
#endif
             &portable::kTables})
        if (name == each->name) return *each;
    throw std::logic_error("no training kernels for " + name);
}

}  // namespace

template <>
const Table<float>& choose_table(const std::string& isa) {
    return choose(isa).single;
}
template <>
const Table<double>& choose_table(const std::string& isa) {
    return choose(isa).twice;
}

}  // namespace vcdeploy::training
