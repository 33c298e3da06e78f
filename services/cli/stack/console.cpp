#include "services/cli/stack/console.h"

#include <string_view>

#include "services/cli/embedded.h"
#include "shared/base/file.h"

namespace atl::cli::stack {
namespace {

namespace fs = std::filesystem;

struct PageFile {
    const char* name;
    std::string_view content;
};
constexpr PageFile kFiles[] = {{"index.html", kConsolePageIndexHtml},
                               {"console.css", kConsolePageConsoleCss},
                               {"icon.svg", kConsolePageIconSvg},
                               {"api.js", kConsolePageApiJs},
                               {"chart.js", kConsolePageChartJs},
                               {"course.js", kConsolePageCourseJs},
                               {"datasets_view.js", kConsolePageDatasetsViewJs},
                               {"dom.js", kConsolePageDomJs},
                               {"facilities_view.js", kConsolePageFacilitiesViewJs},
                               {"follow.js", kConsolePageFollowJs},
                               {"format.js", kConsolePageFormatJs},
                               {"job_view.js", kConsolePageJobViewJs},
                               {"jobs_view.js", kConsolePageJobsViewJs},
                               {"main.js", kConsolePageMainJs},
                               {"plot.js", kConsolePagePlotJs},
                               {"poll.js", kConsolePagePollJs},
                               {"rounds_view.js", kConsolePageRoundsViewJs},
                               {"series.js", kConsolePageSeriesJs},
                               {"scale.js", kConsolePageScaleJs}};

}  // namespace

Status write_console(const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) return unavailable("cannot make " + directory.string() + ": " + error.message());
    for (const PageFile& file : kFiles) ATOLL_RETURN_IF_ERROR(write_file_atomic(directory / file.name, file.content));
    return {};
}

}  // namespace atl::cli::stack
