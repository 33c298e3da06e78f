#include "services/dispatch/sites/image_command.h"

#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/transport/frame.h"

namespace atl::dispatch {

namespace {

bool is_pinned(const Facility& facility) {
    return facility.image && !facility.image->sha256.empty();
}

// In front of what runs in the image on a login node: nothing of an image that is not known to be the record's.
std::string pin_check(const Facility& facility) {
    if (!is_pinned(facility)) return "";
    return render_image_digest(facility) +
           "find_digest && [ \"$digest\" = \"$wanted\" ] || {\n"
           "    echo \"$image is not known to have the sha256 $wanted: nothing of it is run here\" >&2\n"
           "    exit 75\n"
           "}\n";
}

}  // namespace

std::string render_image_runner(const Facility& facility) {
    if (!facility.image) return "";
    const ImageSpec& image = *facility.image;
    std::string text = "image=" + shell_quote(image.path) + "\nwork=" + shell_quote(facility.work_dir) +
                       "\nruntimes=" + shell_quote(image.runtime.empty() ? "singularity apptainer" : image.runtime) +
                       "\nvariables='";
    for (const auto& [name, value] : facility.environment)
        if (name != "PATH" && name != "LD_LIBRARY_PATH") text += (text.back() == '\'' ? "" : "|") + name;
    text += "'\nset --";
    if (image.gpu != "none") text += " --" + image.gpu;
    for (const std::string& bind : image.binds) text += " --bind " + shell_quote(bind);
    for (const std::string& option : image.options) text += " " + shell_quote(option);
    return text + " \"$image\" \"$@\"\n" + std::string(kSitesScriptsInImageSh);
}

// Files, as what a script starts may outlive it; renamed into place, as others may run there.
std::string render_image_programs(const Facility& facility) {
    if (!facility.image) return "";
    return "programs=" + shell_quote(facility.work_dir + "/programs") +
           "\n"
           "[ -d \"${programs%/*}\" ] || mkdir -m 700 \"${programs%/*}\" 2>/dev/null\n" +
           std::string(kSitesScriptsImageDigestSh) +
           "make_private \"$programs\" && in_image=$(mktemp \"$programs/in-image.XXXXXX\") &&\n"
           "cat >\"$in_image\" <<'ATOLL_IMAGE' && chmod 700 \"$in_image\" &&\n"
           "#!/bin/sh\n" +
           pin_check(facility) + "set -- \"${0##*/}\" \"$@\"\n" + render_image_runner(facility) +
           "ATOLL_IMAGE\n"
           "    mv -f \"$in_image\" \"$programs/in-image\" &&\n"
           "    ln -sf in-image \"$programs/atoll\" && ln -sf in-image \"$programs/atoll-trainer\"\n"
           "PATH=$programs:$PATH\n";
}

std::string render_image_digest(const Facility& facility) {
    return "image=" + shell_quote(facility.image->path) +
           "\nkept=" + shell_quote(facility.work_dir + "/programs/sha256") +
           "\nwanted=" + shell_quote(facility.image->sha256) + "\n" + std::string(kSitesScriptsImageDigestSh);
}

std::string render_know_image(const Facility& facility) {
    if (!is_pinned(facility)) return "know_image() { :; }\n";
    const std::string mover = std::string(kSitesScriptsMovingSh) + std::string(kSitesScriptsImageDigestSh) +
                              std::string(kSitesScriptsKnowImageMoverSh);
    return render_image_digest(facility) + "image_mover=" + shell_quote(mover) + "\n" +
           std::string(kSitesScriptsKnowImageSh);
}

std::string render_image_check(const Facility& facility) {
    if (!is_pinned(facility)) return "";
    return render_image_digest(facility) + std::string(kSitesScriptsVerifyImageSh);
}

std::string render_image_report(const Facility& facility) {
    return facility.image ? render_image_digest(facility) + std::string(kSitesScriptsReportImageSh) : "";
}

}  // namespace atl::dispatch
