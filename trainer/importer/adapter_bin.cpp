#include <string>
#include <utility>

#include "shared/adapter/adapter.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "trainer/importer/foreign_model.h"
#include "trainer/weights/adapter.h"

namespace atl::importer {
namespace {

constexpr std::string_view kBaseLayer = ".base_layer.weight";  // of an adapted head, which peft saves as well

}  // namespace

Result<ForeignModel> open_adapter_bin(const ImportOptions& options) {
    ATOLL_RETURN_IF_ERROR(weights::load_adapter_config(options.from));  // refuses by its key what is not supported
    ForeignModel model;
    ATOLL_TRY(model.config, read_file(options.from / weights::kAdapterConfig));
    ATOLL_TRY(model.files.emplace_back(), TorchFile::open(options.from / weights::kAdapterBinFile));
    const TorchFile& file = model.files.front();
    for (const StoredTensor& tensor : file.tensors()) {
        if (tensor.name.ends_with(kBaseLayer)) continue;
        if (!tensor.name.ends_with(adapter::kA) && !tensor.name.ends_with(adapter::kB))
            return in_file(file.path(),
                           "tensor " + in_quotes(tensor.name) + " is neither lora_A nor lora_B of a linear");
        ATOLL_TRY(model.tensors.emplace_back(),
                  join_parts({tensor.name, tensor.shape, tensor.dtype}, {{&file, &tensor}}, Join::kRows));
    }
    if (model.tensors.empty()) return in_file(file.path(), "holds no matrix of an adapter");
    return model;
}

}  // namespace atl::importer
