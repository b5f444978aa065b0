# Looks for NCCL in made-up trees: each place where it may be, the order among them, and versions that are too old.
#   cmake -DWORK=FOLDER -DPROJECT=THIS_FOLDER -DCMAKE_FOLDER=cmake -DGENERATOR=Ninja -DMAKE_PROGRAM=ninja -P check.cmake
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(failures 0)

# A tree with a header that says `version` and a library file of the given name.
function(make_tree folder version library)
  string(REPLACE "." ";" parts ${version})
  list(GET parts 0 major)
  list(GET parts 1 minor)
  list(GET parts 2 patch)
  file(WRITE "${folder}/include/nccl.h"
    "#define NCCL_MAJOR ${major}\n#define NCCL_MINOR ${minor}\n#define NCCL_PATCH ${patch}\n")
  file(WRITE "${folder}/lib/${library}" "")
endfunction()

# Configures the project with ${ARGN}; `expected` is FOUND|SOURCE|VERSION|folder of both, FALSE for not found.
function(expect name expected folder)
  set(result "${WORK}/${name}.txt")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env --unset=CUDA_HOME --unset=NCCL_HOME --unset=NCCL_ROOT ${environment}
            "${CMAKE_COMMAND}" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" -S "${PROJECT}" -B "${WORK}/${name}" "-DKVPOOL_CMAKE_FOLDER=${CMAKE_FOLDER}"
            "-DRESULT_FILE=${result}" -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF
            -DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF -DCMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH=OFF ${ARGN}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
  set(found "")
  if(EXISTS "${result}")
    file(READ "${result}" found)
  endif()
  if(expected STREQUAL "FALSE")
    string(REGEX MATCH "^(FALSE|0)\\|" right "${found}")
  else()
    set(start "TRUE|${expected}|${folder}/include|${folder}/lib/")
    string(FIND "${found}" "${start}" position)
    set(right "")
    if(position EQUAL 0)
      set(right yes)
    endif()
  endif()
  if(failed OR NOT right)
    message("${name}: expected '${expected}' in ${folder}, got '${found}'\n${output}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
  endif()
  set(last_output "${output}" PARENT_SCOPE)
endfunction()

make_tree("${WORK}/cuda" 2.18.1 libnccl.so)
make_tree("${WORK}/system" 2.21.5 libnccl.so.2)
make_tree("${WORK}/packages/nvidia/nccl" 2.27.3 libnccl.so.2)
make_tree("${WORK}/root" 2.30.0 libnccl.so)
make_tree("${WORK}/old" 2.17.1 libnccl.so)
make_tree("${WORK}/headerless" 2.20.0 libnccl.so)
file(WRITE "${WORK}/headerless/include/nccl.h" "no version here\n")
file(WRITE "${WORK}/python" "#!/bin/sh\necho '${WORK}/nothing;${WORK}/packages'\n")
file(CHMOD "${WORK}/python" PERMISSIONS OWNER_READ OWNER_EXECUTE)
set(no_python "-DNCCL_PYTHON=/bin/false")
set(python "-DNCCL_PYTHON=${WORK}/python")

expect(cuda_tree "the CUDA tree|2.18.1" "${WORK}/cuda" "-DCUDAToolkit_TARGET_DIR=${WORK}/cuda" ${no_python})
expect(system "system|2.21.5" "${WORK}/system" "-DCMAKE_PREFIX_PATH=${WORK}/system" ${no_python})
expect(wheel "a wheel|2.27.3" "${WORK}/packages/nvidia/nccl" ${python})
expect(root "NCCL_ROOT|2.30.0" "${WORK}/root" "-DNCCL_ROOT=${WORK}/root" "-DCUDAToolkit_TARGET_DIR=${WORK}/cuda"
       ${python})
expect(cuda_before_system "the CUDA tree|2.18.1" "${WORK}/cuda" "-DCUDAToolkit_TARGET_DIR=${WORK}/cuda"
       "-DCMAKE_PREFIX_PATH=${WORK}/system" ${python})
expect(old_is_passed_over "a wheel|2.27.3" "${WORK}/packages/nvidia/nccl" "-DCUDAToolkit_TARGET_DIR=${WORK}/old"
       ${python})
expect(nowhere FALSE "" ${no_python})
expect(too_old FALSE "" "-DNCCL_ROOT=${WORK}/old" ${no_python})
if(NOT last_output MATCHES "2.17.1.*2.18 or newer is needed")
  message("too_old: the version is not named:\n${last_output}")
  math(EXPR failures "${failures} + 1")
endif()
expect(no_version FALSE "" "-DNCCL_ROOT=${WORK}/headerless" ${no_python})
set(environment "NCCL_HOME=${WORK}/root")
expect(home "NCCL_ROOT|2.30.0" "${WORK}/root" ${no_python})

file(REMOVE_RECURSE "${WORK}")
if(failures)
  message(FATAL_ERROR "${failures} of 10 searches went wrong")
endif()
message("10 searches for NCCL found what they should")
