#include "services/console/console.h"

#include <string_view>

#include "services/console/embedded.h"
#include "shared/base/file.h"

namespace atl::console {
namespace {

namespace fs = std::filesystem;

struct PageFile {
    const char* name;
    std::string_view content;
};
constexpr PageFile kFiles[] = {{"index.html", kPageIndexHtml},
                               {"console.css", kPageConsoleCss},
                               {"icon.svg", kPageIconSvg},
                               {"api.js", kPageApiJs},
                               {"board_view.js", kPageBoardViewJs},
                               {"chart.js", kPageChartJs},
                               {"job_progress.js", kPageJobProgressJs},
                               {"datasets_view.js", kPageDatasetsViewJs},
                               {"dom.js", kPageDomJs},
                               {"facilities_view.js", kPageFacilitiesViewJs},
                               {"follow.js", kPageFollowJs},
                               {"format.js", kPageFormatJs},
                               {"gantt.js", kPageGanttJs},
                               {"history.js", kPageHistoryJs},
                               {"job_view.js", kPageJobViewJs},
                               {"jobs_view.js", kPageJobsViewJs},
                               {"main.js", kPageMainJs},
                               {"panels.js", kPagePanelsJs},
                               {"plot.js", kPagePlotJs},
                               {"poll.js", kPagePollJs},
                               {"problem_rules.js", kPageProblemRulesJs},
                               {"problems.js", kPageProblemsJs},
                               {"problems_view.js", kPageProblemsViewJs},
                               {"rounds_view.js", kPageRoundsViewJs},
                               {"series.js", kPageSeriesJs},
                               {"scale.js", kPageScaleJs},
                               {"services_view.js", kPageServicesViewJs},
                               {"timeline.js", kPageTimelineJs}};

}  // namespace

Status write_console(const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) return unavailable("cannot make " + directory.string() + ": " + error.message());
    for (const PageFile& file : kFiles) ATOLL_RETURN_IF_ERROR(write_file_atomic(directory / file.name, file.content));
    return {};
}

}  // namespace atl::console
