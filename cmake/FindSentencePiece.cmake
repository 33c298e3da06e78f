# SentencePiece::SentencePiece: the processor and the trainer. Not by pkg-config: the .pc file of Debian trixie requires
# protobuf-lite privately, whose own .pc is in a package that libsentencepiece-dev does not depend on.
find_path(SentencePiece_INCLUDE_DIR sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY sentencepiece_train)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece
    REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY SentencePiece_INCLUDE_DIR)
if(SentencePiece_FOUND AND NOT TARGET SentencePiece::SentencePiece)
    add_library(SentencePiece::SentencePiece INTERFACE IMPORTED)
    target_include_directories(SentencePiece::SentencePiece INTERFACE ${SentencePiece_INCLUDE_DIR})
    target_link_libraries(SentencePiece::SentencePiece INTERFACE ${SentencePiece_LIBRARY} ${SentencePiece_TRAIN_LIBRARY})
endif()
