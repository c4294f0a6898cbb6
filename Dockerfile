# The worker's image: the installed package with exactly the versions of requirements.lock, and a sandbox built ahead.

FROM python:3.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock pyproject.toml ./
RUN python -m venv /tools && /tools/bin/pip install --require-hashes -r requirements.lock
# The lock holds what development needs too. What the worker needs is a part of it, at the same versions.
RUN /tools/bin/uv pip compile pyproject.toml --constraints requirements.lock --generate-hashes \
      --no-emit-index-url --output-file runtime.lock \
    && python -m venv /app/.venv \
    && /app/.venv/bin/pip install --require-hashes -r runtime.lock
COPY . .
RUN /tools/bin/python -m build --wheel --no-isolation --outdir /wheels . \
    && /app/.venv/bin/pip install --no-deps /wheels/*.whl
WORKDIR /app
RUN FERRATA_CACHE=/app/sandbox .venv/bin/python -m cli.build_sandbox

FROM python:3.13-slim-bookworm
RUN groupadd --gid 10001 ferrata \
    && useradd --uid 10001 --gid ferrata --create-home ferrata \
    && install -d -o ferrata -g ferrata -m 0700 /data
WORKDIR /app
COPY --from=build /app/.venv .venv
COPY --from=build --chown=ferrata:ferrata /app/sandbox sandbox
COPY examples examples
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FERRATA_CACHE=/app/sandbox \
    FERRATA_STORE=/data \
    FERRATA_GRAPHS=/app
USER ferrata
# SIGTERM drains. Give it 40 s: attempts in flight get 10 s, the supervisor kills after 30 s.
STOPSIGNAL SIGTERM
CMD ["ferrata", "worker"]
