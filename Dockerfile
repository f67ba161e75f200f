# The lab in a container: no GPU is needed to build it, none to run it.
#   docker build -t kv-reuse-lab .
#   docker run --rm -p 7860:7860 kv-reuse-lab
# BASE_IMAGE must bring Python 3.11 or newer with venv, or be a Debian or Ubuntu that can install it.
# TORCH_INDEX is the package index to take torch from (see "CPU or GPU" in README.md).
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}

RUN python3 -c 'import ensurepip, venv' 2>/dev/null \
    || { apt-get update \
         && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
         && rm -rf /var/lib/apt/lists/*; }

# Uid 1000, as a Hugging Face Space runs it; a base image may already have that user under another name.
RUN getent passwd 1000 >/dev/null || useradd --uid 1000 --home-dir /home/user --shell /bin/bash user; \
    mkdir -p /home/user/app /home/user/data && chown -R 1000:1000 /home/user
USER 1000
WORKDIR /home/user/app
ENV HOME=/home/user \
    VIRTUAL_ENV=/home/user/venv \
    PATH=/home/user/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GRADIO_ANALYTICS_ENABLED=False

# The packages' first lines are enough to install what they need, so editing code does not repeat this.
COPY --chown=1000:1000 pyproject.toml constraints.txt README.md LICENSE ./
COPY --chown=1000:1000 backend/__init__.py backend/
COPY --chown=1000:1000 viz/__init__.py viz/
COPY --chown=1000:1000 lab_app/__init__.py lab_app/
ARG TORCH_INDEX=
RUN python3 -m venv "$VIRTUAL_ENV" \
    && pip install --no-cache-dir --disable-pip-version-check --quiet \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt -e .

COPY --chown=1000:1000 backend/ backend/
COPY --chown=1000:1000 viz/ viz/
COPY --chown=1000:1000 lab_app/ lab_app/
COPY --chown=1000:1000 presets/ presets/
COPY --chown=1000:1000 benchmarks/results/break-even-embedded-cpu.json benchmarks/results/

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/healthz', timeout=8).read(1)"]
# SIGTERM lets runs under way finish for 20 s: `docker stop --timeout 40` leaves time for the rest.
CMD ["kvlab", "serve", "--host", "0.0.0.0", "--port", "7860", "--json-log"]
